//! Reads stream through: nothing is buffered, changed, stored or repeated.

use std::time::Duration;

use crate::support::browser::Browser;
use crate::support::{Act, Answer, End, Guard, Request, Ticker, Upstream, Wire, raw, tokens};

#[test]
fn each_event_of_a_stream_arrives_before_the_next_is_sent() {
    let upstream = Upstream::start();
    let (ticks, ticker) = Ticker::new();
    upstream.on("/events", Act::Events(ticker));
    let guard = Guard::over(&upstream);
    let mut wire = Wire::open(guard.agent_address());
    wire.send(&guard.agent().dress(Request::get("/events")).to_bytes("desk")).expect("sent");
    let head = wire.response_head();
    assert!(head.start.contains(" 200 "), "{head:?}");
    assert_eq!(head.get("Content-Type"), Some("text/event-stream"));
    for n in 0..5 {
        let tick = format!("data: tick {n}\n\n");
        ticks.send(tick.clone()).expect("the origin listens");
        let mut got = Vec::new();
        while got.len() < tick.len() {
            let piece = wire.next_piece(&head);
            assert!(!piece.is_empty(), "the stream ended early");
            got.extend_from_slice(&piece);
        }
        assert_eq!(String::from_utf8_lossy(&got), tick);
    }
    drop(ticks);
    assert!(wire.next_piece(&head).is_empty(), "the end comes through as well");
}

#[test]
fn a_large_download_passes_without_filling_memory() {
    const LENGTH: usize = 64 << 20;
    let upstream = Upstream::start();
    upstream.on("/big", Act::Download(LENGTH));
    let guard = Guard::over(&upstream);
    guard.agent().get("/tasks").must_be(200);
    let before = guard.resident_kib();
    let mut wire = Wire::open(guard.agent_address());
    wire.send(&guard.agent().dress(Request::get("/big")).to_bytes("desk")).expect("sent");
    let head = wire.response_head();
    let mut got = 0;
    let mut most = before;
    while got < LENGTH {
        let piece = wire.next_piece(&head);
        assert!(!piece.is_empty(), "cut after {got} bytes");
        assert!(piece.iter().all(|byte| *byte == 0x5a));
        if got >> 23 != (got + piece.len()) >> 23 {
            most = most.max(guard.resident_kib());
        }
        got += piece.len();
    }
    assert_eq!(got, LENGTH);
    let grown = most - before;
    assert!(grown < 16 * 1024, "resident memory grew by {grown} KiB over a download of 64 MiB");
}

