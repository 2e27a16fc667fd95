//! Writes the guard's own answers to an agent. Adds framing and nothing else.

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use crate::base::code::Code;
use crate::base::refusal::Refusal;
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;

/// The problem document of a refusal, with what the status asks for beside it.
pub(super) fn problem(problem: &Problem) -> Answer {
    let answer = problem.answer();
    match problem.code {
        // RFC 9110 section 11.6.1: a 401 says how to authenticate.
        Code::AgentUnknown => answer.with("WWW-Authenticate", "Bearer realm=\"countersign\""),
        _ => answer,
    }
}

/// The problem document of a refusal.
pub(super) fn refusal(refusal: Refusal) -> Answer {
    problem(&Problem::from(refusal))
}

fn has_body(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

/// Writes `answer` through pingora. The connection goes on where the request was read whole.
///
/// # Errors
///
/// The client is gone.
pub(super) async fn write(session: &mut Session, answer: Answer) -> Result<()> {
    let mut head = ResponseHeader::build(answer.status, Some(answer.headers.len() + 3))?;
    for (name, value) in answer.headers {
        head.append_header(name, value)?;
    }
    let body = if has_body(answer.status) { answer.body } else { Bytes::new() };
    if has_body(answer.status) {
        head.insert_header(CONTENT_LENGTH, body.len())?;
    }
    session.write_response_header(Box::new(head), body.is_empty()).await?;
    if !body.is_empty() {
        session.write_response_body(Some(body), true).await?;
    }
    Ok(())
}

/// `answer` as the last bytes of an HTTP/1.1 connection, for what never reached pingora.
pub(super) fn last_bytes(answer: &Answer) -> Vec<u8> {
    let reason = StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason());
    let mut bytes = format!("HTTP/1.1 {} {}\r\n", answer.status, reason.unwrap_or("")).into_bytes();
    for (name, value) in &answer.headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("Content-Length: {}\r\nConnection: close\r\n\r\n", answer.body.len()).as_bytes());
    bytes.extend_from_slice(&answer.body);
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_last_bytes_are_a_whole_response() {
        let answer = refusal(Refusal::new(Code::AgentUnknown, "who?"));
        let bytes = last_bytes(&answer);
        let text = std::str::from_utf8(&bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{head}");
        for line in [
            "Content-Type: application/problem+json",
            "WWW-Authenticate: Bearer realm=\"countersign\"",
            "x-should-retry: false",
            "Connection: close",
            &format!("Content-Length: {}", body.len()),
        ] {
            assert!(head.contains(line), "{line} in {head}");
        }
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["code"], &body["executed"]), (&"AGENT_UNKNOWN".into(), &false.into()));
    }
}
