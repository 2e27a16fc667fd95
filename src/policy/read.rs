//! Reads single values out of the tree: text, choices, durations, sizes, names, lists.
//!
//! Owns the collection of mistakes of one file and the substitutions `${env:…}` and `${file:…}`.
//! Must never put a substituted value into a message, and never stop at a mistake: every reader
//! answers `None` and goes on.

use std::cell::RefCell;
use std::time::Duration;

use http::HeaderName;
use serde_json::Value;

use super::diagnostic::{Diagnostic, Severity, excerpt, nearest};
use super::keys::Keys;
use super::yaml::{Entry, Kind, Node, Place, Scalar, Typed};

/// Longest value that a substitution may give, in bytes.
const SUBSTITUTED_BYTES_MAX: usize = 64 << 10;

/// Where `${env:…}` and `${file:…}` get their values from.
pub trait Substitutions {
    /// The value of an environment variable.
    ///
    /// # Errors
    ///
    /// Why there is none, as the rest of "the environment variable `NAME` …".
    fn env(&self, name: &str) -> Result<String, String>;

    /// The content of a file; a line break at its end is not part of the value.
    ///
    /// # Errors
    ///
    /// Why there is none, as the rest of "the file `PATH` …".
    fn file(&self, path: &str) -> Result<String, String>;
}

/// One policy file while it is read.
pub(crate) struct File<'a> {
    pub(crate) name: &'a str,
    text: &'a str,
    substitutions: &'a dyn Substitutions,
    found: RefCell<Vec<Found>>,
    secrets: RefCell<Vec<String>>,
}

struct Found {
    place: Place,
    severity: Severity,
    message: String,
    hint: Option<String>,
}

/// A text value; whether it came by a substitution decides where it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) value: String,
    pub(crate) substituted: bool,
}

impl<'a> File<'a> {
    pub(crate) fn new(name: &'a str, text: &'a str, substitutions: &'a dyn Substitutions) -> Self {
        Self { name, text, substitutions, found: RefCell::default(), secrets: RefCell::default() }
    }

    pub(crate) fn error(&self, place: Place, message: impl Into<String>) {
        self.found(place, Severity::Error, message.into(), None);
    }

    pub(crate) fn error_with(&self, place: Place, message: impl Into<String>, hint: impl Into<String>) {
        self.found(place, Severity::Error, message.into(), Some(hint.into()));
    }

    pub(crate) fn warn(&self, place: Place, message: impl Into<String>, hint: impl Into<String>) {
        self.found(place, Severity::Warning, message.into(), Some(hint.into()));
    }

    pub(crate) fn found(&self, place: Place, severity: Severity, message: String, hint: Option<String>) {
        self.found.borrow_mut().push(Found { place, severity, message, hint });
    }

    /// `text` must not stand in any excerpt.
    pub(crate) fn keep_secret(&self, text: &str) {
        self.secrets.borrow_mut().push(text.to_owned());
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.borrow().iter().any(|found| found.severity == Severity::Error)
    }

    /// Everything found, with excerpts.
    pub(crate) fn diagnostics(&self) -> Vec<Diagnostic> {
        let secrets = self.secrets.borrow();
        let render = |found: &Found| Diagnostic {
            file: self.name.to_owned(),
            line: found.place.line,
            column: found.place.column,
            severity: found.severity,
            message: found.message.clone(),
            hint: found.hint.clone(),
            excerpt: excerpt(self.text, found.place, &secrets),
        };
        self.found.borrow().iter().map(render).collect()
    }

