//! The one normal form of a path.
//!
//! Owns the rules under which a path can be matched and sent without two readers taking it for two
//! places. Must never rewrite a path: it is in normal form, or it is refused.

use std::borrow::Cow;

use crate::base::code::Code;
use crate::base::refusal::Refusal;

pub use super::template::{BadTemplate, PathTemplate, Relation};

/// A path in the one normal form: what is matched is what is sent.
///
/// It begins with one `/`; has no empty segment, neither inside nor at the end; no dot segment;
/// no backslash and no path parameter (`;`), raw or encoded; percent-encoding only where it is
/// needed, in upper case, for valid UTF-8 without control characters, never for `/` and never
/// twice.
///
/// A read-only service may be asked for other paths ([`NormalPath::lift`]); those carry their
/// flaw and match no template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalPath {
    raw: String,
    encoded: bool,
    flaw: Option<&'static str>,
}

impl NormalPath {
    /// Checks that `raw` already is in the normal form.
    ///
    /// # Errors
    ///
    /// `REQUEST_AMBIGUOUS`, with the reason.
    pub fn parse(raw: &str) -> Result<Self, Refusal> {
        match flaw(raw) {
            None => Ok(Self { encoded: raw.contains('%'), raw: raw.to_owned(), flaw: None }),
            Some(why) => Err(refused(why)),
        }
    }

    /// Takes a path that is not in the normal form along with its flaw, for services that take no
    /// writes.
    ///
    /// # Errors
    ///
    /// `REQUEST_AMBIGUOUS` for what no service may be asked: a path that does not begin with `/`,
    /// or that climbs by dot segments in any spelling.
    pub fn lift(raw: &str) -> Result<Self, Refusal> {
        match flaw(raw) {
            Some(why) if !raw.starts_with('/') => Err(refused(why)),
            Some(_) if climbs(raw) => Err(refused(DOTS)),
            flaw => Ok(Self { encoded: raw.contains('%'), raw: raw.to_owned(), flaw }),
        }
    }

    /// The target `*` of `OPTIONS`, which names the whole server and no path.
    #[must_use]
    pub fn asterisk() -> Self {
        Self { raw: "*".to_owned(), encoded: false, flaw: None }
    }

    /// The path as it came and as it will be sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.raw
    }

    /// Why the path is not in the normal form; `None` if it is.
    #[must_use]
    pub const fn flaw(&self) -> Option<&'static str> {
        self.flaw
    }

    /// The segments, percent-decoded once; none for `/`. `None` if the path is not in the normal
    /// form or is no path.
    pub(super) fn segments(&self) -> Option<impl Iterator<Item = Cow<'_, str>>> {
        let rest = self.raw.strip_prefix('/').filter(|_| self.flaw.is_none())?;
        let encoded = self.encoded;
        let segments = rest.split('/').take(if rest.is_empty() { 0 } else { usize::MAX });
        Some(segments.map(move |segment| if encoded { decoded(segment) } else { Cow::Borrowed(segment) }))
    }

    /// Whether the path is `prefix` or stands below it, segment by segment and decoded. Every path
    /// stands below `/`; a trailing `/` of the prefix does not matter. A path that is not in the
    /// normal form is compared as it is spelled.
    #[must_use]
    pub fn is_under(&self, prefix: &str) -> bool {
        let prefix = prefix.trim_end_matches('/');
        let Some(mut segments) = self.segments() else {
            let rest = self.raw.strip_prefix(prefix);
            return rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/'));
        };
        prefix.split('/').skip(1).all(|wanted| segments.next().is_some_and(|segment| segment == wanted))
    }

    /// Whether the last segment, decoded, is `name` in any case.
    pub(super) fn ends_in(&self, name: &str) -> bool {
        let last = self.raw.rsplit('/').next().unwrap_or_default();
        loose(last).eq_ignore_ascii_case(name.as_bytes())
    }
}

const DOTS: &str = "it has a dot segment";

fn refused(why: &str) -> Refusal {
    Refusal::new(
        Code::RequestAmbiguous,
        format!("The path could be read in two ways: {why}. Nothing was sent; send the path in its normal form."),
    )
}

