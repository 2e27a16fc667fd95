//! Who may ask for a task, with what body, and when an earlier one is the answer.

use serde_json::{Value, json};

use super::{begin, task};
use crate::control::tests::fixture::{BACKEND, PERSON, ROBOT, bearer};
use crate::guard::tests::bench::{Bench, ask, identity, status};

#[tokio::test]
async fn an_equal_intercepted_call_and_a_task_are_one_draft() {
    let whole = begin(Bench::new());
    let held = ask(&whole.guard, identity("u1"), "{\"title\":\"Buy milk\"}", None).await;
    let held: Value = serde_json::from_slice(&held.body).unwrap();
    let made = whole.create(&task("Buy milk")).await;
    assert_eq!((made.status, &made.json()["task_id"]), (202, &held["draft_id"]));
    let id = made.json()["task_id"].as_str().unwrap().to_owned();
    let shown = whole.get(PERSON, &format!("/v1/drafts/{id}")).await.json();
    assert_eq!(shown["args_hash"], held["args_hash"]);
    assert_eq!(whole.decide(PERSON, &id, "confirm", json!({"args_hash": held["args_hash"]})).await.status, 200);
    let again = whole.create(&task("Buy milk")).await;
    assert_eq!((again.status, &again.json()["status"]), (200, &json!("EXECUTED")), "carried out before");
    assert_eq!(again.json()["task_id"], id);
    let other =
        whole.as_agent(ROBOT, "POST", "/api/tasks", &[("x-user-id", "u2")], &task("Buy milk").to_string()).await;
    assert_ne!(other.json()["task_id"], id, "another owner's is another one");
    assert_eq!(whole.bench.effects(), 1);
}

#[tokio::test]
async fn the_callers_key_is_the_same_as_for_an_intercepted_call() {
    let whole = begin(Bench::new());
    let keyed = async |title: &str| {
        let body = task(title).to_string();
        whole.as_agent(ROBOT, "POST", "/api/tasks", &[("idempotency-key", "c1")], &body).await
    };
    let first = keyed("a").await;
    assert_eq!(keyed("a").await.json()["task_id"], first.json()["task_id"]);
    assert_eq!(keyed("b").await.code(), "IDEMPOTENCY_KEY_REUSED");
    let bad = whole.as_agent(ROBOT, "POST", "/api/tasks", &[("idempotency-key", "")], &task("a").to_string()).await;
    assert_eq!(bad.code(), "IDEMPOTENCY_KEY_INVALID");
}

#[tokio::test]
async fn a_task_is_asked_for_with_one_agents_credential_and_nothing_else() {
    let whole = begin(Bench::new());
    let body = task("t").to_string();
    let by = async |headers: &[(&str, &str)]| {
        let mut all = vec![("x-user-id", "u1"), ("x-session-id", "s1"), ("content-type", "application/json")];
        all.extend(headers);
        let got = whole.send("POST", "/api/tasks", &all, body.clone()).await;
        (got.status, if got.status == 202 { String::new() } else { got.code() })
    };
    let (person, backend, robot) = (bearer(PERSON), bearer(BACKEND), bearer(ROBOT));
    for (headers, expected) in [
        (&[("authorization", robot.as_str())][..], (202, "")),
        (&[("countersign-agent", ROBOT)], (202, "")),
        (&[("authorization", person.as_str())], (403, "APPROVER_NOT_ALLOWED")),
        (&[("authorization", backend.as_str())], (403, "APPROVER_NOT_ALLOWED")),
        (&[], (401, "CREDENTIAL_UNKNOWN")),
        (&[("authorization", "Bearer nobody")], (401, "CREDENTIAL_UNKNOWN")),
        (&[("countersign-agent", "nobody")], (401, "CREDENTIAL_UNKNOWN")),
        (&[("proxy-authorization", robot.as_str())], (401, "CREDENTIAL_UNKNOWN")),
        (&[("authorization", person.as_str()), ("countersign-agent", ROBOT)], (401, "CREDENTIAL_UNKNOWN")),
        (&[("authorization", "Bearer upstream"), ("countersign-agent", ROBOT)], (400, "REQUEST_AMBIGUOUS")),
        (&[("authorization", robot.as_str()), ("authorization", robot.as_str())], (400, "REQUEST_AMBIGUOUS")),
    ] {
        assert_eq!(by(headers).await, (expected.0, expected.1.to_owned()), "{headers:?}");
    }
}

