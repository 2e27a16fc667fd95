//! `/api/tasks`, walked from end to end: the words are those of a confirmation gate, the promises are the
//! guard's.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Act, Agent, Answer, Approver, Draft, Gate, Guard, Request, Response, Setup, Upstream, past, tokens, until,
};

/// Asks for a task and gives its id.
#[track_caller]
fn create(agent: &Agent, tool: &str, payload: &Value) -> String {
    let answer = agent.post("/api/tasks", &json!({"task_type": tool, "payload": payload})).must_be(202).json();
    answer["task_id"].as_str().unwrap_or_else(|| panic!("no task_id: {answer}")).to_owned()
}

fn path(id: &str, verb: &str) -> String {
    format!("/api/tasks/{id}/{verb}")
}

#[track_caller]
fn confirm(who: &Approver, id: &str) -> Response {
    who.send(Request::post(&path(id, "confirm")))
}

#[track_caller]
fn status(who: &Approver, id: &str) -> Value {
    who.get(&format!("/api/tasks/{id}")).must_be(200).json()["status"].clone()
}

#[test]
fn the_whole_walk() {
    let upstream = Upstream::start();
    upstream.answers("/pay", Answer::json(201, r#"{"status":"sent","customer_id":"C10001"}"#));
    let mut guard = Guard::over(&upstream);
    let (agent, alice) = (guard.tasker(), guard.approver());

    // Asked for: nothing is sent.
    let ask = json!({"task_type": "pay", "payload": {"to": "C10001", "amount": 70}, "ttl_seconds": 300});
    let made = agent.post("/api/tasks", &ask).must_be(202).json();
    let first = made["task_id"].as_str().expect("an id").to_owned();
    assert_eq!(made["status"], "PENDING");
    assert_eq!(made["confirm_url"], format!("{}/api/tasks/{first}/confirm", guard.control_url()));
    assert_eq!(agent.get(&format!("/api/tasks/{first}")).must_be(200).json()["status"], "PENDING");
    assert_eq!(upstream.heads(), 0);

    // Confirmed: sent once.
    let done = alice.post(&path(&first, "confirm"), &json!({"decided_by": "admin"})).must_be(200).json();
    let result = json!({"status": "sent", "customer_id": "C10001"});
    assert_eq!(done, json!({"task_id": first, "status": "EXECUTED", "result": result}));
    assert_eq!(upstream.effects("/pay"), 1);
    let sent: Value = serde_json::from_slice(&upstream.the_one("/pay").body).expect("JSON");
    assert_eq!(sent, ask["payload"]);

    // Confirmed again: told what happened.
    let again = confirm(&alice, &first).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(again["detail"], "task status is EXECUTED, cannot confirm");
    assert_eq!((&again["result"], &again["receipt"]["status"]), (&result, &json!("succeeded")), "{again}");

    // A second one is rejected: never sent.
    let second = create(&agent, "pay", &json!({"to": "C10002", "amount": 1}));
    let no = alice.post(&path(&second, "reject"), &json!({"decided_by": "admin", "reason": "test reject"}));
    assert_eq!(no.must_be(200).json(), json!({"task_id": second, "status": "REJECTED"}));
    let late = confirm(&alice, &second).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(
        (&late["detail"], &late["executed"]),
        (&json!("task status is REJECTED, cannot confirm"), &json!(false))
    );

    // All of it is still so after a crash.
    guard.crash_and_restart();
    let (agent, alice) = (guard.tasker(), guard.approver());
    let shown = agent.get(&format!("/api/tasks/{first}")).must_be(200).json();
    assert_eq!((&shown["status"], &shown["execute_result"]), (&json!("EXECUTED"), &result), "{shown}");
    assert_eq!((&shown["decided_by"], &shown["failure_reason"]), (&json!("alice"), &Value::Null));
    let shown = alice.get(&format!("/api/tasks/{second}")).must_be(200).json();
    assert_eq!((&shown["status"], &shown["failure_reason"]), (&json!("REJECTED"), &json!("test reject")), "{shown}");
    confirm(&alice, &first).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(upstream.all_effects(), 1);
}

#[test]
fn a_task_that_expired_can_neither_be_confirmed_nor_rejected() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let [to_confirm, to_reject] = [1, 2].map(|amount| {
        let ask = json!({"task_type": "pay", "payload": {"to": "a", "amount": amount}, "ttl_seconds": 1});
        guard.tasker().post("/api/tasks", &ask).must_be(202).json()["task_id"].as_str().expect("an id").to_owned()
    });
    past(Instant::now() + Duration::from_millis(1_100));
    let alice = guard.approver();
    for (id, verb) in
        [(&to_confirm, "confirm"), (&to_reject, "reject"), (&to_confirm, "reject"), (&to_reject, "confirm")]
    {
        let problem = alice.post(&path(id, verb), &json!({})).must_refuse(410, "DRAFT_EXPIRED");
        assert_eq!((&problem["detail"], &problem["recreate"]), (&json!("task expired"), &json!(true)), "{problem}");
        assert_eq!(status(&alice, id), "EXPIRED");
    }
    assert_eq!(upstream.heads(), 0);
    let anew = create(&guard.tasker(), "pay", &json!({"to": "a", "amount": 1}));
    assert_ne!(anew, to_confirm, "asked for again it is another task");
}

#[test]
fn p1_an_agents_token_decides_nothing_and_consumes_nothing() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.tasker();
    let id = create(&agent, "add_task", &json!({"title": "by a person only"}));
    for verb in ["confirm", "reject"] {
        for token in [tokens::DESK_BOT, tokens::NIGHT_BOT] {
            let bearer = Request::post(&path(&id, verb)).header("Authorization", &format!("Bearer {token}"));
            crate::support::exchange(guard.control_address(), &bearer).must_refuse(403, "AGENT_MAY_NOT_DECIDE");
        }
        agent.post(&path(&id, verb), &json!({})).must_refuse(403, "AGENT_MAY_NOT_DECIDE");
        guard
            .approver()
            .send(Request::post(&path(&id, verb)).header("Countersign-Agent", tokens::DESK_BOT))
            .must_refuse(403, "AGENT_MAY_NOT_DECIDE");
    }
    for (method, target) in
        [("GET", "/api/tasks"), ("DELETE", "/api/tasks/x"), ("GET", "/v1/drafts"), ("POST", "/v1/confirmations")]
    {
        agent.send(Request::new(method, target)).must_refuse(403, "AGENT_MAY_NOT_DECIDE");
    }
    guard.approver().post("/api/tasks", &json!({"task_type": "add_task"})).must_refuse(403, "APPROVER_NOT_ALLOWED");
    assert_eq!((status(&guard.approver(), &id), upstream.heads()), (json!("PENDING"), 0));
    confirm(&guard.approver(), &id).must_be(200);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn another_agents_and_another_owners_tasks_tell_nothing() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let id = create(&guard.tasker(), "add_task", &json!({"title": "private matter"}));
    let strangers =
        [guard.tasker_with(tokens::NIGHT_BOT), guard.tasker_with(tokens::FAR_BOT), guard.tasker().for_owner("u-18")];
    for stranger in strangers {
        let answer = stranger.get(&format!("/api/tasks/{id}"));
        assert!(!answer.text().contains("private matter"), "{}", answer.text());
        answer.must_refuse(403, "DRAFT_NOT_YOURS");
    }
    let faye = guard.approver_with(tokens::FAYE);
    for answer in [faye.get(&format!("/api/tasks/{id}")), confirm(&faye, &id)] {
        assert_eq!(answer.must_refuse(404, "DRAFT_NOT_FOUND")["detail"], "task not found");
    }
    guard.approver_with(tokens::DORA).get(&format!("/api/tasks/{id}")).must_refuse(403, "APPROVER_NOT_ALLOWED");
    confirm(&guard.approver_with(tokens::DORA), &id).must_refuse(403, "APPROVER_NOT_ALLOWED");
    let missing = guard.tasker().without("X-User-Id").get(&format!("/api/tasks/{id}"));
    missing.must_refuse(403, "IDENTITY_MISSING");
    for payload in [json!({}), json!({"title": "t"})] {
        let ask = json!({"task_type": "add_task", "payload": payload});
        guard.tasker().without("X-Session-Id").post("/api/tasks", &ask).must_refuse(403, "IDENTITY_MISSING");
    }
    assert_eq!((status(&guard.approver(), &id), upstream.heads()), (json!("PENDING"), 0));
}

