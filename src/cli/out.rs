//! What a subcommand prints, and with which code it ends.
//!
//! Results go to standard output, everything else to standard error. Whatever somebody outside
//! wrote goes through [`visible`] first: a draft must not be able to steer a terminal.

use std::fmt::{self, Display};
use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use crate::policy::visible::spelled_json;
pub use crate::policy::visible::visible;

/// How a subcommand ends. The numbers are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Refused, failed, or mistakes were found.
    Refused = 1,
    /// The command line, the configuration or a file that it names cannot be used.
    Usage = 2,
    /// The guard, or something that it needs, cannot be reached.
    Unreachable = 3,
    /// The outcome is not known (yet).
    Unknown = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a subcommand could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The code to end with.
    pub exit: Exit,
    /// What happened, a sentence.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl Failed {
    /// A failure with a sentence.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// A failure from an error whose text may end with a `hint:` line of its own.
    pub fn told(exit: Exit, error: &impl Display) -> Self {
        let text = error.to_string();
        match text.trim_end().rsplit_once("\nhint: ") {
            Some((message, hint)) if !hint.contains('\n') => Self::new(exit, message).hint(hint),
            _ => Self::new(exit, text.trim_end()),
        }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Where a subcommand prints.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// Whether results are JSON.
    pub json: bool,
}

impl Output {
    /// A line of the result. A reader that has gone away is no error.
    pub fn line(self, text: impl Display) {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
        let _ = std::io::stdout().lock().flush();
    }

    /// The result, as one line of JSON, with what would steer a terminal or not be seen on it as
    /// escapes.
    pub fn value<T: Serialize>(self, value: &T) {
        let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.line(spelled_json(&json));
    }

    /// Something for the person, not part of the result.
    pub fn say(self, text: impl Display) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Tells why it did not work: in words to the person, with `--json` also to the program.
    pub fn fail(self, failed: &Failed) -> Exit {
        self.say(failed);
        if self.json {
            let value = serde_json::json!({"error": failed.message, "hint": failed.hint, "exit": failed.exit as u8});
            self.value(&value);
        }
        failed.exit
    }
}

/// As [`visible`], but line breaks and tabs stay, and every further line is indented.
#[must_use]
pub fn visible_block(text: &str, indent: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| visible(line).replace("\\u{9}", "\t")).collect();
    lines.join(&format!("\n{indent}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_steer_the_terminal() {
        let hostile = "a\u{1b}[2J\r\n\u{202e}b\u{200b}c\u{9b}d\u{e0041}";
        let shown = visible_block(hostile, "  ");
        assert!(!shown.contains(['\u{1b}', '\r', '\u{202e}', '\u{9b}']), "{shown}");
        for plain in ["创建待办", "naïve café", "हिन्दी", "👍 ok", "a/b?c=d&e", "x = {\"y\": 1}"] {
            assert_eq!(visible_block(plain, ""), plain);
        }
    }

    #[test]
    fn blocks_keep_their_lines() {
        assert_eq!(visible_block("a\n\tb\u{7}", "  "), "a\n  \tb\\u{7}");
    }

    #[test]
    fn failures_say_what_to_do() {
        let failed = Failed::new(Exit::Unreachable, "no guard").hint("start one");
        assert_eq!(failed.to_string(), "error: no guard\nhint: start one");
        assert_eq!(ExitCode::from(failed.exit), ExitCode::from(3));
        assert_eq!(Failed::told(Exit::Unreachable, &"no guard\nhint: start one"), failed);
    }
}
