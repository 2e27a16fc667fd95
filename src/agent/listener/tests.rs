#![allow(clippy::unwrap_used, clippy::panic)]

mod holds;
mod relay;
mod tls;

use http::HeaderName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::identity::{AgentEntry, Source};
use super::super::observe::Verdict;
use super::super::testing::{Answered, Client, Origin, Running, Script, Setup, ok, open, soon};
use super::*;
use crate::base::digest::Digest;
use crate::base::id::{Initiator, Tenant};
use crate::base::secret::Secret;
use crate::draft::record::Effect;
use crate::policy::model::Credential;

const GET: &str = "GET /todos?done=no HTTP/1.1\r\nHost: notes.internal\r\nX-Mine: 1\r\n\r\n";

fn post(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /todos HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// The problem, and the proof that nothing reached the upstream.
async fn refused(running: &Running, origin: &Origin, request: &str) -> Answered {
    let answer = Client::once(running.address, request).await;
    assert_eq!(origin.connections(), 0, "{request:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{request:?}: {answer:?}");
    assert_eq!(answer.json()["executed"], false, "{request:?}");
    answer
}

#[tokio::test]
async fn a_read_passes_with_the_upstreams_host_and_comes_back_untouched() {
    let (origin, running) = open(ok("hello")).await;
    let mut client = Client::connect(running.address).await;
    for _ in 0..2 {
        client.send(GET).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.body.as_str(), answer.header("x-origin")), (200, "hello", Some("yes")));
        assert_eq!(answer.header("content-length"), Some("5"));
    }
    let expected = format!("GET /todos?done=no HTTP/1.1\r\nHost: {}\r\nX-Mine: 1\r\n\r\n", origin.address);
    assert_eq!(origin.received(), [expected.clone(), expected]);
    assert_eq!(origin.connections(), 1, "the connection to the upstream is kept");
    let seen = running.seen.0.lock().unwrap().clone();
    assert_eq!(seen[0], (Some("origin".to_owned()), Effect::Read, Verdict::Pass));
}

#[tokio::test]
async fn requests_that_come_early_are_answered_in_order() {
    let (origin, running) = open(ok("hello")).await;
    let mut client = Client::connect(running.address).await;
    client.send(&[GET, "HEAD /x HTTP/1.1\r\nHost: t\r\n\r\n", GET].concat()).await;
    assert_eq!(client.answer().await.body, "hello");
    origin.script(Script::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec()));
    assert_eq!(client.answer_to(true).await.header("content-length"), Some("5"));
    origin.script(ok("again"));
    let third = client.answer().await;
    assert_eq!(third.status, 200);
    assert_eq!(origin.received().len(), 3);
}

#[tokio::test]
async fn a_path_of_the_upstreams_url_is_put_in_front_and_the_target_is_not_touched() {
    let origin = Origin::start(ok("")).await;
    let running = Setup::open(&format!("{}/base", origin.url())).run().await;
    for (sent, expected) in [
        ("/q?a=2&a=1", "/base/q?a=2&a=1"),
        ("/q?q=C%2B%2B", "/base/q?q=C%2B%2B"),
        ("/q?", "/base/q?"),
        ("/q?x", "/base/q?x"),
        ("/%E2%82%AC", "/base/%E2%82%AC"),
        ("http://t/abs?y=1", "/base/abs?y=1"),
    ] {
        let answer =
            Client::once(running.address, &format!("GET {sent} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"))
                .await;
        assert_eq!(answer.status, 200, "{sent}: {answer:?}");
        let line = origin.received().last().unwrap().split("\r\n").next().unwrap().to_owned();
        assert_eq!(line, format!("GET {expected} HTTP/1.1"));
    }
}