#[test]
fn status_headers_and_bytes_come_through_unchanged() {
    let upstream = Upstream::start();
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    upstream.answers(
        "/thing",
        Answer::status(206)
            .header("Content-Type", "application/x-thing")
            .header("Content-Range", "bytes 0-69999/100000")
            .header("ETag", "W/\"a\"")
            .header("Set-Cookie", "a=1; Path=/")
            .header("Set-Cookie", "b=2; HttpOnly")
            .header("X-Custom", "Mixed Case, kept")
            .body(bytes.clone()),
    );
    upstream.answers(
        "/chunks",
        Answer::status(200).header("Content-Type", "text/plain").body(bytes.clone()).ending(End::Chunks),
    );
    upstream.answers("/until-close", Answer::status(200).body(bytes.clone()).ending(End::Close));
    upstream.answers("/nothing", Answer::status(204));
    upstream.answers("/same", Answer::status(304).header("ETag", "\"v1\""));
    upstream.answers("/missing", Answer::json(404, "{\"error\":\"none\"}"));
    upstream.answers("/broken", Answer::json(500, "{\"error\":\"mine\"}"));
    let guard = Guard::over(&upstream);
    let agent = guard.agent();

    let thing = agent.send(Request::get("/thing?a=%20&b=C%2B%2B&a=2&x").header("Range", "bytes=0-69999")).must_be(206);
    assert_eq!(thing.body, bytes);
    for (name, value) in [
        ("Content-Type", "application/x-thing"),
        ("Content-Range", "bytes 0-69999/100000"),
        ("ETag", "W/\"a\""),
        ("X-Custom", "Mixed Case, kept"),
    ] {
        assert_eq!(thing.header(name), Some(value), "{name}");
    }
    let cookies: Vec<&str> = thing
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("Set-Cookie"))
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(cookies, ["a=1; Path=/", "b=2; HttpOnly"]);
    let seen = upstream.the_one("/thing");
    assert_eq!(seen.target, "/thing?a=%20&b=C%2B%2B&a=2&x");
    assert_eq!(seen.header("Range"), Some("bytes=0-69999"));
    assert_eq!(seen.header("Countersign-Agent"), None, "{:?}", seen.headers);

    assert_eq!(agent.get("/chunks").must_be(200).body, bytes);
    assert_eq!(agent.get("/until-close").must_be(200).body, bytes);
    assert_eq!(agent.get("/nothing").must_be(204).body, b"");
    assert_eq!(agent.get("/same").must_be(304).header("ETag"), Some("\"v1\""));
    assert_eq!(agent.get("/missing").must_be(404).text(), "{\"error\":\"none\"}");
    assert_eq!(agent.get("/broken").must_be(500).text(), "{\"error\":\"mine\"}");
    let head = agent.send(Request::new("HEAD", "/thing")).must_be(206);
    assert_eq!((head.body.len(), head.header("Content-Length")), (0, Some("70000")));
    agent.send(Request::new("OPTIONS", "/thing")).must_be(206);
}

/// Both listeners may stand on one host, and cookies know no ports.
#[test]
fn what_is_the_guards_own_neither_goes_upstream_nor_comes_from_there() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let mut browser = Browser::at(guard.control_address());
    browser.sign_in(tokens::ALICE).must_be(200);
    let session = browser.cookie_header();
    let name = session.split('=').next().expect("a name").to_owned();
    assert!(session.len() > 20 && !name.is_empty(), "{session}");
    for path in ["/tasks", "/free/cookies"] {
        let claims = Answer::json(200, "{}")
            .header("Set-Cookie", "sid=1; Path=/")
            .header("Set-Cookie", &format!("{name}=planted; Path=/"))
            .header("Countersign-Status", "succeeded")
            .header("Countersign-Receipt", "rc_forged")
            .header("countersign-draft", "dr_forged");
        upstream.answers(path, claims);
    }
    let agent = guard.agent().with("Cookie", &format!("a=1; {session}; b=2"));
    // Nearly all reads are relayed; those with a header for one connection alone are proxied.
    for reader in [agent.clone(), agent.with("TE", "trailers")] {
        let read = reader.get("/tasks").must_be(200);
        let cookies: Vec<&str> = read
            .headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("Set-Cookie"))
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(cookies, ["sid=1; Path=/"], "an upstream does not replace the console's session");
        for own in ["Countersign-Status", "Countersign-Receipt", "Countersign-Draft"] {
            assert_eq!(read.header(own), None, "only the guard says what became of a draft");
        }
    }
    let draft = agent.hold("/free/cookies", &serde_json::json!({}));
    guard.approver().confirm_fully(&draft);
    let result = agent.result(&draft).must_be(200);
    assert_eq!(result.header("Countersign-Draft"), Some(draft.id.as_str()));
    assert!(!format!("{:?}", result.headers).contains("forged"), "{:?}", result.headers);
    let alone = guard.agent().with("Cookie", &session);
    alone.get("/tasks").must_be(200);
    let sent: Vec<Option<String>> =
        upstream.seen().iter().map(|seen| seen.header("Cookie").map(str::to_owned)).collect();
    let without_it = Some("a=1; b=2".to_owned());
    assert_eq!(sent, [without_it.clone(), without_it.clone(), without_it, None]);
}

