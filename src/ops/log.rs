//! Where log lines go: one subscriber for the whole process, text or JSON, on standard error.
//!
//! Owns the format and the levels. Must never take text that an agent wrote as a message: it is
//! a bounded field (see [`Bounded`]).

use std::fmt;
use std::io::IsTerminal as _;

use tracing::{Level, Metadata};
use tracing_log::LogTracer;
use tracing_log::log::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::base::time::{Clock as _, SystemClock};

/// The variable that sets the levels, in the syntax of `tracing_subscriber::EnvFilter`:
/// `debug`, or `info,countersign::guard=debug`.
pub const LEVELS_VARIABLE: &str = "COUNTERSIGN_LOG";

/// What is logged unless [`LEVELS_VARIABLE`] says otherwise.
const LEVELS_DEFAULT: &str = "info";

/// What is logged where a person reads something else on the same terminal.
pub const LEVELS_QUIET: &str = "error,countersign=warn";

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The log could not be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The levels cannot be read.
    #[error(
        "{LEVELS_VARIABLE} cannot be read: {0}\nhint: a level (error, warn, info, debug, trace), or target=level pairs with commas"
    )]
    Levels(String),
    /// A subscriber is set already.
    #[error("the log is set up already")]
    Twice,
}

struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        write!(w, "{}", SystemClock.now())
    }
}

/// Installs the subscriber and the bridge from the `log` crate. `levels` is the value of
/// [`LEVELS_VARIABLE`], where it is set.
///
/// # Errors
///
/// [`LogError`]; nothing is installed if the levels cannot be read.
pub fn install(format: Format, levels: Option<&str>) -> Result<(), LogError> {
    let filter = filter(levels)?;
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt::layer().with_timer(Utc).with_writer(std::io::stderr).with_ansi(color);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let all = tracing_subscriber::registry().with(filter).with(lines.with_filter(filter_fn(may_be_logged)));
    tracing::subscriber::set_global_default(all).map_err(|_| LogError::Twice)?;
    // Every line of these libraries is at least a warning (see above), so nothing else is made.
    LogTracer::builder().with_max_level(LevelFilter::Warn).init().map_err(|_| LogError::Twice)
}

/// Libraries log what passes through them: heads, with tokens and cookies in them. Whatever the
/// levels say, only their warnings are taken, and of the proxy core, which counts every client
/// that breaks off, only errors (promise 10).
fn may_be_logged(about: &Metadata<'_>) -> bool {
    let target = about.target();
    if target == "countersign" || target.starts_with("countersign::") {
        return true;
    }
    *about.level() <= if target.starts_with("pingora") { Level::ERROR } else { Level::WARN }
}

fn filter(levels: Option<&str>) -> Result<EnvFilter, LogError> {
    match levels.map(str::trim) {
        None | Some("") => Ok(EnvFilter::new(LEVELS_DEFAULT)),
        Some(levels) => EnvFilter::try_new(levels).map_err(|error| LogError::Levels(error.to_string())),
    }
}

/// A text that somebody outside wrote, made fit for a log field: at most 120 characters, control
/// and invisible characters escaped, so that it can neither forge a line nor fill a disk.
#[derive(Debug, Clone, Copy)]
pub struct Bounded<'a>(pub &'a str);

/// How much of an outside text a log field takes, in characters.
const FIELD_CHARS_MAX: usize = 120;

impl fmt::Display for Bounded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars().take(FIELD_CHARS_MAX) {
            match c {
                '"' | '\'' => fmt::Write::write_char(f, c)?,
                // `escape_debug` escapes whatever Unicode calls control, format or unassigned.
                c => fmt::Display::fmt(&c.escape_debug(), f)?,
            }
        }
        if self.0.chars().nth(FIELD_CHARS_MAX).is_some() {
            f.write_str("…")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn levels_are_read_or_refused() {
        assert!(filter(None).is_ok());
        assert!(filter(Some("")).is_ok());
        assert!(filter(Some("info,countersign::guard=debug")).is_ok());
        assert!(matches!(filter(Some("countersign=louder")), Err(LogError::Levels(_))));
    }

    #[test]
    fn p10_what_libraries_log_of_heads_and_bodies_is_never_taken() {
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Kept {
            fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(line);
                Ok(line.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let to = kept.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || to.clone());
        let all = tracing_subscriber::registry()
            .with(filter(Some("trace")).unwrap())
            .with(lines.with_filter(filter_fn(may_be_logged)));
        tracing::subscriber::with_default(all, || {
            tracing::debug!(target: "hyper::proto", "Authorization: secret");
            tracing::info!(target: "hyper", "Authorization: secret");
            tracing::warn!(target: "pingora_proxy", "Authorization: secret");
            tracing::warn!(target: "other::countersign_like", "taken: a warning");
            tracing::trace!(target: "countersign::guard", "taken: our own");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(text.matches("taken").count(), 2, "{text}");
    }

    #[test]
    fn outside_text_cannot_forge_a_line() {
        let hostile = format!("a\n2026-01-01 ERROR fake\u{1b}[31m\u{202e}{}", "x".repeat(10_000));
        let text = Bounded(&hostile).to_string();
        assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text}");
        assert!(text.chars().count() < 200, "{}", text.chars().count());
        assert_eq!(Bounded("a'b \"c\"").to_string(), "a'b \"c\"");
    }
}
