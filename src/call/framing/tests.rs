#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// What a whole connection came to: the bytes passed on, the refusal and where it hit.
type Verdict = (Vec<u8>, Option<(Code, bool)>, Phase, u64);

fn feed_all(limits: FramingLimits, pieces: &[&[u8]]) -> Verdict {
    let mut framer = Framer::new(limits);
    let mut passed = Vec::new();
    let mut cut = None;
    for piece in pieces {
        let fed = framer.feed(piece);
        passed.extend(fed.released.unwrap_or_default());
        passed.extend_from_slice(&piece[..fed.pass]);
        if let Some(met) = fed.cut {
            assert!(cut.is_none(), "a connection is cut once");
            cut = Some((met.refusal.code, met.mid_request));
        }
    }
    (passed, cut, framer.phase(), framer.requests())
}

fn whole(bytes: &[u8]) -> Verdict {
    feed_all(FramingLimits::default(), &[bytes])
}

/// Nothing of the head passes, whatever the split.
fn refused(request: &str) {
    let (passed, cut, phase, requests) = whole(request.as_bytes());
    assert_eq!(cut, Some((Code::RequestAmbiguous, false)), "{request:?}");
    assert_eq!((passed.len(), phase, requests), (0, Phase::Cut, 0), "{request:?}");
    let pieces: Vec<&[u8]> = request.as_bytes().chunks(1).collect();
    assert_eq!(feed_all(FramingLimits::default(), &pieces), whole(request.as_bytes()), "{request:?}");
}

/// The request passes whole and ends in `phase`.
fn passes(request: &str, phase: Phase) {
    let (passed, cut, at, _) = whole(request.as_bytes());
    assert_eq!((String::from_utf8(passed).unwrap().as_str(), cut, at), (request, None, phase));
}

