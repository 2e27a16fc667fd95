//! Bytes that two parsers could read in two ways are refused before anything goes upstream.

use crate::support::{Guard, Response, Upstream, Wire};

/// A raw POST to `/free/a` with these extra header lines and this body.
fn post(guard: &Guard, lines: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /free/a HTTP/1.1\r\nHost: desk\r\n{}Content-Type: application/json\r\n{lines}\r\n{body}",
        guard.agent().header_lines()
    )
    .into_bytes()
}

/// A raw chunked POST whose body starts with these bytes.
fn chunked(guard: &Guard, body: &str) -> Vec<u8> {
    post(guard, "Transfer-Encoding: chunked\r\n", body)
}

/// Sends bytes, then a second request that must not be answered, and gives the first answer.
/// `None`: closed without one.
fn first_answer_then_closed(guard: &Guard, bytes: &[u8]) -> Result<Option<Response>, String> {
    let mut wire = Wire::open(guard.agent_address());
    let _ = wire.send(bytes);
    wire.finish();
    let Ok(Some(answer)) = wire.response("POST") else { return Ok(None) };
    if wire.closed_by_peer() { Ok(Some(answer)) } else { Err(format!("{}: the connection stays open", answer.status)) }
}

/// Checks a corpus of requests that must all end in 400 and a closed connection, with no draft
/// and not a byte upstream.
#[track_caller]
fn all_refused(guard: &Guard, upstream: &Upstream, corpus: &[(&str, Vec<u8>)]) {
    let mut wrong = Vec::new();
    for (name, bytes) in corpus {
        match first_answer_then_closed(guard, bytes) {
            Ok(None) => {}
            Ok(Some(answer)) if answer.status == 400 => {}
            Ok(Some(answer)) => wrong.push(format!("{name}: {} {}", answer.status, answer.text())),
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(upstream.heads(), 0, "something went upstream");
    assert_eq!(guard.approver().list("").len(), 0, "something was held");
    guard.agent().get("/tasks").must_be(200);
}

#[test]
fn well_framed_requests_are_taken() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for bytes in [
        post(&guard, "Content-Length: 7\r\n", "{\"a\":1}"),
        chunked(&guard, "3\r\n{\"b\r\n4\r\n\":1}\r\n0\r\n\r\n"),
        chunked(&guard, "0007;name=value\r\n{\"c\":1}\r\n0\r\n\r\n"),
        chunked(&guard, "7\r\n{\"d\":1}\r\n0\r\nX-Trailer: dropped\r\n\r\n"),
    ] {
        let mut wire = Wire::open(guard.agent_address());
        wire.send(&bytes).expect("sent");
        wire.response("POST").expect("an answer").expect("an answer").must_be(202);
    }
    assert_eq!(guard.approver().list("status=pending").len(), 4);
}

#[test]
fn two_framings_or_two_lengths_are_refused() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let smuggled = "POST /free/smuggled HTTP/1.1\r\nHost: desk\r\nContent-Length: 0\r\n\r\n";
    let corpus = [
        ("length then chunked", post(&guard, "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nG")),
        (
            "chunked then length",
            post(
                &guard,
                "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
                &format!("5c\r\n{smuggled}\r\n0\r\n\r\n"),
            ),
        ),
        ("two lengths", post(&guard, "Content-Length: 2\r\nContent-Length: 7\r\n", "{\"a\":1}")),
        ("two equal lengths", post(&guard, "Content-Length: 7\r\nContent-Length: 7\r\n", "{\"a\":1}")),
        ("a list of lengths", post(&guard, "Content-Length: 7, 7\r\n", "{\"a\":1}")),
        ("two codings", post(&guard, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")),
        ("another coding", post(&guard, "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")),
        ("identity", post(&guard, "Transfer-Encoding: identity\r\n", "")),
        ("identity beside a length", post(&guard, "Transfer-Encoding: identity\r\nContent-Length: 7\r\n", "{\"a\":1}")),
        ("misspelled chunked", post(&guard, "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n")),
        ("quoted chunked", post(&guard, "Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n")),
        ("chunked with a tab", post(&guard, "Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n")),
        ("signed length", post(&guard, "Content-Length: +7\r\n", "{\"a\":1}")),
        ("negative length", post(&guard, "Content-Length: -7\r\n", "{\"a\":1}")),
        ("hexadecimal length", post(&guard, "Content-Length: 0x7\r\n", "{\"a\":1}")),
        ("length with a space", post(&guard, "Content-Length: 7 7\r\n", "{\"a\":1}")),
        ("huge length", post(&guard, "Content-Length: 99999999999999999999999\r\n", "{\"a\":1}")),
        ("empty length", post(&guard, "Content-Length: \r\n", "{\"a\":1}")),
    ];
    all_refused(&guard, &upstream, &corpus);
}

#[test]
fn old_versions_with_new_framing_are_refused() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let lines = guard.agent().header_lines();
    let raw = |text: String| text.into_bytes();
    let corpus = [
        (
            "1.0 with chunked",
            raw(format!(
                "POST /free/a HTTP/1.0\r\nHost: desk\r\n{lines}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"
            )),
        ),
        ("0.9", raw("GET /tasks\r\n".to_owned())),
        ("2.0", raw(format!("POST /free/a HTTP/2.0\r\nHost: desk\r\n{lines}Content-Length: 0\r\n\r\n"))),
        ("9.9", raw(format!("POST /free/a HTTP/9.9\r\nHost: desk\r\n{lines}Content-Length: 0\r\n\r\n"))),
        ("lower-case version", raw(format!("POST /free/a http/1.1\r\nHost: desk\r\n{lines}Content-Length: 0\r\n\r\n"))),
        ("no version", raw(format!("POST /free/a\r\nHost: desk\r\n{lines}Content-Length: 0\r\n\r\n"))),
    ];
    all_refused(&guard, &upstream, &corpus);
}

#[test]
fn a_body_that_only_a_close_would_end_is_never_sent_apart_from_its_draft() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for version in ["HTTP/1.0", "HTTP/1.1"] {
        let text = format!(
            "POST /free/a {version}\r\nHost: desk\r\n{}Content-Type: application/json\r\n\r\n{{\"x\":1}}",
            guard.agent().header_lines()
        );
        let mut wire = Wire::open(guard.agent_address());
        wire.send(text.as_bytes()).expect("sent");
        wire.finish();
        let _ = wire.response("POST");
    }
    assert_eq!(upstream.heads(), 0);
    for draft in guard.approver().list("") {
        let draft = crate::support::Draft {
            id: draft["draft_id"].as_str().unwrap_or_default().to_owned(),
            args_hash: draft["args_hash"].as_str().unwrap_or_default().to_owned(),
        };
        guard.approver().confirm_fully(&draft);
    }
    // Whatever was held was held without a body, and the bytes behind it went nowhere.
    assert!(
        upstream.seen().iter().all(|seen| seen.body.is_empty() && seen.path() == "/free/a"),
        "{:?}",
        upstream.seen()
    );
}

