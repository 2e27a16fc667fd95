//! The calls: what reaches the guard, and what is refused before it.

use std::time::Duration;

use axum::body::Body;
use serde_json::json;

use super::fixture::*;
use crate::base::id::{Owner, Tenant};
use crate::control::NotTaken;
use crate::control::desk::Confirm;
use crate::draft::binding;
use crate::draft::decision::Channel;
use crate::draft::record::Risk;
use crate::draft::state::{Status, Verdict};
use crate::guard::answer::Answer;
use crate::policy::diagnostic::{Diagnostic, Severity};

fn confirm_path() -> String {
    format!("/v1/drafts/{ID}/confirm")
}

#[tokio::test]
async fn a_list_hands_its_filters_on() {
    let bench = bench();
    let path = format!("/v1/drafts?status=pending,expired&tool=create_todo&owner=u1&risk=high&cursor={ID}&limit=7");
    let got = bench.get(&path).await;
    assert_eq!(got.status, 200, "{}", got.text);
    let tenant = Tenant::new("default").unwrap();
    let owner = binding::owner_hash(&bench.state.keys, &tenant, &Owner::new("u1").unwrap());
    let statuses = vec![Status::Pending, Status::Expired];
    let tool = Some("create_todo".to_owned());
    assert_eq!(bench.asked(), [Question::List(statuses, tool, Some(owner), Some(Risk::High), Some(id()), 7)]);
    let plain = bench.get("/v1/drafts").await;
    assert_eq!(plain.json()["drafts"][0]["draft_id"], ID);
    assert_eq!(plain.json()["next"], json!(null));
    assert_eq!(bench.asked(), [Question::List(vec![], None, None, None, None, 50)]);
}

