//! Bad input of every kind gets a clear answer; the process stays up and loses nothing.

use serde_json::json;

use crate::support::{Guard, Request, Response, Setup, Upstream, Wire, raw, tokens};

/// The pool of hostile openings for both listeners.
fn garbage() -> Vec<Vec<u8>> {
    let mut pool: Vec<Vec<u8>> = vec![
        b"\0\0\0\0\0\0\0\0".to_vec(),
        b"\r\n\r\n\r\n".to_vec(),
        b"\n".to_vec(),
        b"GET".to_vec(),
        b"GET /tasks HTTP/1.1\r\nHost: desk\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
        b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(),
        b"EHLO mail.test\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        vec![0xff; 10_000],
        vec![b'A'; 200_000],
        format!("GET /{} HTTP/1.1\r\nHost: desk\r\n\r\n", "a".repeat(100_000)).into_bytes(),
    ];
    // Bytes without meaning, the same in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for length in [1, 7, 64, 1000, 20_000] {
        let mut bytes = Vec::with_capacity(length);
        for _ in 0..length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.push((state >> 56) as u8);
        }
        pool.push(bytes);
    }
    pool
}

/// What came was refused with a problem document, and not by a silent close.
fn must_be_problem(answer: Option<Response>, what: &str) -> Response {
    let answer = answer.unwrap_or_else(|| panic!("{what}: closed without an answer"));
    assert!((400..500).contains(&answer.status), "{what}: {answer:?}");
    assert_eq!(answer.header("Content-Type"), Some("application/problem+json"), "{what}: {answer:?}");
    assert_eq!(answer.json()["executed"], false, "{what}: {answer:?}");
    answer
}

#[test]
fn garbage_on_both_listeners_harms_nobody() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    for address in [guard.agent_address(), guard.control_address()] {
        for bytes in garbage() {
            let answer = raw(address, &bytes);
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            let problem = must_be_problem(answer, &format!("{address}: {shown:?}")).json();
            let right = ["REQUEST_AMBIGUOUS", "HEAD_TOO_LARGE"];
            assert!(right.iter().any(|code| problem["code"] == *code), "{address}: {shown:?}: {problem}");
        }
        guard.must_be_alive();
    }
    assert_eq!(upstream.heads(), 0);
    let draft = guard.agent().hold_task("still working");
    guard.approver().confirm_fully(&draft);
    guard.agent().get("/tasks").must_be(200);
}

