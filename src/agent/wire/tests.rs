#![allow(clippy::unwrap_used, clippy::panic)]

use std::future::poll_fn;

use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::base::code::Code;

fn pair() -> (DuplexStream, StrictStream<DuplexStream>) {
    let (client, server) = duplex(256 * 1024);
    (client, StrictStream::new(server, FramingLimits::default()))
}

async fn head(stream: &mut StrictStream<DuplexStream>) -> Arrival {
    poll_fn(|cx| stream.poll_head(cx)).await.unwrap()
}

/// Reads whatever there is, in one call.
async fn read(stream: &mut StrictStream<DuplexStream>) -> Vec<u8> {
    let mut bytes = vec![0; 64 * 1024];
    let read = stream.read(&mut bytes).await.unwrap();
    bytes.truncate(read);
    bytes
}

fn code(arrival: Arrival) -> Code {
    match arrival {
        Arrival::Refused(refusal) => refusal.code,
        other => panic!("{other:?}"),
    }
}

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const POST: &[u8] = b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n";

#[tokio::test]
async fn a_head_is_passed_on_whole_or_not_at_all() {
    for split in 1..GET.len() {
        let (mut client, mut stream) = pair();
        client.write_all(&GET[..split]).await.unwrap();
        assert!(poll_fn(|cx| stream.poll_head(cx)).now_or_never().is_none(), "split at {split}");
        assert!(stream.is_in_head());
        assert!(stream.read_u8().now_or_never().is_none(), "not a byte before the head is judged");
        client.write_all(&GET[split..]).await.unwrap();
        assert_eq!(head(&mut stream).await, Arrival::Head);
        let mut got = vec![0; GET.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, GET, "split at {split}");
        assert!(stream.next_request());
    }
}

#[tokio::test]
async fn of_a_refused_head_nothing_is_passed_on() {
    for bad in [
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
        "GET / HTTP/1.1\nHost: t\n\n",
        "GET / HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}garbage",
    ] {
        let (mut client, mut stream) = pair();
        client.write_all(bad.as_bytes()).await.unwrap();
        assert_eq!(code(head(&mut stream).await), Code::RequestAmbiguous, "{bad:?}");
        assert!(stream.read_u8().await.is_err(), "{bad:?}");
        assert!(!stream.next_request());
    }
}

#[tokio::test]
async fn too_many_headers_are_too_large() {
    let (mut client, mut stream) = pair();
    let lines = "A: b\r\n".repeat(10_000);
    client.write_all(format!("GET / HTTP/1.1\r\nHost: t\r\n{lines}\r\n").as_bytes()).await.unwrap();
    assert_eq!(code(head(&mut stream).await), Code::HeadTooLarge);
}

#[tokio::test]
async fn the_next_request_waits_for_its_turn() {
    let (mut client, mut stream) = pair();
    let bytes = [POST, b"0123456789", GET, GET].concat();
    client.write_all(&bytes).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    assert_eq!(read(&mut stream).await, [POST, b"0123456789"].concat());
    assert!(stream.read_u8().now_or_never().is_none(), "a byte of the next request is not passed on");
    for _ in 0..2 {
        assert!(stream.next_request());
        assert_eq!(head(&mut stream).await, Arrival::Head);
        assert_eq!(read(&mut stream).await, GET);
    }
    drop(client);
    assert!(stream.next_request());
    assert_eq!(head(&mut stream).await, Arrival::Closed);
}

