//! What a task shows of itself, and to whom.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::begin;
use crate::control::tests::fixture::{PERSON, ROBOT, RUNTIME, SECOND_ROBOT, bearer};
use crate::control::tests::whole::{OTHER, STRANGER};
use crate::guard::tests::bench::{Bench, status};
use crate::upstream::fake::Script;

#[tokio::test]
async fn a_result_is_json_or_described() {
    let text = |content_type: &'static str, body: &'static str| Script::Answer {
        applied: true,
        status: 200,
        content_type,
        body: Bytes::from_static(body.as_bytes()),
    };
    let described = |content_type: &str, body: &str| {
        let sha256 = crate::base::digest::Digest::of(body.as_bytes());
        json!({"content_type": content_type, "length": body.len(), "sha256": sha256})
    };
    let json_type = "application/json; charset=utf-8";
    for (script, result) in [
        (text(json_type, "{\"a\":[1.50,null]}"), json!({"a": [1.5, null]})),
        (text(json_type, "\"done\""), json!("done")),
        (text("application/hal+json", "[]"), json!([])),
        (text("text/html", "<b>done</b>"), described("text/html", "<b>done</b>")),
        (text(json_type, "{\"n\":9007199254740993.5}"), described(json_type, "{\"n\":9007199254740993.5}")),
        (text(json_type, "{\"n\":1,\"n\":2}"), described(json_type, "{\"n\":1,\"n\":2}")),
        (text("text/plain", ""), Value::Null),
    ] {
        let whole = begin(Bench::new().plays([script]));
        let id = whole.made("t").await;
        let done = whole.decide(PERSON, &id, "confirm", json!({})).await;
        assert_eq!((done.status, &done.json()["result"]), (200, &result), "{}", done.text);
        assert_eq!(whole.shown(&id).await["execute_result"], result);
    }
}

#[tokio::test]
async fn an_agent_reads_its_own_tasks_and_collects_them() {
    let whole = begin(Bench::new());
    let id = whole.made("Buy milk").await;
    let path = format!("/api/tasks/{id}");
    assert_eq!(whole.own(&id).await.json()["status"], "PENDING", "its agent does not open it");
    assert_eq!(whole.own(&id).await.json()["status"], "PENDING");
    for (token, owner) in [(SECOND_ROBOT, "u1"), (ROBOT, "u2")] {
        let got = whole.as_agent(token, "GET", &path, &[("x-user-id", owner)], "").await;
        assert_eq!((got.status, got.code().as_str()), (403, "DRAFT_NOT_YOURS"));
        assert!(!got.text.contains("milk") && !got.text.contains("PENDING"), "{}", got.text);
    }
    whole.decide(PERSON, &id, "confirm", json!({})).await;
    let collected = async || whole.get(PERSON, &format!("/v1/drafts/{id}")).await.json()["collected_at"].clone();
    whole.shown(&id).await;
    assert_eq!(whole.as_agent(ROBOT, "HEAD", &path, &[], "").await.status, 200);
    assert_eq!(collected().await, Value::Null, "neither an approver nor a HEAD collects");
    let own = whole.own(&id).await.json();
    assert_eq!((&own["status"], &own["execute_result"]), (&json!("EXECUTED"), &json!({"id": 1})));
    assert!(collected().await.is_string());
}

#[tokio::test]
async fn approvers_see_and_decide_within_their_tenant_and_rights() {
    let whole = begin(Bench::new());
    let id = whole.made("Buy milk").await;
    for (method, path) in [
        ("GET", format!("/api/tasks/{id}")),
        ("POST", format!("/api/tasks/{id}/confirm")),
        ("POST", format!("/api/tasks/{id}/reject")),
    ] {
        let token = bearer(STRANGER);
        let got = whole.send(method, &path, &[("authorization", &token)], String::new()).await;
        assert_eq!((got.status, got.json()["detail"].as_str()), (404, Some("task not found")), "{path}");
        let mut none = (*whole.state.credentials.load_full()).clone();
        none.approvers[1].rights = None;
        let before = whole.state.credentials.swap(Arc::new(none));
        let token = bearer(OTHER);
        let got = whole.send(method, &path, &[("authorization", &token)], String::new()).await;
        assert_eq!((got.status, got.code().as_str()), (403, "APPROVER_NOT_ALLOWED"), "{path}");
        assert!(!got.text.contains("milk"));
        whole.state.credentials.store(before);
    }
    for odd in ["dr_5_01JDZZZZZZZZZZZZZZZZZZZZZZ", "1", "..", "%00"] {
        for (token, method, rest) in
            [(PERSON, "GET", ""), (PERSON, "POST", "/confirm"), (PERSON, "POST", "/reject"), (ROBOT, "GET", "")]
        {
            let token = bearer(token);
            let headers = [("authorization", token.as_str()), ("x-user-id", "u1"), ("x-session-id", "s1")];
            let got = whole.send(method, &format!("/api/tasks/{odd}{rest}"), &headers, String::new()).await;
            assert_eq!((got.status, got.json()["detail"].as_str()), (404, Some("task not found")), "{odd}");
        }
    }
    assert_eq!((status(&whole.bench, &id.parse().unwrap()).await.as_str(), whole.bench.effects()), ("pending", 0));
}

#[tokio::test]
async fn p10_a_secret_arg_is_masked_and_a_token_is_in_a_header_alone() {
    let whole = begin(Bench::new());
    let body = json!({"task_type": "keep", "payload": {"pin": "1234"}}).to_string();
    let made = whole.as_agent(RUNTIME, "POST", "/api/tasks", &[], &body).await;
    let token = made.header("countersign-confirmation-token");
    assert!(token.starts_with("ct_") && !made.text.contains(token), "{}", made.text);
    let id = made.json()["task_id"].as_str().unwrap().to_owned();
    let own = whole.as_agent(RUNTIME, "GET", &format!("/api/tasks/{id}"), &[], "").await;
    for shown in [own.json(), whole.shown(&id).await] {
        assert_eq!(shown["payload"], json!({"pin": "***"}));
    }
}
