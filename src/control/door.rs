//! The first bytes of a connection: a request's head, or the reason why not.
//!
//! Owns the bounds of a head and the rule that a request is read in one way only; which ways there
//! are is known to [`crate::call`]. What does not pass is answered with a problem document, which
//! the HTTP library alone would not do. One connection carries one request, so nothing can hide
//! behind the first one.

use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, header};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::base::code::Code;
use crate::call::framing::{Fed, Framer, FramingLimits};
use crate::call::head;
use crate::guard::problem::Problem;

use super::framed::Framed;
use super::reply::EVERYWHERE;

/// Longest head, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most header lines.
pub(super) const HEADERS_MAX: usize = 128;

/// How much is read at once while the head is not complete.
const READ_BYTES: usize = 4 * 1024;

/// Reads until the head is complete and right; the request is then read from what is returned.
/// `None`: the peer closed without sending anything, or went away.
///
/// # Errors
///
/// The problem to answer with before the connection is closed, on the reader that is left.
pub(super) async fn admit<R: AsyncRead + Unpin>(
    mut from: R,
    patience: Duration,
) -> Result<Option<Framed<R>>, (R, Box<Problem>)> {
    let mut framer = Framer::new(FramingLimits {
        head_bytes_max: HEAD_BYTES_MAX,
        headers_max: HEADERS_MAX,
        ..FramingLimits::default()
    });
    let late = || Problem::new(Code::RequestTimeout, "The request's head did not arrive in time. Nothing was changed.");
    let read = tokio::time::timeout(patience, read_head(&mut from, &mut framer)).await;
    match read.unwrap_or_else(|_| Err(late())) {
        Ok(Some(judged)) => Ok(Some(Framed::new(from, framer, judged))),
        Ok(None) => Ok(None),
        Err(problem) => Err((from, Box::new(problem))),
    }
}

/// The bytes of the request so far, head and all.
async fn read_head(from: &mut (impl AsyncRead + Unpin), framer: &mut Framer) -> Result<Option<BytesMut>, Problem> {
    let mut judged = BytesMut::new();
    let mut piece = [0; READ_BYTES];
    loop {
        let read = match from.read(&mut piece).await {
            Ok(0) if framer.at_boundary() => return Ok(None),
            Ok(0) => return Err(ambiguous("it broke off in the head")),
            Ok(read) => read,
            Err(_) => return Ok(None),
        };
        let Fed { released, pass, cut } = framer.feed_request(&piece[..read]);
        if let Some(cut) = cut {
            return Err(cut.refusal.into());
        }
        judged.extend_from_slice(&released.unwrap_or_default());
        judged.extend_from_slice(&piece[..pass]);
        if framer.requests() > 0 {
            judge(&judged)?;
            return Ok(Some(judged));
        }
    }
}

fn ambiguous(why: &str) -> Problem {
    Problem::new(
        Code::RequestAmbiguous,
        format!("This is no HTTP/1.1 request that can be read in one way only: {why}. Nothing was changed."),
    )
}

/// One authority, and no expectation that is not met. The HTTP library reads the same bytes with
/// the same parser.
fn judge(bytes: &[u8]) -> Result<(), Problem> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(ambiguous("its head has no end")),
        Err(error) => return Err(ambiguous(&error.to_string())),
    }
    let mut hosts = HeaderMap::new();
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("host") {
            let value = HeaderValue::from_bytes(header.value).map_err(|_| ambiguous("`Host` is no header value"))?;
            hosts.append(header::HOST, value);
        }
        if header.name.eq_ignore_ascii_case("expect") && !header.value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Problem::new(
                Code::ExpectationFailed,
                "The only expectation met here is 100-continue. Nothing was changed.",
            ));
        }
    }
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let http10 = request.version == Some(0);
    if http10 && hosts.is_empty() && target.starts_with('/') {
        // HTTP/1.0 has no `Host`; the console, which needs one, refuses the request itself.
        return Ok(());
    }
    head::check_authority(method, target.as_bytes(), http10, &hosts)?;
    Ok(())
}

/// A problem as it stands on the wire, for a connection that is closed after it.
pub(super) fn written(problem: &Problem) -> Vec<u8> {
    let answer = problem.answer();
    let reason = http::StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason());
    let mut head = format!("HTTP/1.1 {} {}\r\n", answer.status, reason.unwrap_or("Refused"));
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    for (name, value) in EVERYWHERE {
        if !answer.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", answer.body.len()));
    let mut wire = head.into_bytes();
    wire.extend_from_slice(&answer.body);
    wire
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn read(bytes: &[u8]) -> Result<Option<Vec<u8>>, Code> {
        let admitted = admit(bytes, Duration::from_secs(5)).await.map_err(|(_, problem)| problem.code)?;
        let Some(mut framed) = admitted else { return Ok(None) };
        let mut whole = Vec::new();
        framed.read_to_end(&mut whole).await.unwrap();
        Ok(Some(whole))
    }

    #[tokio::test]
    async fn a_whole_request_passes_and_nothing_behind_it() {
        let wire = b"POST /v1/confirmations HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}".to_vec();
        assert_eq!(read(&wire).await, Ok(Some(wire.clone())));
        let two = [wire.as_slice(), b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        assert_eq!(read(&two).await, Ok(Some(wire)));
        assert_eq!(read(b"").await, Ok(None));
        for good in [
            &b"GET http://a/healthz HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"GET http://A.:80/healthz HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /healthz HTTP/1.0\r\n\r\n",
        ] {
            assert_eq!(read(good).await, Ok(Some(good.to_vec())), "{}", String::from_utf8_lossy(good));
        }
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(10_000));
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
        let ambiguous: [&str; 23] = [
            "\x16\x03\x01\x02\x00\x01\x00\x01",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\x00\r\n\r\n",
            // Line ends of one byte, each of which some parser takes for two.
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: b\rY: c\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            // Two names for the one who is asked.
            "GET http://evil.test/ HTTP/1.1\r\nHost: 127.0.0.1:7071\r\n\r\n",
            "GET http://127.0.0.1:7071/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET https://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        ];
        for wire in ambiguous {
            assert_eq!(read(wire.as_bytes()).await, Err(Code::RequestAmbiguous), "{wire:?}");
        }
        let others: [(&str, Code); 3] = [
            ("POST / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", Code::ExpectationFailed),
            (&many, Code::HeadTooLarge),
            (&long, Code::HeadTooLarge),
        ];
        for (wire, code) in others {
            assert_eq!(read(wire.as_bytes()).await, Err(code), "{:?}", &wire[..wire.len().min(80)]);
        }
    }

    #[test]
    fn a_refusal_is_a_problem_document_with_every_header() {
        let wire = String::from_utf8(written(&ambiguous("it is not"))).unwrap();
        let (head, body) = wire.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        for needed in ["application/problem+json", "no-store", "nosniff", "frame-ancestors 'none'", "connection: close"]
        {
            assert!(head.contains(needed), "{needed}");
        }
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], "REQUEST_AMBIGUOUS");
    }
}
