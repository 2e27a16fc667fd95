//! Confirming and rejecting: once, by a person, and with the outcome told as it is.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{begin, task};
use crate::control::router;
use crate::control::tests::fixture::{PERSON, ROBOT, bearer, read, request};
use crate::control::tests::whole::OTHER;
use crate::guard::tests::bench::{Bench, CLOSES, answers, status};
use crate::policy::model::PolicySet;
use crate::upstream::fake::Script;

#[tokio::test]
async fn p3_a_second_confirm_is_a_conflict_that_tells_the_outcome() {
    let whole = begin(Bench::new());
    let id = whole.made("once").await;
    let first = whole.keyed(&id, "confirm", "k1").await;
    assert_eq!(first.status, 200, "{}", first.text);
    for got in [
        whole.decide(PERSON, &id, "confirm", json!({})).await,
        whole.decide(OTHER, &id, "confirm", json!({})).await,
        whole.keyed(&id, "confirm", "k2").await,
    ] {
        assert_eq!((got.status, got.code().as_str()), (409, "DRAFT_ALREADY_DECIDED"));
        let said = got.json();
        assert_eq!(said["detail"], "task status is EXECUTED, cannot confirm");
        assert_eq!((&said["status"], &said["result"]), (&json!("EXECUTED"), &json!({"id": 1})));
        assert_eq!((&said["executed"], &said["decided_by"]), (&json!(true), &json!("alice")));
        assert_eq!(said["receipt"]["status"], "succeeded");
    }
    let replayed = whole.keyed(&id, "confirm", "k1").await;
    assert_eq!((replayed.status, replayed.json()), (200, first.json()));
    assert_eq!(replayed.header("countersign-replayed"), "true");
    assert_eq!(whole.keyed(&id, "reject", "k1").await.code(), "IDEMPOTENCY_KEY_REUSED");
    let no = whole.decide(OTHER, &id, "reject", json!({})).await;
    assert_eq!((no.status, no.json()["detail"].as_str()), (409, Some("task is not pending")));
    assert_eq!(whole.bench.effects(), 1);
}

#[tokio::test]
async fn p3_confirms_at_once_are_one_effect_and_one_winner() {
    let whole = begin(Bench::new());
    let id = whole.made("once").await;
    let mut calls = Vec::new();
    for call in 0..20 {
        let router = router(&whole.state);
        let token = bearer(if call % 2 == 0 { PERSON } else { OTHER });
        let asked = request("POST", &format!("/api/tasks/{id}/confirm"), &[("authorization", &token)], String::new());
        calls.push(tokio::spawn(async move { read(router.oneshot(asked).await.unwrap()).await }));
    }
    let mut winners = 0;
    for call in calls {
        let got = call.await.unwrap();
        match got.status {
            200 => winners += 1,
            409 => {
                let detail = got.json()["detail"].as_str().unwrap().to_owned();
                assert!(detail.starts_with("task status is ") && detail.ends_with(", cannot confirm"), "{detail}");
            }
            other => panic!("{other}: {}", got.text),
        }
    }
    assert_eq!((winners, whole.bench.effects()), (1, 1));
}

#[tokio::test]
async fn a_rejected_task_is_never_executed() {
    let whole = begin(Bench::new());
    let id = whole.made("not this").await;
    let no = whole.decide(PERSON, &id, "reject", json!({"decided_by": "admin", "reason": "test reject"})).await;
    assert_eq!((no.status, no.json()), (200, json!({"task_id": id, "status": "REJECTED"})));
    let shown = whole.shown(&id).await;
    assert_eq!((&shown["decided_by"], &shown["failure_reason"]), (&json!("alice"), &json!("test reject")));
    for (verb, detail) in [("confirm", "task status is REJECTED, cannot confirm"), ("reject", "task is not pending")] {
        let got = whole.decide(OTHER, &id, verb, json!({})).await;
        assert_eq!((got.status, got.json()["detail"].as_str()), (409, Some(detail)));
        assert_eq!(got.json()["failure_reason"], "test reject");
    }
    let again = whole.create(&task("not this")).await;
    assert_eq!((again.status, again.code().as_str()), (403, "DRAFT_REJECTED"), "a person's no is remembered");
    let silent = whole.made("nor this").await;
    let first = whole.keyed(&silent, "reject", "n1").await;
    let repeat = whole.keyed(&silent, "reject", "n1").await;
    assert_eq!((first.status, repeat.status, repeat.header("countersign-replayed")), (200, 200, "true"));
    assert_eq!(whole.shown(&silent).await["failure_reason"], "No reason was given.");
    assert_eq!(whole.bench.effects(), 0);
}

