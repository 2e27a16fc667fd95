//! A call that would change something is held, and the agent is told so in exact words.

use serde_json::{Value, json};

use crate::support::{Guard, Request, Setup, Upstream, sha256_hex};

/// The members of a held answer, all of them.
const MEMBERS: [&str; 16] = [
    "args_hash",
    "capability",
    "confirm_url",
    "created_at",
    "draft_id",
    "executed",
    "expires_at",
    "message",
    "poll_after_ms",
    "possible_duplicate_of",
    "preview",
    "result",
    "risk",
    "status",
    "status_url",
    "tool",
];

fn millis(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_else(|| panic!("not a time: {value}"));
    assert!(text.len() == 24 && text.ends_with('Z') && text.as_bytes()[19] == b'.', "not RFC 3339 UTC with ms: {text}");
    text.parse::<jiff::Timestamp>().expect("a time").as_millisecond()
}

#[test]
fn a_write_is_held_with_every_member_and_header_and_nothing_goes_upstream() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let answer = guard.agent().post("/tasks", &json!({"title": "water the plants", "priority": 1})).must_be(202);

    let body = answer.json();
    let members = body.as_object().expect("an object");
    // `may_claim_success` belongs to the status answer and may already stand here.
    let mut names: Vec<&str> = members.keys().map(String::as_str).filter(|name| *name != "may_claim_success").collect();
    names.sort_unstable();
    assert_eq!(names, MEMBERS);
    assert_ne!(body.get("may_claim_success"), Some(&Value::Bool(true)));
    let id = body["draft_id"].as_str().expect("an id");
    assert_eq!(body["result"], "WAIT_CONFIRM");
    assert_eq!(body["executed"], false);
    assert_eq!(body["status"], "pending");
    assert_eq!(body["tool"], "add_task");
    assert_eq!(body["capability"], "task.create");
    assert_eq!(body["risk"], "low");
    assert_eq!(body["poll_after_ms"], 5000);
    assert_eq!(body["possible_duplicate_of"], Value::Null);
    assert_eq!(body["status_url"], format!("/.countersign/drafts/{id}"));
    assert_eq!(body["confirm_url"], format!("{}/drafts/{id}", guard.control_url()));
    assert_eq!(
        body["preview"],
        json!({"title": "Add a task", "target": "water the plants", "impact": "Adds a task without a due date.",
               "details": [{"key": "priority", "value": "1"}]})
    );
    let message = body["message"].as_str().expect("a message");
    assert!(message.starts_with("This call was NOT executed."), "{message}");
    assert_eq!(millis(&body["expires_at"]) - millis(&body["created_at"]), 300_000);
    let hash = body["args_hash"].as_str().expect("a hash");
    assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{hash}");

    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    assert_eq!(answer.header("Location"), Some(format!("/.countersign/drafts/{id}").as_str()));
    assert_eq!(answer.header("Countersign-Draft"), Some(id));
    assert_eq!(answer.header("Countersign-Status"), Some("pending"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert_eq!(answer.header("Retry-After"), None);
    assert_eq!(answer.header("Countersign-Confirmation-Token"), None);
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn the_card_and_the_request_show_the_prepared_args() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft =
        guard.agent().hold("/tasks", &json!({"taskTitle": "  re\u{0301}sume\u{0301} ", "deadline": "2026-12-01"}));
    let shown = guard.draft(&draft.id);
    assert_eq!(shown["args"], json!({"title": "r\u{e9}sum\u{e9}", "dueAt": "2026-12-01", "priority": 1}));
    assert_eq!(shown["preview"]["target"], "r\u{e9}sum\u{e9}");
    assert_eq!(shown["preview"]["impact"], "Adds a task due 2026-12-01.");

    guard.approver().confirm_fully(&draft);
    let sent: Value = serde_json::from_slice(&upstream.the_one("/tasks").body).expect("JSON upstream");
    assert_eq!(sent, json!({"title": "r\u{e9}sum\u{e9}", "dueAt": "2026-12-01", "priority": 1}));
}

#[test]
fn planned_forbidden_and_undeclared_writes_are_refused_and_nothing_is_held() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let planned = agent.post("/archive", &json!({})).must_refuse(403, "CAPABILITY_PLANNED");
    assert_eq!(planned["guidance"], "Archiving comes later; please use the archive page.");
    for (method, path) in [("DELETE", "/account"), ("DELETE", "/account/7"), ("POST", "/account/7/close/now")] {
        let forbidden = agent.send(Request::new(method, path)).must_refuse(403, "CAPABILITY_FORBIDDEN");
        assert_eq!(forbidden["guidance"], "Accounts are closed by their owners only.");
    }
    for (method, path) in
        [("POST", "/nowhere"), ("PUT", "/tasks"), ("FROB", "/tasks"), ("get", "/tasks"), ("POST", "/tasks/1")]
    {
        let refused = agent.send(Request::new(method, path).json(&json!({}))).must_refuse(403, "TOOL_NOT_FOUND");
        assert_eq!(refused["executed"], false);
        assert_eq!(refused["upstream_called"], false);
        assert_eq!(refused["safe_to_retry"], false);
    }
    agent.send(Request::new("TRACE", "/tasks")).must_refuse(405, "METHOD_REFUSED");
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.approver().list("").len(), 0);
}

