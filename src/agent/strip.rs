//! What an upstream's answer to a read loses on its way to the agent.
//!
//! Owns the headers that only the guard may say or set, and those that were for the upstream's own
//! connection. Must never touch a body or its framing.

use http::header::{CONNECTION, CONTENT_LENGTH, SET_COOKIE, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::http::ResponseHeader;

use crate::base::cookie;

/// Headers for one connection alone, whether `Connection` names them or not.
const HOP_BY_HOP: [HeaderName; 2] =
    [HeaderName::from_static("keep-alive"), HeaderName::from_static("proxy-connection")];

/// Strips an answer, early or last.
///
/// # Errors
///
/// None of pingora's rules on headers that were received is known to give one.
pub(super) fn strip(response: &mut ResponseHeader) -> pingora::Result<()> {
    let (mut owns, mut sets, mut hops) = (false, false, false);
    for (name, value) in &response.headers {
        match name.as_str() {
            "set-cookie" => sets |= sets_console(value),
            "connection" => hops |= nominations(value).next().is_some(),
            "keep-alive" | "proxy-connection" => hops = true,
            text => owns |= text.starts_with(OWN),
        }
    }
    // Only the guard says what became of a draft (promise 6).
    while owns && let Some(name) = response.headers.keys().find(|name| name.as_str().starts_with(OWN)).cloned() {
        response.remove_header(&name);
    }
    if sets {
        let kept: Vec<HeaderValue> =
            response.headers.get_all(SET_COOKIE).iter().filter(|value| !sets_console(value)).cloned().collect();
        response.remove_header(&SET_COOKIE);
        for value in kept {
            response.append_header(SET_COOKIE, value)?;
        }
    }
    // A switch of protocols is agreed on in these very headers.
    if hops && response.status != StatusCode::SWITCHING_PROTOCOLS {
        let named: Vec<HeaderName> = response.headers.get_all(CONNECTION).iter().flat_map(nominations).collect();
        for name in named.iter().chain(&HOP_BY_HOP) {
            response.remove_header(name);
        }
    }
    Ok(())
}

/// The guard's own headers begin like this.
const OWN: &str = "countersign-";

/// On one host an upstream's cookie of that name would replace the console's.
fn sets_console(value: &HeaderValue) -> bool {
    cookie::names_console(value.as_bytes())
}

/// The headers that a `Connection` line takes along (RFC 9110 section 7.6.1), but for those that say
/// how long the body is.
fn nominations(value: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let words = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let names = words.filter_map(|word| HeaderName::from_bytes(word).ok());
    names.filter(|name| {
        !matches!(name.as_str(), "close" | "keep-alive") && *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING
    })
}