/// `unreserved`, `sub-delims` without `;`, `:` and `@` of RFC 3986: what may stand raw.
pub(super) const fn stands_raw(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@')
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The first thing that is wrong with `raw`.
fn flaw(raw: &str) -> Option<&'static str> {
    let Some(rest) = raw.strip_prefix('/') else {
        return Some("it does not begin with `/`");
    };
    if rest.is_empty() {
        return None;
    }
    if is_plain(raw) { None } else { first_flaw(rest) }
}

fn first_flaw(rest: &str) -> Option<&'static str> {
    if rest.ends_with('/') {
        return Some("it ends in `/`, which some servers ignore and some do not");
    }
    rest.split('/').find_map(|segment| match segment {
        "" => Some("it has an empty segment"),
        "." | ".." => Some(DOTS),
        _ => segment_flaw(segment),
    })
}

/// Whether a path has nothing that would have to be looked at twice: no encoding, and after every
/// slash something that is neither a dot nor another slash. Most paths are plain, and each read
/// has one.
fn is_plain(raw: &str) -> bool {
    let mut before = 0;
    let fits = raw.bytes().all(|byte| {
        let fits = if byte == b'/' { before != b'/' } else { stands_raw(byte) && (byte != b'.' || before != b'/') };
        before = byte;
        fits
    });
    fits && before != b'/'
}

/// What is wrong with one segment that is neither empty nor dots.
pub(super) fn segment_flaw(segment: &str) -> Option<&'static str> {
    let bytes = segment.as_bytes();
    if let Some(bad) = bytes.iter().find(|byte| **byte != b'%' && !stands_raw(**byte)) {
        return Some(match bad {
            b';' => "it has a path parameter (`;`)",
            b'\\' => "it has a backslash",
            b'#' => "it has a fragment",
            _ => "it has a character that must be percent-encoded",
        });
    }
    let mut decoded = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte != b'%' {
            decoded.push(*byte);
            at += 1;
            continue;
        }
        let value = match encoded_byte(&bytes[at + 1..]) {
            Ok(value) => value,
            Err(why) => return Some(why),
        };
        decoded.push(value);
        at += 3;
    }
    match std::str::from_utf8(&decoded) {
        Err(_) => Some("it is not UTF-8 once decoded"),
        Ok(text) if text.chars().any(char::is_control) => Some("it has an encoded control character"),
        Ok(_) => None,
    }
}

/// The byte that `%` and these two digits stand for, if it may stand in a normal path.
fn encoded_byte(after: &[u8]) -> Result<u8, &'static str> {
    let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let Some(digits) = digits else {
        return Err("it has a `%` without two hexadecimal digits");
    };
    let value = hex(digits[0]) << 4 | hex(digits[1]);
    match value {
        b'/' => Err("it has an encoded slash"),
        b'\\' => Err("it has an encoded backslash"),
        b';' => Err("it has an encoded path parameter (`;`)"),
        b'%' if after.get(2..4).is_some_and(|next| next.iter().all(u8::is_ascii_hexdigit)) => {
            Err("it is percent-encoded twice")
        }
        _ if is_unreserved(value) => Err("it has a character encoded that needs no encoding"),
        _ if digits.iter().any(u8::is_ascii_lowercase) => Err("its percent-encoding is in lower case"),
        _ => Ok(value),
    }
}

/// The value of a hexadecimal digit.
pub(super) const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

/// A segment of a normal path, decoded.
pub(super) fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    Cow::Owned(String::from_utf8_lossy(&loose(segment)).into_owned())
}