#[test]
fn malformed_chunks_are_refused() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let corpus = [
        ("a letter too many", chunked(&guard, "1z\r\n{\r\n0\r\n\r\n")),
        ("0x", chunked(&guard, "0x1\r\n{\r\n0\r\n\r\n")),
        ("minus", chunked(&guard, "-1\r\n{\r\n0\r\n\r\n")),
        ("plus", chunked(&guard, "+1\r\n{\r\n0\r\n\r\n")),
        ("leading space", chunked(&guard, " 1\r\n{\r\n0\r\n\r\n")),
        ("trailing space", chunked(&guard, "1 \r\n{\r\n0\r\n\r\n")),
        ("empty size", chunked(&guard, "\r\n{\r\n0\r\n\r\n")),
        ("seventeen digits", chunked(&guard, "FFFFFFFFFFFFFFFF1\r\n{\r\n0\r\n\r\n")),
        ("sixteen digits", chunked(&guard, "FFFFFFFFFFFFFFFF\r\n{\r\n0\r\n\r\n")),
        ("bare line feed after the size", chunked(&guard, "1\n{\r\n0\r\n\r\n")),
        ("bare line feed in an extension", chunked(&guard, "1;a=b\n{\r\n0\r\n\r\n")),
        ("carriage return in an extension", chunked(&guard, "1;a=\rb\r\n{\r\n0\r\n\r\n")),
        ("bare carriage return first", chunked(&guard, "\r0\r\n\r\n")),
        ("no line end after the chunk", chunked(&guard, "2\r\n{}0\r\n\r\n")),
        ("bare line feed after the chunk", chunked(&guard, "2\r\n{}\n0\r\n\r\n")),
        ("two bytes too many", chunked(&guard, "2\r\n{}xx\r\n0\r\n\r\n")),
        ("bare line feed at the end", chunked(&guard, "2\r\n{}\r\n0\n\n")),
        ("NUL in an extension", chunked(&guard, "2;a=\0\r\n{}\r\n0\r\n\r\n")),
        ("an endless extension", chunked(&guard, &format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "a".repeat(70_000)))),
        ("endless zeros", chunked(&guard, &format!("{}2\r\n{{}}\r\n0\r\n\r\n", "0".repeat(70_000)))),
    ];
    all_refused(&guard, &upstream, &corpus);
}