#[tokio::test]
async fn ambiguous_framing_is_refused_and_nothing_reaches_the_upstream() {
    let (origin, running) = open(ok("hello")).await;
    for (request, status, code) in [
        (
            "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
            400,
            "REQUEST_AMBIGUOUS",
        ),
        ("GET /a HTTP/1.1\r\nHost: t\r\nHost: u\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\nHost: t\n\n", 400, "REQUEST_AMBIGUOUS"),
        ("POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET http://u/a HTTP/1.1\r\nHost: t\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\r\nHost: pay.test@evil\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a/../b HTTP/1.1\r\nHost: t\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a//b HTTP/1.1\r\nHost: t\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\r\nHost: t\r\nX-HTTP-Method-Override: DELETE\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\r\nHost: t\r\nCountersign-Status: succeeded\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("GET /a HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 400, "REQUEST_AMBIGUOUS"),
        ("TRACE /a HTTP/1.1\r\nHost: t\r\n\r\n", 405, "METHOD_REFUSED"),
        ("CONNECT t:443 HTTP/1.1\r\nHost: t:443\r\n\r\n", 405, "METHOD_REFUSED"),
        ("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nExpect: 200-ok\r\n\r\nx", 417, "EXPECTATION_FAILED"),
    ] {
        let answer = refused(&running, &origin, request).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{request:?}");
        assert_eq!(answer.header("x-should-retry"), Some("false"), "{request:?}");
    }
    let headers = "A: b\r\n".repeat(10_000);
    let answer = refused(&running, &origin, &format!("GET /a HTTP/1.1\r\nHost: t\r\n{headers}\r\n")).await;
    assert_eq!((answer.status, answer.code().as_str()), (431, "HEAD_TOO_LARGE"));
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test]
async fn a_smuggled_request_is_never_seen() {
    let (origin, running) = open(ok("hello")).await;
    let mut client = Client::connect(running.address).await;
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5c\r\nGET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 400);
    assert!(client.is_closed().await);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_malformed_chunk_is_refused_and_closes() {
    let (origin, running) = open(ok("hello")).await;
    for line in ["1z", "0x1", "-1", "+1", "1;a=b\n", "\r0", " 1", "FFFFFFFFFFFFFFFF1"] {
        let mut client = Client::connect(running.address).await;
        client
            .send(&format!("POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{line}\r\nx\r\n0\r\n\r\n"))
            .await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "REQUEST_AMBIGUOUS"), "{line:?}");
        assert!(client.is_closed().await, "{line:?}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_refused_write_calls_no_upstream_and_leaves_the_connection_usable() {
    let origin = Origin::start(ok("hello")).await;
    let mut setup = Setup::open(&origin.url());
    setup.service().unmatched.write_held = false;
    let running = setup.run().await;
    let answer = refused(&running, &origin, &post("{}")).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "TOOL_NOT_FOUND"));
    let mut client = Client::connect(running.address).await;
    client.send("DELETE /todos/7 HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(client.answer().await.code(), "TOOL_NOT_FOUND");
    client.send(GET).await;
    assert_eq!(client.answer().await.body, "hello");
    assert_eq!(running.seen.0.lock().unwrap()[0], (Some("origin".to_owned()), Effect::Write, Verdict::Refuse));
}

#[tokio::test]
async fn a_body_over_its_bound_is_refused_before_it_is_read() {
    let origin = Origin::start(ok("")).await;
    let mut setup = Setup::open(&origin.url());
    setup.service().body_bytes_max = Some(1000);
    let running = setup.run().await;
    // Declared: answered without a byte of the body, and the client is not asked for it.
    let declared = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 104857600\r\nExpect: 100-continue\r\n\r\n";
    let answer = refused(&running, &origin, declared).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "BODY_TOO_LARGE"));
    // In chunks: as soon as it is too long.
    let chunk = format!("200\r\n{}\r\n", "x".repeat(512));
    let answer = refused(
        &running,
        &origin,
        &format!("POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}"),
    )
    .await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "BODY_TOO_LARGE"));
}