#[tokio::test]
async fn json_holds_nothing_that_a_terminal_obeys_or_hides() {
    let bench = bench();
    let mut hostile = view(Status::Pending);
    let args = json!({"to": "a\u{202e}gnp.exe\u{2066}", "b\u{200b}": "\u{9b}31m\u{2028}\u{feff}"});
    hostile.args = args.clone();
    hostile.line.owner = Some("u\u{202e}1".to_owned());
    bench.show(hostile);
    let shown = bench.get(&format!("/v1/drafts/{ID}")).await;
    assert_eq!(shown.json()["args"], args, "the value is the same");
    let listed = bench.get("/v1/drafts").await;
    // A refusal repeats what was asked for, too.
    let refused = bench.post(PERSON, &confirm_path(), &[], "{\"x\u{202e}\":1}").await;
    assert_eq!(refused.code(), "REQUEST_INVALID");
    for got in [shown, listed, refused] {
        assert!(got.text.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{}", got.text);
    }
}

#[tokio::test]
async fn a_list_refuses_what_it_does_not_know() {
    let bench = bench();
    let bad = [
        "stauts=pending",
        "status=PENDING",
        "status=",
        "status=pending,",
        "risk=extreme",
        "cursor=1",
        "limit=0",
        "limit=201",
        "limit=x",
        "limit=1&limit=2",
        "tool=",
        "owner=",
        "confirm=1",
    ];
    for query in bad {
        let got = bench.get(&format!("/v1/drafts?{query}")).await;
        assert_eq!((got.status, got.code().as_str()), (422, "REQUEST_INVALID"), "{query}");
        let pointer = got.json()["errors"][0]["pointer"].as_str().unwrap().to_owned();
        assert!(pointer.starts_with('?'), "{pointer}");
    }
    let other = bench.get(&format!("/v1/drafts/{ID}?confirm=true")).await;
    assert_eq!(other.status, 422);
    assert_eq!(bench.asked(), []);
}

#[tokio::test]
async fn a_confirm_hands_on_exactly_what_was_said() {
    let bench = bench();
    let body = json!({"args_hash": hash(), "comment": "fine"}).to_string();
    let more = [("idempotency-key", "\"k1\""), ("prefer", "wait=4")];
    let got = bench.post(PERSON, &confirm_path(), &more, &body).await;
    assert_eq!(got.status, 200, "{}", got.text);
    assert_eq!(got.header("preference-applied"), "wait=4");
    let Question::Confirm(who, draft, confirm) = bench.asked().remove(0) else { panic!() };
    assert_eq!((who.name.as_str(), who.auth_method, who.channel), ("alice", "bearer", Channel::Api));
    assert_eq!(draft, id());
    let expected = Confirm {
        args_hash: Some(hash()),
        comment: Some("fine".to_owned()),
        decision_key: Some("k1".to_owned()),
        wait: Some(Duration::from_secs(4)),
    };
    assert_eq!(confirm, expected);
}

#[tokio::test]
async fn a_confirm_without_a_hash_is_the_guards_to_refuse() {
    let bench = bench();
    let bare = request("POST", &confirm_path(), &[("authorization", &bearer(PERSON))], Body::empty());
    bench.send(bare).await;
    bench.post(PERSON, &confirm_path(), &[], "{}").await;
    for question in bench.asked() {
        let Question::Confirm(_, _, confirm) = question else { panic!() };
        assert_eq!(confirm, Confirm::default());
    }
}

#[tokio::test]
async fn closed_bodies_refuse_before_the_guard_is_asked() {
    let bench = bench();
    let good = hash().to_hex();
    let cases = [
        (format!(r#"{{"args_hash":"{good}","grant":{{"uses":3}}}}"#), 422, "REQUEST_INVALID"),
        (format!(r#"{{"args_hash":"{good}","decided_by":"alice"}}"#), 422, "REQUEST_INVALID"),
        (r#"{"args_hash":"ABC"}"#.to_owned(), 422, "REQUEST_INVALID"),
        (r#"{"args_hash":null}"#.to_owned(), 422, "REQUEST_INVALID"),
        (format!(r#"{{"args_hash":"{good}","comment":""}}"#), 422, "REQUEST_INVALID"),
        (format!(r#"{{"args_hash":"{good}","comment":"{}"}}"#, "x".repeat(1001)), 422, "REQUEST_INVALID"),
        (format!(r#"{{"args_hash":"{good}","comment":"\u001b[2K"}}"#), 422, "REQUEST_INVALID"),
        (format!(r#"{{"args_hash":"{good}","args_hash":"{good}"}}"#), 400, "BODY_MALFORMED"),
        (format!(r#"{{"args_hash":"{good}","args_h\u0061sh":"{good}"}}"#), 400, "BODY_MALFORMED"),
        ("not json".to_owned(), 400, "BODY_MALFORMED"),
        (String::new(), 400, "BODY_MALFORMED"),
        ("[]".to_owned(), 422, "REQUEST_INVALID"),
        (format!(r#"{{"comment":"{}"}}"#, "x".repeat(70_000)), 413, "BODY_TOO_LARGE"),
    ];
    for (body, status, code) in cases {
        let got = bench.post(PERSON, &confirm_path(), &[], &body).await;
        assert_eq!((got.status, got.code().as_str()), (status, code), "{}", &body[..body.len().min(90)]);
    }
    let token = bearer(PERSON);
    for media in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"] {
        let headers = [("authorization", token.as_str()), ("content-type", media)];
        let got = bench.send(request("POST", &confirm_path(), &headers, "{}")).await;
        assert_eq!((got.status, got.code().as_str()), (415, "MEDIA_TYPE_UNSUPPORTED"), "{media}");
    }
    for key in ["", "a\tb\u{7f}", &"k".repeat(256)] {
        let Ok(value) = http::HeaderValue::from_bytes(key.as_bytes()) else { continue };
        let mut asked = request("POST", &confirm_path(), &[("authorization", &token)], Body::empty());
        asked.headers_mut().insert("idempotency-key", value);
        assert_eq!(bench.send(asked).await.code(), "IDEMPOTENCY_KEY_INVALID", "{key:?}");
    }
    assert_eq!(bench.asked(), []);
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_also_without_a_length() {
    let bench = bench();
    let chunks = futures_util::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1024])));
    let headers = [("authorization", &bearer(PERSON)[..]), ("content-type", "application/json")];
    let got = bench.send(request("POST", &confirm_path(), &headers, Body::from_stream(chunks))).await;
    assert_eq!((got.status, got.code().as_str()), (413, "BODY_TOO_LARGE"));
    assert_eq!(bench.asked(), []);
}

#[tokio::test]
async fn ids_that_cannot_be_are_not_found() {
    let bench = bench();
    for path in
        ["/v1/drafts/x", "/v1/drafts/dr_5_%2e%2e", "/v1/receipts/dr_5_01J0000000000000000000000A", "/v1/receipts/rc_"]
    {
        let got = bench.get(path).await;
        assert_eq!((got.status, got.code().as_str()), (404, "DRAFT_NOT_FOUND"), "{path}");
    }
    assert_eq!(bench.asked(), []);
}

#[tokio::test]
async fn reject_and_resolve_need_their_words() {
    let bench = bench();
    let reject = format!("/v1/drafts/{ID}/reject");
    let got = bench.post(PERSON, &reject, &[("idempotency-key", "k")], r#"{"reason":"not today"}"#).await;
    assert_eq!(got.status, 200);
    let Question::Reject(_, _, reason, key) = bench.asked().remove(0) else { panic!() };
    assert_eq!((reason.as_str(), key.as_deref()), ("not today", Some("k")));
    for body in ["{}", r#"{"reason":" "}"#, r#"{"reason":1}"#, r#"{"reason":"a","args_hash":"b"}"#] {
        assert_eq!(bench.post(PERSON, &reject, &[], body).await.code(), "REQUEST_INVALID", "{body}");
    }
    let resolve = format!("/v1/drafts/{ID}/resolve");
    bench.post(PERSON, &resolve, &[], r#"{"outcome":"failed","evidence":"not in the list"}"#).await;
    assert_eq!(bench.asked(), [Question::Resolve(id(), Verdict::Failed, "not in the list".to_owned())]);
    for body in ["{}", r#"{"outcome":"unverifiable","evidence":"x"}"#, r#"{"outcome":"failed"}"#] {
        assert_eq!(bench.post(PERSON, &resolve, &[], body).await.code(), "REQUEST_INVALID", "{body}");
    }
    let again = format!("/v1/drafts/{ID}/again");
    assert_eq!(bench.post(PERSON, &again, &[], "{\"x\":1}").await.code(), "REQUEST_INVALID");
    bench.post(PERSON, &again, &[], "{}").await;
    assert_eq!(bench.asked(), [Question::Again(id())]);
}

#[tokio::test]
async fn an_answer_of_the_guard_is_handed_on_word_for_word() {
    let bench = bench();
    bench.answer_next(
        Answer::json(409, &json!({"code": "DRAFT_ALREADY_DECIDED", "x": 1})).with("x-should-retry", "false"),
    );
    let got = bench.post(PERSON, &confirm_path(), &[("prefer", "respond-async")], "{}").await;
    assert_eq!((got.status, got.json()["x"].as_i64()), (409, Some(1)));
    assert_eq!(got.header("x-should-retry"), "false");
    assert_eq!(got.header("preference-applied"), "", "nothing was applied to a refusal");
}

#[tokio::test]
async fn a_token_counts_for_the_owner_and_session_that_the_app_names() {
    let bench = bench();
    let named = [("countersign-owner", "u1"), ("countersign-session", "s1")];
    let body = r#"{"confirmation_token":"ct_5_x"}"#;
    assert_eq!(bench.post(BACKEND, "/v1/confirmations", &named, body).await.status, 200);
    let Question::ConfirmByToken(app, token, None, None) = bench.asked().remove(0) else { panic!() };
    assert_eq!((app.app.as_str(), app.owner.as_str(), app.session.as_str()), ("web", "u1", "s1"));
    assert_eq!(token, "ct_5_x");
    bench.post(BACKEND, "/v1/rejections", &named, body).await;
    let Question::RejectByToken(_, _, reason, _) = bench.asked().remove(0) else { panic!() };
    assert_eq!(reason, "The owner declined.");
    for missing in [&named[..1], &named[1..], &[], &[("countersign-owner", ""), ("countersign-session", "s1")]] {
        let got = bench.post(BACKEND, "/v1/confirmations", missing, body).await;
        assert_eq!((got.status, got.code().as_str()), (403, "IDENTITY_MISSING"), "{missing:?}");
    }
    let twice = [("countersign-owner", "u1"), ("countersign-owner", "u2"), ("countersign-session", "s1")];
    assert_eq!(bench.post(BACKEND, "/v1/confirmations", &twice, body).await.code(), "IDENTITY_MISSING");
    for bad in ["{}", r#"{"confirmation_token":1}"#, r#"{"confirmation_token":"a","owner":"u2"}"#] {
        assert_eq!(bench.post(BACKEND, "/v1/confirmations", &named, bad).await.code(), "REQUEST_INVALID", "{bad}");
    }
    let mute = bench.post(MUTE_BACKEND, "/v1/confirmations", &named, body).await;
    assert_eq!((mute.status, mute.code().as_str()), (403, "APPROVER_NOT_ALLOWED"));
    assert_eq!(bench.asked(), []);
}

#[tokio::test]
async fn a_body_is_a_download_whatever_it_is() {
    let bench = bench();
    let got = bench.get(&format!("/v1/drafts/{ID}/body")).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.header("content-type"), "application/octet-stream");
    assert_eq!(got.header("content-disposition"), format!("attachment; filename=\"{ID}.bin\""));
    assert_eq!(got.header("countersign-body-type"), "text/html; charset=utf-8");
}

#[tokio::test]
async fn a_receipt_is_found_by_its_own_id() {
    let bench = bench();
    let path = format!("/v1/receipts/{}", id().receipt_id());
    assert_eq!(bench.get(&path).await.code(), "DRAFT_NOT_FOUND", "there is none yet");
    bench.show(view(Status::Succeeded));
    let got = bench.get(&path).await;
    assert_eq!((got.status, got.json()["id"].as_str()), (200, Some(id().receipt_id().as_str())));
}

#[tokio::test]
async fn events_come_in_pages_with_a_cursor() {
    let bench = bench();
    *bench.desk.events.lock().unwrap() = (1..=5).map(|seq| event(seq, "draft.held")).collect();
    let first = bench.get("/v1/events?limit=2").await.json();
    assert_eq!((first["events"].as_array().unwrap().len(), first["next"].as_u64()), (2, Some(2)));
    let rest = bench.get("/v1/events?after=2").await.json();
    assert_eq!((rest["events"].as_array().unwrap().len(), rest["next"].as_u64()), (3, Some(5)));
    let end = bench.get("/v1/events?after=5").await.json();
    assert_eq!((end["events"].as_array().unwrap().len(), end["next"].as_u64()), (0, Some(5)));
    let beyond = bench.get("/v1/events?after=18446744073709551615").await.json();
    assert_eq!((beyond["events"].as_array().unwrap().len(), beyond["next"].as_u64()), (0, Some(u64::MAX)));
    let others = ["0"; 16].join(".");
    let anew = bench.get(&format!("/v1/events?after={others}&limit=1")).await.json();
    assert_eq!((anew["events"][0]["seq"].as_u64(), anew["next"].as_u64()), (Some(1), Some(1)), "another store's");
    for bad in [
        "after=-1",
        "after=x",
        "after=",
        "after=01",
        "after=1.2",
        "after=18446744073709551616",
        "limit=0",
        "limit=1001",
        "since=1",
    ] {
        assert_eq!(bench.get(&format!("/v1/events?{bad}")).await.code(), "REQUEST_INVALID", "{bad}");
    }
}

#[tokio::test]
async fn readiness_is_asked_of_the_store_at_most_once_a_second() {
    let bench = bench();
    let ready = || bench.send(request("GET", "/readyz", &[], Body::empty()));
    for _ in 0..5 {
        assert_eq!(ready().await.status, 200);
    }
    assert_eq!(*bench.desk.readiness_asked.lock().unwrap(), 1);
    *bench.desk.not_ready.lock().unwrap() = Some("the store is unavailable: disk full".to_owned());
    bench.clock.advance(Duration::from_secs(1));
    let got = ready().await;
    assert_eq!((got.status, got.json()["reason"].as_str()), (503, Some("the store is unavailable: disk full")));
}

#[tokio::test]
async fn metrics_and_policies_say_what_is_in_force() {
    let bench = bench();
    let metrics = bench.send(request("GET", "/metrics", &[], Body::empty())).await;
    assert_eq!(metrics.text, "countersign_build_info 1\n");
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"));
    let policies = bench.get("/v1/policies").await.json();
    assert_eq!((policies["version"].as_str(), policies["last_error"].as_str()), (Some("v1"), None));
    assert_eq!(bench.get("/v1/capabilities").await.json()["capabilities"], json!([]));
    assert_eq!(bench.post(PERSON, "/v1/policies/reload", &[], "{}").await.json()["version"], "v1");
}

#[tokio::test]
async fn a_reload_that_fails_says_why_and_what_stays() {
    let found = |line, severity, message: &str| Diagnostic {
        file: "policies/a.yaml".to_owned(),
        line,
        column: 5,
        severity,
        message: message.to_owned(),
        hint: Some("did you mean `hold`?".to_owned()),
        excerpt: "never sent".to_owned(),
    };
    let all = vec![
        found(3, Severity::Error, "unknown key `hodl`"),
        found(4, Severity::Warning, "a long ttl"),
        found(9, Severity::Error, "unknown key `hoold`"),
    ];
    let bench = bench_at("http://127.0.0.1:7071", Err(NotTaken::Mistakes(all)));
    let got = bench.post(PERSON, "/v1/policies/reload", &[], "{}").await;
    assert_eq!((got.status, got.code().as_str()), (422, "REQUEST_INVALID"));
    assert!(got.json()["detail"].as_str().unwrap().contains("last good set stays in force"));
    let mistake = |reason: &str| json!({"pointer": "", "reason": reason});
    let errors =
        [mistake("policies/a.yaml:3:5: unknown key `hodl`"), mistake("policies/a.yaml:9:5: unknown key `hoold`")];
    assert_eq!(got.json()["errors"], json!(errors));
    assert_eq!(got.json()["diagnostics"].as_array().unwrap().len(), 3);
    let first = json!({
        "file": "policies/a.yaml", "line": 3, "column": 5, "severity": "error", "message": "unknown key `hodl`",
        "hint": "did you mean `hold`?",
    });
    assert_eq!(got.json()["diagnostics"][0], first);

    let unreadable = bench_at("http://127.0.0.1:7071", Err(NotTaken::Unreadable("policies/ is gone".to_owned())));
    let got = unreadable.post(PERSON, "/v1/policies/reload", &[], "{}").await.json();
    assert_eq!((&got["errors"], &got["diagnostics"]), (&json!([mistake("policies/ is gone")]), &json!([])));
}
