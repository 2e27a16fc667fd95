//! `countersign run`: a guard as a configuration file describes it.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::ops::config::{self, ConfigError, Overrides};
use crate::ops::reload::Source;
use crate::server::Plan;

use super::launch;
use super::out::{Exit, Failed, Output};

/// Runs a guard as a configuration file describes it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  countersign run --config countersign.yaml
  countersign run --config /etc/countersign/countersign.yaml --listen 127.0.0.1:0 --json

With --json one line tells that the guard is ready and where it listens:
  {\"ready\":true,\"agent\":\"http://…\",\"control\":\"http://…\",\"console_link\":null, …}
SIGHUP reads the policy files again; they are also read when they change. SIGTERM and SIGINT stop
the guard: it takes no more calls, ends the releases in flight, and closes its store.

Exit codes: 0 stopped by a signal, 2 a file or a variable cannot be used, 3 the store, the journal
or an address is not to be had")]
pub(super) struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where agents connect, in place of guard.listen
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where approvers connect, in place of control.listen
    #[arg(long, alias = "control-listen", value_name = "ADDRESS")]
    control: Option<SocketAddr>,
}

/// Runs the subcommand.
pub(super) fn run(args: Args, out: Output) -> Result<Exit, Failed> {
    let overrides = Overrides { listen: args.listen, control: args.control };
    let loaded = config::load(&args.config, overrides).map_err(|error| unusable(&error))?;
    for warning in &loaded.warnings {
        out.say(warning);
    }
    let config = loaded.config;
    launch::start_log(config.log, false)?;
    let pause = launch::pause()?;
    let policies = Source::Folder(config.policies.clone());
    let keys = config.keys_file.clone();
    let plan = Plan { config, policies, pause };
    launch::block_on(launch::until_stopped(plan, out, |running, out| launch::announce(running, out, &keys)))
}

fn unusable(error: &ConfigError) -> Failed {
    match error {
        ConfigError::Unreadable { .. } => Failed::new(Exit::Usage, error.to_string())
            .hint("docs/operators.md shows a whole configuration; `countersign guard URL` needs no file"),
        ConfigError::Mistakes(_) => {
            Failed::new(Exit::Usage, format!("the configuration cannot be used\n{}", error.to_string().trim_end()))
        }
    }
}
