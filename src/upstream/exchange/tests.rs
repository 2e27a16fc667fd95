#![allow(clippy::unwrap_used, clippy::panic)]
use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::*;
use crate::base::time::{Clock, ManualClock, SystemClock, Timestamp};
use crate::policy::model::Service;
use crate::upstream::address::AddressRules;
use crate::upstream::contract::Upstream as _;
use crate::upstream::http::HttpUpstream;
use crate::upstream::testing::{
    outgoing, permit_until, read_request, read_to_end, reset, serve_once, service, tls_acceptor,
};

const CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/ca.pem");

fn local(at: SocketAddr) -> Service {
    service("127.0.0.1", at.port())
}

fn local_tls(at: SocketAddr) -> Service {
    let mut service = local(at);
    service.upstream.tls = true;
    service.upstream.ca_file = Some(CA.into());
    service
}

fn post(to: &Service, body: &str) -> Outgoing {
    let scheme = if to.upstream.tls { "https" } else { "http" };
    outgoing("POST", &format!("{scheme}://127.0.0.1:{}/v1/todos?x=%2F", to.upstream.port), body)
}

async fn opened(service: &Service, clock: Arc<dyn Clock>) -> Box<dyn Exchange> {
    HttpUpstream::new(clock, Arc::new(AddressRules::new())).connect(service, Duration::ZERO).await.unwrap()
}

fn permit() -> SendPermit {
    permit_until(SystemClock.boot() + Duration::from_secs(60))
}

async fn send(service: &Service, call: Outgoing) -> Attempt {
    opened(service, Arc::new(SystemClock)).await.send(permit(), call).await
}

/// Reads the whole request, writes `answer`, closes.
async fn attempt(method: &str, answer: impl Into<Vec<u8>>) -> Attempt {
    let answer = answer.into();
    let (at, served) = serve_once(|mut tcp| async move {
        read_request(&mut tcp).await;
        // The client may have gone away already when an answer is longer than it takes.
        let _ = tcp.write_all(&answer).await;
    })
    .await;
    let service = local(at);
    let mut call = post(&service, if method == "HEAD" { "" } else { "{}" });
    call.method = method.to_owned();
    let attempt = send(&service, call).await;
    served.await.unwrap();
    attempt
}

#[track_caller]
fn answer(attempt: Attempt) -> Response {
    match attempt {
        Attempt::Answered(response) => response,
        other => panic!("an answer was expected: {other:?}"),
    }
}

#[track_caller]
fn is_unknown(attempt: &Attempt, words: &str, expected: Option<u16>) {
    match attempt {
        Attempt::Unknown { why, status } => {
            assert!(why.contains(words), "{why:?} should say {words:?}");
            assert_eq!(*status, expected, "{why}");
        }
        other => panic!("unknown was expected: {other:?}"),
    }
}

#[track_caller]
fn is_not_sent(attempt: &Attempt, words: &str) {
    match attempt {
        Attempt::NotSent { why } => assert!(why.contains(words), "{why:?} should say {words:?}"),
        other => panic!("not sent was expected: {other:?}"),
    }
}

/// Lets the runtime take notice of everything that has happened on its sockets.
async fn notice_sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    far.write_all(b"x").await.unwrap();
    near.read_exact(&mut [0; 1]).await.unwrap();
}

// ---- what goes out -----------------------------------------------------------------------------

