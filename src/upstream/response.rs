//! What is read out of a complete answer: which headers are kept, whether its framing is one
//! that two parsers read alike, and whether a body of a JSON type parses.
//!
//! Pure. Must never keep `Set-Cookie`, and never decide whether an outcome is a success.

use std::io::Read as _;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode, Version};
use serde::de::IgnoredAny;
use serde_json::Value;

/// The headers that are kept and replayed.
const KEPT: [&str; 11] = [
    "content-type",
    "content-encoding",
    "content-language",
    "etag",
    "last-modified",
    "location",
    "link",
    "retry-after",
    "vary",
    "warning",
    "x-request-id",
];

/// How many times longer than its kept form a decoded body may be.
const DECODED_FACTOR: usize = 8;

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none: HEAD, 204, 304.
    Bodiless,
    /// `Content-Length` or `chunked`: an early end shows.
    Framed,
    /// The connection's end is the body's end: an early end does not show.
    UntilClose,
}

/// How the body of this answer ends.
///
/// # Errors
///
/// A sentence, if the head frames the body in a way that two parsers could read in two ways.
pub(super) fn framing(
    method: &Method,
    status: StatusCode,
    version: Version,
    headers: &HeaderMap,
) -> Result<Framing, &'static str> {
    if method == Method::HEAD || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        return Ok(Framing::Bodiless);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(Framing::UntilClose),
        (Some(_), Some(_)) => Err("the answer has both Content-Length and Transfer-Encoding"),
        (Some(length), None) => {
            let digits = length.as_bytes().iter().all(u8::is_ascii_digit);
            if lengths.next().is_some() || !digits {
                return Err("the answer has more than one Content-Length");
            }
            Ok(Framing::Framed)
        }
        (None, Some(coding)) => {
            let chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
            if !chunked || version != Version::HTTP_11 {
                return Err("the answer's Transfer-Encoding is not exactly chunked");
            }
            Ok(Framing::Framed)
        }
    }
}

/// The headers to keep, in the order in which their names came. A value that is not UTF-8 is dropped.
pub(super) fn kept_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut kept = Vec::new();
    for (name, value) in headers {
        if !KEPT.contains(&name.as_str()) {
            continue;
        }
        if let Ok(text) = std::str::from_utf8(value.as_bytes()) {
            kept.push((name.as_str().to_owned(), text.to_owned()));
        }
    }
    kept
}

/// Reads a whole body as JSON; see [`super::contract::Response::json`] for what the answer says.
/// An empty body whose emptiness is certain was never JSON to begin with and is not judged.
pub(super) fn json(headers: &HeaderMap, framing: Framing, body: &[u8], truncated: bool) -> Option<Result<Value, ()>> {
    if framing == Framing::Bodiless || truncated || !is_json(headers) {
        return None;
    }
    if body.is_empty() && framing == Framing::Framed {
        return None;
    }
    match decoded(headers, body)? {
        Ok(plain) => parse(&plain),
        Err(()) => Some(Err(())),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else { return false };
    let Ok(value) = value.to_str() else { return false };
    let mut parts = value.split(';');
    let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let json = essence == "application/json" || essence == "text/json" || essence.ends_with("+json");
    // Another charset is a coding that is not read here.
    let utf8 = parts.all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.trim().trim_matches('"');
        !name.trim().eq_ignore_ascii_case("charset")
            || ["utf-8", "utf8", "us-ascii"].iter().any(|known| value.eq_ignore_ascii_case(known))
    });
    json && utf8
}

/// The body without its content coding. `None`: a coding that is not read, or a result that is
/// too long; `Some(Err)`: the coding is broken.
fn decoded(headers: &HeaderMap, body: &[u8]) -> Option<Result<Vec<u8>, ()>> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let coding = match (codings.next(), codings.next()) {
        (None, _) => String::new(),
        (Some(one), None) => one.to_str().ok()?.trim().to_ascii_lowercase(),
        (Some(_), Some(_)) => return None,
    };
    let longest = body.len().saturating_mul(DECODED_FACTOR).max(1 << 20);
    match coding.as_str() {
        "" | "identity" => Some(Ok(body.to_vec())),
        "gzip" | "x-gzip" => inflate(MultiGzDecoder::new(body), longest),
        // RFC 9110, 8.4.1.2: deflate is the zlib format, but some servers send it bare.
        "deflate" => match inflate(ZlibDecoder::new(body), longest) {
            Some(Err(())) => inflate(DeflateDecoder::new(body), longest),
            other => other,
        },
        _ => None,
    }
}

fn inflate(from: impl std::io::Read, longest: usize) -> Option<Result<Vec<u8>, ()>> {
    let mut plain = Vec::new();
    match from.take(longest as u64 + 1).read_to_end(&mut plain) {
        Err(_) => Some(Err(())),
        Ok(_) if plain.len() > longest => None,
        Ok(_) => Some(Ok(plain)),
    }
}

