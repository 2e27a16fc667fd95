//! The listener on a real socket: garbage, floods, slow and broken peers.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fixture::*;
use crate::control::listener::{Bounds, serve_within};

/// A listener that runs until it is dropped or stopped.
struct Running {
    at: SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
    bench: Bench,
}

async fn run(bounds: Bounds) -> Running {
    let bench = bench();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = serve_within(bench.state.clone(), listener, async { drop(stopped.await) }, bounds);
    let done = tokio::spawn(serving);
    Running { at, stop, done, bench }
}

fn quick() -> Bounds {
    Bounds { head: Duration::from_millis(200), linger: Duration::from_millis(500), ..Bounds::default() }
}

async fn talk(at: SocketAddr, wire: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    // A peer that was answered already may close before it has read everything.
    let _ = stream.write_all(wire).await;
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    let _ = reading.expect("the guard closes");
    String::from_utf8(answer).unwrap()
}

async fn healthy(at: SocketAddr) {
    let answer = talk(at, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn garbage_gets_a_problem_and_the_next_caller_is_served() {
    let running = run(quick()).await;
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(10_000));
    let cases: [(&[u8], &str); 11] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", "REQUEST_AMBIGUOUS"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "REQUEST_AMBIGUOUS"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "REQUEST_AMBIGUOUS"),
        (
            b"POST /v1/rejections HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            "REQUEST_AMBIGUOUS",
        ),
        (b"GET /healthz HTTP/1.1\nHost: a\n\n", "REQUEST_AMBIGUOUS"),
        (b"GET /healthz HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", "REQUEST_AMBIGUOUS"),
        (b"GET http://evil.test/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "REQUEST_AMBIGUOUS"),
        (
            b"POST /v1/rejections HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
            "REQUEST_AMBIGUOUS",
        ),
        (b"POST /v1/rejections HTTP/1.1\nHost: a\r\nContent-Length: 2\r\n\r\n{}", "REQUEST_AMBIGUOUS"),
        (many.as_bytes(), "HEAD_TOO_LARGE"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ", "REQUEST_TIMEOUT"),
    ];
    for (wire, code) in cases {
        let answer = talk(running.at, wire).await;
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{code}: {answer}");
        assert!(answer.contains("application/problem+json"));
        healthy(running.at).await;
    }
}

#[tokio::test]
async fn a_body_that_turns_bad_after_its_head_was_read_is_refused_by_name() {
    let running = run(quick()).await;
    let (token, hash) = (bearer(PERSON), hash());
    let head = format!(
        "POST /v1/drafts/{ID}/confirm HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let json = format!("{{\"args_hash\":\"{hash}\"}}");
    for (chunk, counts) in [
        (format!("{:x}\r\n{json}\r\n0\r\n\r\n", json.len()), true),
        (format!("{:x}\n{json}\r\n0\r\n\r\n", json.len()), false),
    ] {
        let mut stream = TcpStream::connect(running.at).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The guard reads the head, and asks for the body, before any of it is there.
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).await.unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(chunk.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let asked = running.bench.asked().len();
        if counts {
            assert!(answer.starts_with("HTTP/1.1 200 ") && asked == 1, "{answer}");
        } else {
            assert!(
                answer.starts_with("HTTP/1.1 400 ") && answer.contains("REQUEST_AMBIGUOUS") && asked == 0,
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn a_request_that_breaks_off_closes_cleanly() {
    let running = run(quick()).await;
    for wire in [&b""[..], b"GET", b"GET / HTTP/1.1\r\nHost: a\r\n"] {
        let mut stream = TcpStream::connect(running.at).await.unwrap();
        stream.write_all(wire).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.contains("REQUEST_AMBIGUOUS"), !wire.is_empty(), "{answer}");
    }
    // A body that is cut short is not a decision.
    let token = bearer(PERSON);
    let head = format!(
        "POST /v1/drafts/{ID}/confirm HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{"
    );
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    healthy(running.at).await;
    assert_eq!(running.bench.asked(), []);
}

#[tokio::test]
async fn a_body_that_is_announced_too_long_is_refused_before_it_is_asked_for() {
    let running = run(quick()).await;
    let token = bearer(PERSON);
    let head = format!(
        "POST /v1/drafts/{ID}/confirm HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 65537\r\n\r\n"
    );
    let answer = talk(running.at, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("BODY_TOO_LARGE"), "{answer}");
    assert_eq!(running.bench.asked(), []);
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_and_the_sender_reads_why() {
    let running = run(Bounds { linger: Duration::from_secs(10), ..quick() }).await;
    let token = bearer(PERSON);
    for length in ["Content-Length: 104857600", "Transfer-Encoding: chunked"] {
        let head = format!(
            "POST /v1/drafts/{ID}/confirm HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
        );
        let mut wire = head.into_bytes();
        if length.starts_with("Transfer") {
            wire.extend_from_slice(b"6400000\r\n");
        }
        wire.resize(wire.len() + 100 * 1024 * 1024, b' ');
        let answer = talk(running.at, &wire).await;
        assert!(answer.contains("BODY_TOO_LARGE"), "{length}: {answer}");
        healthy(running.at).await;
    }
    assert_eq!(running.bench.asked(), []);
}

#[tokio::test]
async fn one_connection_carries_one_request() {
    let running = run(quick()).await;
    let wire = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = talk(running.at, wire).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[tokio::test]
async fn slow_peers_do_not_keep_others_out() {
    let running = run(Bounds { connections_max: 4, ..quick() }).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(running.at).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        slow.push(stream);
    }
    healthy(running.at).await;
    for mut stream in slow {
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.is_empty() || answer.contains("REQUEST_TIMEOUT"), "{answer}");
    }
}

#[tokio::test]
async fn one_more_connection_than_there_are_places_waits_for_one_to_end() {
    let running = run(Bounds { connections_max: 1, head: Duration::from_millis(500), ..quick() }).await;
    let mut slow = TcpStream::connect(running.at).await.unwrap();
    slow.write_all(b"GET / HT").await.unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    let first = async {
        let mut answer = String::new();
        slow.read_to_string(&mut answer).await.unwrap();
        order.lock().unwrap().push("slow");
        answer
    };
    let second = async {
        healthy(running.at).await;
        order.lock().unwrap().push("waiting");
    };
    let (answer, ()) = tokio::join!(first, second);
    assert!(answer.contains("REQUEST_TIMEOUT"), "{answer}");
    assert_eq!(*order.lock().unwrap(), ["slow", "waiting"]);
}

#[tokio::test]
async fn a_connection_that_is_no_live_stream_ends_with_its_time() {
    // Its body would be awaited for half a minute; `talk` gives up before that.
    let running = run(Bounds { connection: Duration::from_millis(300), ..quick() }).await;
    let token = bearer(PERSON);
    let head = format!(
        "POST /v1/drafts/{ID}/confirm HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    );
    assert_eq!(talk(running.at, head.as_bytes()).await, "");
    healthy(running.at).await;
    assert_eq!(running.bench.asked(), []);
}

#[tokio::test]
async fn stopping_ends_live_streams_and_then_returns() {
    let running = run(quick()).await;
    let token = bearer(PERSON);
    let head =
        format!("GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nAccept: text/event-stream\r\n\r\n");
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    running.stop.send(()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains(": countersign events") && rest.ends_with("0\r\n\r\n"), "the stream ends whole: {rest}");
    drop(stream);
    tokio::time::timeout(Duration::from_secs(20), running.done).await.expect("returns").unwrap();
    assert!(TcpStream::connect(running.at).await.is_err(), "nobody listens any more");
}
