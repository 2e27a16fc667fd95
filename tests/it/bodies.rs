//! How bodies are understood: strictly, once, and so that two meanings never share a hash.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::support::{Agent, Draft, Guard, Request, Response, Upstream, sha256_hex};

fn send_json(agent: &Agent, path: &str, body: impl Into<Vec<u8>>) -> Response {
    agent.send(Request::post(path).body("application/json", body))
}

fn hold_json(agent: &Agent, body: &str) -> Draft {
    Draft::from(&send_json(agent, "/free/json", body).must_be(202))
}

#[test]
fn json_that_two_readers_could_read_differently_is_refused() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let texts: &[&str] = &[
        // The same name twice, plainly, nested, and by escape.
        r#"{"to":"acct-ok","amount":5,"to":"acct-evil"}"#,
        r#"{"a":{"x":1,"x":2}}"#,
        r#"[{"a":1,"\u0061":2}]"#,
        r#"{"to":1,"t\u006f":1}"#,
        // Lone surrogates.
        r#"{"note":"\ud800"}"#,
        r#"{"note":"\ud800\ud800"}"#,
        r#"{"note":"\udc00\ud800"}"#,
        r#"{"\udead":1}"#,
        // Not JSON at all, or more than JSON.
        "",
        " ",
        "{",
        "{\"a\":1",
        "{\"a\":1}}",
        "{\"a\":1} {\"b\":2}",
        "{\"a\":1}x",
        "{'a':1}",
        "{a:1}",
        "{\"a\":1,}",
        "[1,]",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":5.}",
        "{\"a\":0x10}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":-Infinity}",
        "{\"a\":1}//x",
        "/*x*/{\"a\":1}",
        "\u{feff}{\"a\":1}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\\x41\"}",
        "{\"a\":\"\\u12\"}",
        "undefined",
        "tru",
        // Numbers that no double holds.
        "{\"a\":1e400}",
        "{\"a\":-1e400}",
    ];
    let mut wrong = Vec::new();
    for text in texts {
        let answer = send_json(&agent, "/free/json", *text);
        if (answer.status, answer.code().as_str()) != (400, "BODY_MALFORMED") {
            wrong.push(format!("{text:?}: {} {}", answer.status, answer.text()));
        }
    }
    let bytes: &[&[u8]] = &[
        b"{\"a\":\"\xed\xa0\x80\"}",
        b"{\"a\":\"\xc0\xaf\"}",
        b"{\"a\":\"\xff\"}",
        b"{\"\xff\":1}",
        b"\xff\xfe{\0}\0",
        b"{\"a\":\"\xe2\x82\"}",
        b"{\"a\":1\0}",
    ];
    for body in bytes {
        let answer = send_json(&agent, "/free/json", *body);
        if (answer.status, answer.code().as_str()) != (400, "BODY_MALFORMED") {
            wrong.push(format!("{body:?}: {} {}", answer.status, answer.text()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.approver().list("").len(), 0);
}

#[test]
fn values_that_differ_never_share_a_hash_and_values_that_are_equal_do() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    for (left, right) in [
        ("{\"n\":9007199254740992}", "{\"n\":9007199254740993}"),
        ("{\"n\":18446744073709551616}", "{\"n\":18446744073709551617}"),
        ("{\"n\":0.1000000000000000055}", "{\"n\":0.1}"),
        ("{\"n\":100000000000000000000001}", "{\"n\":100000000000000000000002}"),
        ("{\"n\":1}", "{\"n\":\"1\"}"),
        ("{\"n\":null}", "{}"),
        ("{\"n\":\"\"}", "{\"n\":null}"),
        ("{\"n\":[]}", "{\"n\":{}}"),
        ("{\"n\":\"e\u{301}\"}", "{\"n\":\"\u{e9}\"}"),
        ("{\"n\":false}", "{\"n\":0}"),
        ("[1,2]", "[2,1]"),
    ] {
        let (one, two) = (send_json(&agent, "/free/json", left), send_json(&agent, "/free/json", right));
        let (one, two) = (one.must_be(202), two.must_be(202));
        assert_ne!(Draft::from(&one).args_hash, Draft::from(&two).args_hash, "{left} and {right}");
    }
    for (left, right) in [
        ("{\"m\":10.00}", "{\"m\":1e1}"),
        ("{\"m\":1}", "{\"m\":1.0}"),
        ("{\"m\":0}", "{\"m\":-0}"),
        ("{\"m\":\"\\u0041\\/\"}", "{\"m\":\"A/\"}"),
        ("{\"m\":1,\"k\":2}", "{ \"k\" : 2 ,\n\t\"m\" : 1 }"),
    ] {
        assert_eq!(hold_json(&agent, left).args_hash, hold_json(&agent, right).args_hash, "{left} and {right}");
    }
}

#[test]
fn a_key_with_a_number_that_only_looks_equal_is_not_a_replay() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent().keyed("inexact");
    let draft = hold_json(&agent, "{\"n\":9007199254740992}");
    guard.approver().confirm_fully(&draft);
    let other = send_json(&agent, "/free/json", "{\"n\":9007199254740993}");
    other.must_refuse(422, "IDEMPOTENCY_KEY_REUSED");
    let equal = guard.agent().keyed("equal");
    let draft = hold_json(&equal, "{\"n\":1}");
    guard.approver().confirm_fully(&draft);
    for same in ["{\"n\":1.0}", "{\"n\":1e0}", "{ \"n\":1 }"] {
        let replay = send_json(&equal, "/free/json", same).must_be(201);
        assert_eq!(replay.header("Countersign-Replayed"), Some("true"), "{same}");
    }
    assert_eq!(upstream.effects("/free/json"), 2);
    assert_eq!(upstream.seen().last().map(|seen| seen.body.clone()), Some(b"{\"n\":1}".to_vec()));
}