#[test]
fn requests_that_are_cut_short_hold_nothing() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let whole = guard
        .agent()
        .dress(Request::post("/tasks").json(&json!({"title": "cut short", "priority": 1})))
        .to_bytes("desk");
    for length in (1..whole.len()).step_by(7).chain([whole.len() - 1]) {
        let answer = raw(guard.agent_address(), &whole[..length]);
        let problem = must_be_problem(answer, &format!("cut after {length} of {} bytes", whole.len())).json();
        assert_eq!(problem["code"], "REQUEST_AMBIGUOUS", "cut after {length}");
    }
    let mut chunked = guard
        .agent()
        .dress(
            Request::post("/tasks").header("Transfer-Encoding", "chunked").header("Content-Type", "application/json"),
        )
        .to_bytes("desk");
    chunked.extend_from_slice(b"f\r\n{\"title\":\"cut\"}\r\n");
    let answer = raw(guard.agent_address(), &chunked);
    assert_eq!(must_be_problem(answer, "cut in its chunks").json()["code"], "REQUEST_AMBIGUOUS");
    guard.must_be_alive();
    assert_eq!(guard.approver().list("").len(), 0);
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn cut_short_decisions_decide_nothing() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("half a click");
    let whole = guard.approver().dress(crate::support::Approver::confirm_request(&draft)).to_bytes("control");
    for length in (1..whole.len()).step_by(5).chain([whole.len() - 1]) {
        must_be_problem(raw(guard.control_address(), &whole[..length]), &format!("cut after {length}"));
    }
    assert_eq!(guard.draft(&draft.id)["status"], "pending");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_body_of_a_hundred_megabytes_is_refused_on_both_listeners() {
    const LENGTH: usize = 100 << 20;
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let before = guard.resident_kib();
    let agent = guard.agent().dress(Request::post("/tasks").header("Content-Type", "application/json"));
    let control =
        guard.approver().dress(Request::post("/v1/drafts/x/confirm").header("Content-Type", "application/json"));
    for (address, request) in [(guard.agent_address(), agent), (guard.control_address(), control)] {
        let mut wire = Wire::open(address);
        wire.send(&request.header("Content-Length", &LENGTH.to_string()).to_bytes("desk")).expect("sent");
        let piece = vec![b' '; 1 << 20];
        let sent = (0..100).take_while(|_| wire.send(&piece).is_ok()).count();
        let answer = wire.response("POST").ok().flatten();
        let answer = answer.unwrap_or_else(|| panic!("{address}: closed without an answer after {sent} MiB"));
        answer.must_refuse(413, "BODY_TOO_LARGE");
    }
    let announced = guard.agent().send(
        Request::post("/tasks")
            .header("Content-Type", "application/json")
            .header("Content-Length", &LENGTH.to_string()),
    );
    announced.must_refuse(413, "BODY_TOO_LARGE");
    assert!(guard.resident_kib() < before + 32 * 1024, "memory grew with a body that was refused");
    guard.must_be_alive();
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn ten_thousand_headers_are_refused_with_431() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let lines: String = (0..10_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let over_the_count: String = (0..129).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let one_long = format!("X-Long: {}\r\n", "v".repeat(200_000));
    for (what, lines) in [("many", lines), ("short ones over the count", over_the_count), ("one long", one_long)] {
        let text = format!("GET /tasks HTTP/1.1\r\nHost: desk\r\n{}{lines}\r\n", guard.agent().header_lines());
        let mut wire = Wire::open(guard.agent_address());
        let _ = wire.send(text.as_bytes());
        let answer = wire.response("GET").ok().flatten().unwrap_or_else(|| panic!("{what}: closed without an answer"));
        answer.must_refuse(431, "HEAD_TOO_LARGE");
        let mut wire = Wire::open(guard.control_address());
        let _ = wire.send(text.as_bytes());
        let answer = wire.response("GET").ok().flatten();
        let answer = answer.unwrap_or_else(|| panic!("{what}: the control listener closed without an answer"));
        answer.must_refuse(431, "HEAD_TOO_LARGE");
    }
    let within: String = (0..100).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let text = format!(
        "GET /tasks HTTP/1.1\r\nHost: desk\r\n{}{within}Connection: close\r\n\r\n",
        guard.agent().header_lines()
    );
    let mut wire = Wire::open(guard.agent_address());
    wire.send(text.as_bytes()).expect("sent");
    wire.response("GET").expect("an answer").expect("an answer").must_be(200);
    guard.must_be_alive();
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn slow_clients_are_given_up() {
    let upstream = Upstream::start();
    let mut guard = Setup::over(&upstream).section("limits", "{pending_per_owner: 100, head: 1s, body: 1s}").start();
    let mut head = Wire::open(guard.agent_address());
    head.send(b"GET /tasks HTTP/1.1\r\nHost: de").expect("sent");
    let mut body = Wire::open(guard.agent_address());
    let request = guard
        .agent()
        .dress(Request::post("/tasks").header("Content-Type", "application/json").header("Content-Length", "50"));
    body.send(&request.to_bytes("desk")).expect("sent");
    body.send(b"{\"title\":").expect("sent");
    let mut idle = Wire::open(guard.agent_address());
    for (what, wire) in [("a head", &mut head), ("a body", &mut body)] {
        let answer = wire.response("POST").ok().flatten().unwrap_or_else(|| panic!("{what}: no answer"));
        answer.must_refuse(408, "REQUEST_TIMEOUT");
        assert!(wire.closed_by_peer(), "{what}: the connection is given up");
    }
    assert!(idle.closed_by_peer(), "a connection without a byte is given up");
    guard.must_be_alive();
    assert_eq!(guard.approver().list("").len(), 0);
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn many_idle_connections_do_not_keep_others_out() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let idle: Vec<Wire> = (0..200).map(|_| Wire::open(guard.agent_address())).collect();
    let stalled: Vec<Wire> = (0..50)
        .map(|_| {
            let mut wire = Wire::open(guard.control_address());
            let _ = wire.send(b"POST /v1/confirmations HTTP/1.1\r\nHost: x\r\n");
            wire
        })
        .collect();
    let draft = guard.agent().hold_task("in between");
    guard.approver().confirm_fully(&draft);
    drop((idle, stalled));
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn odd_queries_of_the_control_listener_are_refused_and_good_ones_answered() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    guard.agent().hold_task("listed");
    let alice = guard.approver();
    for bad in [
        "status=nonsense",
        "risk=extreme",
        "limit=0",
        "limit=-1",
        "limit=99999999999",
        "cursor=%00",
        "limit=x",
        "status=pending&status=",
        "surprise=1",
    ] {
        alice.get(&format!("/v1/drafts?{bad}")).must_refuse(422, "REQUEST_INVALID");
    }
    for good in ["", "status=pending", "risk=low", "tool=add_task", "limit=1", "owner=u-17"] {
        assert_eq!(alice.list(good).len(), 1, "{good}");
    }
    for none in ["status=succeeded", "risk=high", "tool=pay", "owner=u-18", "tool=%ff"] {
        assert_eq!(alice.list(none).len(), 0, "{none}");
    }
    guard.must_be_alive();
}

#[test]
fn a_long_queue_is_read_page_by_page() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let mut held: Vec<String> = (0..23).map(|n| guard.agent().hold_task(&format!("page {n}")).id).collect();
    let alice = guard.approver();
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = alice.get(&format!("/v1/drafts?limit=10{cursor}")).must_be(200).json();
        let drafts = page["drafts"].as_array().expect("drafts").clone();
        assert!(drafts.len() <= 10);
        seen.extend(drafts.iter().map(|draft| draft["draft_id"].as_str().unwrap_or_default().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
        assert!(seen.len() <= held.len(), "pages without end");
    }
    held.sort();
    seen.sort();
    assert_eq!(seen, held);
    assert_eq!(guard.approver_with(tokens::FAYE).list("").len(), 0);
}