#[tokio::test]
async fn a_client_that_sends_100_mb_still_reads_its_refusal() {
    let (origin, running) = open(ok("")).await;
    let mut client = Client::connect(running.address).await;
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 104857600\r\n\r\n").await;
    let (mut read, mut write) = client.stream.into_split();
    let sending = tokio::spawn(async move {
        let piece = vec![b'x'; 1 << 20];
        let mut sent = 0;
        while sent < 100 && write.write_all(&piece).await.is_ok() {
            sent += 1;
        }
    });
    let mut answer = Vec::new();
    soon(async {
        while !answer.windows(14).any(|window| window == b"BODY_TOO_LARGE") {
            assert!(read.read_buf(&mut answer).await.unwrap() > 0, "reset before the answer was read");
        }
    })
    .await;
    drop(read);
    soon(sending).await.unwrap();
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_slow_body_and_a_slow_head_are_timed_out() {
    let origin = Origin::start(ok("")).await;
    let mut setup = Setup::open(&origin.url());
    setup.config.limits.body = Duration::from_millis(100);
    setup.config.limits.head = Duration::from_millis(100);
    let running = setup.run().await;
    for slow in ["POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n{", "POST /a HT"] {
        let mut client = Client::connect(running.address).await;
        client.send(slow).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.code().as_str()), (408, "REQUEST_TIMEOUT"), "{slow:?}");
        assert!(client.is_closed().await);
    }
    // A connection that never says anything is closed without a word.
    assert!(Client::connect(running.address).await.is_closed().await);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_request_that_breaks_off_is_refused() {
    let (origin, running) = open(ok("")).await;
    for cut in ["POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n{", "POST /a HT"] {
        let mut client = Client::connect(running.address).await;
        client.send(cut).await;
        client.stream.shutdown().await.unwrap();
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "REQUEST_AMBIGUOUS"), "{cut:?}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn bodies_have_a_bound_in_sum() {
    let origin = Origin::start(ok("")).await;
    let mut setup = Setup::open(&origin.url());
    setup.config.limits.held_bytes_max = 1000;
    let running = setup.run().await;
    let mut first = Client::connect(running.address).await;
    first.send(&format!("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n{}", "x".repeat(900))).await;
    // The second has to wait for the first one's bytes to be read: asked until it is refused.
    let refusal = soon(async {
        loop {
            let answer = Client::once(running.address, &post(&format!("\"{}\"", "y".repeat(198)))).await;
            if answer.status == 429 {
                return answer;
            }
        }
    })
    .await;
    assert_eq!((refusal.code().as_str(), refusal.header("x-should-retry")), ("RATE_LIMITED", None));
    drop(first);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn the_guard_itself_tells_a_writing_client_to_continue() {
    let (origin, running) = open(ok("")).await;
    let mut client = Client::connect(running.address).await;
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 100);
    client.send("{}").await;
    assert!(client.answer().await.status > 200);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn an_upstream_that_closes_without_an_answer_is_asked_once() {
    let (origin, running) = open(ok("warm")).await;
    let mut client = Client::connect(running.address).await;
    client.send(GET).await;
    assert_eq!(client.answer().await.body, "warm");
    origin.script(Script::CloseUnanswered);
    client.send(GET).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.code().as_str()), (502, "UPSTREAM_FAILED"));
    assert_eq!((&answer.json()["upstream_called"], &answer.json()["safe_to_retry"]), (&true.into(), &true.into()));
    assert_eq!(origin.received().len(), 2, "the warm one and one more, on the reused connection");
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn a_silent_upstream_is_a_504_and_a_closed_port_a_502() {
    let origin = Origin::start(Script::Silent).await;
    let mut setup = Setup::open(&origin.url());
    setup.service().upstream.timeouts.read = Duration::from_millis(100);
    let running = setup.run().await;
    let answer = Client::once(running.address, GET).await;
    assert_eq!(
        (answer.status, answer.code().as_str(), &answer.json()["status"]),
        (504, "UPSTREAM_FAILED", &504.into())
    );
    assert_eq!(origin.received().len(), 1);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let running = Setup::open(&format!("http://{closed}")).run().await;
    let answer = Client::once(running.address, GET).await;
    assert_eq!((answer.status, &answer.json()["upstream_called"]), (502, &false.into()));
}

#[tokio::test]
async fn addresses_that_are_never_reachable_are_refused() {
    let running = Setup::open("http://169.254.169.254:80").run().await;
    let answer = Client::once(running.address, GET).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "HOST_REFUSED"));
    // The guard itself as an upstream of its own, by reload.
    let looping = Setup::open(&format!("http://{}", running.address)).set;
    running.policies.store(Arc::new(looping));
    let answer = Client::once(running.address, GET).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "HOST_REFUSED"));
}

#[tokio::test]
async fn events_of_a_stream_arrive_one_by_one() {
    let (origin, running) = open(Script::Silent).await;
    let mut client = Client::connect(running.address).await;
    client.send("GET /events HTTP/1.1\r\nHost: t\r\nAccept: text/event-stream\r\n\r\n").await;
    origin.until_received(1).await;
    origin.send_piece("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    for event in ["data: one", "data: two"] {
        origin.send_piece(&format!("{:x}\r\n{event}\n\n\r\n", event.len() + 2));
        // It is there before the next one is sent.
        client.read_until(event).await;
    }
}

#[tokio::test]
async fn an_allowed_websocket_is_switched_and_early_bytes_forbid_it() {
    let switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".to_vec();
    let origin = Origin::start(Script::Echo(switched)).await;
    let mut setup = Setup::open(&origin.url());
    setup.service().upstream.upgrade = vec!["websocket".to_owned()];
    setup.config.limits.body = Duration::from_millis(20);
    setup.config.limits.head = Duration::from_millis(100);
    let running = setup.run().await;
    let upgrade = "GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut client = Client::connect(running.address).await;
    client.send(upgrade).await;
    let switch = client.answer().await;
    assert_eq!((switch.status, switch.header("upgrade")), (101, Some("websocket")));
    client.send("ping").await;
    client.read_until("ping").await;
    // It may be silent for longer than a body may.
    assert_eq!(Client::once(running.address, "GET /slow HT").await.status, 408);
    client.send("pong").await;
    client.read_until("pong").await;
    let mut client = Client::connect(running.address).await;
    client.send(&format!("{upgrade}POST /smuggled HTTP/1.1\r\n\r\n")).await;
    assert_eq!(client.answer().await.code(), "REQUEST_AMBIGUOUS");
    assert!(!origin.received().iter().any(|request| request.contains("smuggled")));
}

