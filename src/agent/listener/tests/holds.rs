//! Writes, through the real guard on the in-memory store.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::guard::pause::{NoPause, Pause};

const POLICY: &str = r#"
version: 1
service: notes
upstream:
  url: URL
  inject: {X-User-Id: "{{ owner }}"}
route: {path_prefix: /}
capabilities:
  - {id: todo.create, status: enabled, tool: create_todo, operation: create, risk: low, confirm: default}
  - {id: note.delete, status: planned, match: {method: DELETE, path: "/notes/{id}"}, guidance: by hand please}
  - {id: account.delete, status: forbidden, match: {method: [DELETE, POST], path: "/account{/**}"}, guidance: never}
tools:
  - {name: search, match: {method: POST, path: /search}, effect: read}
  - {name: audit, match: {method: GET, path: /audit}, effect: read, allow: {roles: [auditor]}}
  - name: create_todo
    match: {method: POST, path: /todos}
    effect: write
    risk: low
    confirm: default
    args:
      aliases: {user: userId}
      schema:
        type: object
        additionalProperties: false
        required: [title]
        properties:
          title: {type: string, maxLength: 200}
          userId: {type: string, maxLength: 40}
    preview:
      title: create
      target: "{{ args.title }}"
      impact: "a to-do for {{ args.userId }}"
"#;

/// An agent `bot` with owner, session, role and subject, under [`POLICY`].
async fn notes(pause: Arc<dyn Pause>) -> (Origin, Running) {
    let origin = Origin::start(ok("hello")).await;
    let mut setup = Setup::file(POLICY, &origin.url());
    with_agent(&mut setup);
    let header = |name: &'static str| Some(Source::Header(HeaderName::from_static(name)));
    setup.config.identity.owner = header("x-user-id");
    setup.config.identity.session = header("x-session-id");
    setup.config.identity.role = header("x-role");
    setup.config.identity.subject = Some(Source::Arg("/userId".to_owned()));
    setup.pause = pause;
    let running = setup.run().await;
    (origin, running)
}

const BOT: &str = "Countersign-Agent: agent-token\r\nX-User-Id: u1\r\nX-Session-Id: s1\r\nX-Role: user\r\n";

fn call(method: &str, path: &str, lines: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: t\r\n{lines}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n{lines}\r\n")
}

fn no_pause() -> Arc<dyn Pause> {
    Arc::new(NoPause)
}