/// Decodes every well-formed `%XX` once and leaves the rest as it is.
fn loose(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match bytes.get(at + 1..at + 3) {
            Some(digits) if *byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit) => {
                out.push(hex(digits[0]) << 4 | hex(digits[1]));
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

/// Whether a reader that decodes up to twice, takes `\` for `/` and cuts path parameters would
/// find a dot segment.
fn climbs(raw: &str) -> bool {
    let once = loose(raw);
    let twice = loose(&String::from_utf8_lossy(&once));
    [raw.as_bytes(), &once, &twice].iter().any(|bytes| {
        bytes.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
            let end = segment.iter().position(|byte| *byte == b';').unwrap_or(segment.len());
            matches!(segment[..end].trim_ascii(), b"." | b"..")
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    proptest::proptest! {
        #[test]
        fn what_is_taken_for_plain_has_no_flaw(raw in "/[a-zA-Z./%;~_2\\\\-]{0,12}") {
            if is_plain(&raw) {
                proptest::prop_assert_eq!(first_flaw(&raw[1..]), None);
            }
        }
    }

    #[test]
    fn p2_normal_paths_pass_as_they_came() {
        for good in [
            "/",
            "/todos",
            "/todos/7",
            "/a/b.c/d~e/f_g-h",
            "/notes/%E5%BE%85%E5%8A%9E",
            "/x/a%20b",
            "/100%25",
            "/Users('x')",
            "/v1/things:archive",
            "/@me/a,b=c",
            "/.well-known/x",
            "/...",
            "/a..b",
            "/q/%3F%23",
            "/OK/PAY/r",
        ] {
            assert_eq!(NormalPath::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn p2_a_path_that_two_readers_take_for_two_places_is_refused() {
        for bad in [
            "",
            "todos",
            "//ok/pay/r",
            "/ok/pay//r",
            "/ok/pay/r/",
            "/ok/public/../pay/r",
            "/ok/./pay/r",
            "/..",
            "/.",
            "/ok/public/%2e%2e/pay/r",
            "/ok/public/%2E./pay/r",
            "/ok/%2E%2E/pay",
            "/ok%2fpay",
            "/ok%2Fpay",
            "/ok%5Cpay",
            "/ok\\pay",
            "/ok;v=1/pay",
            "/ok%3Bv=1/pay",
            "/%6Fk",
            "/%41",
            "/a%7E",
            "/a%e5%be%85",
            "/a%00",
            "/a%0D%0A",
            "/a%7F",
            "/a%C2%85",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%u0041",
            "/%252e%252e/pay",
            "/a%2541",
            "/%C0%AE%C0%AE/pay",
            "/%FF",
            "/a b",
            "/a#b",
            "/a?b",
            "/a\"b",
            "/a{b}",
            "/a|b",
            "/caf\u{e9}",
            "/a\tb",
            "/a\nb",
            "*",
        ] {
            let refusal = NormalPath::parse(bad).unwrap_err();
            assert_eq!(refusal.code, Code::RequestAmbiguous, "{bad}");
        }
    }

    #[test]
    fn a_read_only_service_takes_other_spellings_but_never_a_climb() {
        for odd in ["/a//b", "/a/", "/a;v=1", "/group%2Fproject", "/%41", "/a%e5%be%85"] {
            let path = NormalPath::lift(odd).unwrap();
            assert!(path.flaw().is_some() && path.as_str() == odd, "{odd}");
            assert!(path.segments().is_none());
        }
        for climb in [
            "/a/../b",
            "/a/%2e%2e/b",
            "/a%2f..%2fb",
            "/a/..;x/b",
            "/a\\..\\b",
            "/%252e%252e/b",
            "/a/.%2e",
            "b",
            "//../c",
        ] {
            assert!(NormalPath::lift(climb).is_err(), "{climb}");
        }
        assert_eq!(NormalPath::lift("/a").unwrap(), NormalPath::parse("/a").unwrap());
    }

    #[test]
    fn prefixes_end_at_segments() {
        let path = NormalPath::parse("/api/v1/x").unwrap();
        for prefix in ["/", "/api", "/api/", "/api/v1/x"] {
            assert!(path.is_under(prefix), "{prefix}");
        }
        for prefix in ["/ap", "/api/v", "/api/v1/x/y", "/API"] {
            assert!(!path.is_under(prefix), "{prefix}");
        }
        assert!(NormalPath::parse("/a%21b/c").unwrap().is_under("/a!b"));
        assert!(NormalPath::lift("/api//x").unwrap().is_under("/api"));
        assert!(NormalPath::lift("/api//x").unwrap().is_under("/"));
        assert!(!NormalPath::lift("/apix//x").unwrap().is_under("/api"));
        assert!(NormalPath::parse("/").unwrap().is_under("/"));
        assert!(!NormalPath::parse("/").unwrap().is_under("/a"));
    }
}