    fn scalar<'n>(&self, node: &'n Node, what: &str, wants: &str) -> Option<&'n Scalar> {
        match &node.kind {
            Kind::Scalar(scalar) => Some(scalar),
            Kind::Refused => None,
            Kind::List(_) => self.wrong(node, what, wants, "a list"),
            Kind::Map(_) => self.wrong(node, what, wants, "a mapping"),
        }
    }

    fn wrong<T>(&self, node: &Node, what: &str, wants: &str, is: &str) -> Option<T> {
        self.error(node.place, format!("{what} must be {wants}, and this is {is}"));
        None
    }

    /// A text as it stands, for names and templates: a substitution in it is a mistake.
    pub(crate) fn literal<'n>(&self, node: &'n Node, what: &str) -> Option<&'n str> {
        let text = self.raw_text(node, what)?;
        if text.contains("${") {
            let hint = "names and templates are written out, so that they read the same for everybody";
            self.error_with(node.place, format!("{what} cannot come from `${{…}}`"), hint);
            return None;
        }
        Some(text)
    }

    fn raw_text<'n>(&self, node: &'n Node, what: &str) -> Option<&'n str> {
        let scalar = self.scalar(node, what, "a text")?;
        let is = match scalar.typed() {
            Typed::Text("") => "empty",
            Typed::Text(text) => return Some(text),
            Typed::Null => "empty",
            Typed::Bool(_) => "a truth value",
            Typed::Number(_) => "a number",
        };
        let hint = if is == "empty" { "write a value behind the colon" } else { "put it into quotes" };
        self.error_with(node.place, format!("{what} must be a text, and this is {is}"), hint);
        None
    }

    /// A text in which `${env:NAME}` and `${file:PATH}` are replaced; `$${` is a plain `${`.
    pub(crate) fn text(&self, node: &Node, what: &str) -> Option<Text> {
        let raw = self.raw_text(node, what)?;
        let (mut value, mut rest, mut substituted) = (String::new(), raw, false);
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                value.push_str(&rest[..at - 1]);
                value.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            value.push_str(&rest[..at]);
            let Some(end) = rest[at..].find('}') else {
                self.error(node.place, "a `${` without its `}`");
                return None;
            };
            value.push_str(&self.substitute(node.place, &rest[at + 2..at + end])?);
            substituted = true;
            rest = &rest[at + end + 1..];
        }
        value.push_str(rest);
        if value.is_empty() {
            self.error(node.place, format!("{what} is empty after its substitution"));
            return None;
        }
        Some(Text { value, substituted })
    }

    fn substitute(&self, place: Place, inner: &str) -> Option<String> {
        let (source, name, got) = match inner.split_once(':') {
            Some(("env", name)) => ("environment variable", name, self.substitutions.env(name)),
            Some(("file", path)) => ("file", path, self.substitutions.file(path)),
            _ => {
                let meant = inner.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !inner.is_empty();
                let hint = if meant {
                    format!("write `${{env:{inner}}}` for the environment variable; `$${{` is a plain `${{`")
                } else {
                    "there are `${env:NAME}` and `${file:PATH}`; `$${` is a plain `${`".to_owned()
                };
                self.error_with(place, "a substitution that does not exist", hint);
                return None;
            }
        };
        match got {
            Ok(value) if value.len() > SUBSTITUTED_BYTES_MAX => {
                let most = SUBSTITUTED_BYTES_MAX;
                self.error(place, format!("the {source} `{name}` has more than {most} bytes"));
                None
            }
            Ok(value) if source == "file" => {
                Some(value.strip_suffix('\n').map_or(value.as_str(), |v| v.strip_suffix('\r').unwrap_or(v)).to_owned())
            }
            Ok(value) => Some(value),
            Err(why) => {
                let hint = match source {
                    "file" => "a relative path is relative to the folder of the policies, or of the configuration",
                    _ => "set it for the process that reads this file: `export NAME=…` before the command",
                };
                self.error_with(place, format!("the {source} `{name}` {why}"), hint.replace("NAME", name));
                None
            }
        }
    }

    pub(crate) fn boolean(&self, node: &Node, what: &str) -> Option<bool> {
        let scalar = self.scalar(node, what, "`true` or `false`")?;
        if let Typed::Bool(value) = scalar.typed() {
            return Some(value);
        }
        self.error(node.place, format!("{what} must be `true` or `false`"));
        None
    }

    pub(crate) fn list<'n>(&self, node: &'n Node, what: &str) -> Option<&'n [Node]> {
        match &node.kind {
            Kind::List(items) => Some(items),
            Kind::Refused => None,
            Kind::Map(_) => self.wrong(node, what, "a list", "a mapping"),
            Kind::Scalar(_) => {
                self.error_with(node.place, format!("{what} must be a list"), "write it in brackets: [ … ]");
                None
            }
        }
    }

    /// A list, or one value in its place.
    pub(crate) fn one_or_many<'n>(&self, node: &'n Node) -> Vec<&'n Node> {
        match &node.kind {
            Kind::List(items) => items.iter().collect(),
            _ => vec![node],
        }
    }

    pub(crate) fn map<'n>(&self, node: &'n Node, what: &str) -> Option<&'n [Entry]> {
        match &node.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Refused => None,
            Kind::List(_) => self.wrong(node, what, "a mapping of keys to values", "a list"),
            Kind::Scalar(_) => self.wrong(node, what, "a mapping of keys to values", "a single value"),
        }
    }

    /// One of the words of `choices`; words of `later` belong to the format, not to this version.
    pub(crate) fn choice<T: Copy>(
        &self,
        node: &Node,
        what: &str,
        choices: &[(&'static str, T)],
        later: &[&str],
    ) -> Option<T> {
        let words = choices.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let scalar = self.scalar(node, what, &format!("one of {words}"))?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == scalar.text) {
            return Some(*value);
        }
        if later.contains(&scalar.text.as_str()) {
            self.later(node.place, &format!("{what} `{}`", scalar.text));
            return None;
        }
        let hint = nearest(&scalar.text, choices.iter().map(|(word, _)| *word)).map(|w| format!("did you mean `{w}`?"));
        self.found(node.place, Severity::Error, format!("{what} must be one of {words}"), hint);
        None
    }

    pub(crate) fn later(&self, place: Place, what: &str) {
        let hint = "take it out; a rule that is not carried out must not look as if it were";
        self.error_with(place, format!("this version does not have {what}"), hint);
    }

    /// `500ms`, `2s`, `5m`, `1h`, `7d`, or `0`, within the bounds.
    pub(crate) fn duration(&self, node: &Node, what: &str, least: &str, most: &str) -> Option<Duration> {
        let scalar = self.scalar(node, what, "a duration")?;
        let text = match scalar.typed() {
            Typed::Number(_) => scalar.text.clone(),
            _ => self.text(node, what)?.value,
        };
        let Some(value) = parse_duration(&text) else {
            let hint = "write a whole number and a unit: ms, s, m, h or d";
            self.error_with(node.place, format!("{what} is not a duration"), hint);
            return None;
        };
        let bounds = parse_duration(least)..=parse_duration(most);
        if !bounds.contains(&Some(value)) {
            self.error(node.place, format!("{what} must be between {least} and {most}"));
            return None;
        }
        Some(value)
    }

    /// `1MiB`, `64KiB`, `512B` or a number of bytes, from 1 byte to `most`.
    pub(crate) fn bytes(&self, node: &Node, what: &str, most: &str) -> Option<usize> {
        let scalar = self.scalar(node, what, "a size")?;
        let text = match scalar.typed() {
            Typed::Number(_) => scalar.text.clone(),
            _ => self.text(node, what)?.value,
        };
        let Some(value) = parse_bytes(&text) else {
            let hint = "write a whole number and a unit: B, KiB or MiB";
            self.error_with(node.place, format!("{what} is not a size"), hint);
            return None;
        };
        if value == 0 || Some(value) > parse_bytes(most) {
            self.error(node.place, format!("{what} must be between 1B and {most}"));
            return None;
        }
        Some(value)
    }

    pub(crate) fn header_name(&self, node: &Node, what: &str) -> Option<HeaderName> {
        let text = self.literal(node, what)?;
        self.header_name_of(node.place, text, what)
    }

    pub(crate) fn header_name_of(&self, place: Place, text: &str, what: &str) -> Option<HeaderName> {
        match HeaderName::from_bytes(text.as_bytes()) {
            Ok(name) => Some(name),
            Err(_) => {
                self.error(place, format!("{what} is not the name of a header"));
                None
            }
        }
    }

    /// The value as JSON, as it stands.
    pub(crate) fn json(&self, node: &Node) -> Value {
        match &node.kind {
            Kind::Refused => Value::Null,
            Kind::List(items) => items.iter().map(|item| self.json(item)).collect(),
            Kind::Map(entries) => entries.iter().map(|e| (e.key.clone(), self.json(&e.value))).collect(),
            Kind::Scalar(scalar) => scalar_json(scalar),
        }
    }
}