#[tokio::test]
async fn who_is_said_to_decide_stands_with_the_words_and_is_not_believed() {
    let whole = begin(Bench::new());
    let yes = whole.made("yes").await;
    let said = json!({"decided_by": "ceo \"x\"", "comment": "looks right", "reason": "asked for"});
    assert_eq!(whole.decide(PERSON, &yes, "confirm", said).await.status, 200);
    let shown = whole.get(PERSON, &format!("/v1/drafts/{yes}")).await.json();
    assert_eq!(shown["votes"][0]["decider"]["id"], "alice");
    assert_eq!(shown["votes"][0]["comment"], "asked for\nlooks right\nasserted_by: \"ceo \\\"x\\\"\"");
    let no = whole.made("no").await;
    assert_eq!(whole.decide(PERSON, &no, "reject", json!({"decided_by": "admin"})).await.status, 200);
    let refused = whole.get(PERSON, &format!("/v1/drafts/{no}")).await.json();
    assert_eq!(refused["refused"]["reason"], "No reason was given.\nasserted_by: \"admin\"");
    assert_eq!(refused["refused"]["by"]["id"], "alice");
    let long = json!({"decided_by": "admin", "reason": "r".repeat(990)});
    let open = whole.made("open").await;
    let got = whole.decide(PERSON, &open, "reject", long).await;
    assert_eq!((got.status, got.json()["errors"][0]["pointer"].as_str()), (422, Some("/reason")), "nothing is cut");
    assert_eq!(status(&whole.bench, &open.parse().unwrap()).await, "pending");
}