#[tokio::test]
async fn p2_the_request_goes_out_exactly_as_held() {
    let (at, served) = serve_once(|mut tcp| async move {
        let request = read_request(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        request + &String::from_utf8_lossy(&read_to_end(&mut tcp).await)
    })
    .await;
    let service = local(at);
    let mut call = post(&service, "{\"b\": 1,  \"a\":2}");
    call.headers.push(("idempotency-key".to_owned(), "cs1-0".to_owned()));
    call.headers.push(("x-note".to_owned(), "ä".to_owned()));
    assert_eq!(answer(send(&service, call).await).stored.status, 201);
    let expected = format!(
        "POST /v1/todos?x=%2F HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
         Idempotency-Key: cs1-0\r\nX-Note: ä\r\nContent-Length: 16\r\nConnection: close\r\n\r\n{{\"b\": 1,  \"a\":2}}",
        at.port()
    );
    assert_eq!(served.await.unwrap(), expected, "and nothing comes after it");
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let body = "x".repeat(5 << 20);
    let (at, served) = serve_once(|mut tcp| async move {
        let request = read_request(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        request.len() - request.find("\r\n\r\n").unwrap() - 4
    })
    .await;
    let service = local(at);
    assert_eq!(answer(send(&service, post(&service, &body)).await).stored.status, 204);
    assert_eq!(served.await.unwrap(), 5 << 20);
}

// ---- not sent ----------------------------------------------------------------------------------

#[tokio::test]
async fn p4_a_permit_past_its_deadline_sends_not_one_byte() {
    for tls in [false, true] {
        let (at, served) = serve_once(move |mut tcp| async move {
            if tls {
                let mut tls = tls_acceptor().accept(tcp).await.unwrap();
                read_to_end(&mut tls).await
            } else {
                read_to_end(&mut tcp).await
            }
        })
        .await;
        let service = if tls { local_tls(at) } else { local(at) };
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        let exchange = opened(&service, Arc::clone(&clock) as Arc<dyn Clock>).await;
        let permit = permit_until(clock.boot() + Duration::from_secs(2));
        clock.advance(Duration::from_secs(2));
        is_not_sent(&exchange.send(permit, post(&service, "{}")).await, "had passed before the first byte");
        assert_eq!(served.await.unwrap(), b"", "tls: {tls}");
    }
}

#[tokio::test]
async fn what_cannot_be_written_sends_not_one_byte() {
    for break_it in [
        (|call: &mut Outgoing| call.method = "PO ST".to_owned()) as fn(&mut Outgoing),
        |call| call.target = "http://other.test/".to_owned(),
        |call| call.target.push_str(" /x"),
        |call| call.headers.push(("X-A".to_owned(), "a\r\nB: c".to_owned())),
        |call| call.headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned())),
    ] {
        let (at, served) = serve_once(|mut tcp| async move { read_to_end(&mut tcp).await }).await;
        let service = local(at);
        let mut call = post(&service, "{}");
        break_it(&mut call);
        is_not_sent(&send(&service, call).await, "");
        assert_eq!(served.await.unwrap(), b"");
    }
}

#[tokio::test]
async fn a_connection_that_was_lost_before_the_request_is_not_sent() {
    let (at, served) = serve_once(|tcp| async move { drop(tcp) }).await;
    let exchange = opened(&local(at), Arc::new(SystemClock)).await;
    served.await.unwrap();
    notice_sockets().await;
    is_not_sent(&exchange.send(permit(), post(&local(at), "{}")).await, "closed the connection before the request");

    let (at, served) = serve_once(|mut tcp| async move {
        tcp.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
        tcp
    })
    .await;
    let exchange = opened(&local(at), Arc::new(SystemClock)).await;
    let kept = served.await.unwrap();
    notice_sockets().await;
    is_not_sent(&exchange.send(permit(), post(&local(at), "{}")).await, "spoke before the request");
    drop(kept);

    // Whether the runtime has noticed the reset or the first write finds it: nothing was taken.
    let (at, served) = serve_once(|tcp| async move { reset(tcp) }).await;
    let exchange = opened(&local(at), Arc::new(SystemClock)).await;
    served.await.unwrap();
    is_not_sent(&exchange.send(permit(), post(&local(at), "{}")).await, "");
}

// ---- unknown -----------------------------------------------------------------------------------

#[tokio::test]
async fn p5_read_whole_then_closed_or_reset_is_unknown() {
    is_unknown(&attempt("POST", "").await, "closed before the answer", None);
    let (at, served) = serve_once(|mut tcp| async move {
        read_request(&mut tcp).await;
        reset(tcp);
    })
    .await;
    let service = local(at);
    is_unknown(&send(&service, post(&service, "{}")).await, "reset before the answer", None);
    served.await.unwrap();
}

#[tokio::test]
async fn p5_reset_without_reading_is_unknown_once_a_byte_was_taken() {
    // The server resets while the request lies unread in its buffer: it cannot be told apart
    // from one that has read and carried it out.
    let (at, served) = serve_once(|tcp| async move {
        tcp.readable().await.unwrap();
        reset(tcp);
    })
    .await;
    let service = local(at);
    is_unknown(&send(&service, post(&service, "{}")).await, "reset before the answer", None);
    served.await.unwrap();
}

#[tokio::test]
async fn p5_a_cut_head_is_unknown() {
    for head in
        ["H", "HTTP/1.1 2", "HTTP/1.1 201 Created\r\nContent-Le", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n"]
    {
        is_unknown(&attempt("POST", head).await, "closed in the head of the answer", None);
    }
}

#[tokio::test]
async fn p5_a_cut_body_is_unknown_with_its_status() {
    for body in [
        "Content-Length: 5\r\n\r\n{\"a\"",
        "Content-Length: 5\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n",
    ] {
        let cut = attempt("POST", format!("HTTP/1.1 201 Created\r\n{body}")).await;
        is_unknown(&cut, "closed in the body of the answer", Some(201));
    }
    let broken = attempt("POST", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n").await;
    is_unknown(&broken, "", Some(201));
}

#[tokio::test]
async fn p5_malformed_answers_are_unknown() {
    for garbage in [
        "garbage\r\n\r\n",
        "\0\0\0\0",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
    ] {
        is_unknown(&attempt("POST", garbage).await, "not well-formed", None);
    }
    for (head, words) in [
        ("Content-Length: 2\r\nContent-Length: 2", "more than one Content-Length"),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", "both Content-Length and Transfer-Encoding"),
        ("Transfer-Encoding: gzip, chunked", "not exactly chunked"),
        ("Transfer-Encoding: identity", "not exactly chunked"),
    ] {
        let malformed = attempt("POST", format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{{}}")).await;
        is_unknown(&malformed, words, Some(200));
    }
    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    is_unknown(&attempt("POST", switched).await, "switched protocols", Some(101));
}

#[tokio::test]
async fn p5_over_long_heads_are_unknown() {
    let long = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
    is_unknown(&attempt("POST", long).await, "too long", None);
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(8 * HEAD_BYTES_MAX));
    is_unknown(&attempt("POST", endless).await, "too long", None);
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
    is_unknown(&attempt("POST", many).await, "too long", None);
    let just = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "A: b\r\n".repeat(HEADERS_MAX - 1));
    assert_eq!(answer(attempt("POST", just).await).stored.status, 200);
}

/// A server that reads the request, writes `first`, and then says nothing until the test ends.
async fn silent_after(first: &'static str) -> (Service, oneshot::Sender<()>) {
    let (end, ended) = oneshot::channel();
    let (at, _served) = serve_once(move |mut tcp| async move {
        read_request(&mut tcp).await;
        tcp.write_all(first.as_bytes()).await.unwrap();
        let _ = ended.await;
    })
    .await;
    (local(at), end)
}

/// Tries with more and more time, so that a machine that is slow just now does not end an
/// exchange at an earlier stage than the one that is meant.
async fn late<F: Future<Output = Attempt>>(words: &str, status: Option<u16>, exchange: impl Fn(Duration) -> F) {
    for millis in [60, 500] {
        let attempt = exchange(Duration::from_millis(millis)).await;
        if matches!(&attempt, Attempt::Unknown { why, .. } if why.contains(words)) {
            return is_unknown(&attempt, words, status);
        }
    }
    is_unknown(&exchange(Duration::from_secs(5)).await, words, status);
}

#[tokio::test]
async fn p5_an_answer_that_does_not_come_in_time_is_unknown() {
    for (first, words, status) in [
        ("", "the time for the whole exchange ended before the answer", None),
        ("HTTP/1.1 200 OK\r\n", "the time for the whole exchange ended in the head", None),
        ("HTTP/1.1 100 Continue\r\n\r\n", "the time for the whole exchange ended in the head", None),
        ("HTTP/1.1 200 OK\r\n\r\n{", "the time for the whole exchange ended in the body", Some(200)),
    ] {
        late(words, status, |total| async move {
            let (mut service, _end) = silent_after(first).await;
            service.upstream.timeouts.total = total;
            send(&service, post(&service, "{}")).await
        })
        .await;
    }
    late("nothing more came in time in the body", Some(200), |read| async move {
        let (mut service, _end) = silent_after("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{").await;
        service.upstream.timeouts.read = read;
        send(&service, post(&service, "{}")).await
    })
    .await;
}

#[tokio::test]
async fn an_endless_body_ends_with_the_exchange() {
    late("the time for the whole exchange ended in the body", Some(200), |total| async move {
        let (at, served) = serve_once(|mut tcp| async move {
            read_request(&mut tcp).await;
            tcp.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            while tcp.write_all(&[b'x'; 4096]).await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let mut service = local(at);
        service.upstream.timeouts.total = total;
        let attempt = send(&service, post(&service, "{}")).await;
        let _ = served.await;
        attempt
    })
    .await;
}

#[tokio::test]
async fn p3_after_the_total_time_the_rest_of_the_request_is_not_delivered() {
    let body = "x".repeat(64 << 20);
    let (go, gone) = oneshot::channel();
    let (at, served) = serve_once(|mut tcp| async move {
        gone.await.unwrap();
        let mut bytes = Vec::new();
        let end = tcp.read_to_end(&mut bytes).await.map_err(|error| error.kind());
        (bytes.len(), end)
    })
    .await;
    let mut service = local(at);
    service.upstream.timeouts.total = Duration::from_millis(100);
    let attempt = send(&service, post(&service, &body)).await;
    is_unknown(&attempt, "the time for the whole exchange ended before the answer", None);
    go.send(()).unwrap();
    let (delivered, end) = served.await.unwrap();
    assert!(delivered < body.len());
    assert_eq!(end, Err(io::ErrorKind::ConnectionReset), "what waits in the kernel is thrown away, not delivered");
}

// ---- answered ----------------------------------------------------------------------------------

#[tokio::test]
async fn interim_answers_are_skipped() {
    let interim =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let response =
        answer(attempt("POST", format!("{interim}HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")).await);
    assert_eq!((response.stored.status, response.stored.body.as_slice()), (201, b"ok".as_slice()));
    assert_eq!(response.stored.headers, []);
}

#[tokio::test]
async fn an_early_answer_to_an_unread_body_is_an_answer() {
    const EARLY: &[u8] = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!";
    let body = "x".repeat(5 << 20);
    let (at, served) = serve_once(|mut tcp| async move {
        tcp.readable().await.unwrap();
        tcp.read_exact(&mut [0; 20]).await.unwrap();
        tcp.write_all(EARLY).await.unwrap();
    })
    .await;
    let service = local(at);
    let response = answer(send(&service, post(&service, &body)).await);
    assert_eq!((response.stored.status, response.stored.body.as_slice()), (413, b"no!".as_slice()));
    served.await.unwrap();

    let (at, served) = serve_once(|tcp| async move {
        let mut tls = tls_acceptor().accept(tcp).await.unwrap();
        tls.read_exact(&mut [0; 20]).await.unwrap();
        tls.write_all(EARLY).await.unwrap();
        tls.flush().await.unwrap();
    })
    .await;
    let service = local_tls(at);
    assert_eq!(answer(send(&service, post(&service, &body)).await).stored.status, 413);
    served.await.unwrap();
}

#[tokio::test]
async fn bodies_are_kept_up_to_the_limit_and_digested_whole() {
    let body: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let mut framed = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    framed.extend_from_slice(&body);
    let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(70_000) {
        chunked.extend_from_slice(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nX-Trailer: 1\r\n\r\n");
    let mut closed = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
    closed.extend_from_slice(&body);
    for bytes in [framed, chunked, closed] {
        for (kept_bytes_max, truncated) in [(1 << 20, false), (200_000, false), (199_999, true), (0, true)] {
            let bytes = bytes.clone();
            let (at, served) = serve_once(|mut tcp| async move {
                read_request(&mut tcp).await;
                tcp.write_all(&bytes).await.unwrap();
            })
            .await;
            let service = local(at);
            let mut call = post(&service, "{}");
            call.response_bytes_max = kept_bytes_max;
            let stored = answer(send(&service, call).await).stored;
            assert_eq!(stored.body, &body[..kept_bytes_max.min(body.len())]);
            assert_eq!((stored.length, stored.digest, stored.truncated), (200_000, Digest::of(&body), truncated));
            served.await.unwrap();
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_end_at_their_head() {
    for (method, head) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Type: application/json\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("POST", "HTTP/1.1 204 No Content\r\nContent-Type: application/json\r\n\r\n"),
        ("POST", "HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n"),
        ("PUT", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
        ("POST", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nContent-Type: application/json\r\n\r\n"),
    ] {
        let response = answer(attempt(method, head).await);
        assert_eq!((response.stored.length, response.json), (0, None), "{method} {head}");
        assert_eq!(response.stored.digest, Digest::of(b""));
    }
}

#[tokio::test]
async fn a_second_answer_on_the_connection_is_nobodys() {
    let two = "HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\nnoHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes";
    let response = answer(attempt("POST", two).await);
    assert_eq!((response.stored.status, response.stored.body.as_slice()), (409, b"no".as_slice()));
}

#[tokio::test]
async fn an_answer_is_complete_without_a_close() {
    let (service, _end) = silent_after("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await;
    assert_eq!(answer(send(&service, post(&service, "{}")).await).stored.body, b"{}");
    let (service, _end) = silent_after("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
    assert_eq!(answer(send(&service, post(&service, "{}")).await).stored.length, 0);
}

#[tokio::test]
async fn json_is_read_and_a_cut_one_shows_where_framing_does_not() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
    let whole = answer(attempt("POST", format!("{head}{{\"id\":7}}")).await);
    assert_eq!(whole.json, Some(Ok(json!({"id": 7}))));
    let cut = answer(attempt("POST", format!("{head}{{\"id\":")).await);
    assert_eq!(cut.json, Some(Err(())));
}

#[tokio::test]
async fn a_tls_body_that_ends_without_goodbye_is_unknown() {
    for goodbye in [true, false] {
        let (at, served) = serve_once(move |tcp| async move {
            let mut tls = tls_acceptor().accept(tcp).await.unwrap();
            read_request(&mut tls).await;
            tls.write_all(b"HTTP/1.1 200 OK\r\n\r\n{}").await.unwrap();
            tls.flush().await.unwrap();
            if goodbye {
                tls.shutdown().await.unwrap();
            }
        })
        .await;
        let service = local_tls(at);
        let attempt = send(&service, post(&service, "{}")).await;
        if goodbye {
            assert_eq!(answer(attempt).stored.body, b"{}");
        } else {
            is_unknown(&attempt, "closed in the body", Some(200));
        }
        served.await.unwrap();
    }
}

#[tokio::test]
async fn redirects_are_answers_and_are_not_followed() {
    let (at, served) = serve_once(|mut tcp| async move {
        let here = tcp.local_addr().unwrap();
        read_request(&mut tcp).await;
        let moved =
            format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{here}/next\r\nContent-Length: 0\r\n\r\n");
        tcp.write_all(moved.as_bytes()).await.unwrap();
        (here, read_to_end(&mut tcp).await)
    })
    .await;
    let service = local(at);
    let stored = answer(send(&service, post(&service, "{}")).await).stored;
    let (here, more) = served.await.unwrap();
    assert_eq!((stored.status, more), (307, Vec::new()));
    assert_eq!(stored.headers, [("location".to_owned(), format!("http://{here}/next"))]);
}