#[test]
fn malformed_heads_are_refused() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let lines = guard.agent().header_lines();
    let head = |start: &str, more: &str| {
        format!("{start}\r\nHost: desk\r\n{lines}{more}Content-Length: 0\r\n\r\n").into_bytes()
    };
    let ok = "POST /free/a HTTP/1.1";
    let corpus = [
        ("folded header", head(ok, "X-A: one\r\n two\r\n")),
        ("header that starts with a space", head(ok, " X-A: one\r\n")),
        ("space before the colon", head(ok, "X-A : one\r\n")),
        ("tab before the colon", head(ok, "X-A\t: one\r\n")),
        ("space before the colon of the length", head(ok, "Content-Length : 5\r\n")),
        ("no colon", head(ok, "X-A one\r\n")),
        ("empty name", head(ok, ": one\r\n")),
        ("NUL in a value", head(ok, "X-A: o\0e\r\n")),
        ("NUL in a name", head(ok, "X-\0: one\r\n")),
        ("bare carriage return in a value", head(ok, "X-A: o\rX-B: e\r\n")),
        ("bare line feed between headers", head(ok, "X-A: one\nX-B: two\r\n")),
        ("odd character in a name", head(ok, "X(A): one\r\n")),
        (
            "bare line feeds only",
            format!("POST /free/a HTTP/1.1\nHost: desk\n{}Content-Length: 0\n\n", lines.replace("\r\n", "\n"))
                .into_bytes(),
        ),
        ("space in the target", head("POST /free/a b HTTP/1.1", "")),
        ("two spaces", head("POST  /free/a HTTP/1.1", "")),
        ("tab instead of space", head("POST\t/free/a\tHTTP/1.1", "")),
        ("NUL in the target", head("POST /free/\0a HTTP/1.1", "")),
        ("bare carriage return in the target", head("POST /free/\ra HTTP/1.1", "")),
        ("odd character in the method", head("PO(ST /free/a HTTP/1.1", "")),
        ("no target", head("POST HTTP/1.1", "")),
    ];
    all_refused(&guard, &upstream, &corpus);
}

#[test]
fn reads_with_a_body_are_refused() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let lines = guard.agent().header_lines();
    let corpus: Vec<(&str, Vec<u8>)> = ["GET", "HEAD", "OPTIONS"]
        .into_iter()
        .flat_map(|method| {
            let head = |more: &str| format!("{method} /tasks HTTP/1.1\r\nHost: desk\r\n{lines}{more}").into_bytes();
            [
                (method, head("Content-Length: 2\r\n\r\n{}")),
                (method, head("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
            ]
        })
        .collect();
    all_refused(&guard, &upstream, &corpus);
}

#[test]
fn an_expectation_is_met_or_refused() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let head = |value: &str| {
        format!(
            "POST /free/a HTTP/1.1\r\nHost: desk\r\n{}Expect: {value}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n",
            guard.agent().header_lines()
        )
    };
    let mut wire = Wire::open(guard.agent_address());
    wire.send(head("100-continue").as_bytes()).expect("sent");
    let interim = wire.response_head();
    assert!(interim.start.contains(" 100 "), "the guard asks for the body: {interim:?}");
    wire.send(b"{}").expect("sent");
    wire.response("POST").expect("an answer").expect("an answer").must_be(202);
    for value in ["200-ok", "100-continue, something-else"] {
        let answer =
            crate::support::raw(guard.agent_address(), format!("{}{{}}", head(value)).as_bytes()).expect("an answer");
        answer.must_refuse(417, "EXPECTATION_FAILED");
    }
    assert_eq!(upstream.heads(), 0);
}