#[test]
fn forbidden_wins_over_a_tool_that_matches_the_same_request() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream)
        .desk_with(
            "match: {method: [DELETE, POST], path: \"/account{/**}\"}",
            "match: {method: [DELETE, POST], path: \"/free{/**}\"}",
        )
        .start();
    guard.agent().post("/free/x", &json!({})).must_refuse(403, "CAPABILITY_FORBIDDEN");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn the_effect_is_what_the_policy_says_and_not_what_the_method_suggests() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    agent.post("/search", &json!({"q": "milk"})).must_be(201);
    assert_eq!(upstream.the_one("/search").body, br#"{"q":"milk"}"#);
    let held = agent.get("/publish").must_be(202);
    assert_eq!(held.json()["tool"], "publish");
    let head = agent.send(Request::new("HEAD", "/publish")).must_be(202);
    assert!(head.header("Countersign-Draft").is_some(), "{:?}", head.headers);
    assert!(upstream.seen().iter().all(|seen| seen.path() != "/publish"));
}

#[test]
fn args_that_do_not_fit_are_refused_with_a_pointer_to_each_mistake() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let long = "x".repeat(201);
    for (body, pointer) in [
        (json!({"title": 7}), "/title"),
        (json!({"title": "a", "surprise": 1}), "/surprise"),
        (json!({"title": long}), "/title"),
        (json!({"title": "a", "priority": 9}), "/priority"),
        (json!({"title": "a", "dueAt": 5}), "/dueAt"),
    ] {
        let problem = agent.post("/tasks", &body).must_refuse(422, "ARGS_INVALID");
        let errors = problem["errors"].as_array().expect("errors").clone();
        let at_place = |error: &Value| error["pointer"].as_str().is_some_and(|at| at == pointer || at.is_empty());
        assert!(errors.iter().any(at_place), "no error at {pointer}: {problem}");
        assert!(errors.iter().all(|error| error["reason"].as_str().is_some_and(|why| !why.is_empty())), "{problem}");
    }
    agent.post("/tasks", &json!({})).must_be(422);
    agent.post("/tasks", &json!([1, 2])).must_refuse(422, "ARGS_INVALID");
    let two_names = agent.post("/tasks", &json!({"title": "a", "taskTitle": "b"}));
    assert_eq!(two_names.status, 422, "an alias beside its target: {}", two_names.text());
    let own = agent.post("/tasks", &json!({"title": "   "})).must_be(422);
    assert_eq!(own.code(), "TASK_TITLE_REQUIRED", "{}", own.text());
    assert_eq!(own.header("x-should-retry"), Some("false"));
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.approver().list("").len(), 0);
}

#[test]
fn a_tool_with_a_schema_takes_only_bodies_that_it_can_understand() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    for media_type in ["text/plain", "application/octet-stream", "application/json; charset=iso-8859-1"] {
        let request = Request::post("/tasks").body(media_type, "{\"title\":\"a\"}");
        agent.send(request).must_refuse(415, "MEDIA_TYPE_UNSUPPORTED");
    }
    let parts = "--x\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\na\r\n--x--\r\n";
    let multipart = Request::post("/tasks").body("multipart/form-data; boundary=x", parts);
    agent.send(multipart).must_refuse(415, "MEDIA_TYPE_UNSUPPORTED");
    let utf8 = agent.send(Request::post("/tasks").body("application/json; charset=UTF-8", "{\"title\":\"a\"}"));
    utf8.must_be(202);
    let form =
        agent.send(Request::post("/tasks").body("application/x-www-form-urlencoded", "title=buy+milk%21")).must_be(202);
    assert_eq!(form.json()["preview"]["target"], "buy milk!");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_body_that_is_not_args_is_held_whole_and_named_by_its_digest() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let request = Request::post("/free/upload").body("application/octet-stream", bytes.clone());
    let draft = crate::support::Draft::from(&guard.agent().send(request).must_be(202));
    let shown = guard.draft(&draft.id).to_string();
    assert!(shown.contains(&sha256_hex(&bytes)), "the card names the body's digest: {shown}");
    assert!(shown.contains("5000"), "the card names the body's length: {shown}");
    let task = guard.approver().get(&format!("/api/tasks/{}", draft.id)).must_be(200).json();
    let described = json!({"content_type": "application/octet-stream", "length": 5000, "sha256": sha256_hex(&bytes)});
    assert_eq!(task["payload"], json!({ "body": described }), "{task}");
    guard.approver().confirm_fully(&draft);
    let sent = upstream.the_one("/free/upload");
    assert_eq!(sent.body, bytes);
    assert_eq!(sent.header("Content-Type"), Some("application/octet-stream"));
}