#[test]
fn an_inexact_number_is_shown_and_sent_as_it_was_written() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let body = "{\"amount\":9007199254740993}";
    let draft = hold_json(&guard.agent(), body);
    let shown = guard.draft(&draft.id).to_string();
    assert!(shown.contains("9007199254740993"), "{shown}");
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.the_one("/free/json").body, body.as_bytes());
}

#[test]
fn the_args_hash_is_what_an_independent_rfc_8785_writer_says() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let body =
        "{\"\u{fb33}\":1,\"\u{1f602}\":[1e21,1e-7,333333333.3333333,-0,1.0],\"a\":{\"z\":null,\"B\":\"\\u20ac\"}}";
    let draft = Draft::from(&send_json(&guard.agent(), "/free/hash?x=1", body).must_be(202));
    let mut args: Value = serde_json::from_str(body).expect("JSON");
    args["x"] = json!("1");
    let envelope = json!({
        "v": 1, "service": "desk", "tool": "free", "method": "POST",
        "target": format!("{}/free/hash?x=1", upstream.url()),
        "headers": {}, "kind": "json", "args": args, "body": null,
    });
    let canonical = serde_json_canonicalizer::to_vec(&envelope).expect("canonical JSON");
    // U+1F602 sorts before U+FB33 by UTF-16 units and after it by code points.
    let text = String::from_utf8_lossy(&canonical);
    assert!(text.find('\u{1f602}') < text.find('\u{fb33}'), "{text}");
    assert_eq!(draft.args_hash, sha256_hex(&canonical));
}

