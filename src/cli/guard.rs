//! `countersign guard URL`: a guard for one API on this machine, without any file.

use std::net::SocketAddr;
use std::path::PathBuf;

use http::Uri;

use crate::ops::config::{Config, Machine, StorePlace};
use crate::ops::reload::Source;
use crate::server::Plan;

use super::launch;
use super::out::{Exit, Failed, Output};

/// The policy of a guard without policy files: reads pass, every other call is held.
const POLICY: &str = "version: 1
service: upstream
upstream:
  url: ${env:COUNTERSIGN_GUARDED_URL}
route: {path_prefix: /}
unmatched: {read: pass, write: hold}
";

/// Guards one API without any file: reads pass, every other call is held
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  countersign guard https://api.example.com
  countersign guard http://127.0.0.1:8080 --listen 127.0.0.1:9090

Safe methods pass. Every other call waits with a generic card that shows its method, target and
args. Everybody on this machine is the agent, so it listens on loopback addresses only. The store
(countersign.db), the keys (countersign.keys) and the journal (journal/) are kept in the current
folder, so drafts outlive a restart. For several APIs, agents or approvers use `countersign run`.

Exit codes: as `countersign run`")]
pub(super) struct Args {
    /// The API's base URL
    #[arg(value_parser = base_url)]
    url: String,
    /// Where agents connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070", value_parser = loopback)]
    listen: SocketAddr,
    /// Where you decide
    #[arg(long, alias = "control-listen", value_name = "ADDRESS", default_value = "127.0.0.1:7071", value_parser = loopback)]
    control: SocketAddr,
    /// The store's file
    #[arg(long, value_name = "FILE", default_value = "countersign.db")]
    store: PathBuf,
    /// The keys file; it is made on the first run
    #[arg(long, value_name = "FILE", default_value = "countersign.keys")]
    keys: PathBuf,
    /// The journal's folder
    #[arg(long, value_name = "FOLDER", default_value = "journal")]
    journal: PathBuf,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "an IP address and a port: 127.0.0.1:7070".to_owned())?;
    if !address.ip().is_loopback() {
        return Err(
            "a guard without a configuration listens on loopback addresses only; use `countersign run`".to_owned()
        );
    }
    Ok(address)
}

fn base_url(text: &str) -> Result<String, String> {
    let wrong = || "an http or https URL without query: https://api.example.com".to_owned();
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let authority = uri.authority().ok_or_else(wrong)?.as_str();
    let plain = !authority.contains('@') && uri.query().is_none() && !text.contains('#') && !text.contains("${");
    if !matches!(uri.scheme_str(), Some("http" | "https")) || !plain {
        return Err(wrong());
    }
    Ok(text.to_owned())
}

/// Runs the subcommand.
pub(super) fn run(args: Args, out: Output) -> Result<Exit, Failed> {
    let mut config = Config::in_folder(&PathBuf::from("."));
    config.guard.listen = args.listen;
    config.control.listen = args.control;
    config.store.place = StorePlace::Sqlite(args.store);
    config.keys_file = args.keys;
    config.journal.path = args.journal;
    launch::start_log(config.log, false)?;
    let pause = launch::pause()?;
    let keys = config.keys_file.clone();
    let plan = Plan { config, policies: policy(&args.url), pause };
    let url = args.url;
    launch::block_on(launch::until_stopped(plan, out, |running, out| {
        if !out.json {
            out.line(format!("guards   {url}: reads pass, every other call waits for you"));
        }
        launch::announce(running, out, &keys);
        if !out.json {
            out.line(format!("decide   {}   or in the console", launch::confirm_command(running, &keys)));
        }
    }))
}

fn policy(url: &str) -> Source {
    Source::Fixed {
        name: "guard".to_owned(),
        text: POLICY.to_owned(),
        machine: Machine::at(PathBuf::from(".")).with("COUNTERSIGN_GUARDED_URL", url),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_policy_holds_every_write_of_any_url() {
        for url in ["https://api.example.com", "http://127.0.0.1:8080/v1", "http://[::1]:8080"] {
            let read =
                policy(base_url(url).unwrap().as_str()).read(&crate::policy::roles::Roles::Only(vec![])).unwrap();
            let service = &read.set.services[0];
            assert!(service.unmatched.write_held && service.unmatched.read_passes, "{url}");
            assert!(service.tools.is_empty());
        }
    }

    #[test]
    fn urls_that_say_more_than_a_base_are_refused() {
        for bad in
            ["api.example.com", "ftp://x", "https://u:p@x", "https://x?y=1", "https://x#y", "https://${env:HOME}"]
        {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }
}
