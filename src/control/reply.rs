//! From the guard's answers to HTTP responses, and the headers that go with every one.
//!
//! Owns the security headers. Must never build a problem's words for a refusal that the guard
//! made: those come as they are.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::base::code::Code;
use crate::base::id::DraftId;
use crate::base::refusal::FieldError;
use crate::guard::answer::Answer;
use crate::guard::problem::{Executed, Problem};
use crate::policy::visible::spelled_json;

/// What a page of the console may load and do: its own style sheet, its own script, its own
/// forms. No frames, no foreign bytes, nothing inline.
pub(super) const CONSOLE_CSP: &str = "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; \
frame-ancestors 'none'; base-uri 'none'";

/// What everything else may do: nothing.
const PLAIN_CSP: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Headers of every answer. `same-origin` and not `no-referrer`: with the latter browsers send
/// `Origin: null` with our own forms, and nothing could be checked.
pub(super) const EVERYWHERE: [(&str, &str); 7] = [
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("content-security-policy", PLAIN_CSP),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// An answer of the guard as a response. JSON is printed to terminals, so what would be obeyed or
/// not be seen there is escaped; its value stays the same.
pub(super) fn from_answer(answer: Answer) -> Response {
    let is_json = answer
        .headers
        .iter()
        .any(|(name, value)| name.eq_ignore_ascii_case("content-type") && value.split(';').next().is_some_and(of_json));
    let body = match is_json.then(|| std::str::from_utf8(&answer.body).map(spelled_json)) {
        Some(Ok(Cow::Owned(spelled))) => spelled.into_bytes().into(),
        _ => answer.body,
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        // What cannot stand in a header is left out: the body says it too.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    secured(response)
}

fn of_json(media_type: &str) -> bool {
    media_type == "application/json" || media_type.ends_with("+json")
}

/// Adds the headers of every answer where they do not stand yet.
pub(super) fn secured(mut response: Response) -> Response {
    for (name, value) in EVERYWHERE {
        response.headers_mut().entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// A problem as a response; 401 names the scheme.
pub(super) fn from_problem(problem: &Problem) -> Response {
    let mut response = from_answer(problem.answer());
    if response.status() == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"countersign\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// A JSON answer.
pub(super) fn json<T: Serialize>(status: u16, body: &T) -> Response {
    from_answer(Answer::json(status, body))
}

/// Text of a given media type.
pub(super) fn text(media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    secured(response)
}

/// A result or the problem.
pub(super) fn json_or_problem<T: Serialize>(result: Result<T, Problem>) -> Response {
    match result {
        Ok(body) => json(200, &body),
        Err(problem) => from_problem(&problem),
    }
}

/// A control request that does not fit, with one mistake.
pub(super) fn invalid(pointer: &str, reason: impl Into<String>) -> Problem {
    invalid_all(vec![FieldError { pointer: pointer.to_owned(), reason: reason.into() }])
}

/// A control request that does not fit, with all its mistakes.
pub(super) fn invalid_all(errors: Vec<FieldError>) -> Problem {
    let mut problem =
        Problem::new(Code::RequestInvalid, "The request does not fit; nothing was changed. See `errors`.");
    problem.errors = errors;
    problem
}

/// Nothing that a draft says is passed on where it does not verify.
pub(super) fn not_intact(id: &DraftId) -> Problem {
    let detail =
        "The stored draft does not verify, so nothing it says is believed. Look for who can write to the store.";
    let mut problem = Problem::new(Code::DraftIntegrityFailed, detail).about(id);
    problem.executed = Executed::Unknown;
    problem
}

/// No draft has this id.
pub(super) fn no_such_draft() -> Problem {
    Problem::new(Code::DraftNotFound, "No draft has this id: it was never known, or it is past its retention.")
}
