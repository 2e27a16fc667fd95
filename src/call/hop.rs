//! Headers for one connection alone (RFC 9110 section 7.6.1).
//!
//! Owns their names, for requests and answers alike. Must never be asked about framing: which body
//! follows is decided before any header is stripped.

use http::{HeaderName, HeaderValue};

/// Whether a header of this name, in lower case, is for one connection alone, whether `Connection`
/// names it or not.
#[must_use]
pub fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "http2-settings"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// The headers that a `Connection` line takes along, but for `Content-Length`, which says how long the
/// body is and is never one connection's.
pub fn nominations(connection: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let words = connection.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let names = words.filter_map(|word| HeaderName::from_bytes(word).ok());
    names.filter(|name| !matches!(name.as_str(), "close" | "keep-alive" | "content-length" | "transfer-encoding"))
}
