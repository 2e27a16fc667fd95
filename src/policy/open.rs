//! The policy of `countersign guard URL`: no file, reads pass, every other call is held.
//!
//! Owns the rules for an upstream's URL, which policy files share. Must never accept a URL whose
//! parts could be read in two ways.

use http::Uri;

use crate::base::digest::Digest;
use crate::base::id::ServiceName;
use crate::call::canonical;
use crate::call::path::NormalPath;

use super::diagnostic::{Diagnostic, Severity};
use super::model::{HELD_STATUS, Opaque, PolicySet, Route, Service, ServiceIndex, Timeouts, Unmatched, Upstream};

/// Where an upstream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) base_path: String,
}

/// What is wrong with a URL that has no scheme, or another one.
pub(super) const NO_SCHEME: &str = "must begin with http:// or https://";

/// Reads an upstream's URL.
///
/// # Errors
///
/// What is wrong, as the rest of "the upstream's URL …"; never a part of the URL itself.
pub(super) fn read_url(text: &str) -> Result<Origin, &'static str> {
    if text.contains('#') {
        return Err("must not have a fragment (`#…`)");
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\\') {
        return Err("has a space, a backslash or a control character");
    }
    let (scheme, rest) = text.split_once("://").ok_or(NO_SCHEME)?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(NO_SCHEME),
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("must not have a user or password; write `credentials` instead");
    }
    if rest.contains('?') {
        return Err("must not have a query (`?…`)");
    }
    let uri: Uri = text.parse().map_err(|_| "is not a URL")?;
    let parsed = uri.authority().ok_or("has no host")?;
    let host = read_host(parsed.host())?;
    let port = match authority.strip_prefix(parsed.host()).unwrap_or_default() {
        "" => {
            if tls {
                443
            } else {
                80
            }
        }
        digits => digits[1..].parse().ok().filter(|port| *port != 0).ok_or("must have a port between 1 and 65535")?,
    };
    let path = uri.path().strip_suffix('/').unwrap_or(uri.path());
    if !path.is_empty() && (path == "/" || NormalPath::parse(path).is_err()) {
        return Err("has a path that is not in the normal form: no dot or empty segments, no `;`, no needless escapes");
    }
    Ok(Origin { tls, host, port, base_path: path.to_owned() })
}

/// A host name or an address, lower case, IPv6 without brackets.
fn read_host(host: &str) -> Result<String, &'static str> {
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address: std::net::Ipv6Addr =
            inner.parse().map_err(|_| "has brackets around something that is no address")?;
        return Ok(address.to_string());
    }
    let host = host.to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let legal = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        inner && !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-')
    };
    if host.len() > 253 || !host.split('.').all(legal) {
        return Err("has a host that is no host name; write international names in their xn-- form");
    }
    // A name whose last label is a number is an address to some resolvers and a name to others.
    let last = host.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    if numeric && host.parse::<std::net::Ipv4Addr>().is_err() {
        return Err("has a host that some read as an address and some as a name");
    }
    Ok(host.to_owned())
}

impl Upstream {
    pub(super) fn at(origin: Origin) -> Self {
        Self {
            tls: origin.tls,
            host: origin.host,
            port: origin.port,
            base_path: origin.base_path,
            timeouts: Timeouts::default(),
            honours_idempotency_key: false,
            credential: None,
            inject: Vec::new(),
            credential_headers: vec![http::header::AUTHORIZATION, http::header::COOKIE],
            read_only: false,
            upgrade: Vec::new(),
            ca_file: None,
        }
    }
}

impl PolicySet {
    /// One service for everything, without tools: reads pass, every other call is held with the
    /// generic card.
    ///
    /// # Errors
    ///
    /// What is wrong with the name or the URL.
    pub fn open(service_name: &str, upstream_url: &str) -> Result<Self, Vec<Diagnostic>> {
        let wrong = |message: String| {
            vec![Diagnostic {
                file: "command line".to_owned(),
                line: 1,
                column: 1,
                severity: Severity::Error,
                message,
                hint: Some("write it as http://HOST:PORT or https://HOST/PATH".to_owned()),
                excerpt: String::new(),
            }]
        };
        let name = ServiceName::new(service_name).map_err(|error| wrong(error.to_string()))?;
        let origin = read_url(upstream_url).map_err(|why| wrong(format!("the upstream's URL {why}")))?;
        let upstream = Upstream::at(origin);
        let normal = serde_json::json!({"open": name, "upstream": upstream.origin(), "path": upstream.base_path});
        let service = Service {
            name,
            route: Route { hosts: Vec::new(), path_prefix: "/".to_owned() },
            upstream,
            unmatched: Unmatched { read_passes: true, write_held: true },
            capabilities: Vec::new(),
            tools: Vec::new(),
            body_bytes_max: None,
            held_status: HELD_STATUS,
            opaque: Opaque::Hold,
            bind_headers: Vec::new(),
            index: ServiceIndex::default(),
        };
        Ok(Self { version: Digest::of(&canonical::to_vec(&normal)).to_hex(), services: vec![service] })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn urls_are_read_in_one_way_or_refused() {
        let origin = read_url("HTTPS://Api.Example.COM:8443/v1/").unwrap();
        assert_eq!(origin, Origin { tls: true, host: "api.example.com".into(), port: 8443, base_path: "/v1".into() });
        assert_eq!(read_url("http://[::1]:80").unwrap().host, "::1");
        assert_eq!(read_url("http://127.0.0.1").unwrap().port, 80);
        assert_eq!(read_url("http://localhost").unwrap().base_path, "");
        for bad in [
            "",
            "api.example.com",
            "ftp://x",
            "http://",
            "http:///x",
            "http://u@x",
            "http://u:p@x",
            "http://x?q",
            "http://x/#f",
            "http://x/a/../b",
            "http://x//",
            "http://x/a;b",
            "http://x:0",
            "http://x:65536",
            "http://x:",
            "http://x:y",
            "http://a b",
            "http://x\\@y",
            "http://[::1",
            "http://[x]",
            "http://-x",
            "http://x..y",
            "http://2130706433",
            "http://0x7f000001",
            "http://127.1",
            "http://1.2.3.256",
            "http://bücher.example",
        ] {
            assert!(read_url(bad).is_err(), "{bad}: {:?}", read_url(bad));
        }
    }

    #[test]
    fn an_open_set_holds_writes_and_passes_reads() {
        let set = PolicySet::open("example", "https://api.example.com").unwrap();
        assert_eq!(set.version.len(), 64);
        assert!(set.services[0].unmatched.write_held && set.services[0].unmatched.read_passes);
        let error = PolicySet::open("example", "https://user:hunter2@api.example.com").unwrap_err();
        insta::assert_snapshot!(error[0].to_string());
    }
}
