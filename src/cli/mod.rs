//! Floor 5: the command line. One file for each subcommand.
//!
//! Owns arguments, what is printed and the exit codes. Must never decide about a call: what it
//! knows of a running guard it asks the control listener.

mod card;
mod check;
mod connect;
mod console;
mod drafts;
mod guard;
mod launch;
pub mod out;
mod quickstart;
mod refused;
mod run;
mod sample;
mod schema;
mod token;

use clap::{Parser, Subcommand};

use out::{Exit, Failed, Output};

/// A guard between AI agents and HTTP APIs: reads pass, writes wait for one atomic confirm
#[derive(Debug, Parser)]
#[command(
    name = "countersign",
    version,
    after_help = "Examples:
  countersign quickstart
  countersign guard https://api.example.com
  countersign run --config countersign.yaml
  countersign drafts watch
  countersign console

Exit codes: 0 done, 1 refused or mistakes found, 2 wrong use or a file that cannot be used,
3 something that is needed cannot be reached, 4 the outcome is not known (yet)"
)]
struct Cli {
    /// Print results as JSON, one object; of `drafts watch` one object a line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Guard(guard::Args),
    Quickstart(quickstart::Args),
    Check(check::Args),
    Drafts(drafts::Args),
    Console(console::Args),
    Token(token::Args),
    Schema(schema::Args),
}

/// Parses the command line, runs it, and says how it ended. Mistakes on the command line end the
/// process with code 2.
#[must_use]
pub fn main() -> Exit {
    let cli = Cli::parse();
    let out = Output { json: cli.json };
    match perform(cli.command, out) {
        Ok(exit) => exit,
        Err(failed) => out.fail(&failed),
    }
}

fn perform(command: Command, out: Output) -> Result<Exit, Failed> {
    match command {
        Command::Run(args) => run::run(args, out),
        Command::Guard(args) => guard::run(args, out),
        Command::Quickstart(args) => quickstart::run(&args, out),
        Command::Check(args) => check::run(&args, out),
        Command::Drafts(args) => small_runtime()?.block_on(drafts::run(args, out)),
        Command::Console(args) => small_runtime()?.block_on(console::run(args, out)),
        Command::Token(args) => Ok(token::run(&args, out)),
        Command::Schema(args) => Ok(schema::run(&args, out)),
    }
}

/// A runtime for a command that only asks.
fn small_runtime() -> Result<tokio::runtime::Runtime, Failed> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Failed::new(Exit::Unreachable, format!("no runtime: {error}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory as _;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("countersign").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_explains_itself_and_takes_json() {
        for command in
            ["run", "guard", "quickstart", "check", "drafts", "drafts confirm", "console", "token new", "schema"]
        {
            let error = parse(&format!("{command} --help")).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{command}");
            let help = error.to_string();
            assert!(help.contains("--json"), "{command}");
            let top = command.split(' ').count() == 1 && command != "drafts confirm";
            assert!(!top || help.contains("Example"), "{command}: {help}");
        }
    }

    #[test]
    fn what_the_documentation_shows_parses() {
        let id = "dr_5_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for line in [
            "quickstart".to_owned(),
            "quickstart --json".to_owned(),
            "guard https://api.example.com".to_owned(),
            "guard http://127.0.0.1:8080 --listen 127.0.0.1:0 --control 127.0.0.1:0 --store a.db --keys a.keys --journal j".to_owned(),
            "run --config countersign.yaml".to_owned(),
            "run --config countersign.yaml --json".to_owned(),
            "check policies/".to_owned(),
            "check a.yaml b.yaml".to_owned(),
            "drafts list --status pending --status running --limit 5".to_owned(),
            "drafts list --all --json".to_owned(),
            format!("drafts show {id}"),
            format!("drafts confirm {id} --yes --comment fine"),
            format!("drafts confirm {id} --control http://127.0.0.1:9 --keys k"),
            format!("drafts reject {id} --reason no"),
            format!("drafts resolve {id} --outcome failed --evidence looked"),
            format!("drafts again {id}"),
            "drafts watch".to_owned(),
            "console".to_owned(),
            "console --control http://127.0.0.1:9 --keys k --json".to_owned(),
            "check policies/ --config countersign.yaml".to_owned(),
            "token new".to_owned(),
            "schema policy".to_owned(),
            "schema config".to_owned(),
        ] {
            if let Err(error) = parse(&line) {
                assert_eq!(error.to_string(), "", "{line}");
            }
        }
    }

    #[test]
    fn wrong_use_is_told_before_anything_runs() {
        for line in [
            "",
            "run",
            "guard",
            "guard ftp://api.example.com",
            "guard https://api.example.com?x=1",
            "guard https://api.example.com --listen 0.0.0.0:7070",
            "guard https://api.example.com --control 192.168.0.1:7071",
            "check",
            "drafts",
            "drafts show not-an-id",
            "drafts list --status nonsense",
            "drafts list --limit 0",
            "drafts list --all --status pending",
            "drafts reject dr_5_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "drafts resolve dr_5_01ARZ3NDEKTSV4RRFFQ69G5FAV --outcome perhaps --evidence x",
            "token",
            "schema nonsense",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