#[test]
fn one_connection_serves_many_calls_of_both_kinds() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let mut wire = Wire::open(guard.agent_address());
    for n in 0..20 {
        let read = guard.agent().dress(Request::get(&format!("/tasks?n={n}")));
        wire.send(&read.to_bytes("desk")).expect("sent");
        wire.response("GET").expect("an answer").expect("the connection stays open").must_be(200);
        let write =
            guard.agent().dress(Request::post("/tasks").body("application/json", format!("{{\"title\":\"n {n}\"}}")));
        wire.send(&write.to_bytes("desk")).expect("sent");
        wire.response("POST").expect("an answer").expect("the connection stays open").must_be(202);
    }
    assert_eq!(upstream.all_effects(), 0);
    assert_eq!(upstream.seen().len(), 20);
    assert_eq!(guard.approver().list("status=pending&limit=100").len(), 20);
}

#[test]
fn requests_sent_back_to_back_are_answered_in_order_or_cut_off_cleanly() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let mut bytes = agent.dress(Request::get("/tasks?first")).to_bytes("desk");
    bytes.extend(
        agent.dress(Request::post("/tasks").body("application/json", "{\"title\":\"behind a read\"}")).to_bytes("desk"),
    );
    bytes.extend(agent.dress(Request::get("/tasks?third")).to_bytes("desk"));
    let mut wire = Wire::open(guard.agent_address());
    wire.send(&bytes).expect("sent");
    wire.finish();
    let mut statuses = Vec::new();
    while let Ok(Some(answer)) = wire.response("GET") {
        statuses.push(answer.status);
    }
    assert!([200, 202, 200].starts_with(&statuses) && !statuses.is_empty(), "{statuses:?}");
    assert_eq!(upstream.all_effects(), 0);
}

#[test]
fn a_clients_hang_up_ends_a_read_and_harms_nobody() {
    let upstream = Upstream::start();
    let (ticks, ticker) = Ticker::new();
    upstream.on("/events", Act::Events(ticker));
    let mut guard = Guard::over(&upstream);
    let mut wire = Wire::open(guard.agent_address());
    wire.send(&guard.agent().dress(Request::get("/events")).to_bytes("desk")).expect("sent");
    wire.response_head();
    drop(wire);
    drop(ticks);
    guard.agent().get("/tasks").must_be(200);
    guard.must_be_alive();
}

#[test]
fn an_upgrade_is_refused_unless_the_policy_allows_it() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for protocol in ["websocket", "h2c", "tls/1.2"] {
        let request = guard.agent().dress(
            Request::get("/tasks")
                .header("Connection", "Upgrade")
                .header("Upgrade", protocol)
                .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        );
        let mut bytes = request.to_bytes("desk");
        bytes.extend_from_slice(b"POST /tasks HTTP/1.1\r\nHost: desk\r\nContent-Length: 0\r\n\r\n");
        let answer = raw(guard.agent_address(), &bytes).expect("an answer");
        answer.must_refuse(400, "REQUEST_AMBIGUOUS");
    }
    assert_eq!(upstream.all_effects(), 0);
    assert!(upstream.seen().iter().all(|seen| seen.header("Upgrade").is_none()), "{:?}", upstream.seen());
}

#[test]
fn a_read_whose_origin_is_gone_says_that_it_may_be_tried_again() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    upstream.close();
    let problem = guard.agent().get("/tasks").must_refuse(502, "UPSTREAM_FAILED");
    assert_eq!(problem["safe_to_retry"], true, "{problem}");
}

#[test]
fn a_read_that_takes_too_long_is_given_up_with_504() {
    let upstream = Upstream::start();
    let gate = crate::support::Gate::default();
    upstream.on("/slow", Act::After(gate.clone(), Box::new(Act::CloseAfterRead)));
    let guard =
        crate::support::Setup::over(&upstream).desk_with("read: 20s, total: 40s", "read: 1s, total: 2s").start();
    let began = std::time::Instant::now();
    guard.agent().get("/slow").must_refuse(504, "UPSTREAM_FAILED");
    assert!(began.elapsed() < Duration::from_secs(20));
    gate.open();
    assert_eq!(upstream.seen().len(), 1, "it was not asked twice");
}