#[tokio::test]
async fn an_expired_task_is_gone_for_everybody() {
    let whole = begin(Bench::new());
    let got = whole.create(&json!({"task_type": "create_todo", "payload": {"title": "soon"}, "ttl_seconds": 30})).await;
    let id = got.json()["task_id"].as_str().unwrap().to_owned();
    let shown = whole.shown(&id).await;
    let time = |name: &str| shown[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    assert_eq!(time("expires_at") - time("created_at"), 30_000);
    whole.bench.clock.advance(Duration::from_secs(31));
    for verb in ["confirm", "reject"] {
        let got = whole.decide(PERSON, &id, verb, json!({})).await;
        assert_eq!((got.status, got.code().as_str()), (410, "DRAFT_EXPIRED"));
        let said = got.json();
        assert_eq!((&said["detail"], &said["recreate"]), (&json!("task expired"), &json!(true)));
        assert_eq!(said["expired_at"], shown["expires_at"]);
    }
    let shown = whole.shown(&id).await;
    assert_eq!((&shown["status"], &shown["failure_reason"]), (&json!("EXPIRED"), &json!("task expired")));
    assert_eq!((&shown["decided_by"], &shown["decided_at"]), (&Value::Null, &Value::Null));
    assert_eq!(whole.bench.effects(), 0);
}

#[tokio::test]
async fn p5_failure_and_uncertainty_have_their_own_answers() {
    let cases: [(Script, u16, &str, &str, Value); 3] = [
        (answers(422, "{}"), 500, "FAILED", "execute failed: the upstream answered 422", json!(false)),
        (
            Script::NotReached,
            500,
            "FAILED",
            "execute failed: the upstream was not reached and nothing was sent",
            json!(false),
        ),
        (CLOSES, 504, "UNKNOWN", "", json!("unknown")),
    ];
    for (script, code, name, detail, executed) in cases {
        let whole = begin(Bench::new().plays([script]));
        let id = whole.made("t").await;
        let first = whole.keyed(&id, "confirm", "k").await;
        assert_eq!(first.status, code, "{}", first.text);
        let said = first.json();
        assert_eq!((&said["status"], &said["executed"]), (&json!(name), &executed), "{said}");
        assert!(said["detail"].as_str().unwrap().starts_with(detail), "{said}");
        assert_eq!(said["safe_to_retry"], false);
        assert_eq!(said["code"], if code == 500 { "EXECUTION_FAILED" } else { "COMMIT_OUTCOME_UNKNOWN" });
        let again = whole.keyed(&id, "confirm", "k").await;
        assert_eq!((again.status, again.json()["detail"].clone()), (code, said["detail"].clone()), "the same outcome");
        let late = whole.decide(PERSON, &id, "confirm", json!({})).await;
        assert_eq!(late.json()["detail"], format!("task status is {name}, cannot confirm"));
        let shown = whole.shown(&id).await;
        assert_eq!((&shown["status"], &shown["execute_result"]), (&json!(name), &Value::Null));
        assert!(shown["failure_reason"].is_string(), "{shown}");
    }
}

#[tokio::test]
async fn p1_an_agent_decides_nothing_and_consumes_nothing() {
    let whole = begin(Bench::new());
    let id = whole.made("t").await;
    for verb in ["confirm", "reject"] {
        let got = whole.as_agent(ROBOT, "POST", &format!("/api/tasks/{id}/{verb}"), &[], "{}").await;
        assert_eq!((got.status, got.code().as_str()), (403, "AGENT_MAY_NOT_DECIDE"));
        let person = bearer(PERSON);
        let both = [("authorization", person.as_str()), ("countersign-agent", ROBOT)];
        let got = whole.send("POST", &format!("/api/tasks/{id}/{verb}"), &both, String::new()).await;
        assert_eq!(got.code(), "AGENT_MAY_NOT_DECIDE", "a person's token beside it does not help");
    }
    assert_eq!((status(&whole.bench, &id.parse().unwrap()).await.as_str(), whole.bench.effects()), ("pending", 0));
    assert_eq!(whole.decide(PERSON, &id, "confirm", json!({})).await.status, 200);
}

#[tokio::test]
async fn what_was_seen_is_compared_where_it_is_named() {
    let whole = begin(Bench::new());
    let id = whole.made("t").await;
    for verb in ["confirm", "reject"] {
        let got = whole.decide(PERSON, &id, verb, json!({"args_hash": "0".repeat(64)})).await;
        assert_eq!((got.status, got.code().as_str()), (409, "ARGS_HASH_MISMATCH"), "{verb}");
    }
    assert_eq!((status(&whole.bench, &id.parse().unwrap()).await.as_str(), whole.bench.effects()), ("pending", 0));
}

#[tokio::test]
async fn a_policy_that_became_stricter_is_told_in_the_same_words() {
    let whole = begin(Bench::new());
    let id = whole.made("t").await;
    whole.bench.policies.store(Arc::new(PolicySet::open("api", "http://elsewhere.test").unwrap()));
    let got = whole.decide(PERSON, &id, "confirm", json!({})).await;
    let said = got.json();
    assert_eq!((got.status, &said["detail"]), (409, &json!("task status is REJECTED, cannot confirm")));
    assert_eq!((&said["status"], &said["reason"]), (&json!("REJECTED"), &json!("POLICY_CHANGED")));
    assert!(said["guidance"].as_str().unwrap().contains("policy"), "{said}");
    assert_eq!(whole.shown(&id).await["failure_reason"], "POLICY_CHANGED");
    assert_eq!(whole.bench.effects(), 0);
}
