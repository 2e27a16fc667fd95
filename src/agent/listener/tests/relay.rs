//! Plain reads, against upstreams that answer in every way that HTTP/1.1 knows, and in some others.

use super::*;

fn answer(text: &str) -> Script {
    Script::Answer(text.as_bytes().to_vec())
}

#[tokio::test]
async fn early_hints_go_on_before_the_answer() {
    let (origin, running) = open(Script::Silent).await;
    let mut client = Client::connect(running.address).await;
    client.send(GET).await;
    origin.until_received(1).await;
    origin.send_piece("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nCountersign-Status: succeeded\r\n\r\n");
    let early = client.answer().await;
    assert_eq!((early.status, early.header("link")), (103, Some("</a.css>")));
    assert_eq!((early.header("countersign-status"), early.header("transfer-encoding")), (None, None));
    origin.send_piece("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(client.answer().await.status, 102);
    let last = client.answer().await;
    assert_eq!((last.status, last.body.as_str()), (200, "ok"));
}

#[tokio::test]
async fn an_answer_up_to_the_close_goes_on_in_chunks_and_the_connection_stays() {
    let (origin, running) = open(Script::Last(b"HTTP/1.1 200 OK\r\n\r\nall of it".to_vec())).await;
    let mut client = Client::connect(running.address).await;
    client.send(GET).await;
    let head = client.answer().await;
    assert_eq!((head.status, head.header("transfer-encoding")), (200, Some("chunked")));
    client.read_until("all of it\r\n0\r\n\r\n").await;
    origin.script(ok("next"));
    client.send(GET).await;
    assert_eq!(client.answer().await.body, "next");
    assert_eq!(origin.connections(), 2, "a connection that an answer ended is not used again");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_ended_for_the_upstream() {
    for broken in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ] {
        let (origin, running) = open(Script::Last(broken.as_bytes().to_vec())).await;
        let mut client = Client::connect(running.address).await;
        client.send(GET).await;
        client.read_until("half").await;
        let mut rest = Vec::new();
        soon(async { client.stream.read_to_end(&mut rest).await.ok() }).await;
        let rest = String::from_utf8_lossy(&rest).into_owned();
        // What ends a line of a chunk may have come; a last chunk, or more of the length, never does.
        assert!(["", "\r\n"].contains(&rest.as_str()), "{broken:?}: {rest:?}");
        assert_eq!(origin.received().len(), 1, "{broken:?}: a read is not sent again");
    }
    let (_origin, running) = open(answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")).await;
    let mut client = Client::connect(running.address).await;
    client.send(GET).await;
    assert_eq!(client.answer().await.status, 200);
    assert!(client.is_closed().await, "no last chunk");
}

#[tokio::test]
async fn answers_without_a_body_leave_both_connections_in_use() {
    let (origin, running) = open(answer("HTTP/1.1 204 No Content\r\n\r\n")).await;
    let mut client = Client::connect(running.address).await;
    client.send(GET).await;
    assert_eq!(client.answer().await.status, 204);
    origin.script(answer("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nContent-Length: 9\r\n\r\n"));
    client.send(GET).await;
    let same = client.answer_to(true).await;
    assert_eq!((same.status, same.header("etag")), (304, Some("\"1\"")));
    origin.script(answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
    client.send("HEAD /todos HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(client.answer_to(true).await.header("transfer-encoding"), Some("chunked"));
    origin.script(answer("HTTP/1.1 200 OK\r\n\r\n"));
    client.send("HEAD /todos HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(client.answer_to(true).await.header("transfer-encoding"), None, "nothing is added to it");
    origin.script(ok("still here"));
    client.send(GET).await;
    assert_eq!(client.answer().await.body, "still here");
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn a_switch_that_nobody_asked_for_is_no_answer() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nraw";
    let (origin, running) = open(answer(switched)).await;
    let answer = Client::once(running.address, GET).await;
    assert_eq!((answer.status, answer.code().as_str()), (502, "UPSTREAM_FAILED"));
    assert_eq!(origin.received().len(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_takes_the_upstreams_connection_along() {
    for begun in ["", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"] {
        let (origin, running) = open(Script::UntilClosed(begun.as_bytes().to_vec())).await;
        let mut client = Client::connect(running.address).await;
        client.send(GET).await;
        origin.until_received(1).await;
        if !begun.is_empty() {
            client.read_until("one").await;
        }
        drop(client);
        origin.until_received(2).await;
        assert_eq!(origin.received()[1], "closed");
    }
}

#[tokio::test]
async fn an_upstream_that_closes_after_its_answer_or_says_too_much_is_connected_anew() {
    for once in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
    ] {
        let (origin, running) = open(answer(once)).await;
        let mut client = Client::connect(running.address).await;
        client.send(GET).await;
        assert_eq!(client.answer().await.body, "ok", "{once:?}");
        origin.script(ok("next"));
        client.send(GET).await;
        assert_eq!(client.answer().await.body, "next", "{once:?}");
        assert_eq!(origin.connections(), 2, "{once:?}");
    }
}

#[tokio::test]
async fn headers_for_one_connection_stay_there() {
    for lines in [
        "Connection: keep-alive\r\n",
        "Connection: close\r\n",
        "Connection: Keep-Alive, X-Private\r\nX-Private: 1\r\n",
        "Connection: x-private\r\nConnection: keep-alive\r\nX-Private: 1\r\n",
        "Keep-Alive: timeout=5\r\n",
        "Proxy-Connection: keep-alive\r\n",
        "Proxy-Authenticate: Basic\r\n",
        "TE: trailers\r\n",
        "Trailer: X-Sum\r\n",
        "HTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    ] {
        let (origin, running) = open(ok("hello")).await;
        let request = format!("GET /todos HTTP/1.1\r\nHost: t\r\n{lines}X-Mine: 1\r\n\r\n");
        assert_eq!(Client::once(running.address, &request).await.body, "hello", "{lines:?}");
        let expected = format!("GET /todos HTTP/1.1\r\nHost: {}\r\nX-Mine: 1\r\n\r\n", origin.address);
        assert_eq!(origin.received(), [expected], "{lines:?}");
    }
}

/// A plain read, and two that pingora's proxying carries out.
const WAYS: [&str; 3] = ["", "Keep-Alive: 300\r\n", "Connection: x-a, keep-alive\r\nX-A: 1\r\n"];

#[tokio::test]
async fn a_client_of_http_1_0_is_answered_as_well() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nall of it\r\n0\r\n\r\n";
    for way in WAYS {
        let (origin, running) = open(ok("old")).await;
        let mut client = Client::connect(running.address).await;
        client.send(&format!("GET /todos HTTP/1.0\r\nHost: t\r\n{way}\r\n")).await;
        assert_eq!(client.answer().await.body, "old");
        assert!(origin.received()[0].starts_with("GET /todos HTTP/1.1\r\n"));
        for unmeasured in [
            Script::Last(b"HTTP/1.1 200 OK\r\n\r\nall of it".to_vec()),
            answer(chunked),
            answer(&["HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n", chunked].concat()),
        ] {
            origin.script(unmeasured);
            let mut client = Client::connect(running.address).await;
            let keep = if way.contains("Connection") { "" } else { "Connection: keep-alive\r\n" };
            client.send(&format!("GET /todos HTTP/1.0\r\nHost: t\r\n{way}{keep}\r\n")).await;
            let mut bytes = Vec::new();
            soon(async { client.stream.read_to_end(&mut bytes).await.unwrap() }).await;
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nall of it"), "{text:?}");
            assert!(!text.contains("chunked") && text.contains("Connection: close"), "{way:?}: {text:?}");
        }
        origin.script(answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
        let mut client = Client::connect(running.address).await;
        client.send(&format!("HEAD /todos HTTP/1.0\r\nHost: t\r\n{way}\r\n")).await;
        assert_eq!(client.answer_to(true).await.header("transfer-encoding"), None);
    }
}

#[tokio::test]
async fn an_answer_is_framed_in_one_way_whatever_the_upstreams_framing_was() {
    let body = "3\r\nabc\r\n0\r\n\r\n";
    for way in WAYS {
        for (lines, framing) in [
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", (None, Some("chunked"))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", (Some("3"), None)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc", (Some("3"), None)),
            ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", (Some("3"), None)),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n", (None, None)),
            ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", (None, None)),
        ] {
            let chunks = if framing.1.is_some() { body } else { "" };
            let (_origin, running) = open(answer(&[lines, chunks].concat())).await;
            let got = Client::once(running.address, &format!("GET /todos HTTP/1.1\r\nHost: t\r\n{way}\r\n")).await;
            assert!(got.head.starts_with("HTTP/1.1 20"), "{lines:?}: {got:?}");
            assert_eq!((got.header("content-length"), got.header("transfer-encoding")), framing, "{lines:?}");
            assert_eq!(
                got.head.to_ascii_lowercase().matches("content-length").count(),
                usize::from(framing.0.is_some())
            );
        }
        for other in ["gzip, chunked", "identity", "chunked\r\nTransfer-Encoding: chunked", "chunked, identity"] {
            let (origin, running) =
                open(answer(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {other}\r\n\r\n{body}"))).await;
            let got = Client::once(running.address, &format!("GET /todos HTTP/1.1\r\nHost: t\r\n{way}\r\n")).await;
            assert_eq!((got.status, got.code().as_str()), (502, "UPSTREAM_FAILED"), "{other:?}");
            assert_eq!(origin.received().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_piece_of_a_measured_answer_does_not_wait_for_the_rest() {
    for way in WAYS {
        let (origin, running) = open(Script::Silent).await;
        let mut client = Client::connect(running.address).await;
        client.send(&format!("GET /todos HTTP/1.1\r\nHost: t\r\n{way}\r\n")).await;
        origin.until_received(1).await;
        origin.send_piece("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
        client.read_until("\r\n\r\n").await;
        origin.send_piece("five.");
        client.read_until("five.").await;
        origin.send_piece("more.");
        client.read_until("more.").await;
    }
}

#[tokio::test]
async fn bytes_that_come_after_an_answer_are_nobodys_answer() {
    let (origin, running) = open(Script::Silent).await;
    let mut client = Client::connect(running.address).await;
    client.send(GET).await;
    origin.until_received(1).await;
    origin.send_piece("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(client.answer().await.body, "ok");
    origin.send_piece("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
    origin.script(ok("next"));
    for _ in 0..3 {
        client.send(GET).await;
        assert_ne!(client.answer().await.body, "forged");
    }
}

#[tokio::test]
async fn what_an_upstream_says_for_its_own_connection_stays_there() {
    for lines in [
        "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n",
        "Connection: X-Private, close\r\nX-Private: 1\r\n",
        "Connection: keep-alive\r\nConnection: upgrade\r\nUpgrade: h2c\r\n",
        "Connection: content-length, X-Private\r\nX-Private: 1\r\n",
        "Proxy-Connection: close\r\n",
    ] {
        let (_origin, running) =
            open(answer(&format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{lines}X-Mine: 1\r\n\r\nok"))).await;
        let mut client = Client::connect(running.address).await;
        for _ in 0..2 {
            client.send(GET).await;
            let answer = client.answer().await;
            assert_eq!((answer.body.as_str(), answer.header("x-mine")), ("ok", Some("1")), "{lines:?}");
            for gone in ["keep-alive", "x-private", "upgrade", "proxy-connection"] {
                assert_eq!(answer.header(gone), None, "{lines:?}");
            }
            assert_eq!(answer.header("connection"), Some("keep-alive"), "the guard's own: {lines:?}");
        }
    }
}