pub(super) fn with_agent(setup: &mut Setup) {
    setup.config.identity.agents = vec![AgentEntry {
        name: Initiator::new("bot").unwrap(),
        token_sha256: Digest::of(b"agent-token"),
        tenant: Tenant::new("default").unwrap(),
        deliver_token: false,
    }];
    setup.config.foreign = Arc::new(arc_swap::ArcSwap::from_pointee(vec![Digest::of(b"approver-token")]));
}

#[tokio::test]
async fn p1_credentials_are_checked_and_never_forwarded() {
    let origin = Origin::start(ok("hello")).await;
    let mut setup = Setup::open(&origin.url());
    with_agent(&mut setup);
    setup.config.identity.owner = Some(Source::Header(HeaderName::from_static("x-user-id")));
    let running = setup.run().await;
    let get = |lines: &str| format!("GET /a HTTP/1.1\r\nHost: t\r\n{lines}\r\n");
    for lines in [
        "",
        "Countersign-Agent: wrong\r\n",
        "Authorization: Bearer approver-token\r\n",
        "Countersign-Agent: approver-token\r\n",
        "Countersign-Agent: agent-token\r\nAuthorization: Bearer approver-token\r\n",
        "Countersign-Agent: agent-token\r\nProxy-Authorization: Bearer approver-token\r\n",
    ] {
        let answer = refused(&running, &origin, &get(lines)).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "AGENT_UNKNOWN"), "{lines:?}");
        assert!(answer.header("www-authenticate").is_some());
    }
    let twice = "Countersign-Agent: agent-token\r\nX-User-Id: u1\r\nX-User-Id: u1\r\n";
    assert_eq!(refused(&running, &origin, &get(twice)).await.code(), "REQUEST_AMBIGUOUS");
    let named = "Countersign-Agent: agent-token\r\nAuthorization: Bearer upstreams-own\r\nX-User-Id: u1\r\nX_User-Id: u2\r\nProxy-Authorization: Basic eDp5\r\n";
    let mut client = Client::connect(running.address).await;
    client.send(&get(named)).await;
    assert_eq!(client.answer().await.status, 200);
    client.send(&get("Authorization: Bearer agent-token\r\nX-User-Id: u1\r\n")).await;
    assert_eq!(client.answer().await.status, 200);
    let received = origin.received();
    assert!(received[0].contains("Authorization: Bearer upstreams-own"), "{received:?}");
    for request in &received {
        for secret in ["agent-token", "user-id", "User-Id", "u1", "u2", "Proxy-Authorization", "Countersign"] {
            assert!(!request.contains(secret), "{secret} in {request:?}");
        }
    }
}

#[tokio::test]
async fn the_guards_credential_takes_the_place_of_the_agents() {
    let origin = Origin::start(ok("hello")).await;
    let injecting = |setup: &mut Setup| {
        setup.service().upstream.credential =
            Some(Credential { header: http::header::AUTHORIZATION, value: Secret::new("Bearer of-the-guard") });
    };
    let mut setup = Setup::open(&origin.url());
    injecting(&mut setup);
    let running = setup.run().await;
    let answer =
        Client::once(running.address, "GET /a HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer dummy\r\n\r\n").await;
    assert_eq!(answer.status, 200);
    let received = origin.received();
    assert!(received[0].contains("Bearer of-the-guard") && !received[0].contains("dummy"), "{received:?}");
    assert_eq!(received[0].matches("uthorization").count(), 1);
}

