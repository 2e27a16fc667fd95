//! What every subcommand that runs a guard shares: the log, the runtime, the ready lines, the
//! signals.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::ops::log::{self, Format};
use crate::ops::test_point;
use crate::server::{self, Plan, Running, StartError};

use super::out::{Exit, Failed, Output};

/// Sets the log up as the environment says; `quiet` keeps it to warnings.
pub(super) fn start_log(format: Format, quiet: bool) -> Result<(), Failed> {
    let levels = std::env::var(log::LEVELS_VARIABLE).ok().or_else(|| quiet.then(|| log::LEVELS_QUIET.to_owned()));
    log::install(format, levels.as_deref()).map_err(|error| Failed::told(Exit::Usage, &error))
}

/// How long threads that wait for a file or a name are waited for at the end.
const THREADS_WAIT: Duration = Duration::from_secs(1);

/// Runs a guard to its end, on as many threads as there are processors. What still waits for a file
/// then does not keep the process.
pub(super) fn block_on(guard: impl Future<Output = Result<Exit, Failed>>) -> Result<Exit, Failed> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("countersign").build();
    let runtime = built.map_err(|error| Failed::new(Exit::Unreachable, format!("no runtime: {error}")))?;
    let ended = runtime.block_on(guard);
    runtime.shutdown_timeout(THREADS_WAIT);
    ended
}

/// The test point of the environment, for debug builds.
pub(super) fn pause() -> Result<std::sync::Arc<dyn crate::guard::pause::Pause>, Failed> {
    let value = std::env::var_os(test_point::VARIABLE);
    test_point::from_value(value.as_deref()).map_err(|error| Failed::told(Exit::Usage, &error))
}

/// Starts the guard, says that it is ready, and runs it until a signal.
pub(super) async fn until_stopped(
    plan: Plan,
    out: Output,
    announce: impl FnOnce(&Running, Output),
) -> Result<Exit, Failed> {
    // Listening for signals begins before anything that would have to be undone.
    let mut signals = server::Signals::listen().map_err(|error| Failed::new(Exit::Unreachable, error.to_string()))?;
    let running = server::start(plan).await.map_err(|error| failed(&error))?;
    announce(&running, out);
    let exit = tokio::select! {
        () = signals.next() => Exit::Done,
        () = running.broken() => Exit::Unreachable,
    };
    out.say(if exit == Exit::Done { "stopping" } else { "error: a listener has ended by itself; stopping" });
    // A second signal ends the waiting.
    tokio::select! {
        () = running.stop() => {}
        () = signals.next() => {}
    }
    Ok(exit)
}

/// The ready lines: for a program one line of JSON, for a person a few words. `keys` is the file
/// with the generated approver's token.
pub(super) fn announce(running: &Running, out: Output, keys: &Path) {
    if out.json {
        out.value(&ready(running));
        return;
    }
    out.line(format!("agents   {}   (the base URL to give to an agent)", running.agent_url()));
    out.line(format!("control  {}", running.control_url()));
    if let Some(link) = running.console_link() {
        out.line(format!("console  {link}   (signs you in once, within two minutes)"));
        out.line(format!("         {}   (prints another one)", console_command(running, keys)));
    }
    out.line(format!("metrics  {}/metrics", running.control_url()));
}

/// The ready line as JSON.
pub(super) fn ready(running: &Running) -> serde_json::Value {
    json!({
        "ready": true,
        "agent": running.agent_url(),
        "control": running.control_url(),
        "console_link": running.console_link(),
        "metrics": format!("{}/metrics", running.control_url()),
        "pid": std::process::id(),
    })
}

/// Why a guard did not start, with the code that says what kind of thing is wrong.
fn failed(error: &StartError) -> Failed {
    let exit = match error {
        StartError::Keys(_)
        | StartError::KeysMissing { .. }
        | StartError::OtherKeys { .. }
        | StartError::Policies(_)
        | StartError::PublicUrl(_) => Exit::Usage,
        StartError::Journal { .. } | StartError::Store { .. } | StartError::Listen { .. } | StartError::Shell(_) => {
            Exit::Unreachable
        }
    };
    Failed::told(exit, error)
}

/// The command that confirms at this guard, from any folder.
pub(super) fn confirm_command(running: &Running, keys: &Path) -> String {
    command("drafts confirm", running, keys)
}

/// The command that prints a new link to this guard's console, from any folder.
pub(super) fn console_command(running: &Running, keys: &Path) -> String {
    command("console", running, keys)
}

fn command(what: &str, running: &Running, keys: &Path) -> String {
    let program = std::env::current_exe().map_or_else(|_| "countersign".to_owned(), |path| path.display().to_string());
    let keys = std::path::absolute(keys).unwrap_or_else(|_| keys.to_owned());
    shell_line(&program, what, &running.control_url(), &keys.display().to_string())
}

fn shell_line(program: &str, what: &str, control: &str, keys: &str) -> String {
    format!("{} {what} --control {} --keys {}", quoted(program), quoted(control), quoted(keys))
}

/// A text as one word of a POSIX shell (XCU 2.2.2): as it stands where nothing in it means anything to
/// the shell, else in single quotes.
fn quoted(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_printed_command_is_the_same_words_to_a_shell() {
        for path in [
            "/srv/guard/countersign.keys",
            "/home/a b/countersign.keys",
            "/tmp/it's; touch x/$(id)/`id`/\"q\"/\\n.keys",
            "/tmp/*/[a]/~/#/é.keys",
            "/tmp/two\nlines",
        ] {
            let line = shell_line(path, "drafts confirm", "http://127.0.0.1:1", path);
            let script = format!("set -- {line}; printf '%s\\0' \"$@\"");
            let ran = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let words = String::from_utf8(ran.stdout).unwrap();
            let expected = [path, "drafts", "confirm", "--control", "http://127.0.0.1:1", "--keys", path, ""];
            assert_eq!(words.split('\0').collect::<Vec<_>>(), expected, "{line}");
        }
    }

    #[test]
    fn a_plain_path_stands_as_it_is() {
        let line = shell_line("countersign", "console", "http://127.0.0.1:1", "/srv/a-b_c.keys");
        assert_eq!(line, "countersign console --control http://127.0.0.1:1 --keys /srv/a-b_c.keys");
    }
}