fn parse(plain: &[u8]) -> Option<Result<Value, ()>> {
    let text = plain.strip_prefix(b"\xef\xbb\xbf").unwrap_or(plain);
    match serde_json::from_slice(text) {
        Ok(value) => Some(Ok(value)),
        // Whole, but deeper or larger than what is read: no sign of a broken answer.
        Err(_) if serde_json::from_slice::<IgnoredAny>(text).is_ok() => None,
        Err(_) => Some(Err(())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn head(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn framed(lines: &[(&'static str, &str)]) -> Result<Framing, &'static str> {
        framing(&Method::POST, StatusCode::OK, Version::HTTP_11, &head(lines))
    }

    #[test]
    fn only_the_listed_headers_are_kept_and_never_a_cookie() {
        let mut headers = head(&[
            ("set-cookie", "a=b"),
            ("content-type", "text/plain"),
            ("link", "<a>"),
            ("x-secret", "1"),
            ("link", "<b>"),
            ("x-request-id", "ä"),
        ]);
        headers.append("etag", HeaderValue::from_bytes(b"\"\xff\"").unwrap());
        let kept = kept_headers(&headers);
        let expected = [("content-type", "text/plain"), ("link", "<a>"), ("link", "<b>"), ("x-request-id", "ä")];
        assert_eq!(kept, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn framing_that_two_parsers_read_differently_is_refused() {
        assert_eq!(framed(&[("content-length", "5")]), Ok(Framing::Framed));
        assert_eq!(framed(&[("transfer-encoding", "Chunked")]), Ok(Framing::Framed));
        assert_eq!(framed(&[]), Ok(Framing::UntilClose));
        for bad in [
            &[("content-length", "5"), ("content-length", "5")][..],
            &[("content-length", "5, 5")],
            &[("content-length", "+5")],
            &[("content-length", "5"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "identity")],
        ] {
            assert!(framed(bad).is_err(), "{bad:?}");
        }
        let chunked = head(&[("transfer-encoding", "chunked")]);
        assert!(framing(&Method::POST, StatusCode::OK, Version::HTTP_10, &chunked).is_err());
        assert_eq!(framing(&Method::HEAD, StatusCode::OK, Version::HTTP_11, &chunked), Ok(Framing::Bodiless));
        for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
            assert_eq!(framing(&Method::PUT, status, Version::HTTP_11, &chunked), Ok(Framing::Bodiless));
        }
    }

    #[test]
    fn a_json_type_must_parse_and_other_types_are_not_judged() {
        let judged = |kind: &str, framing, body: &[u8]| json(&head(&[("content-type", kind)]), framing, body, false);
        let whole = json!({"a": 1});
        for kind in ["application/json", "Application/JSON; charset=\"UTF-8\"", "application/problem+json", "text/json"]
        {
            assert_eq!(judged(kind, Framing::Framed, b"{\"a\":1}"), Some(Ok(whole.clone())), "{kind}");
            assert_eq!(judged(kind, Framing::UntilClose, b"{\"a\":1"), Some(Err(())), "{kind}");
        }
        for kind in ["text/html", "application/x-ndjson", "application/json; charset=utf-16", "json"] {
            assert_eq!(judged(kind, Framing::UntilClose, b"{\"a\":1"), None, "{kind}");
        }
        let json_type = "application/json";
        assert_eq!(judged(json_type, Framing::Framed, b"\xef\xbb\xbf{\"a\":1}"), Some(Ok(whole)));
        assert_eq!(judged(json_type, Framing::Framed, b"{} x"), Some(Err(())));
        assert_eq!(judged(json_type, Framing::Framed, b"<html>"), Some(Err(())));
        assert_eq!(judged(json_type, Framing::Framed, b""), None, "declared empty: nothing was lost");
        assert_eq!(judged(json_type, Framing::UntilClose, b""), Some(Err(())), "emptiness is not certain");
        assert_eq!(judged(json_type, Framing::Bodiless, b""), None);
        let deep = "[".repeat(500) + &"]".repeat(500);
        assert_eq!(judged(json_type, Framing::Framed, deep.as_bytes()), None, "whole, but not read");
        assert_eq!(judged(json_type, Framing::Framed, &deep.as_bytes()[..600]), Some(Err(())));
        assert_eq!(json(&head(&[("content-type", json_type)]), Framing::Framed, b"{\"a\":", true), None, "truncated");
    }

    #[test]
    fn coded_json_is_read_bounded() {
        let text = br#"{"a":1}"#;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(text).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(text).unwrap();
        let judged = |coding: &str, body: &[u8]| {
            json(
                &head(&[("content-type", "application/json"), ("content-encoding", coding)]),
                Framing::Framed,
                body,
                false,
            )
        };
        let whole = Some(Ok(json!({"a": 1})));
        assert_eq!(judged("gzip", &gzip), whole);
        assert_eq!(judged("X-GZIP", &gzip), whole);
        assert_eq!(judged("deflate", &zlib.finish().unwrap()), whole);
        assert_eq!(judged("deflate", &bare.finish().unwrap()), whole);
        assert_eq!(judged("identity", text), whole);
        assert_eq!(judged("br", text), None);
        assert_eq!(judged("gzip, gzip", &gzip), None);
        assert_eq!(judged("gzip", &gzip[..gzip.len() - 3]), Some(Err(())), "a cut coding is a broken answer");
        assert_eq!(judged("gzip", text), Some(Err(())));
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&vec![b' '; 32 << 20]).unwrap();
        assert_eq!(judged("gzip", &bomb.finish().unwrap()), None, "a bomb is not read");
    }
}