#[tokio::test]
async fn what_the_guard_adds_is_not_doubled_in_another_spelling() {
    let origin = Origin::start(ok("hello")).await;
    let text = "version: 1\nservice: notes\nupstream: {url: \"URL\", inject: {X-Acting-For: \"{{ owner }}\"}, \
                credentials: {header: X-Api-Key, value: of-the-guard}}\n";
    let mut setup = Setup::file(text, &origin.url());
    with_agent(&mut setup);
    setup.config.identity.owner = Some(Source::Header(HeaderName::from_static("x-user-id")));
    let running = setup.run().await;
    let get = |line: &str| {
        format!("GET /a HTTP/1.1\r\nHost: t\r\nCountersign-Agent: agent-token\r\nX-User-Id: u1\r\n{line}\r\n")
    };
    for line in ["X-Acting-For: admin\r\n", "X_Acting_For: admin\r\n", "x-acting_for: admin\r\n"] {
        assert_eq!(Client::once(running.address, &get(line)).await.status, 200, "{line:?}");
        let received = origin.received().pop().unwrap().to_ascii_lowercase().replace('_', "-");
        assert!(received.contains("x-acting-for: u1") && !received.contains("admin"), "{line:?}: {received:?}");
    }
    let before = origin.received().len();
    for line in ["X-Api-Key: mine\r\n", "X_Api_Key: mine\r\n", "x-api_key: mine\r\n"] {
        let answer = Client::once(running.address, &get(line)).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "REQUEST_AMBIGUOUS"), "{line:?}");
    }
    assert_eq!(origin.received().len(), before);
}

#[tokio::test]
async fn an_upstream_cannot_speak_for_the_guard() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nCountersign-Status: succeeded\r\nCountersign-Receipt: rc_0\r\nCountersign_Receipt: rc_1\r\nX-Kept: 1\r\n\r\n";
    let (_origin, running) = open(Script::Answer(answer.to_vec())).await;
    let answer = Client::once(running.address, GET).await;
    assert_eq!((answer.header("countersign-status"), answer.header("countersign-receipt")), (None, None));
    assert_eq!(answer.header("countersign_receipt"), None);
    assert_eq!(answer.header("x-kept"), Some("1"));
}

#[tokio::test]
async fn a_connection_too_many_is_turned_away() {
    let origin = Origin::start(ok("hello")).await;
    let mut setup = Setup::open(&origin.url());
    setup.config.limits.connections_max = 1;
    let running = setup.run().await;
    let mut first = Client::connect(running.address).await;
    first.send(GET).await;
    assert_eq!(first.answer().await.status, 200);
    let mut second = Client::connect(running.address).await;
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "RATE_LIMITED"));
    drop(first);
    soon(async {
        loop {
            let mut client = Client::connect(running.address).await;
            // A connection that is turned away may be reset while this is written.
            let _ = client.stream.write_all(GET.as_bytes()).await;
            let mut bytes = [0; 12];
            if client.stream.read_exact(&mut bytes).await.is_ok() && &bytes == b"HTTP/1.1 200" {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_stop_closes_idle_connections_and_lets_requests_end() {
    let (origin, running) = open(Script::Silent).await;
    let mut idle = Client::connect(running.address).await;
    idle.send("GET /.countersign/manifest HTTP/1.1\r\nHost: any.host\r\n\r\n").await;
    assert_eq!(idle.answer().await.status, 200);
    let mut busy = Client::connect(running.address).await;
    busy.send(GET).await;
    origin.until_received(1).await;
    running.stop.send(true).unwrap();
    assert!(idle.is_closed().await);
    origin.send_piece("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
    assert_eq!(busy.answer().await.body, "done");
    assert!(busy.is_closed().await);
    soon(running.served).await.unwrap();
    assert!(TcpStream::connect(running.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn the_guards_own_paths_are_served_on_every_host() {
    let (origin, running) = open(ok("hello")).await;
    let get = |path: &str| format!("GET /.countersign/{path} HTTP/1.1\r\nHost: any.host\r\n\r\n");
    let pending = Client::once(running.address, &get("pending")).await;
    assert_eq!((pending.status, pending.body.as_str()), (200, "{\"drafts\":[]}"));
    for (path, code) in [
        ("drafts/dr_0_01ARZ3NDEKTSV4RRFFQ69G5FAV", "DRAFT_NOT_FOUND"),
        ("drafts/dr_0_01ARZ3NDEKTSV4RRFFQ69G5FAV/result", "DRAFT_NOT_FOUND"),
        ("drafts/nonsense", "DRAFT_NOT_FOUND"),
        ("tools/create_todo", "ROUTE_NOT_FOUND"),
        ("", "ROUTE_NOT_FOUND"),
    ] {
        let answer = Client::once(running.address, &get(path)).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, code), "{path}");
    }
    let answer =
        Client::once(running.address, "POST /.countersign/pending HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
            .await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_long_download_arrives_whole() {
    let body = "0123456789abcdef".repeat(400_000);
    let (_origin, running) = open(ok(&body)).await;
    let mut client = Client::connect(running.address).await;
    for _ in 0..2 {
        client.send(GET).await;
        let answer = client.answer().await;
        assert!(answer.status == 200 && answer.body == body, "{} bytes", answer.body.len());
    }
}