#[test]
fn deep_nesting_is_taken_to_a_bound_and_refused_beyond_it_without_harm() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let agent = guard.agent();
    let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    send_json(&agent, "/free/deep", nested(100)).must_be(202);
    for depth in [127, 128, 1000, 100_000] {
        send_json(&agent, "/free/deep", nested(depth)).must_refuse(400, "BODY_MALFORMED");
    }
    send_json(&agent, "/tasks", nested(100_000)).must_refuse(400, "BODY_MALFORMED");
    send_json(&agent, "/free/deep", "{\"a\":".repeat(150_000)).must_refuse(400, "BODY_MALFORMED");
    send_json(&agent, "/free/deep", "[".repeat(1_000_000)).must_refuse(400, "BODY_MALFORMED");
    guard.must_be_alive();
    agent.hold_task("still here");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn bodies_that_are_no_object_are_args_too() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    for body in ["[1,2,3]", "\"text\"", "7", "true", "null"] {
        let draft = hold_json(&agent, body);
        let shown = guard.draft(&draft.id);
        let value: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(shown["args"]["$body"], value, "{shown}");
        guard.approver().confirm_fully(&draft);
        assert_eq!(upstream.seen().last().map(|seen| seen.body.clone()), Some(body.as_bytes().to_vec()));
    }
}

#[test]
fn the_name_of_a_bare_body_cannot_be_taken_by_a_member() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    send_json(&guard.agent(), "/free/json", "{\"$body\":1}").must_refuse(422, "ARGS_INVALID");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn forms_are_read_like_queries_and_sent_as_they_came() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let form = |body: &str| agent.send(Request::post("/free/form").body("application/x-www-form-urlencoded", body));
    let draft = Draft::from(&form("b=two+words&a=%E2%82%AC&c=").must_be(202));
    assert_eq!(guard.draft(&draft.id)["args"], json!({"a": "\u{20ac}", "b": "two words", "c": ""}));
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.the_one("/free/form").body, b"b=two+words&a=%E2%82%AC&c=");
    for bad in ["a=%zz", "a=%ff", "%"] {
        let answer = form(bad);
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text());
    }
}

#[test]
fn a_compressed_body_is_understood_and_sent_as_it_came() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let packed = gzipped(b"{\"title\":\"packed\",\"priority\":1}");
    let request = |bytes: Vec<u8>, coding: &str| {
        Request::post("/tasks").header("Content-Encoding", coding).body("application/json", bytes)
    };
    let draft = Draft::from(&agent.send(request(packed.clone(), "gzip")).must_be(202));
    assert_eq!(guard.draft(&draft.id)["args"]["title"], "packed");
    guard.approver().confirm_fully(&draft);
    let sent = upstream.the_one("/tasks");
    assert_eq!((sent.body.as_slice(), sent.header("Content-Encoding")), (packed.as_slice(), Some("gzip")));
    for (name, bytes, coding, status) in [
        ("a lie", b"{\"title\":\"plain\"}".to_vec(), "gzip", 415),
        ("twice", gzipped(&packed), "gzip, gzip", 415),
        ("unknown", packed.clone(), "zpaq", 415),
        ("cut short", packed[..packed.len() - 9].to_vec(), "gzip", 415),
        ("a bomb", gzipped(&vec![b' '; 64 << 20]), "gzip", 413),
    ] {
        let answer = agent.send(request(bytes, coding));
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
    }
    assert_eq!(upstream.all_effects(), 1);
    assert_eq!(guard.approver().list("status=pending").len(), 0);
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("gzip in memory")
}

#[test]
fn hostile_text_on_a_card_is_made_visible() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let title = "pay \u{202e}evil\u{2066} acct\u{200b}\u{0000}\u{feff}";
    let draft = guard.agent().hold("/tasks", &json!({ "title": title, "priority": 1 }));
    let shown = guard.draft(&draft.id);
    for text in [shown["preview"]["target"].to_string(), shown["request"]["body"].to_string()] {
        assert!(!text.contains(['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}']), "{text}");
    }
    guard.approver().confirm_fully(&draft);
    let sent: Value = serde_json::from_slice(&upstream.the_one("/tasks").body).expect("JSON");
    assert_eq!(sent["title"], title, "what is made visible on the card is sent as it came");
}

#[test]
fn batches_are_refused_unless_declared() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let batch = json!([{"jsonrpc": "2.0", "method": "a", "id": 1}, {"jsonrpc": "2.0", "method": "b", "id": 2}]);
    guard.agent().post("/tasks", &batch).must_refuse(400, "REQUEST_AMBIGUOUS");
    assert_eq!(upstream.heads(), 0);
}
