//! `countersign quickstart`: a sample service, a guard in front of it, and what to type next.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde_json::json;

use crate::agent::identity::{IdentityRules, Source as IdentitySource};
use crate::base::chance::{Chance as _, OsChance};
use crate::ops::config::{Config, Machine};
use crate::ops::log::Format;
use crate::ops::reload::Source;
use crate::server::{Plan, Running};

use super::launch;
use super::out::{Exit, Failed, Output};
use super::sample::Sample;

/// The example policy, as it stands in the repository.
const POLICY: &str = include_str!("../../policies/lightnote.yaml");
/// The role that the example policy asks for.
const ROLE: &str = "user";

/// Starts a sample to-do service with a guard in front of it, and says what to try
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  countersign quickstart
  countersign quickstart --json

Everything runs on this machine and lives in a temporary folder, which is removed at Ctrl-C.

Exit codes: as `countersign run`")]
pub(super) struct Args {}

/// Runs the subcommand.
pub(super) fn run(_args: &Args, out: Output) -> Result<Exit, Failed> {
    launch::start_log(Format::Text, true)?;
    let folder =
        Folder::make().map_err(|error| Failed::new(Exit::Unreachable, format!("no temporary folder: {error}")))?;
    let pause = launch::pause()?;
    launch::block_on(async {
        let sample = Sample::start()
            .await
            .map_err(|error| Failed::new(Exit::Unreachable, format!("the sample service cannot start: {error}")))?;
        let plan = Plan { config: config(&folder.0), policies: policy(sample.address), pause };
        let keys = folder.0.join("countersign.keys");
        let ended = launch::until_stopped(plan, out, |running, out| {
            if out.json { out.value(&ready(running, &sample, &keys)) } else { out.line(guide(running, &sample, &keys)) }
        })
        .await;
        sample.stop();
        ended
    })
}

fn config(folder: &Path) -> Config {
    let mut config = Config::in_folder(folder);
    config.guard.listen = free_or_any(config.guard.listen);
    config.control.listen = free_or_any(config.control.listen);
    config.identity =
        Some(IdentityRules { role: Some(IdentitySource::Const(ROLE.to_owned())), ..IdentityRules::local() });
    config
}

/// The usual port where it is free, otherwise any.
fn free_or_any(usual: SocketAddr) -> SocketAddr {
    match TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::new(usual.ip(), 0),
    }
}

fn policy(sample: SocketAddr) -> Source {
    Source::Fixed {
        name: "policies/lightnote.yaml".to_owned(),
        text: POLICY.to_owned(),
        machine: Machine::at(PathBuf::from("policies")).with("LIGHTNOTE_URL", format!("http://{sample}")),
    }
}

fn curl_read(agent: &str) -> String {
    format!("curl -i {agent}/todos")
}

fn curl_write(agent: &str) -> String {
    format!(
        r#"curl -i {agent}/todos -H 'Content-Type: application/json' -d '{{"title":"Buy milk","priority":"high"}}'"#
    )
}

fn ready(running: &Running, sample: &Sample, keys: &Path) -> serde_json::Value {
    let mut line = launch::ready(running);
    let agent = running.agent_url();
    line["sample"] = json!(format!("http://{}", sample.address));
    line["curl"] = json!([curl_read(&agent), curl_write(&agent), curl_write(&agent)]);
    line["confirm"] = json!(launch::confirm_command(running, keys));
    line["keys"] = json!(keys);
    line
}

fn guide(running: &Running, sample: &Sample, keys: &Path) -> String {
    let agent = running.agent_url();
    let control = running.control_url();
    let (read, write, confirm) = (curl_read(&agent), curl_write(&agent), launch::confirm_command(running, keys));
    let console = launch::console_command(running, keys);
    let link = running.console_link().unwrap_or(&control);
    let folder = keys.parent().unwrap_or(keys).display();
    format!(
        "A sample to-do service runs at http://{sample}, and a guard in front of it at {agent}.

A read passes:
  {read}

A write is held: 202, and nothing has reached the service:
  {write}

The same write again joins the same draft:
  {write}

Decide in the console (the link signs you in once, within two minutes; the second line prints another):
  {link}
  {console}
or here, in another terminal:
  {confirm}
Then repeat the read, or the write: it answers with the stored result, and is not sent again.

Metrics: {control}/metrics
Ctrl-C stops all of it and removes {folder}.",
        sample = sample.address
    )
}

/// A folder of our own that goes away with the process.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Self> {
        let name = format!("countersign-quickstart-{}", HEXLOWER.encode(&OsChance.bytes16()[..6]));
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing of it is worth keeping, and nobody is left to be told.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_example_policy_is_right_and_guards_the_sample() {
        let address = SocketAddr::from(([127, 0, 0, 1], 4242));
        let read = policy(address).read(&crate::policy::roles::Roles::Only(vec![ROLE.to_owned()])).unwrap();
        assert_eq!(read.set.services.len(), 1);
        assert_eq!(read.set.services[0].upstream.port, 4242);
        let create = read.set.services[0].tools.iter().find(|tool| tool.name.as_str() == "create_todo").unwrap();
        assert!(create.roles.as_ref().is_none_or(|roles| roles.iter().any(|role| role == ROLE)));
    }

    #[test]
    fn the_folder_is_private_and_goes_away() {
        let folder = Folder::make().unwrap();
        let path = folder.0.clone();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("x"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
