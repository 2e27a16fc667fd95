//! The first bytes of a connection: a request's head, or the reason why not.
//!
//! Owns the bounds of a head and the rule that a request is read in one way only. What does not
//! pass is answered with a problem document, which the HTTP library alone would not do. One
//! connection carries one request, so nothing can hide behind the first one.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::base::code::Code;
use crate::guard::problem::Problem;

use super::reply::EVERYWHERE;

/// Longest head, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most header lines.
pub(super) const HEADERS_MAX: usize = 128;

/// Reads until the head is complete and returns every byte read so far. `Ok(None)`: the peer
/// closed without sending anything, or went away.
///
/// # Errors
///
/// The problem to answer with before the connection is closed.
pub(super) async fn read_head(
    from: &mut (impl AsyncRead + Unpin),
    patience: Duration,
) -> Result<Option<Bytes>, Problem> {
    let mut buffer = BytesMut::with_capacity(4 * 1024);
    let reading = async {
        loop {
            match from.read_buf(&mut buffer).await {
                Ok(0) if buffer.is_empty() => return Ok(false),
                Ok(0) => return Err(ambiguous("it broke off in the head")),
                Ok(_) => {}
                Err(_) => return Ok(false),
            }
            if complete(&buffer)? {
                return Ok(true);
            }
            if buffer.len() >= HEAD_BYTES_MAX {
                return Err(too_large());
            }
        }
    };
    match tokio::time::timeout(patience, reading).await {
        Ok(Ok(true)) => Ok(Some(buffer.freeze())),
        Ok(Ok(false)) => Ok(None),
        Ok(Err(problem)) => Err(problem),
        Err(_) => {
            Err(Problem::new(Code::RequestTimeout, "The request's head did not arrive in time. Nothing was changed."))
        }
    }
}

fn ambiguous(why: &str) -> Problem {
    Problem::new(
        Code::RequestAmbiguous,
        format!("This is no HTTP/1.1 request that can be read in one way only: {why}."),
    )
}

fn too_large() -> Problem {
    let detail = format!("A head may have {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} header lines. Nothing was changed.");
    Problem::new(Code::HeadTooLarge, detail)
}

/// Whether the head is there, whole and unambiguous.
fn complete(bytes: &[u8]) -> Result<bool, Problem> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => Ok(false),
        Err(httparse::Error::TooManyHeaders) => Err(too_large()),
        Err(error) => Err(ambiguous(&error.to_string())),
        Ok(httparse::Status::Complete(length)) if length > HEAD_BYTES_MAX => Err(too_large()),
        Ok(httparse::Status::Complete(_)) => framed_once(&request).map(|()| true),
    }
}

/// One length, one host, and no expectation that is not met.
fn framed_once(request: &httparse::Request<'_, '_>) -> Result<(), Problem> {
    let all = |name: &str| -> Vec<&[u8]> {
        let same = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        same.map(|header| header.value).collect()
    };
    let (lengths, codings, hosts) = (all("content-length"), all("transfer-encoding"), all("host"));
    let digits = |text: &&[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if lengths.len() + codings.len() > 1 {
        return Err(ambiguous("it states its length more than once"));
    }
    if !lengths.iter().all(digits) {
        return Err(ambiguous("its Content-Length is no number"));
    }
    if codings.iter().any(|coding| !coding.eq_ignore_ascii_case(b"chunked"))
        || (!codings.is_empty() && request.version != Some(1))
    {
        return Err(ambiguous("its Transfer-Encoding is not exactly `chunked`"));
    }
    if hosts.len() > 1 || (hosts.is_empty() && request.version == Some(1)) {
        return Err(ambiguous("it needs exactly one Host"));
    }
    if all("expect").iter().any(|expected| !expected.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Problem::new(
            Code::ExpectationFailed,
            "The only expectation met here is 100-continue. Nothing was changed.",
        ));
    }
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

    async fn read(bytes: &[u8]) -> Result<Option<Bytes>, Code> {
        let mut from = bytes;
        read_head(&mut from, Duration::from_secs(5)).await.map_err(|problem| problem.code)
    }

    #[tokio::test]
    async fn a_whole_head_passes_with_what_came_after_it() {
        let wire = b"POST /v1/confirmations HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(read(wire).await.unwrap().unwrap(), &wire[..]);
        assert_eq!(read(b"").await, Ok(None));
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(10_000));
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
        let cases: [(&[u8], Code); 16] = [
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Code::RequestAmbiguous),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Code::RequestAmbiguous),
            (b"GET / HTTP/1.1\r\nHost: a", Code::RequestAmbiguous),
            (b"GET / HTTP/1.1\r\n\r\n", Code::RequestAmbiguous),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Code::RequestAmbiguous),
            (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", Code::RequestAmbiguous),
            (b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", Code::RequestAmbiguous),
            (b"GET / HTTP/1.1\r\nHost: a\x00\r\n\r\n", Code::RequestAmbiguous),
            (
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Code::RequestAmbiguous,
            ),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", Code::RequestAmbiguous),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", Code::RequestAmbiguous),
            (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Code::RequestAmbiguous),
            (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Code::RequestAmbiguous),
            (b"POST / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", Code::ExpectationFailed),
            (many.as_bytes(), Code::HeadTooLarge),
            (long.as_bytes(), Code::HeadTooLarge),
        ];
        for (wire, code) in cases {
            assert_eq!(read(wire).await, Err(code), "{:?}", String::from_utf8_lossy(&wire[..wire.len().min(80)]));
        }
    }

    #[test]
    fn a_refusal_is_a_problem_document_with_every_header() {
        let wire = String::from_utf8(written(&too_large())).unwrap();
        let (head, body) = wire.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
        for needed in ["application/problem+json", "no-store", "nosniff", "frame-ancestors 'none'", "connection: close"]
        {
            assert!(head.contains(needed), "{needed}");
        }
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], "HEAD_TOO_LARGE");
    }
}
