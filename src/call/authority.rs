//! Host and port, in one spelling.
//!
//! Owns what a `Host` header or the authority of a target may look like. Must never resolve a
//! name; which addresses are reachable is decided where connections are made.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Who is asked: a host in its one spelling, and a port where one was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Lower case, without a trailing dot; an IPv6 address compressed as RFC 5952 says and without
    /// brackets.
    pub host: String,
    /// The port, where the text names one.
    pub port: Option<u16>,
}

impl Authority {
    /// Reads `host`, `host:port`, `[v6]` or `[v6]:port` (RFC 3986 section 3.2 without userinfo).
    ///
    /// # Errors
    ///
    /// Why the text is refused, continuing "the host": userinfo, percent-encoding, other characters
    /// than letters, digits, `-`, `_` and `.`, empty or over-long labels, other spellings of an IPv4
    /// address than four decimal numbers, zone ids, and ports that are empty, zero, signed or padded.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        plain(text).map_or_else(|| spelled(text), Ok)
    }

    /// The port, with the scheme's default filled in.
    #[must_use]
    pub fn port_or_default(&self, https: bool) -> u16 {
        self.port.unwrap_or(if https { 443 } else { 80 })
    }
}

/// Reads every spelling.
fn spelled(text: &str) -> Result<Authority, &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.contains('@') {
        return Err("carries user information");
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (address, after) = rest.split_once(']').ok_or("has `[` without `]`")?;
        let address: Ipv6Addr = address.parse().map_err(|_| "is not a valid IPv6 address")?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if after.is_empty() => None,
            None => return Err("goes on after `]`"),
        };
        return Ok(Authority { host: address.to_string(), port });
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (text, None),
    };
    Ok(Authority { host: parse_name(host)?, port })
}

/// A name of letters, digits and `-` in short labels, the last of which begins with a letter, with
/// a port or without: what nearly every `Host` is. `None` where the text must be read slowly.
fn plain(text: &str) -> Option<Authority> {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(parse_port(port).ok()?)),
        None => (text, None),
    };
    let (mut label, mut label_begins) = (0, b'0');
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' if label == 0 => label_begins = byte,
            b'a'..=b'z' | b'0'..=b'9' | b'-' => {}
            b'.' if label > 0 => {
                label = 0;
                continue;
            }
            _ => return None,
        }
        label += 1;
        if label > 63 {
            return None;
        }
    }
    let fits = label > 0 && name.len() <= 253 && label_begins.is_ascii_lowercase();
    fits.then(|| Authority { host: name.to_owned(), port })
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    const WHY: &str = "has a port that is not a number from 1 to 65535";
    if text.starts_with('0') || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WHY);
    }
    text.parse().map_err(|_| WHY)
}

fn parse_name(text: &str) -> Result<String, &'static str> {
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.len() > 253 {
        return Err("is longer than 253 characters");
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Err("has an empty or over-long label");
        }
        if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
            return Err("has a character that no host name has");
        }
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if is_number(last) && (name.len() != text.len() || name.parse::<Ipv4Addr>().is_err()) {
        return Err("is an IPv4 address in another spelling than four decimal numbers");
    }
    Ok(name.to_ascii_lowercase())
}

/// Whether resolvers take a name with this last label for an IPv4 address.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn one_host_has_one_spelling() {
        for (text, host, port) in [
            ("Notes.Internal", "notes.internal", None),
            ("notes.internal.", "notes.internal", None),
            ("notes.internal:8080", "notes.internal", Some(8080)),
            ("my_service-1", "my_service-1", None),
            ("127.0.0.1:80", "127.0.0.1", Some(80)),
            ("[::1]", "::1", None),
            ("[0:0:0:0:0:0:0:1]:443", "::1", Some(443)),
            ("[2001:DB8::A]", "2001:db8::a", None),
            ("xn--80ak6aa92e.com", "xn--80ak6aa92e.com", None),
        ] {
            assert_eq!(Authority::parse(text), Ok(Authority { host: host.to_owned(), port }), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_quick_reading_agrees_with_the_slow_one(text in "[a-z0-9A-Z.:_@-]{0,12}|[a-z0-9]{1,3}([.][a-z0-9-]{1,64}){0,4}(:[0-9]{1,5})?") {
            if let Some(quick) = plain(&text) {
                proptest::prop_assert_eq!(Ok(quick), spelled(&text));
            }
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long_label = format!("{}.test", "a".repeat(64));
        let long_name = vec!["abcdefgh"; 30].join(".");
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a b",
            "pay.test@evil",
            "user:pw@host",
            "a/b",
            "a?b",
            "a#b",
            "a%2eb",
            "caf\u{e9}.test",
            "host:",
            "host:0",
            "host:080",
            "host:+80",
            "host:65536",
            "host:8o",
            "a:1:2",
            ":80",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]:",
            "[fe80::1%25eth0]",
            "[fe80::1%eth0]",
            "[127.0.0.1]",
            "[]",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "127.1",
            "127.0.1",
            "0177.0.0.1",
            "127.0.0.01",
            "127.0.0.1.",
            "256.0.0.1",
            "1.2.3.4.5",
            "foo.0x",
            "foo.1",
            "a,b",
            "a\tb",
            "a!b",
            &long_label,
            &long_name,
        ] {
            assert!(Authority::parse(text).is_err(), "{text}");
        }
    }
}