#[tokio::test]
async fn an_identity_that_cannot_be_had_is_refused() {
    let whole = begin(Bench::new());
    let token = bearer(ROBOT);
    for (headers, code) in [
        (&[("x-user-id", "u1")][..], "IDENTITY_MISSING"),
        (&[("x-session-id", "s1")], "IDENTITY_MISSING"),
        (&[("x-user-id", "u1"), ("x-user-id", "u2"), ("x-session-id", "s1")], "REQUEST_AMBIGUOUS"),
    ] {
        let mut all = vec![("authorization", token.as_str()), ("content-type", "application/json")];
        all.extend(headers);
        let got = whole.send("POST", "/api/tasks", &all, task("t").to_string()).await;
        assert_eq!(got.code(), code, "{headers:?}");
    }
    let id = whole.made("t").await;
    let got = whole.send("GET", &format!("/api/tasks/{id}"), &[("authorization", &token)], String::new()).await;
    assert_eq!((got.status, got.code().as_str()), (403, "IDENTITY_MISSING"));
}

#[tokio::test]
async fn a_time_to_wait_can_be_shortened_only() {
    let whole = begin(Bench::new());
    let with = |ttl: Value| json!({"task_type": "create_todo", "payload": {"title": "t"}, "ttl_seconds": ttl});
    for ttl in [json!(301), json!(0), json!(-5), json!(1.5), json!("300"), json!(null), json!(u64::MAX)] {
        let got = whole.create(&with(ttl.clone())).await;
        assert_eq!((got.status, got.code().as_str()), (422, "REQUEST_INVALID"), "{ttl}");
        assert_eq!(got.json()["errors"][0]["pointer"], "/ttl_seconds");
    }
    assert_eq!(whole.create(&with(json!(300))).await.status, 202);
}

#[tokio::test]
async fn bodies_are_closed_and_every_mistake_is_told() {
    let whole = begin(Bench::new());
    for (body, pointers) in [
        (json!({}), &["/task_type"][..]),
        (
            json!({"task_type": 7, "payload": [], "ttl_seconds": "x", "more": 1}),
            &["/task_type", "/payload", "/ttl_seconds", "/more"],
        ),
        (json!({"task_type": "create_todo", "payload": null}), &["/payload"]),
        (json!({"task_type": "create_todo", "created_by": "me"}), &["/created_by"]),
        (json!({"task_type": "", "payload": {}}), &["/task_type"]),
    ] {
        let got = whole.create(&body).await;
        assert_eq!((got.status, got.code().as_str()), (422, "REQUEST_INVALID"), "{body}");
        let said = got.json();
        let told: Vec<_> = said["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect();
        assert_eq!(told, pointers, "{body}");
    }
    for (name, status, code) in [("list_todos", 403, "TOOL_NOT_FOUND"), ("nothing", 403, "TOOL_NOT_FOUND")] {
        let got = whole.create(&json!({"task_type": name})).await;
        assert_eq!((got.status, got.code().as_str()), (status, code));
    }
    let got = whole.create(&json!({"task_type": "create_todo", "payload": {"titel": "t"}})).await;
    assert_eq!((got.status, got.code().as_str()), (422, "ARGS_INVALID"));
    let got = whole.create(&json!({"task_type": "create_todo"})).await;
    assert_eq!((got.status, got.json()["errors"][0]["pointer"].as_str()), (422, Some("/title")), "the payload is {{}}");
    let id = whole.made("t").await;
    for verb in ["confirm", "reject"] {
        for body in [
            json!({"args": {}}),
            json!({"decided_by": 1}),
            json!({"decided_by": "x".repeat(201)}),
            json!({"decided_by": ""}),
            json!({"reason": "r".repeat(1001)}),
            json!({"comment": []}),
            json!({"args_hash": "abc"}),
            json!([]),
        ] {
            let got = whole.decide(PERSON, &id, verb, body.clone()).await;
            assert_eq!((got.status, got.code().as_str()), (422, "REQUEST_INVALID"), "{verb} {body}");
        }
    }
    assert_eq!((status(&whole.bench, &id.parse().unwrap()).await.as_str(), whole.bench.effects()), ("pending", 0));
}
