//! Single values of the configuration that policy files do not have: numbers, rates, addresses,
//! URLs, digests, names. Each may come by a substitution.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::digest::Digest;
use crate::policy::read::{Fields, File};
use crate::policy::yaml::{Kind, Node};

/// The text of a scalar, whatever it looks like, with substitutions.
pub(super) fn word(file: &File<'_>, node: &Node, what: &str) -> Option<String> {
    match &node.kind {
        Kind::Scalar(scalar) if scalar.plain && !scalar.text.contains("${") && !scalar.text.is_empty() => {
            Some(scalar.text.clone())
        }
        _ => file.text(node, what).map(|text| text.value),
    }
}

pub(super) fn boolean(file: &File<'_>, node: &Node, what: &str) -> Option<bool> {
    match word(file, node, what)?.as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => {
            file.error(node.place, format!("{what} must be `true` or `false`"));
            None
        }
    }
}

pub(super) fn number(file: &File<'_>, node: &Node, what: &str, least: u32, most: u32) -> Option<u32> {
    let read = word(file, node, what)?.parse::<u32>().ok().filter(|n| (least..=most).contains(n));
    if read.is_none() {
        file.error(node.place, format!("{what} must be a whole number from {least} to {most}"));
    }
    read
}

/// `60/1m`: how many in which time.
pub(super) fn rate(file: &File<'_>, node: &Node, what: &str) -> Option<(u32, Duration)> {
    let text = word(file, node, what)?;
    let read = text.split_once('/').and_then(|(count, window)| {
        let count = count.trim().parse::<u32>().ok().filter(|count| (1..=1_000_000).contains(count))?;
        let window = span(window.trim())?;
        (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&window).then_some((count, window))
    });
    if read.is_none() {
        let hint = "write a count from 1 to 1000000 and a window from 1s to 1d: 60/1m";
        file.error_with(node.place, format!("{what} is not a rate"), hint);
    }
    read
}

fn span(text: &str) -> Option<Duration> {
    let (count, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}

pub(super) fn address(file: &File<'_>, node: &Node, what: &str) -> Option<SocketAddr> {
    let text = word(file, node, what)?;
    let read = text.parse().ok();
    if read.is_none() {
        let hint = match text.strip_prefix("localhost:") {
            Some(port) => format!("write 127.0.0.1:{port}"),
            None => "write an IP address and a port: 127.0.0.1:7070, [::1]:7070; port 0 takes a free one".to_owned(),
        };
        file.error_with(node.place, format!("{what} is not an address"), hint);
    }
    read
}

/// A path, relative ones taken from `folder`.
pub(super) fn path(file: &File<'_>, node: &Node, what: &str, folder: &Path) -> Option<PathBuf> {
    Some(folder.join(word(file, node, what)?))
}

/// An http or https URL of a host alone, without a trailing slash.
pub(super) fn origin(file: &File<'_>, node: &Node, what: &str) -> Option<String> {
    let text = word(file, node, what)?;
    let trimmed = text.trim_end_matches('/');
    let legal = trimmed.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && uri
                .authority()
                .is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty())
    });
    if !legal || trimmed.contains('#') {
        let hint = "write scheme, host and port only: https://guard.example";
        file.error_with(node.place, format!("{what} is not the URL of a host"), hint);
        return None;
    }
    Some(trimmed.to_owned())
}

/// A digest of a token. The value itself is never shown: it may be a token by mistake.
pub(super) fn digest(file: &File<'_>, node: &Node, what: &str) -> Option<Digest> {
    let text = word(file, node, what)?;
    let read = text.trim().parse().ok();
    if read.is_none() {
        if let Kind::Scalar(scalar) = &node.kind {
            file.keep_secret(&scalar.text);
        }
        let hint = "`countersign token new` makes a token and prints its digest";
        file.error_with(node.place, format!("{what} is not a SHA-256 digest of 64 lower-case hex digits"), hint);
    }
    read
}

/// A name, checked by its own type.
pub(super) fn name<T, E: std::fmt::Display>(
    file: &File<'_>,
    node: &Node,
    what: &str,
    make: impl Fn(String) -> Result<T, E>,
) -> Option<T> {
    let text = word(file, node, what)?;
    match make(text) {
        Ok(name) => Some(name),
        Err(error) => {
            file.error(node.place, format!("{what}: {error}"));
            None
        }
    }
}

/// A value that has a default: `None` only where a mistake was reported.
pub(super) fn or<T>(fields: &Fields<'_>, key: &str, default: T, read: impl FnOnce(&Node) -> Option<T>) -> Option<T> {
    match fields.get(key) {
        Some(node) => read(node),
        None => Some(default),
    }
}