/// A scalar as JSON, as it stands.
pub(crate) fn scalar_json(scalar: &Scalar) -> Value {
    match scalar.typed() {
        Typed::Null => Value::Null,
        Typed::Bool(value) => Value::Bool(value),
        Typed::Number(number) => Value::Number(number),
        Typed::Text(text) => Value::String(text.to_owned()),
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let count: u64 = text[..unit_at].parse().ok()?;
    let unit_ms: u64 = match &text[unit_at..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" if count == 0 => 1,
        _ => return None,
    };
    count.checked_mul(unit_ms).map(Duration::from_millis)
}

fn parse_bytes(text: &str) -> Option<usize> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let count: usize = text[..unit_at].parse().ok()?;
    let unit: usize = match &text[unit_at..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    count.checked_mul(unit)
}

/// A mapping whose keys were checked against the list of those that exist.
pub(crate) struct Fields<'n> {
    pub(crate) place: Place,
    entries: &'n [Entry],
    /// Keys that a misspelt key was probably meant to be; they are not reported as missing too.
    meant: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Opens `node`, reporting keys that do not exist and keys that this version does not have.
    pub(crate) fn open(file: &File<'_>, node: &'n Node, keys: &Keys) -> Option<Self> {
        let entries = file.map(node, keys.what)?;
        let mut meant = Vec::new();
        for entry in entries {
            let key = entry.key.as_str();
            if keys.known.contains(&key) {
                continue;
            }
            if keys.later.contains(&key) {
                file.later(entry.place, &format!("`{key}`"));
                continue;
            }
            let near = nearest(key, keys.known.iter().copied());
            meant.extend(near);
            let hint = near.map_or_else(
                || format!("{} has: {}", keys.what, keys.known.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            file.error_with(entry.place, format!("{} has no key `{key}`", keys.what), hint);
        }
        Some(Self { place: node.place, entries, meant })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    pub(crate) fn key_place(&self, key: &str) -> Place {
        self.entries.iter().find(|entry| entry.key == key).map_or(self.place, |entry| entry.place)
    }

    /// The value of a key that must be there.
    pub(crate) fn require(&self, file: &File<'_>, keys: &Keys, key: &str) -> Option<&'n Node> {
        let found = self.get(key);
        if found.is_none() && !self.meant.contains(&key) {
            let message = format!("{} needs the key `{key}`", keys.what);
            file.found(self.place, Severity::Error, message, keys.hint(key).map(str::to_owned));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_whole_numbers_with_known_units() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("7d"), Some(Duration::from_secs(604_800)));
        assert_eq!(parse_duration("0"), Some(Duration::ZERO));
        for bad in ["", "5", "5 m", "1.5s", "-1s", "5M", "5min", "99999999999999999999s", "18446744073709551615d"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(parse_bytes("16MiB"), Some(16 << 20));
        for bad in ["", "MiB", "1MB", "1 KiB", "1.5MiB", "-1", "99999999999999999999B"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