/// Sends one body at the bound of 64 KiB and one of a byte more, with a length and in chunks.
#[track_caller]
fn bodies_up_to_64_kib_only(upstream: &Upstream, guard: &Guard) {
    let agent = guard.agent();
    let at_bound = format!("{{\"title\":\"{}\"}}", "x".repeat(64 * 1024 - 12));
    assert_eq!(at_bound.len(), 64 * 1024);
    agent.send(Request::post("/free/a").body("application/json", at_bound.clone())).must_be(202);
    let over = format!("{at_bound} ");
    let too_long = agent.send(Request::post("/free/b").body("application/json", over.clone()));
    let problem = too_long.must_refuse(413, "BODY_TOO_LARGE");
    assert_eq!(problem["executed"], false);
    let request =
        Request::post("/free/c").header("Transfer-Encoding", "chunked").header("Content-Type", "application/json");
    let mut bytes = agent.dress(request).to_bytes("desk");
    bytes.extend_from_slice(format!("{:x}\r\n{over}\r\n0\r\n\r\n", over.len()).as_bytes());
    let answer = crate::support::raw(guard.agent_address(), &bytes).expect("an answer");
    answer.must_refuse(413, "BODY_TOO_LARGE");
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.approver().list("").len(), 1);
}

#[test]
fn a_body_over_the_services_bound_is_refused() {
    let upstream = Upstream::start();
    let setup = Setup::over(&upstream);
    let guard = setup.desk_with("route: {path_prefix: /}", "max_body: 64KiB\nroute: {path_prefix: /}").start();
    bodies_up_to_64_kib_only(&upstream, &guard);
}

#[test]
fn a_body_over_the_configurations_bound_is_refused_where_no_policy_says_another() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream).section("guard", "{listen: 127.0.0.1:0, max_body: 64KiB}").start();
    bodies_up_to_64_kib_only(&upstream, &guard);
}

#[test]
fn an_agent_takes_its_own_draft_back() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let draft = agent.hold_task("not needed after all");
    let answer = agent.withdraw(&draft);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(guard.draft(&draft.id)["status"], "withdrawn");
    let late = guard.approver().confirm(&draft);
    late.must_refuse(409, "DRAFT_ALREADY_DECIDED");
    agent.result(&draft).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(upstream.heads(), 0);
    let anew = agent.hold_task("not needed after all");
    assert_ne!(anew.id, draft.id, "a withdrawn draft does not answer the next call");
}

#[test]
fn a_hang_up_is_never_a_withdrawal() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let request = agent.dress(Request::post("/tasks").json(&json!({"title": "patient"})));
    let mut wire = crate::support::Wire::open(guard.agent_address());
    wire.send(&request.to_bytes("desk")).expect("sent");
    let waiting = crate::support::eventually("the draft is there", || guard.approver().list("status=pending").pop());
    drop(wire);
    let draft = agent.hold_task("patient");
    assert_eq!(waiting["draft_id"], draft.id.as_str(), "the same call meets the same draft");
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn an_agent_sees_its_open_drafts_and_how_to_behave() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let mine = agent.hold_task("mine");
    let others = guard.agent().for_owner("u-99").hold_task("someone else's");
    let pending = agent.get("/.countersign/pending").must_be(200).text();
    assert!(pending.contains(&mine.id), "{pending}");
    assert!(!pending.contains(&others.id), "{pending}");
    let manifest = agent.get("/.countersign/manifest").must_be(200).json();
    assert!(manifest.is_object(), "{manifest}");
    let unknown = agent.get("/.countersign/nothing-here");
    assert_eq!(unknown.status, 404, "{}", unknown.text());
    assert_eq!(upstream.heads(), 0, "nothing under /.countersign/ is ever forwarded");
}

#[test]
fn without_a_policy_file_every_write_is_held_on_a_generic_card() {
    let upstream = Upstream::start();
    let guard = Setup::local(&upstream).no_policies().policy("plain.yaml", PLAIN).start();
    let anyone = guard.anyone();
    anyone.get("/whatever?x=1").must_be(200);
    let held = anyone.send(Request::new("DELETE", "/things/7?hard=yes")).must_be(202).json();
    let card = held["preview"].to_string();
    assert!(card.contains("DELETE") && card.contains("/things/7?hard=yes"), "{card}");
    assert_eq!(held["capability"], "undeclared");
    assert_eq!(upstream.all_effects(), 0);
}

const PLAIN: &str = "
version: 1
service: plain
upstream: {url: \"${env:DESK_URL}\"}
route: {path_prefix: /}
unmatched: {read: pass, write: hold}
";
