//! The suite's own tools, tried on each other: an oracle that miscounts would prove nothing.

use std::net::SocketAddr;

use crate::support::{Act, Answer, End, Gate, Request, Ticker, Upstream, Wire, exchange, raw, until};

fn post(address: SocketAddr, path: &str) -> Option<crate::support::Response> {
    let request = Request::post(path).body("application/json", "{\"a\":1}");
    raw(address, &request.to_bytes("desk"))
}

#[test]
fn the_origin_counts_complete_writes_and_nothing_else() {
    let upstream = Upstream::start();
    let address = upstream.address();
    exchange(address, &Request::get("/a")).must_be(200);
    exchange(address, &Request::new("HEAD", "/a")).must_be(200);
    assert_eq!(upstream.all_effects(), 0);
    for method in ["POST", "PUT", "PATCH", "DELETE", "FROB"] {
        exchange(address, &Request::new(method, "/a?x=1").body("text/plain", "body")).must_be(201);
    }
    let chunked =
        b"POST /a HTTP/1.1\r\nHost: desk\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
    raw(address, chunked).expect("an answer").must_be(201);
    assert_eq!((upstream.effects("/a"), upstream.all_effects()), (6, 6));
    assert_eq!(upstream.seen().last().map(|seen| seen.body.clone()), Some(b"abcde".to_vec()));
    raw(address, b"POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 9\r\n\r\nhalf");
    raw(address, b"POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(upstream.effects("/a"), 6, "half a request and a smuggled one have no effect");
    assert_eq!(upstream.heads(), 10, "but their heads were seen");
}

#[test]
fn the_origin_breaks_in_every_way_that_it_is_told() {
    let upstream = Upstream::start();
    let address = upstream.address();
    upstream.on("/close", Act::CloseAfterRead);
    assert!(post(address, "/close").is_none());
    assert_eq!(upstream.effects("/close"), 1);
    upstream.on("/reset", Act::ResetUnread);
    let mut wire = Wire::open(address);
    wire.send(&Request::get("/warm").to_bytes("desk")).expect("sent");
    wire.response("GET").expect("an answer").expect("an answer").must_be(200);
    wire.send(&Request::post("/reset").body("text/plain", "x").to_bytes("desk")).expect("sent");
    assert!(wire.response("POST").is_err(), "a reset is no clean end");
    assert_eq!(upstream.effects("/reset"), 0);
    upstream.answers("/short", Answer::json(200, "{}").ending(End::CutShort));
    assert!(post(address, "/short").is_none());
    upstream.answers("/close-ends-it", Answer::json(200, "{}").ending(End::Close));
    assert_eq!(post(address, "/close-ends-it").expect("an answer").body, b"{}");
    upstream.answers("/chunks", Answer::json(200, &"z".repeat(2500)).ending(End::Chunks));
    assert_eq!(post(address, "/chunks").expect("an answer").body.len(), 2500);
    upstream.on("/hint", Act::HintThenAnswer(Answer::status(204)));
    let hinted = post(address, "/hint").expect("an answer");
    assert_eq!((hinted.status, hinted.interim), (204, vec![103]));
    upstream.on("/early", Act::AnswerUnread(Answer::status(413)));
    assert_eq!(post(address, "/early").expect("an answer").status, 413);
    assert_eq!(upstream.effects("/early"), 0);
    upstream.on("/raw", Act::Raw(b"nothing like HTTP".to_vec()));
    assert!(post(address, "/raw").is_none());
}

#[test]
fn gates_and_tickers_wait_for_the_test() {
    let upstream = Upstream::start();
    let gate = Gate::default();
    upstream.on("/gate", Act::After(gate.clone(), Box::new(Act::Answer(Answer::status(200)))));
    let mut wire = Wire::open(upstream.address());
    wire.send(&Request::post("/gate").body("text/plain", "x").to_bytes("desk")).expect("sent");
    until("the call is at the gate", || gate.arrivals() == 1);
    assert_eq!(upstream.effects("/gate"), 1, "the effect comes before the answer");
    gate.open();
    wire.response("POST").expect("an answer").expect("an answer").must_be(200);

    let (ticks, ticker) = Ticker::new();
    upstream.on("/events", Act::Events(ticker));
    let mut wire = Wire::open(upstream.address());
    wire.send(&Request::get("/events").to_bytes("desk")).expect("sent");
    let head = wire.response_head();
    ticks.send("data: 1\n\n".to_owned()).expect("the origin listens");
    assert_eq!(wire.next_piece(&head), b"data: 1\n\n");
    drop(ticks);
    assert!(wire.next_piece(&head).is_empty());
}

#[test]
fn an_origin_that_is_closed_refuses_connections_until_it_is_reopened() {
    let upstream = Upstream::start();
    upstream.close();
    assert!(Wire::try_open(upstream.address()).is_err());
    upstream.reopen();
    exchange(upstream.address(), &Request::get("/back")).must_be(200);
}
