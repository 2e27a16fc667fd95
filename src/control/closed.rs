//! Closed bodies: what is not asked for is refused.
//!
//! Owns the reading of small JSON objects from approvers and apps. A member that the call does not
//! know is a mistake and not a wish: it could be a typo of the one that would have changed the
//! decision. All mistakes are told at once.

use std::time::Duration;

use http::{HeaderMap, header};
use serde_json::{Map, Value};

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::refusal::FieldError;
use crate::call::json;
use crate::guard::problem::Problem;

use super::reply;

pub(super) use crate::draft::decision::WORDS_CHARS_MAX;
pub(super) use crate::draft::outcome::EVIDENCE_TEXT_CHARS_MAX as EVIDENCE_CHARS_MAX;

/// Longest confirmation token, in characters.
pub(super) const TOKEN_CHARS_MAX: usize = 512;

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Closed {
    members: Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Closed {
    /// Reads the object. No body without a `Content-Type` is `{}`.
    ///
    /// # Errors
    ///
    /// `MEDIA_TYPE_UNSUPPORTED`, `BODY_MALFORMED` (also for duplicate keys), `REQUEST_INVALID`.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Problem> {
        if body.is_empty() && !headers.contains_key(header::CONTENT_TYPE) {
            return Ok(Self { members: Map::new(), errors: Vec::new() });
        }
        if !is_json(headers) {
            let detail = "This call takes JSON in UTF-8, without a content coding. Nothing was changed; send it with \
                          Content-Type: application/json.";
            return Err(Problem::new(Code::MediaTypeUnsupported, detail));
        }
        let parsed = json::parse(body).map_err(|error| {
            Problem::new(Code::BodyMalformed, format!("The body cannot be read as JSON: {error}. Nothing was changed."))
        })?;
        match parsed.value {
            Value::Object(members) => Ok(Self { members, errors: Vec::new() }),
            _ => Err(reply::invalid("", "the body has to be a JSON object")),
        }
    }

    /// A text that may be left out.
    pub(super) fn text(&mut self, name: &'static str, chars_max: usize) -> Option<String> {
        let text = match self.members.remove(name)? {
            Value::String(text) => text,
            _ => return self.wrong(name, "has to be a string"),
        };
        match words(&text, chars_max) {
            Ok(()) => Some(text),
            Err(why) => self.wrong(name, why),
        }
    }

    /// A text that has to be there.
    pub(super) fn required_text(&mut self, name: &'static str, chars_max: usize) -> String {
        if !self.members.contains_key(name) {
            return self.wrong(name, "is missing").unwrap_or_default();
        }
        self.text(name, chars_max).unwrap_or_default()
    }

    /// An object that may be left out; what is in it is for others to read.
    pub(super) fn object(&mut self, name: &'static str) {
        if self.members.remove(name).is_some_and(|value| !value.is_object()) {
            self.wrong::<()>(name, "has to be an object");
        }
    }

    /// A whole number of seconds, at least one, that may be left out.
    pub(super) fn seconds(&mut self, name: &'static str) -> Option<Duration> {
        match self.members.remove(name)?.as_u64() {
            Some(count) if count > 0 => Some(Duration::from_secs(count)),
            _ => self.wrong(name, "has to be a whole number of seconds, at least 1"),
        }
    }

    /// A digest that may be left out.
    pub(super) fn digest(&mut self, name: &'static str) -> Option<Digest> {
        match self.members.remove(name)?.as_str().map(str::parse) {
            Some(Ok(digest)) => Some(digest),
            _ => self.wrong(name, "has to be 64 lower-case hex digits"),
        }
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        let found = self.members.remove(name);
        let known = found.as_ref().and_then(Value::as_str);
        let hit = words.iter().find(|(word, _)| Some(*word) == known).map(|(_, value)| *value);
        let list = words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(" or ");
        hit.or_else(|| self.wrong(name, format!("has to be {list}")))
    }

    /// Whatever is left over is a mistake.
    ///
    /// # Errors
    ///
    /// `REQUEST_INVALID` with every mistake.
    pub(super) fn finish(mut self) -> Result<(), Problem> {
        for name in std::mem::take(&mut self.members).keys() {
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            self.errors.push(FieldError { pointer, reason: "is not a member of this call".to_owned() });
        }
        if self.errors.is_empty() { Ok(()) } else { Err(reply::invalid_all(self.errors)) }
    }

    fn wrong<T>(&mut self, name: &str, reason: impl Into<String>) -> Option<T> {
        self.errors.push(FieldError { pointer: format!("/{name}"), reason: reason.into() });
        None
    }
}