#[test]
fn p3_confirms_at_once_are_one_effect_and_the_others_learn_of_it() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let id = create(&guard.tasker(), "pay", &json!({"to": "acct-1", "amount": 70}));
    let callers: Vec<Approver> =
        (0..32).map(|n| guard.approver_with(if n % 2 == 0 { tokens::ALICE } else { tokens::BOB })).collect();
    let barrier = Barrier::new(callers.len());
    let answers: Vec<Response> = thread::scope(|scope| {
        let calls: Vec<_> = callers
            .iter()
            .enumerate()
            .map(|(n, who)| {
                let (barrier, id) = (&barrier, &id);
                scope.spawn(move || {
                    let request = Request::post(&path(id, "confirm"));
                    // Half of one person's clicks are one click, by its key.
                    let request = if n % 4 == 0 { request.header("Idempotency-Key", "click") } else { request };
                    barrier.wait();
                    who.send(request)
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().expect("a caller")).collect()
    });
    let mut won = 0;
    for answer in answers {
        match answer.status {
            200 if answer.header("Countersign-Replayed").is_some() => assert_eq!(answer.json()["status"], "EXECUTED"),
            200 => won += 1,
            _ => {
                let problem = answer.must_refuse(409, "DRAFT_ALREADY_DECIDED");
                assert!(problem["detail"].as_str().is_some_and(|text| text.ends_with(", cannot confirm")), "{problem}");
            }
        }
    }
    assert_eq!((won, upstream.effects("/pay")), (1, 1));
    assert_eq!(guard.metrics().sum("countersign_duplicate_release_total", &[]), 0.0);
}

#[test]
fn a_task_and_an_equal_call_are_one_draft() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let (agent, tasker) = (guard.agent(), guard.tasker());
    let held = agent.hold_task("one and the same");
    let id = create(&tasker, "add_task", &json!({"title": "one and the same"}));
    assert_eq!(id, held.id);
    assert_eq!(guard.draft(&id)["args_hash"], held.args_hash.as_str());
    let dropped = Draft::from(&agent.send(Request::new("DELETE", "/tasks/a%20b")).must_be(202));
    assert_eq!(create(&tasker, "drop_task", &json!({"id": "a b"})), dropped.id);
    // And the other way round.
    let id = create(&tasker, "pay", &json!({"to": "acct-1", "amount": 7}));
    assert_eq!(agent.hold("/pay", &json!({"amount": 7, "to": "acct-1"})).id, id);
    assert_eq!(guard.approver().list("status=pending").len(), 3);

    guard.approver().confirm_fully(&held);
    let joined = tasker.post("/api/tasks", &json!({"task_type": "add_task", "payload": {"title": "one and the same"}}));
    assert_eq!(joined.must_be(200).json()["status"], "EXECUTED", "carried out: nothing new is asked for");
    let shown = tasker.get(&format!("/api/tasks/{}", held.id)).must_be(200).json();
    let result = agent.result(&held).must_be(201);
    assert_eq!(shown["execute_result"], result.json(), "what the agent's listener has word for word");
    assert_eq!(upstream.all_effects(), 1);
}

#[test]
fn the_args_stand_where_the_tool_says() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let (tasker, alice) = (guard.tasker(), guard.approver());
    for (tool, payload, method, target, body) in [
        ("set_task", json!({"id": "7/8".replace('/', "+"), "title": "T"}), "PUT", "/tasks/7%2B8", r#"{"title":"T"}"#),
        ("mark_task", json!({"id": 7, "done": true}), "PATCH", "/tasks/7", r#"{"done":true}"#),
        ("drop_task", json!({"id": "7"}), "DELETE", "/tasks/7", ""),
        ("publish", json!({"page": "a b", "deep": true}), "GET", "/publish?deep=true&page=a%20b", ""),
        ("brief", json!({}), "POST", "/brief", ""),
        ("brief", json!({"n": [1, {"a": null}]}), "POST", "/brief", r#"{"n":[1,{"a":null}]}"#),
    ] {
        let id = create(&tasker, tool, &payload);
        assert_eq!(confirm(&alice, &id).must_be(200).json()["status"], "EXECUTED", "{tool}");
        let sent = upstream.seen().pop().expect("a request");
        assert_eq!((sent.method.as_str(), sent.target.as_str()), (method, target));
        assert_eq!(String::from_utf8(sent.body.clone()).expect("text"), body, "{tool}");
        assert_eq!(sent.header("Content-Type"), if body.is_empty() { None } else { Some("application/json") });
        for name in ["X-User-Id", "X-Session-Id", "Countersign-Agent", "Authorization", "User-Agent"] {
            assert_eq!(sent.header(name), None, "{tool}: {name} goes nowhere");
        }
    }
    let exact = Request::post("/api/tasks")
        .body("application/json", r#"{"payload" : { "amount":10.00, "to":"\u0041" } ,"task_type":"pay"}"#);
    let id = tasker.send(exact).must_be(202).json()["task_id"].as_str().expect("an id").to_owned();
    confirm(&alice, &id).must_be(200);
    assert_eq!(upstream.the_one("/pay").body, br#"{ "amount":10.00, "to":"\u0041" }"#, "as it was written");
}

#[test]
fn p5_failures_and_unknown_outcomes_are_told_as_such_and_never_repeated() {
    let upstream = Upstream::start();
    upstream.answers("/pay", Answer::json(422, r#"{"secret":"of the upstream"}"#));
    upstream.on("/brief", Act::CloseAfterRead);
    let guard = Setup::over(&upstream).section("guard", "{listen: 127.0.0.1:0, connect_patience: 1s}").start();
    let (tasker, alice) = (guard.tasker(), guard.approver());
    let keyed = |id: &str| alice.send(Request::post(&path(id, "confirm")).header("Idempotency-Key", "k"));
    let refused = create(&tasker, "pay", &json!({"to": "a", "amount": 1}));
    let unknown = create(&tasker, "brief", &json!({}));
    for _ in 0..2 {
        let answer = keyed(&refused);
        assert!(!answer.text().contains("of the upstream"), "sanitised: {}", answer.text());
        let problem = answer.must_refuse(500, "EXECUTION_FAILED");
        assert_eq!(problem["detail"], "execute failed: the upstream answered 422");
        assert_eq!((&problem["failure"], &problem["executed"]), (&json!("refused"), &json!(false)), "{problem}");
        assert_eq!(keyed(&unknown).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN")["status"], "UNKNOWN");
    }
    let late = confirm(&alice, &refused).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(late["detail"], "task status is FAILED, cannot confirm");
    assert_eq!((status(&alice, &refused), status(&alice, &unknown)), (json!("FAILED"), json!("UNKNOWN")));
    assert_eq!((upstream.effects("/pay"), upstream.effects("/brief")), (1, 1));
    alice.resolve(&Draft { id: unknown.clone(), args_hash: String::new() }, "succeeded", "it is there").must_be(200);
    let shown = tasker.get(&format!("/api/tasks/{unknown}")).must_be(200).json();
    assert_eq!((&shown["status"], &shown["execute_result"]), (&json!("EXECUTED"), &Value::Null), "{shown}");
    upstream.close();
    let unsent = create(&tasker, "add_task", &json!({"title": "t"}));
    let setup = confirm(&alice, &unsent).must_refuse(500, "EXECUTION_FAILED");
    assert_eq!((&setup["failure"], &setup["upstream_called"]), (&json!("not_sent"), &json!(false)), "{setup}");
}

#[test]
fn a_confirm_that_takes_long_is_told_and_read_later() {
    let upstream = Upstream::start();
    let gate = Gate::default();
    upstream.on("/pay", Act::After(gate.clone(), Box::new(Act::Answer(Answer::json(200, "{\"ok\":true}")))));
    let guard = Guard::over(&upstream);
    let alice = guard.approver();
    let id = create(&guard.tasker(), "pay", &json!({"to": "a", "amount": 1}));
    let answer = alice.send(Request::post(&path(&id, "confirm")).header("Prefer", "respond-async"));
    assert_eq!(answer.header("Preference-Applied"), Some("respond-async"));
    assert_eq!(answer.must_be(202).json(), json!({"task_id": id, "status": "CONFIRMED", "result": null}));
    until("the call is at the gate", || gate.arrivals() == 1);
    let again = confirm(&alice, &id).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(
        (&again["detail"], &again["executed"]),
        (&json!("task status is CONFIRMED, cannot confirm"), &json!("unknown"))
    );
    let no = alice.post(&path(&id, "reject"), &json!({})).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(no["detail"], "task is not pending");
    gate.open();
    until("it is executed", || status(&alice, &id) == "EXECUTED");
    let shown = guard.tasker().get(&format!("/api/tasks/{id}")).must_be(200).json();
    assert_eq!(shown["execute_result"], json!({"ok": true}));
    assert_eq!(upstream.effects("/pay"), 1);
}

#[test]
fn a_task_that_its_agent_took_back_is_withdrawn() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let id = create(&guard.tasker(), "add_task", &json!({"title": "t"}));
    guard.agent().withdraw(&Draft { id: id.clone(), args_hash: String::new() }).must_be(200);
    let problem = confirm(&guard.approver(), &id).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(problem["detail"], "task status is WITHDRAWN, cannot confirm");
    assert_eq!((status(&guard.approver(), &id), upstream.heads()), (json!("WITHDRAWN"), 0));
}

#[test]
fn bad_input_of_every_kind_is_refused_and_holds_nothing() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let tasker = guard.tasker();
    let deep = format!("{{\"task_type\":\"brief\",\"payload\":{{\"a\":{}{}}}}}", "[".repeat(200), "]".repeat(200));
    let large = format!("{{\"task_type\":\"brief\",\"payload\":{{\"a\":\"{}\"}}}}", "x".repeat(70_000));
    let typed: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("application/json", b"".to_vec(), 400, "BODY_MALFORMED"),
        ("application/json", b"{".to_vec(), 400, "BODY_MALFORMED"),
        ("application/json", b"{\"task_type\":\"brief\"} {}".to_vec(), 400, "BODY_MALFORMED"),
        ("application/json", b"{\"task_type\":\"brief\",\"task_type\":\"pay\"}".to_vec(), 400, "BODY_MALFORMED"),
        (
            "application/json",
            b"{\"task_type\":\"brief\",\"payload\":{\"a\":1,\"\\u0061\":2}}".to_vec(),
            400,
            "BODY_MALFORMED",
        ),
        ("application/json", b"{\"task_type\":\"\xff\"}".to_vec(), 400, "BODY_MALFORMED"),
        ("application/json", deep.into_bytes(), 400, "BODY_MALFORMED"),
        ("application/json", large.into_bytes(), 413, "BODY_TOO_LARGE"),
        ("application/x-www-form-urlencoded", b"task_type=brief".to_vec(), 415, "MEDIA_TYPE_UNSUPPORTED"),
        ("", b"{\"task_type\":\"brief\"}".to_vec(), 415, "MEDIA_TYPE_UNSUPPORTED"),
        ("application/json; charset=utf-16", b"{}".to_vec(), 415, "MEDIA_TYPE_UNSUPPORTED"),
        ("application/json", b"[]".to_vec(), 422, "REQUEST_INVALID"),
        ("application/json", b"null".to_vec(), 422, "REQUEST_INVALID"),
    ];
    for (media_type, body, status, code) in typed {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = tasker.send(Request::post("/api/tasks").body(media_type, body));
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{shown}: {}", answer.text());
    }
    for (body, status, code) in [
        (json!({}), 422, "REQUEST_INVALID"),
        (json!({"task_type": "brief", "payload": "x"}), 422, "REQUEST_INVALID"),
        (json!({"task_type": "brief", "ttl_seconds": 11}), 422, "REQUEST_INVALID"),
        (json!({"task_type": "brief", "ttl_seconds": 0}), 422, "REQUEST_INVALID"),
        (json!({"task_type": "brief", "approve": true}), 422, "REQUEST_INVALID"),
        (json!({"task_type": "brief\u{0}"}), 422, "REQUEST_INVALID"),
        (json!({"task_type": "free", "payload": {}}), 422, "REQUEST_INVALID"),
        (json!({"task_type": "list_tasks"}), 403, "TOOL_NOT_FOUND"),
        (json!({"task_type": "search"}), 403, "TOOL_NOT_FOUND"),
        (json!({"task_type": "task.create"}), 403, "TOOL_NOT_FOUND"),
        (json!({"task_type": "undeclared"}), 403, "TOOL_NOT_FOUND"),
        (json!({"task_type": "drop_task", "payload": {}}), 422, "ARGS_INVALID"),
        (json!({"task_type": "drop_task", "payload": {"id": "../account"}}), 422, "ARGS_INVALID"),
        (json!({"task_type": "drop_task", "payload": {"id": ["7"]}}), 422, "ARGS_INVALID"),
        (json!({"task_type": "pay", "payload": {"to": "a"}}), 422, "ARGS_INVALID"),
        (json!({"task_type": "pay", "payload": {"to": "a", "amount": "1"}}), 422, "ARGS_INVALID"),
        (json!({"task_type": "add_task", "payload": {"title": " "}}), 422, "TASK_TITLE_REQUIRED"),
    ] {
        let answer = tasker.post("/api/tasks", &body);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{body}: {}", answer.text());
    }
    tasker.post("/api/tasks?dry_run=1", &json!({"task_type": "brief"})).must_refuse(422, "REQUEST_INVALID");
    for odd in ["1", "dr_0_01JDZZZZZZZZZZZZZZZZZZZZZZ", "%2e%2e", "dr_5_"] {
        assert_eq!(confirm(&guard.approver(), odd).must_refuse(404, "DRAFT_NOT_FOUND")["detail"], "task not found");
    }
    assert_eq!(guard.approver().list("").len(), 0, "nothing was held");
    assert_eq!(upstream.heads(), 0);
    guard.must_be_alive();
}

#[test]
fn without_agents_nobody_can_ask_for_a_task() {
    let upstream = Upstream::start();
    let guard = Setup::local(&upstream).start();
    let request = Request::post("/api/tasks").json(&json!({"task_type": "brief"}));
    let problem = crate::support::exchange(guard.control_address(), &request).must_refuse(401, "CREDENTIAL_UNKNOWN");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("identity.agents")), "{problem}");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn limits_hold_for_tasks_as_for_calls() {
    let upstream = Upstream::start();
    let setup = Setup::over(&upstream).section("limits", "{pending_per_owner: 2, holds_per_owner: 10000/1m}");
    let guard = setup.start();
    create(&guard.tasker(), "brief", &json!({"n": 1}));
    guard.agent().hold("/brief", &json!({"n": 2}));
    let ask = json!({"task_type": "brief", "payload": {"n": 3}});
    guard.tasker().post("/api/tasks", &ask).must_refuse(429, "TOO_MANY_PENDING");
    guard.tasker().for_owner("u-18").post("/api/tasks", &ask).must_be(202);
}
