//! `/api/tasks` over the real guard, the twin of the store and an upstream that counts effects.

mod create;
mod decide;
mod read;

use std::sync::Arc;

use serde_json::{Value, json};

use super::fixture::{Got, PERSON, ROBOT, bearer};
use super::whole::{Whole, whole};
use crate::control::schemas;
use crate::guard::tests::bench::Bench;
use crate::policy::model::PolicySet;
use crate::policy::tests::set;

fn policies() -> PolicySet {
    set(r#"
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
"#)
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