/// Whether a person's words are bounded text: not empty, and no control characters but line
/// breaks and tabs.
pub(super) fn words(text: &str, chars_max: usize) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if text.chars().count() > chars_max {
        return Err(format!("is longer than {chars_max} characters"));
    }
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err("has control characters".to_owned());
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else { return false };
    let Ok(text) = first.to_str() else { return false };
    let mut parts = text.split(';').map(str::trim);
    let json = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"));
    let utf8 = parts.all(|param| match param.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
            value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    json && utf8 && !headers.contains_key(header::CONTENT_ENCODING)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn typed(media: &str) -> HeaderMap {
        let mut map = HeaderMap::new();
        map.insert(header::CONTENT_TYPE, media.parse().unwrap());
        map
    }

    #[test]
    fn only_json_in_utf8_is_taken() {
        for good in ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\""] {
            assert!(Closed::read(&typed(good), b"{}").is_ok(), "{good}");
        }
        for bad in ["text/plain", "application/jsonx", "application/json; charset=latin1", "multipart/form-data", ""] {
            let problem = Closed::read(&typed(bad), b"{}").unwrap_err();
            assert_eq!(problem.code, Code::MediaTypeUnsupported, "{bad}");
        }
        let untyped = Closed::read(&HeaderMap::new(), b"{}").unwrap_err();
        assert_eq!(untyped.code, Code::MediaTypeUnsupported);
        let mut coded = typed("application/json");
        coded.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        assert_eq!(Closed::read(&coded, b"{}").unwrap_err().code, Code::MediaTypeUnsupported);
    }

    #[test]
    fn what_is_no_json_is_malformed() {
        for bad in [&b""[..], b"{", b"{} {}", b"\xff", b"{\"a\":1,\"a\":2}", b"{'a':1}", b"\xef\xbb\xbf{}"] {
            let problem = Closed::read(&typed("application/json"), bad).unwrap_err();
            assert_eq!(problem.code, Code::BodyMalformed, "{bad:?}");
        }
        let list = Closed::read(&typed("application/json"), b"[]").unwrap_err();
        assert_eq!(list.code, Code::RequestInvalid);
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let body = br#"{"args_hash":"ABC","comment":7,"aprove":true,"a/b":1}"#;
        let mut closed = Closed::read(&typed("application/json"), body).unwrap();
        assert_eq!(closed.digest("args_hash"), None);
        assert_eq!(closed.text("comment", 10), None);
        assert_eq!(closed.required_text("reason", 10), "");
        let problem = closed.finish().unwrap_err();
        let pointers: Vec<_> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(pointers, ["/args_hash", "/comment", "/reason", "/a~1b", "/aprove"]);
    }

    #[test]
    fn seconds_are_whole_and_some() {
        let read = |text: &str| {
            let mut closed = Closed::read(&typed("application/json"), format!("{{\"s\":{text}}}").as_bytes()).unwrap();
            let seconds = closed.seconds("s");
            (seconds.map(|seconds| seconds.as_secs()), closed.finish().is_ok())
        };
        for (good, count) in [("1", 1), ("300", 300), ("3e2", 300), ("18446744073709551615", u64::MAX)] {
            assert_eq!(read(good), (Some(count), true), "{good}");
        }
        for bad in ["0", "-1", "1.5", "\"300\"", "null", "true", "[]", "18446744073709551616", "1e300"] {
            assert_eq!(read(bad), (None, false), "{bad}");
        }
    }

    #[test]
    fn words_are_bounded() {
        assert!(words("fine\n\ttoo 好", 20).is_ok());
        assert!(words("  \n", 20).is_err());
        assert!(words("好好好", 2).is_err());
        assert!(words("a\u{1b}[2K", 20).is_err());
    }
}
