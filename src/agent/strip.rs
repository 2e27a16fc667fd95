//! What an upstream's answer to a read loses on its way to the agent, and how it is framed anew.
//!
//! Owns the headers that only the guard may say or set, those that were for the upstream's own
//! connection, and the one framing that two parsers read in one way. Must never touch a body.

use http::header::{CONNECTION, CONTENT_LENGTH, SET_COOKIE, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, StatusCode, Version};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use pingora::{Error, ErrorType};

use crate::base::cookie;
use crate::call::hop::{is_hop_by_hop, nominations};

/// The guard's own headers begin like this.
const OWN: &str = "countersign-";

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
            "transfer-encoding" => {}
            text => {
                owns |= text.starts_with(OWN);
                hops |= is_hop_by_hop(text);
            }
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
        let named = response.headers.get_all(CONNECTION).iter().flat_map(nominations);
        let known = response.headers.keys().filter(|name| is_hop_by_hop(name.as_str())).cloned();
        // `Connection` is pingora's to replace, and the framing is looked at next.
        let gone = named.chain(known).filter(|name| *name != CONNECTION && *name != TRANSFER_ENCODING);
        for name in gone.collect::<Vec<HeaderName>>() {
            response.remove_header(&name);
        }
    }
    Ok(())
}

/// On one host an upstream's cookie of that name would replace the console's.
fn sets_console(value: &HeaderValue) -> bool {
    cookie::names_console(value.as_bytes())
}

/// Frames an answer for the client's connection, whatever the upstream's was: in HTTP/1.1, by one
/// length or by chunks. A client of HTTP/1.0 knows no chunks (RFC 9112 section 6.1) and reads what has
/// no length up to the close.
///
/// # Errors
///
/// The upstream's framing could be read in two ways; nothing of the answer went out.
pub(super) fn frame(session: &mut Session, head: &mut ResponseHeader) -> pingora::Result<()> {
    head.set_version(Version::HTTP_11);
    if head.status.is_informational() || head.status == StatusCode::NO_CONTENT {
        // They have no body and say nothing about one (RFC 9110 section 8.6, RFC 9112 section 6.1).
        head.remove_header(&TRANSFER_ENCODING);
        head.remove_header(&CONTENT_LENGTH);
        return Ok(());
    }
    let chunked = one_coding(head)?;
    one_length(head)?;
    let measured = head.headers.contains_key(CONTENT_LENGTH);
    let request = session.req_header();
    let bodiless = request.method == Method::HEAD || head.status == StatusCode::NOT_MODIFIED;
    if request.version == Version::HTTP_10 {
        head.remove_header(&TRANSFER_ENCODING);
        if !bodiless && !measured {
            session.set_keepalive(None);
        }
    } else if !bodiless && !measured && !chunked {
        // The client's connection stays, and a broken answer is seen to be one.
        head.insert_header(TRANSFER_ENCODING, "chunked")?;
    }
    Ok(())
}

/// Whether the answer comes in chunks. No other coding is asked for, so no other is understood.
fn one_coding(head: &ResponseHeader) -> pingora::Result<bool> {
    let mut codings = head.headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(Error::explain(ErrorType::InvalidHTTPHeader, "a transfer coding other than chunked").into_up()),
    }
}

/// Replaces several spellings of one length, which pingora found to be equal, by one.
fn one_length(head: &mut ResponseHeader) -> pingora::Result<()> {
    let mut lengths = head.headers.get_all(CONTENT_LENGTH).iter();
    let (Some(first), second) = (lengths.next(), lengths.next()) else { return Ok(()) };
    if second.is_none() && first.as_bytes().iter().all(u8::is_ascii_digit) {
        return Ok(());
    }
    let one = first.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    let one = HeaderValue::from_bytes(one)
        .map_err(|_| Error::explain(ErrorType::InvalidHTTPHeader, "a length that is no number").into_up())?;
    head.insert_header(CONTENT_LENGTH, one)
}