#[tokio::test]
async fn bytes_read_beyond_a_long_body_are_kept_for_the_next_request() {
    let (mut client, mut stream) = pair();
    let body = vec![b'x'; 20_000];
    let first = format!("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(first.as_bytes()).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    assert_eq!(read(&mut stream).await, first.as_bytes());
    let many = GET.repeat(400);
    client.write_all(&[&body[..], &many].concat()).await.unwrap();
    let mut got = vec![0; body.len()];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(got, body);
    for _ in 0..400 {
        assert!(stream.next_request());
        assert_eq!(head(&mut stream).await, Arrival::Head);
        assert_eq!(read(&mut stream).await, GET);
    }
    assert!(stream.next_request());
    assert!(poll_fn(|cx| stream.poll_head(cx)).now_or_never().is_none());
    assert_eq!(stream.inbox.len(), INBOX_BYTES, "the inbox has its size again");
}

#[tokio::test]
async fn a_request_that_was_not_read_to_its_end_ends_the_connection() {
    let (mut client, mut stream) = pair();
    client.write_all(&[POST, b"01234"].concat()).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    read(&mut stream).await;
    assert!(!stream.next_request(), "inside the body");
    client.write_all(b"56789").await.unwrap();
    let mut one = [0; 1];
    stream.read_exact(&mut one).await.unwrap();
    read(&mut stream).await;
    assert!(stream.next_request());

    let (mut client, mut stream) = pair();
    client.write_all(GET).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    assert!(!stream.next_request(), "the head was not read");

    let (mut client, mut stream) = pair();
    client.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    read(&mut stream).await;
    assert!(!stream.next_request(), "the client said that it was the last");
}

#[tokio::test]
async fn a_malformed_chunk_is_an_error_and_never_an_end() {
    let (mut client, mut stream) = pair();
    let head_bytes = b"POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_all(head_bytes).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    assert_eq!(read(&mut stream).await, head_bytes);
    client.write_all(b"2\r\n{}\r\n1z\r\n").await.unwrap();
    let mut got = Vec::new();
    assert!(stream.read_to_end(&mut got).await.is_err());
    assert_eq!(stream.refusal().unwrap().code, Code::RequestAmbiguous);
    assert!(got.starts_with(b"2\r\n{}\r\n") && !got.ends_with(b"z\r\n"), "{got:?}");
    assert!(!stream.next_request());
}

#[tokio::test]
async fn a_client_that_closes_between_requests_is_told_from_one_that_breaks_off() {
    for (bytes, expected) in [(&b""[..], Arrival::Closed), (b"GET / HT", Arrival::Truncated)] {
        let (mut client, mut stream) = pair();
        client.write_all(bytes).await.unwrap();
        drop(client);
        assert_eq!(head(&mut stream).await, expected);
    }
    // While an answer is awaited, the end is seen at once.
    let (mut client, mut stream) = pair();
    client.write_all(GET).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    read(&mut stream).await;
    drop(client);
    assert_eq!(read(&mut stream).await, b"");
}

#[tokio::test]
async fn an_accepted_upgrade_passes_everything_that_comes_after_it() {
    let (mut client, mut stream) = pair();
    client.write_all(GET).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    read(&mut stream).await;
    assert!(stream.read_u8().now_or_never().is_none());
    assert!(stream.accept_upgrade());
    client.write_all(b"\x81\x05hello POST / HTTP/1.1\r\n").await.unwrap();
    assert_eq!(read(&mut stream).await, b"\x81\x05hello POST / HTTP/1.1\r\n");
}

#[tokio::test]
async fn bytes_before_the_upgrade_was_accepted_forbid_it() {
    let (mut client, mut stream) = pair();
    client.write_all(&[GET, b"\x81\x05hello"].concat()).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    read(&mut stream).await;
    assert!(!stream.accept_upgrade());
    // The same when they come while the upstream is awaited.
    let (mut client, mut stream) = pair();
    client.write_all(GET).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    read(&mut stream).await;
    client.write_all(b"\x81\x05hello").await.unwrap();
    assert!(stream.read_u8().now_or_never().is_none());
    assert!(!stream.accept_upgrade());
    assert!(stream.read_u8().now_or_never().is_none(), "they are never passed on");
}

#[tokio::test]
async fn small_writes_are_gathered_and_large_ones_keep_their_order() {
    let (mut client, mut stream) = pair();
    stream.reach();
    stream.write_all(b"head ").await.unwrap();
    stream.write_all(b"body ").await.unwrap();
    let mut bytes = [0; 64];
    assert!(client.read(&mut bytes).now_or_never().is_none(), "nothing leaves before a flush");
    stream.flush().await.unwrap();
    let read = client.read(&mut bytes).await.unwrap();
    assert_eq!(&bytes[..read], b"head body ");
    let large = vec![b'y'; 100_000];
    stream.write_all(b"head ").await.unwrap();
    stream.write_all(&large).await.unwrap();
    stream.flush().await.unwrap();
    let mut got = vec![0; 5 + large.len()];
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(got, [b"head ", &large[..]].concat());
}

#[tokio::test(start_paused = true)]
async fn the_last_answer_is_readable_by_a_client_that_is_still_sending() {
    let (mut client, server) = duplex(64);
    let mut stream = StrictStream::new(server, FramingLimits::default());
    client.write_all(b"nonsense\r\n\r\n").await.unwrap();
    assert_eq!(code(head(&mut stream).await), Code::RequestAmbiguous);
    let send = async {
        client.write_all(&[b'x'; 10_000]).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let (answer, ()) = tokio::join!(send, stream.close_with(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    assert_eq!(answer, b"HTTP/1.1 400 Bad Request\r\n\r\n");
}

#[tokio::test]
async fn p10_what_a_client_sent_is_never_printed() {
    let (mut client, mut stream) = pair();
    client.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer s3cret\r\n\r\n").await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    assert!(!format!("{stream:?}").contains("s3cret"));
    let _ = client;
}

#[tokio::test]
async fn a_refusal_by_pingora_itself_becomes_a_problem_document() {
    let (mut client, mut stream) = pair();
    client.write_all(GET).await.unwrap();
    assert_eq!(head(&mut stream).await, Arrival::Head);
    read(&mut stream).await;
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    AsyncWriteExt::shutdown(&mut stream).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("REQUEST_AMBIGUOUS") && !answer.contains("Server"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_given_up_whatever_is_written() {
    for flushed in [false, true] {
        let (client, server) = duplex(64);
        let mut stream = StrictStream::new(server, FramingLimits::default());
        stream.reach();
        let began = tokio::time::Instant::now();
        let written = if flushed {
            stream.write_all(&[b'x'; OUTBOX_BYTES]).await.unwrap();
            stream.flush().await
        } else {
            stream.write_all(&[b'x'; 10 * OUTBOX_BYTES]).await
        };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= WRITE_MAX && began.elapsed() < 2 * WRITE_MAX);
        drop(client);
    }
    // One that reads now and then is not.
    let (mut client, server) = duplex(64);
    let mut stream = StrictStream::new(server, FramingLimits::default());
    stream.reach();
    let reading = tokio::spawn(async move {
        let mut piece = [0; 64];
        for _ in 0..4 {
            tokio::time::sleep(WRITE_MAX - Duration::from_secs(1)).await;
            client.read_exact(&mut piece).await.unwrap();
        }
        client.read_to_end(&mut Vec::new()).await.unwrap()
    });
    stream.write_all(&[b'x'; OUTBOX_BYTES]).await.unwrap();
    stream.flush().await.unwrap();
    drop(stream);
    assert_eq!(reading.await.unwrap(), OUTBOX_BYTES - 4 * 64);
}