fn chunked(body: &str) -> String {
    format!("POST /ok/a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

#[test]
fn ordinary_requests_pass_untouched() {
    passes("GET / HTTP/1.1\r\nHost: t\r\n\r\n", Phase::Idle);
    passes("GET /a?b=%20 HTTP/1.1\r\nHOST:t\r\nX-Empty:\r\nX-Utf8: h\u{e9}\r\nX-Tab: a\tb\r\n\r\n", Phase::Idle);
    passes("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}", Phase::Idle);
    passes("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n", Phase::Idle);
    passes("POST / HTTP/1.1\r\nHost: t\r\n\r\n", Phase::Idle);
    passes("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\n{}", Phase::Body);
    passes("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", Phase::Ended);
    passes("GET / HTTP/1.1\r\nHost: t\r\nConnection: x, Close\r\n\r\n", Phase::Ended);
    passes("OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n", Phase::Idle);
    passes("CONNECT t:443 HTTP/1.1\r\nHost: t:443\r\n\r\n", Phase::Idle);
    passes("GET http://t/ HTTP/1.1\r\nHost: t\r\n\r\n", Phase::Idle);
    passes(&chunked("2\r\n{}\r\n0\r\n\r\n"), Phase::Idle);
    passes(&chunked("1\r\n{\r\n00001;a=b;c=\"d\"\r\n}\r\n000\r\n\r\n"), Phase::Idle);
    passes(&chunked("0\r\nX-Sum: 1\r\nY:\r\n\r\n"), Phase::Idle);
    passes(&chunked("aBcD"), Phase::Body);
    passes(&chunked("2\r\n{}\r\n"), Phase::Body);
    passes("POST / HTTP/1.1\r\nHost: t\r\ntransfer-ENCODING:  Chunked \r\n\r\n0\r\n\r\n", Phase::Idle);
}

#[test]
fn pipelined_requests_are_followed_one_by_one() {
    let two = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}GET /b HTTP/1.1\r\nHost: t\r\n\r\n";
    passes(two, Phase::Idle);
    assert_eq!(whole(two.as_bytes()).3, 2);
    let and_a_bad_one = format!("{two}GET /c HTTP/1.1\r\n\r\n");
    let (passed, cut, ..) = whole(and_a_bad_one.as_bytes());
    assert_eq!((passed.as_slice(), cut), (two.as_bytes(), Some((Code::RequestAmbiguous, false))));
}

#[test]
fn two_framings_on_one_request() {
    refused("POST /ok/a HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG");
    refused(
        "POST /ok/a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nPOST /ok/smuggled\r\n0\r\n\r\n",
    );
    refused("POST /ok/a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n");
    for lines in [
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2, 2",
        "Content-Length: +2",
        "Content-Length: -2",
        "Content-Length: 0x2",
        "Content-Length: 2 ;",
        "Content-Length: 02",
        "Content-Length:",
        "Content-Length: 1 1",
        "Content-Length: 18446744073709551616",
        "Content_Length: 2",
        "content-length: \u{ff12}",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding:",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer_Encoding: chunked",
        "Transfer-Encoding:\u{b}chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Connection: content-length\r\nContent-Length: 2",
        "Connection: close, Transfer-Encoding",
        "Connection: Host",
    ] {
        refused(&format!("POST /ok/a HTTP/1.1\r\nHost: t\r\n{lines}\r\n\r\n{{}}"));
    }
}

#[test]
fn http_1_0_has_no_chunks_and_ends_where_it_ends() {
    refused("POST /ok/a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
    refused("POST /ok/a HTTP/1.0\r\n\r\n");
    refused("POST /ok/a HTTP/1.0\r\n\r\n{\"x\":1}");
    passes("POST /ok/a HTTP/1.0\r\nContent-Length: 0\r\n\r\n", Phase::Ended);
    passes("POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", Phase::Ended);
    passes("POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}", Phase::Idle);
    refused("POST / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    passes("GET / HTTP/1.0\r\nHost: t\r\nConnection: Keep-Alive\r\n\r\n", Phase::Idle);
    refused("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n");
}

#[test]
fn nothing_may_follow_a_closing_request() {
    let head = "POST / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 10\r\n\r\n0123456789";
    let (passed, cut, phase, _) = whole(format!("{head}GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes());
    assert_eq!((passed.as_slice(), cut, phase), (head.as_bytes(), Some((Code::RequestAmbiguous, false)), Phase::Cut));
}

#[test]
fn lines_that_two_parsers_could_break_in_two_places() {
    for request in [
        "GET / HTTP/1.1\nHost: t\n\n",
        "GET / HTTP/1.1\r\nHost: t\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\n\n",
        "GET / HTTP/1.1\r\nHost: t\r\nX: a\nContent-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nX: a\rContent-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nX: a\u{1}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nX: a\u{7f}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: t\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\n\tX: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : t\r\n\r\n",
        "GET / HTTP/1.1\r\nHost\t: t\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nContent-Length : 5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\n: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nX(y): x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nX\u{e9}: x\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: t\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: t\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /a\tb HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /caf\u{e9} HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET / http/1.1\r\nHost: t\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: t\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: t\r\n\r\n",
        "GET / HTTP/0.9\r\nHost: t\r\n\r\n",
        "GET / HTTP/1.10\r\nHost: t\r\n\r\n",
        "GET /\r\n\r\n",
        "GET\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: t\r\n\r\n",
        "\u{16}\u{3}\u{1}\0",
        "\0",
        "(",
    ] {
        refused(request);
    }
}

#[test]
fn hosts_are_there_once() {
    refused("GET / HTTP/1.1\r\n\r\n");
    refused("GET / HTTP/1.1\r\nHost: a.test\r\nHost: pay.test\r\n\r\n");
    refused("GET / HTTP/1.1\r\nHost: pay.test\r\nhost: pay.test\r\n\r\n");
    refused("GET http://pay.test/ HTTP/1.1\r\nX: y\r\n\r\n");
}

#[test]
fn malformed_chunks_cut_the_connection_where_they_stand() {
    for (before, line) in [
        ("1", "z\r\n{\r\n"),
        ("0", "x1\r\n{\r\n"),
        ("", "-1\r\n"),
        ("", "+1\r\n"),
        ("1;a=b", "\n{\r\n"),
        ("", "\r0\r\n"),
        ("", " 1\r\n"),
        ("1", " \r\n"),
        ("1", " ;a\r\n"),
        ("1", "\t\r\n"),
        ("FFFFFFFFFFFFFFFF", "1\r\n"),
        ("FFFFFFFFFFFFFFFF", "\r\n"),
        ("8000000000000000", "\r\n"),
        ("", "\r\n"),
        ("", ";a\r\n"),
        ("1\r", "{\r\n"),
        ("1\r", "\r\n{"),
        ("1", "\n{\r\n"),
        ("1;a\r", "b\r\n"),
        ("1;a", "\0\r\n"),
        ("1;a=\"", "\n\"\r\n"),
        ("1;a", "\u{e9}\r\n"),
        ("1\r\n{", "}\r\n"),
        ("1\r\n{", "\n0\r\n"),
        ("1\r\n{\r", "0\r\n"),
        ("0\r\n", " x: y\r\n\r\n"),
        ("0\r\n", ": y\r\n\r\n"),
        ("0\r\nx", " : y\r\n\r\n"),
        ("0\r\nx", "\r\n\r\n"),
        ("0\r\nx: y", "\n\r\n"),
        ("0\r\nx: y\r", "z\r\n"),
        ("0\r\n\r", "x"),
        ("0\r\n", "\n"),
        ("0\r\nx: ", "\0\r\n"),
    ] {
        let good = chunked(before);
        let request = format!("{good}{line}");
        let (passed, cut, phase, _) = whole(request.as_bytes());
        assert_eq!((String::from_utf8(passed).unwrap(), phase), (good, Phase::Cut), "{request:?}");
        assert_eq!(cut, Some((Code::RequestAmbiguous, true)), "{request:?}");
    }
}

#[test]
fn a_second_request_in_a_chunked_body_is_not_one() {
    let request = chunked("0\r\n\r\nGET /ok/next HTTP/1.1\r\nHost: t\r\n\r\n");
    passes(&request, Phase::Idle);
    assert_eq!(whole(request.as_bytes()).3, 2);
}

#[test]
fn heads_and_trailers_are_bounded() {
    let limits = FramingLimits { head_bytes_max: 100, headers_max: 3, ..FramingLimits::default() };
    let head = |pad: usize| format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "a".repeat(pad));
    let fits = head(100 - head(0).len());
    assert_eq!(feed_all(limits, &[fits.as_bytes()]).1, None);
    for pieces in [1, 7, 1000] {
        let long = head(101 - head(0).len());
        let split: Vec<&[u8]> = long.as_bytes().chunks(pieces).collect();
        assert_eq!(feed_all(limits, &split).1, Some((Code::HeadTooLarge, false)));
        let endless = "G".repeat(5_000);
        let split: Vec<&[u8]> = endless.as_bytes().chunks(pieces).collect();
        assert_eq!(feed_all(limits, &split).1, Some((Code::HeadTooLarge, false)));
    }
    assert_eq!(feed_all(limits, &[b"GET / HTTP/1.1\r\nHost: t\r\nA: 1\r\nB: 1\r\n\r\n"]).1, None);
    assert_eq!(
        feed_all(limits, &[b"GET / HTTP/1.1\r\nHost: t\r\nA: 1\r\nB: 1\r\nC: 1\r\n\r\n"]).1,
        Some((Code::HeadTooLarge, false))
    );
    let many = format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    assert_eq!(whole(many.as_bytes()).1, Some((Code::HeadTooLarge, false)));

    let long_line = chunked(&format!("1;{}", "a".repeat(300)));
    assert_eq!(whole(long_line.as_bytes()).1, Some((Code::RequestAmbiguous, true)));
    let long_lines = chunked(&format!("1;{}\r\nx\r\n", "a".repeat(200)).repeat(100));
    assert_eq!(whole(long_lines.as_bytes()).1, Some((Code::RequestAmbiguous, true)));
    let zeros = chunked(&"0".repeat(17));
    assert_eq!(whole(zeros.as_bytes()).1, Some((Code::RequestAmbiguous, true)));
    let trailers = chunked(&format!("0\r\n{}", "a: b\r\n".repeat(2_000)));
    assert_eq!(whole(trailers.as_bytes()).1, Some((Code::HeadTooLarge, true)));
}

#[test]
fn http2_is_refused_unless_it_is_told_otherwise() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    refused(preface);
    let limits = FramingLimits { http2_prior_knowledge: true, ..FramingLimits::default() };
    let (passed, cut, phase, _) = feed_all(limits, &[preface.as_bytes(), b"\0\0\0\x04"]);
    assert_eq!((passed.len(), cut, phase), (preface.len() + 4, None, Phase::Raw));
    let later = format!("GET / HTTP/1.1\r\nHost: t\r\n\r\n{preface}");
    assert!(feed_all(limits, &[later.as_bytes()]).1.is_some());
}

#[test]
fn a_switch_of_protocol_takes_no_bytes_that_came_before_it() {
    let upgrade = b"GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut framer = Framer::new(FramingLimits::default());
    assert_eq!(framer.feed(upgrade).pass, upgrade.len());
    framer.switch_to_raw(1).unwrap();
    assert_eq!(framer.feed(b"\x81\x05hello\r\n\r\n").pass, 11);
    assert_eq!(framer.phase(), Phase::Raw);

    let early = [&upgrade[..], b"POST /ok/refunds HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}"].concat();
    let partial = [&upgrade[..], b"PO"].concat();
    for bytes in [early, partial] {
        let mut framer = Framer::new(FramingLimits::default());
        framer.feed(&bytes);
        assert!(framer.switch_to_raw(1).is_err());
        assert_eq!((framer.feed(b"x").pass, framer.phase()), (0, Phase::Cut));
    }
    let mut framer = Framer::new(FramingLimits::default());
    framer.feed(upgrade);
    assert!(framer.feed(b"\x81\x05hello").cut.is_some());
}

#[test]
fn phases_for_deadlines() {
    let mut framer = Framer::new(FramingLimits::default());
    let mut step = |bytes: &[u8]| {
        framer.feed(bytes);
        (framer.phase(), framer.at_boundary(), framer.in_body(), framer.may_end())
    };
    assert_eq!(step(b""), (Phase::Idle, true, false, true));
    assert_eq!(step(b"P"), (Phase::Head, false, false, false));
    assert_eq!(step(b"OST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r"), (Phase::Head, false, false, false));
    assert_eq!(step(b"\n"), (Phase::Body, false, true, false));
    assert_eq!(step(b"{"), (Phase::Body, false, true, false));
    assert_eq!(step(b"}"), (Phase::Idle, true, false, true));
    assert_eq!(step(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"), (Phase::Ended, true, false, true));
    assert_eq!(step(b"x"), (Phase::Cut, false, false, true));
    assert_eq!(framer.requests(), 2);
}

/// Requests, good and bad, as the pieces of a connection.
fn any_request() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /a HTTP/1.1\r\n",
        "POST /a HTTP/1.0\r\n",
        "GET / HTTP/1.0\r\n",
        "GET /\r\n",
        "PRI * HTTP/2.0\r\n",
        "\r\n",
    ]);
    let headers = prop::collection::vec(
        prop::sample::select(vec![
            "Host: t\r\n",
            "Host: t\r\n",
            "Host: t\r\n",
            "Content-Length: 3\r\n",
            "Content-Length: 0\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Connection: close\r\n",
            "Connection: keep-alive\r\n",
            "X: y\r\n",
            "X: y\n",
            " fold\r\n",
            "X : y\r\n",
            "X: a\rb\r\n",
        ]),
        0..4,
    );
    let body = prop::sample::select(vec![
        "",
        "abc",
        "3\r\nabc\r\n0\r\n\r\n",
        "0\r\n\r\n",
        "0\r\nT: x\r\n\r\n",
        "3;e=f\r\nabc\r\n0\r\n\r\n",
        "4\r\nabc\r\n0\r\n\r\n",
        "1z\r\n",
        "3\nabc",
    ]);
    (line, headers, body).prop_map(|(line, headers, body)| format!("{line}{}\r\n{body}", headers.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn every_split_of_the_same_bytes_has_the_same_verdict(
        requests in prop::collection::vec(any_request(), 1..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes = requests.concat().into_bytes();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let limits = FramingLimits { head_bytes_max: 120, headers_max: 3, ..FramingLimits::default() };
        let expected = feed_all(limits, &[&bytes]);
        prop_assert_eq!(feed_all(limits, &pieces), expected.clone());
        prop_assert!(bytes.starts_with(&expected.0), "only what came is passed on, in its order");
    }

    #[test]
    fn garbage_never_stops_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (passed, ..) = whole(&bytes);
        prop_assert!(bytes.starts_with(&passed));
    }
}

#[test]
fn one_request_is_taken_at_a_time_when_asked() {
    let one = b"POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let two = b"GET /b HTTP/1.1\r\nHost: t\r\n\r\n";
    let bytes = [&one[..], two, b"GET /c"].concat();
    for split in 0..=bytes.len() {
        let mut framer = Framer::new(FramingLimits::default());
        let (mut passed, mut ends) = (Vec::new(), Vec::new());
        for piece in [&bytes[..split], &bytes[split..]] {
            let mut rest = piece;
            while !rest.is_empty() {
                let Fed { released, pass, cut } = framer.feed_request(rest);
                assert_eq!(cut, None);
                passed.extend(released.unwrap_or_default());
                passed.extend_from_slice(&rest[..pass]);
                if framer.phase() == Phase::Head {
                    break;
                }
                rest = &rest[pass..];
                if framer.at_boundary() {
                    ends.push(passed.len());
                }
            }
        }
        assert_eq!(ends, [one.len(), one.len() + two.len()], "split at {split}");
        assert_eq!(passed, bytes[..ends[1]], "split at {split}");
    }
}