#[tokio::test]
async fn a_write_is_held_and_its_agent_can_read_and_withdraw_it() {
    let (origin, running) = notes(no_pause()).await;
    let mut client = Client::connect(running.address).await;
    client.send(&call("POST", "/todos", BOT, r#"{"title":"x"}"#)).await;
    let held = client.answer().await;
    assert_eq!((held.status, held.header("countersign-status")), (202, Some("pending")), "{held:?}");
    assert_eq!((&held.json()["executed"], &held.json()["tool"]), (&false.into(), &"create_todo".into()));
    let location = held.header("location").unwrap().to_owned();
    // The connection goes on.
    client.send(&call("POST", "/todos", BOT, r#"{"title":"x"}"#)).await;
    assert_eq!(client.answer().await.json()["draft_id"], held.json()["draft_id"], "the same call joins");
    client.send(&get(&location, BOT)).await;
    let status = client.answer().await;
    assert_eq!((status.status, status.header("countersign-status")), (200, Some("pending")));
    client.send(&format!("HEAD {location} HTTP/1.1\r\nHost: t\r\n{BOT}\r\n")).await;
    let head = client.answer_to(true).await;
    assert_eq!((head.status, head.header("content-length")), (200, status.header("content-length")));
    client.send(&get("/.countersign/pending", BOT)).await;
    assert_eq!(client.answer().await.json()["drafts"].as_array().unwrap().len(), 1);
    // Not for another owner.
    client.send(&get(&location, &BOT.replace("u1", "u2"))).await;
    let foreign = client.answer().await;
    assert_eq!((foreign.status, foreign.code().as_str()), (403, "DRAFT_NOT_YOURS"));
    client.send(&format!("DELETE {location} HTTP/1.1\r\nHost: t\r\n{BOT}\r\n")).await;
    assert_eq!(client.answer().await.header("countersign-status"), Some("withdrawn"));
    assert_eq!(origin.connections(), 0, "nothing of it reached the upstream");
    let seen = running.seen.0.lock().unwrap().clone();
    assert_eq!(seen[0], (Some("notes".to_owned()), Effect::Write, Verdict::Hold));
}

#[tokio::test]
async fn what_is_not_enabled_declared_or_said_is_refused() {
    let (origin, running) = notes(no_pause()).await;
    let without = |name: &str| BOT.split_inclusive("\r\n").filter(|line| !line.starts_with(name)).collect::<String>();
    for (request, status, code) in [
        (call("DELETE", "/notes/7", BOT, ""), 403, "CAPABILITY_PLANNED"),
        (call("POST", "/account/u1", BOT, "{}"), 403, "CAPABILITY_FORBIDDEN"),
        (call("PATCH", "/todos", BOT, "{}"), 403, "TOOL_NOT_FOUND"),
        (call("POST", "/todos", BOT, "{"), 400, "BODY_MALFORMED"),
        (call("POST", "/todos", BOT, r#"{"title":"x","more":1}"#), 422, "ARGS_INVALID"),
        (
            call("POST", "/todos", &format!("{BOT}Idempotency-Key: \r\n"), r#"{"title":"x"}"#),
            400,
            "IDEMPOTENCY_KEY_INVALID",
        ),
        (call("POST", "/todos", &without("X-User-Id"), r#"{"title":"x"}"#), 403, "IDENTITY_MISSING"),
        (call("POST", "/todos", &without("X-Session-Id"), r#"{"title":"x"}"#), 403, "IDENTITY_MISSING"),
        (call("POST", "/todos", BOT, r#"{"title":"x","userId":"u2"}"#), 403, "SUBJECT_MISMATCH"),
        // By an alias just the same.
        (call("POST", "/todos", BOT, r#"{"title":"x","user":"u2"}"#), 403, "SUBJECT_MISMATCH"),
        (get("/audit", BOT), 403, "ROLE_NOT_ALLOWED"),
        // A read needs the owner that is injected.
        (get("/any", &without("X-User-Id")), 403, "IDENTITY_MISSING"),
    ] {
        let answer = refused(&running, &origin, &request).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{request}");
    }
    let planned = refused(&running, &origin, &call("DELETE", "/notes/7", BOT, "")).await;
    assert_eq!(planned.json()["guidance"], "by hand please");
    let held = Client::once(running.address, &call("POST", "/todos", BOT, r#"{"title":"x","user":"u1"}"#)).await;
    assert_eq!(held.status, 202, "{held:?}");
}

#[tokio::test]
async fn a_declared_read_streams_its_body_and_carries_the_injected_owner() {
    let (origin, running) = notes(no_pause()).await;
    let body = format!("\"{}\"", "q".repeat(300_000));
    let answer = Client::once(running.address, &call("POST", "/search", BOT, &body)).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    let chunked =
        format!("POST /search HTTP/1.1\r\nHost: t\r\n{BOT}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(Client::once(running.address, &chunked).await.status, 200);
    let received = origin.received();
    assert!(received[0].ends_with(&body) && received[0].len() < body.len() + 400, "{}", received[0].len());
    for request in &received {
        let lines: Vec<String> =
            request.split("\r\n").map(str::to_ascii_lowercase).filter(|line| line.starts_with("x-")).collect();
        assert_eq!(lines, ["x-user-id: u1"], "only what policy injects");
    }
    assert!(received[1].ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "the terminator is there once: {:?}", received[1]);
}

/// Stops every hold until it is told to go on.
struct Gate {
    entered: tokio::sync::Semaphore,
    open: tokio::sync::Semaphore,
    passed: AtomicBool,
}

#[async_trait::async_trait]
impl Pause for Gate {
    async fn at(&self, point: &'static str) {
        if point == "after_hold_before_answer" {
            self.entered.add_permits(1);
            self.open.acquire().await.unwrap().forget();
            self.passed.store(true, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn p8_a_client_that_hangs_up_during_a_hold_changes_nothing() {
    let gate = Arc::new(Gate { entered: Semaphore::new(0), open: Semaphore::new(0), passed: false.into() });
    let (_origin, running) = notes(Arc::clone(&gate) as Arc<dyn Pause>).await;
    let mut client = Client::connect(running.address).await;
    client.send(&call("POST", "/todos", BOT, r#"{"title":"x"}"#)).await;
    soon(gate.entered.acquire()).await.unwrap().forget();
    drop(client);
    // The guard has had every occasion to notice.
    for _ in 0..20 {
        assert_eq!(Client::once(running.address, &get("/any", BOT)).await.status, 200);
    }
    gate.open.add_permits(1);
    soon(async {
        while !gate.passed.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let pending = Client::once(running.address, &get("/.countersign/pending", BOT)).await;
    assert_eq!(pending.json()["drafts"].as_array().unwrap().len(), 1);
}

/// Panics where a hold is answered.
struct Faulty;

#[async_trait::async_trait]
impl Pause for Faulty {
    async fn at(&self, point: &'static str) {
        assert_ne!(point, "after_hold_before_answer", "a fault that the test asks for");
    }
}

#[tokio::test]
async fn a_panic_ends_its_own_connection_and_no_other() {
    let (_origin, running) = notes(Arc::new(Faulty)).await;
    let mut other = Client::connect(running.address).await;
    other.send(&get("/any", BOT)).await;
    assert_eq!(other.answer().await.status, 200);
    let mut client = Client::connect(running.address).await;
    client.send(&call("POST", "/todos", BOT, r#"{"title":"x"}"#)).await;
    assert!(client.is_closed().await);
    other.send(&get("/.countersign/pending", BOT)).await;
    assert_eq!(other.answer().await.json()["drafts"].as_array().unwrap().len(), 1, "what was held is held");
}
