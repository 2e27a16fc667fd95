//! `/api/tasks` over the real guard, the twin of the store and an upstream that counts effects.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::fixture::{BACKEND, Got, PERSON, ROBOT, RUNTIME, SECOND_ROBOT, bearer, read, request};
use super::whole::{OTHER, STRANGER, Whole, whole};
use crate::control::{router, schemas};
use crate::guard::tests::bench::{Bench, CLOSES, answers, ask, identity, status};
use crate::policy::load::{Source, load};
use crate::policy::model::PolicySet;
use crate::policy::read::Substitutions;
use crate::upstream::fake::Script;

struct Nothing;

impl Substitutions for Nothing {
    fn env(&self, _: &str) -> Result<String, String> {
        Err("is not set".to_owned())
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Err("cannot be read".to_owned())
    }
}

fn policies() -> PolicySet {
    let text = r#"
version: 1
service: api
upstream: {url: "http://api.test"}
capabilities:
  - {id: todo.create, status: enabled, tool: create_todo, risk: low}
  - {id: todo.secret, status: enabled, tool: keep, risk: low}
tools:
  - {name: list_todos, match: {method: GET, path: /todos}, effect: read}
  - name: create_todo
    match: {method: POST, path: /todos}
    effect: write
    risk: low
    args:
      schema:
        type: object
        additionalProperties: false
        required: [title]
        properties: {title: {type: string}, priority: {type: integer}}
      prepare: [{field: priority, default: 1}]
    preview: {title: Create, target: "{{ args.title }}", impact: "Priority {{ args.priority }}."}
  - name: keep
    match: {method: POST, path: /secrets}
    effect: write
    risk: low
    args:
      schema:
        type: object
        additionalProperties: false
        properties: {pin: {type: string}}
    secret: [/pin]
    preview: {title: Keep, target: a pin, impact: It is kept.}
"#;
    let source = Source { name: "api.yaml".to_owned(), text: text.to_owned() };
    load(&[source], &Nothing).unwrap_or_else(|found| panic!("{found:?}")).set
}

fn begin(bench: Bench) -> Whole {
    bench.policies.store(Arc::new(policies()));
    whole(bench)
}

fn task(title: &str) -> Value {
    json!({"task_type": "create_todo", "payload": {"title": title}})
}

impl Whole {
    async fn as_agent(&self, token: &str, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> Got {
        let token = bearer(token);
        let mut headers = vec![("authorization", token.as_str()), ("x-user-id", "u1"), ("x-session-id", "s1")];
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        headers.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        headers.extend(more);
        self.send(method, path, &headers, body.to_owned()).await
    }

    /// Asks for a task as `bot` for `u1`.
    async fn create(&self, body: &Value) -> Got {
        self.as_agent(ROBOT, "POST", "/api/tasks", &[], &body.to_string()).await
    }

    async fn made(&self, title: &str) -> String {
        let got = self.create(&task(title)).await;
        assert_eq!(got.status, 202, "{}", got.text);
        got.json()["task_id"].as_str().unwrap().to_owned()
    }

    async fn decide(&self, token: &str, id: &str, verb: &str, body: Value) -> Got {
        self.post(token, &format!("/api/tasks/{id}/{verb}"), body).await
    }

    async fn keyed(&self, id: &str, verb: &str, key: &str) -> Got {
        let token = bearer(PERSON);
        let headers = [("authorization", token.as_str()), ("idempotency-key", key)];
        self.send("POST", &format!("/api/tasks/{id}/{verb}"), &headers, String::new()).await
    }

    async fn shown(&self, id: &str) -> Value {
        let got = self.get(PERSON, &format!("/api/tasks/{id}")).await;
        assert_eq!(got.status, 200, "{}", got.text);
        got.json()
    }

    async fn own(&self, id: &str) -> Got {
        self.as_agent(ROBOT, "GET", &format!("/api/tasks/{id}"), &[], "").await
    }
}

#[tokio::test]
async fn a_task_is_made_opened_confirmed_and_executed_once() {
    let whole = begin(Bench::new());
    let made = whole.create(&task("Buy milk")).await;
    assert_eq!(made.status, 202);
    let body = made.json();
    let id = body["task_id"].as_str().unwrap();
    let names: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["confirm_url", "expires_at", "status", "task_id"]);
    assert_eq!(body["status"], "PENDING");
    assert_eq!(body["confirm_url"], format!("http://127.0.0.1:7071/api/tasks/{id}/confirm"));
    assert_eq!(made.header("location"), format!("/api/tasks/{id}"));
    assert_eq!(whole.bench.effects(), 0);

    let first = whole.shown(id).await;
    assert_eq!(
        (&first["status"], &first["payload"]),
        (&json!("PENDING"), &json!({"title": "Buy milk", "priority": 1}))
    );
    assert_eq!(whole.shown(id).await["status"], "RECEIVED", "an approver has opened it");

    let done = whole.decide(PERSON, id, "confirm", json!({"decided_by": "admin"})).await;
    assert_eq!(done.status, 200, "{}", done.text);
    assert_eq!(done.json(), json!({"task_id": id, "status": "EXECUTED", "result": {"id": 1}}));
    assert_eq!(whole.bench.effects(), 1);
    let ended = whole.shown(id).await;
    assert_eq!((&ended["status"], &ended["decided_by"]), (&json!("EXECUTED"), &json!("alice")), "never `admin`");
    assert_eq!((&ended["execute_result"], &ended["failure_reason"]), (&json!({"id": 1}), &Value::Null));
    assert!(ended["decided_at"].is_string());
    let properties = schemas::all()["Task"]["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(ended.as_object().unwrap().keys().cloned().collect::<Vec<_>>(), properties, "ten fields, and no others");
    assert_eq!(properties.len(), 10);
}

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
