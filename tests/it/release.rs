//! What is confirmed is what is sent, once; and what came back is kept word for word.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::support::{
    Act, Answer, Draft, End, Gate, Guard, Request, Setup, Upstream, Wire, edited, sha256_hex, tokens,
};

#[test]
fn the_bytes_that_the_agent_sent_are_the_bytes_that_go_out() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let body = "{ \"y\" : 1.0,\r\n\t\"x\":\"\\u00e9\\/x\", \"n\":10.00 }";
    let request = Request::post("/free/odd%20path?b=2&a=C%2B%2B&e=&f")
        .header("X-Trace-Note", "kept as it is")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("Accept", "application/vnd.desk+json")
        .header("Connection", "X-Hop")
        .header("X-Hop", "not for the upstream")
        .header("Keep-Alive", "timeout=5")
        .header("TE", "trailers")
        .body("application/json", body);
    let draft = Draft::from(&guard.agent().send(request).must_be(202));
    guard.approver().confirm_fully(&draft);

    let sent = upstream.the_one("/free/odd%20path");
    assert_eq!(sent.method, "POST");
    assert_eq!(sent.target, "/free/odd%20path?b=2&a=C%2B%2B&e=&f");
    assert_eq!(String::from_utf8_lossy(&sent.body), body);
    assert_eq!(sent.header("X-Trace-Note"), Some("kept as it is"));
    assert_eq!(sent.header("Accept"), Some("application/vnd.desk+json"));
    assert_eq!(sent.header("Host"), Some(upstream.address().to_string().as_str()));
    assert_eq!(sent.header("traceparent"), Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    for dropped in ["X-Hop", "Keep-Alive", "TE", "Countersign-Agent", "X-User-Id", "X-Session-Id", "Transfer-Encoding"]
    {
        assert_eq!(sent.header(dropped), None, "{dropped} went upstream");
    }
    let words = format!("{:?}", sent.headers);
    assert!(!words.contains(tokens::DESK_BOT), "{words}");
}

#[test]
fn a_release_opens_a_connection_of_its_own() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    guard.agent().get("/tasks").must_be(200);
    let draft = guard.agent().hold_task("fresh");
    guard.approver().confirm_fully(&draft);
    let seen = upstream.seen();
    let read = seen.iter().find(|seen| seen.method == "GET").expect("the read");
    let write = seen.iter().find(|seen| seen.method == "POST").expect("the write");
    assert_ne!(read.connection, write.connection);
}

#[test]
fn the_receipt_names_what_was_sent_by_whom_and_with_what_result() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("receipt");
    let answer = guard.approver().confirm_fully(&draft);
    assert_eq!(answer["replayed"], false);
    let receipt = &answer["receipt"];
    assert_eq!(receipt["action_id"], draft.id.as_str());
    assert_eq!(receipt["status"], "succeeded");
    assert_eq!(receipt["service"], "desk");
    assert_eq!(receipt["tool"], "add_task");
    assert_eq!(receipt["capability"], "task.create");
    assert_eq!(receipt["summary"], "The task was added.");
    assert_eq!(receipt["judged"], "status");
    assert_eq!(receipt["args_hash"], draft.args_hash.as_str());
    assert_eq!(receipt["attempts"], 1);
    assert_eq!(receipt["upstream_status"], 201);
    assert_eq!(receipt["truncated"], false);
    assert_eq!(receipt["response_digest"], sha256_hex(br#"{"id":"r-1","made":true}"#).as_str());
    assert_eq!(receipt["effect_key"].as_str(), upstream.the_one("/tasks").header("Idempotency-Key"));
    let decider = &receipt["decided_by"][0];
    assert_eq!((decider["id"].as_str(), decider["channel"].as_str()), (Some("alice"), Some("api")), "{decider}");
    let status = guard.agent().status(&draft).must_be(200).json();
    assert_eq!(status["status"], "succeeded");
    assert_eq!(status["may_claim_success"], true);
    assert_eq!(status["receipt"]["id"], receipt["id"]);
}

#[test]
fn every_upstream_status_has_the_outcome_that_is_written_down() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let table: &[(&str, &[u16])] = &[
        ("succeeded", &[200, 201, 202, 204, 206]),
        ("failed", &[400, 401, 403, 404, 405, 409, 410, 412, 422, 429, 451, 307, 308, 501]),
        ("unverifiable", &[300, 301, 302, 303, 408, 500, 502, 503, 504, 599]),
    ];
    let mut wrong = Vec::new();
    for (outcome, statuses) in table {
        for status in *statuses {
            let path = format!("/free/status/{status}");
            upstream.answers(&path, Answer::json(*status, "{\"said\":\"so\"}"));
            let draft = agent.hold(&path, &json!({ "status": status }));
            guard.approver().confirm(&draft);
            let end = guard.draft(&draft.id)["status"].as_str().unwrap_or_default().to_owned();
            if end != *outcome || upstream.effects(&path) != 1 {
                wrong.push(format!("{status}: {end}, {} effects", upstream.effects(&path)));
            }
            let result = agent.result(&draft);
            let told = if *outcome == "unverifiable" { 504 } else { *status };
            if result.status != told {
                wrong.push(format!("{status}: the agent is told {}: {}", result.status, result.text()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_refusal_by_the_upstream_is_no_success_and_kept_word_for_word() {
    let upstream = Upstream::start();
    upstream.answers("/free/no", Answer::json(409, "{ \"error\" : \"taken\" }").header("Retry-After", "7"));
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/free/no", &json!({}));
    let answer = guard.approver().confirm(&draft).must_be(200).json();
    assert_eq!(answer["status"], "failed", "{answer}");
    assert_eq!(answer["receipt"]["status"], "failed", "{answer}");
    let result = guard.agent().result(&draft).must_be(409);
    assert_eq!(result.text(), "{ \"error\" : \"taken\" }");
    assert_eq!(result.header("Retry-After"), Some("7"));
    assert_eq!(result.header("Countersign-Status"), Some("failed"));
    assert_eq!(guard.agent().status(&draft).json()["may_claim_success"], false);
}

#[test]
fn an_accepted_answer_is_not_yet_a_success_to_speak_of() {
    let upstream = Upstream::start();
    upstream.answers("/free/later", Answer::json(202, "{\"job\":9}").header("Location", "/jobs/9"));
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/free/later", &json!({}));
    let answer = guard.approver().confirm_fully(&draft);
    assert_eq!(answer["receipt"]["accepted"], true);
    assert_eq!(guard.agent().status(&draft).json()["may_claim_success"], false);
}

#[test]
fn redirects_are_never_followed() {
    let upstream = Upstream::start();
    let elsewhere = Upstream::start();
    let guard = Guard::over(&upstream);
    for status in [301, 302, 303, 307, 308] {
        let path = format!("/free/moved/{status}");
        let target = format!("{}/stolen", elsewhere.url());
        upstream.answers(&path, Answer::status(status).header("Location", &target));
        let draft = guard.agent().hold(&path, &json!({ "n": status }));
        guard.approver().confirm(&draft);
        assert_eq!(upstream.effects(&path), 1);
    }
    assert_eq!(elsewhere.heads(), 0);
    assert_eq!(upstream.all_effects(), 5);
}

#[test]
fn answers_are_kept_with_their_bytes_status_and_chosen_headers() {
    let upstream = Upstream::start();
    let gzip = gzipped(b"{\"packed\":true}");
    upstream.answers("/free/gzip", Answer::json(200, "").header("Content-Encoding", "gzip").body(gzip.clone()));
    upstream.answers(
        "/free/bytes",
        Answer::status(200).header("Content-Type", "application/x-thing").body(vec![0, 1, 0, 255, 254, 10, 13, 0]),
    );
    upstream.answers("/free/none", Answer::status(204).header("ETag", "\"e-204\""));
    upstream.answers("/free/chunks", Answer::json(200, &format!("\"{}\"", "y".repeat(5000))).ending(End::Chunks));
    upstream.answers("/free/close", Answer::json(200, "{\"until\":\"close\"}").ending(End::Close));
    upstream.on("/free/hint", Act::HintThenAnswer(Answer::json(201, "{\"after\":103}")));
    upstream.answers(
        "/free/headers",
        Answer::json(201, "{}")
            .header("Location", "/things/1")
            .header("ETag", "W/\"7\"")
            .header("Last-Modified", "Mon, 30 Nov 2026 10:00:00 GMT")
            .header("Content-Language", "en")
            .header("Link", "</next>; rel=next")
            .header("Vary", "Accept")
            .header("Warning", "199 - \"stale\"")
            .header("X-Request-Id", "req-1")
            .header("Set-Cookie", "sid=secret-cookie-1; HttpOnly")
            .header("Set-Cookie", "other=secret-cookie-2")
            .header("Server", "desk/1.0")
            .header("X-Internal", "not for agents"),
    );
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    for (path, status, body) in [
        ("/free/gzip", 200, gzip.clone()),
        ("/free/bytes", 200, vec![0, 1, 0, 255, 254, 10, 13, 0]),
        ("/free/none", 204, Vec::new()),
        ("/free/chunks", 200, format!("\"{}\"", "y".repeat(5000)).into_bytes()),
        ("/free/close", 200, b"{\"until\":\"close\"}".to_vec()),
        ("/free/hint", 201, b"{\"after\":103}".to_vec()),
        ("/free/headers", 201, b"{}".to_vec()),
    ] {
        let draft = agent.hold(path, &json!({ "path": path }));
        guard.approver().confirm_fully(&draft);
        for result in [agent.result(&draft), agent.result(&draft), agent.post(path, &json!({ "path": path }))] {
            assert_eq!((result.status, result.body.as_slice()), (status, body.as_slice()), "{path}");
            assert_eq!(result.header("Countersign-Draft"), Some(draft.id.as_str()), "{path}");
            assert_eq!(result.header("Countersign-Status"), Some("succeeded"), "{path}");
            assert!(result.header("Countersign-Receipt").is_some(), "{path}");
        }
        assert_eq!(upstream.effects(path), 1, "{path}");
    }
    let kept = agent.post("/free/headers", &json!({"path": "/free/headers"}));
    for (name, value) in [
        ("Content-Type", "application/json"),
        ("Location", "/things/1"),
        ("ETag", "W/\"7\""),
        ("Last-Modified", "Mon, 30 Nov 2026 10:00:00 GMT"),
        ("Content-Language", "en"),
        ("Link", "</next>; rel=next"),
        ("Vary", "Accept"),
        ("Warning", "199 - \"stale\""),
        ("X-Request-Id", "req-1"),
    ] {
        assert_eq!(kept.header(name), Some(value), "{name} is kept");
    }
    let words = format!("{:?}", kept.headers);
    assert!(
        !words.contains("secret-cookie") && !words.contains("X-Internal") && !words.contains("desk/1.0"),
        "{words}"
    );
    let gzip_again = agent.post("/free/gzip", &json!({"path": "/free/gzip"}));
    assert_eq!(gzip_again.header("Content-Encoding"), Some("gzip"));
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("gzip in memory")
}

#[test]
fn a_result_over_the_bound_is_executed_and_said_to_be() {
    let upstream = Upstream::start();
    let long = "z".repeat(200 * 1024);
    upstream.answers("/free/long", Answer::status(200).header("Content-Type", "text/plain").body(long.clone()));
    let guard = Setup::over(&upstream).section("guard", "{listen: 127.0.0.1:0, max_response: 64KiB}").start();
    let draft = guard.agent().hold("/free/long", &json!({}));
    let answer = guard.approver().confirm_fully(&draft);
    assert_eq!(answer["receipt"]["truncated"], true);
    assert_eq!(answer["receipt"]["response_digest"], sha256_hex(long.as_bytes()).as_str());
    let problem = guard.agent().result(&draft).must_refuse(502, "RESULT_TOO_LARGE");
    assert_eq!(problem["executed"], true);
    assert_eq!(problem["safe_to_retry"], false);
    assert_eq!(upstream.effects("/free/long"), 1);
}

#[test]
fn an_early_refusal_of_a_large_body_is_a_refusal_and_nothing_worse() {
    let upstream = Upstream::start();
    upstream.on("/free/early", Act::AnswerUnread(Answer::json(413, "{\"too\":\"large\"}")));
    let guard = Guard::over(&upstream);
    let request = Request::post("/free/early").body("application/octet-stream", vec![7_u8; 96 * 1024]);
    let draft = Draft::from(&guard.agent().send(request).must_be(202));
    guard.approver().confirm(&draft);
    let end = guard.draft(&draft.id);
    assert!(end["status"] == "failed" || end["status"] == "unverifiable", "{end}");
    assert_eq!(upstream.all_effects(), 0);
}

#[test]
fn a_port_that_is_closed_is_provably_not_sent_and_can_be_tried_again_under_the_same_key() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream).section("guard", "{listen: 127.0.0.1:0, connect_patience: 1s}").start();
    upstream.close();
    let agent = guard.agent();
    let draft = agent.hold_task("try twice");
    guard.approver().confirm(&draft);
    let failed = guard.draft_when(&draft.id, "failed");
    let first_key = failed["receipt"]["effect_key"].as_str().expect("the effect key on the receipt").to_owned();
    let told = agent.result(&draft).must_refuse(502, "UPSTREAM_NOT_REACHED");
    assert_eq!(told["executed"], false);
    assert_eq!(agent.status(&draft).json()["may_claim_success"], false);

    upstream.reopen();
    let made = guard.approver().again(&draft).must_be(201);
    let second = Draft::from(&made);
    assert_ne!(second.id, draft.id);
    assert_eq!(second.args_hash, draft.args_hash);
    assert_eq!(upstream.all_effects(), 0, "`again` asks, it does not send");
    guard.approver().confirm_fully(&second);
    assert_eq!(upstream.the_one("/tasks").header("Idempotency-Key"), Some(first_key.as_str()));
    let third = guard.approver().again(&draft);
    assert_eq!(third.status, 409, "a second `again` of one draft: {}", third.text());
    let of_success = guard.approver().again(&second);
    assert_eq!(of_success.status, 409, "`again` of a success: {}", of_success.text());
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn the_effect_key_is_the_guards_own_and_never_the_callers() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let mut keys = Vec::new();
    for (token, owner) in [(tokens::DESK_BOT, "u-17"), (tokens::NIGHT_BOT, "u-17"), (tokens::DESK_BOT, "u-18")] {
        let draft = guard.agent_with(token).for_owner(owner).keyed("the-same-key").hold_task("one each");
        guard.approver().confirm_fully(&draft);
        let key = upstream
            .seen()
            .last()
            .and_then(|seen| seen.header("Idempotency-Key").map(str::to_owned))
            .expect("an effect key");
        assert!(key.starts_with("cs1-") && key.len() == 36, "{key}");
        keys.push(key);
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "every intent has its own key: {keys:?}");
}

#[test]
fn a_confirmers_hang_up_does_not_stop_the_release() {
    let upstream = Upstream::start();
    let gate = Gate::default();
    upstream.on("/free/slow", Act::After(gate.clone(), Box::new(Act::Answer(Answer::json(201, "{}")))));
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/free/slow", &json!({}));
    let request = guard.approver().dress(crate::support::Approver::confirm_request(&draft));
    let mut wire = Wire::open(guard.control_address());
    wire.send(&request.to_bytes("control")).expect("sent");
    crate::support::until("the origin has the call", || gate.arrivals() == 1);
    drop(wire);
    gate.open();
    guard.draft_when(&draft.id, "succeeded");
    assert_eq!(upstream.effects("/free/slow"), 1);
}

#[test]
fn a_slow_release_answers_running_and_ends_on_its_own() {
    let upstream = Upstream::start();
    let gate = Gate::default();
    upstream.on("/free/slow", Act::After(gate.clone(), Box::new(Act::Answer(Answer::json(201, "{}")))));
    let guard = Setup::over(&upstream).section("guard", "{listen: 127.0.0.1:0, confirm_wait: 1s}").start();
    let agent = guard.agent();
    let draft = agent.hold("/free/slow", &json!({}));
    let first = guard.approver().confirm(&draft).must_be(202).json();
    assert_eq!(first["status"], "running", "{first}");
    assert!(first.get("receipt").is_none_or(Value::is_null), "no receipt, no success: {first}");
    agent.result(&draft).must_be(202);
    let joined = agent.post("/free/slow", &json!({})).must_be(202).json();
    assert_eq!((&joined["status"], &joined["executed"]), (&json!("running"), &json!("unknown")), "{joined}");
    assert_eq!(joined["draft_id"], draft.id.as_str());
    guard.approver().confirm_at_once(&draft).must_be(202);
    gate.open();
    guard.draft_when(&draft.id, "succeeded");
    agent.result(&draft).must_be(201);
    assert_eq!(upstream.effects("/free/slow"), 1);
}

#[test]
fn a_client_library_that_sends_again_meets_its_own_draft() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent().keyed("order-1001");
    let request = || Request::post("/pay").json(&json!({"to": "acct-1", "amount": 12.5}));
    let mut ids = Vec::new();
    for _ in 0..3 {
        let answer = agent.send(request()).must_be(202);
        ids.push(Draft::from(&answer));
    }
    assert!(ids.iter().all(|draft| *draft == ids[0]), "{ids:?}");
    guard.approver().confirm_fully(&ids[0]);
    let replay = agent.send(request()).must_be(201);
    assert_eq!(replay.header("Countersign-Replayed"), Some("true"));
    assert_eq!(upstream.effects("/pay"), 1);
}

#[test]
fn the_guards_own_credential_is_added_at_release_and_on_reads() {
    let upstream = Upstream::start();
    let secret = "upstream-credential-6b1f0c";
    let guard = Setup::over(&upstream)
        .desk_with(
            "route: {path_prefix: /}",
            "  credentials: {header: Authorization, value: \"Bearer ${env:DESK_TOKEN}\"}\nroute: {path_prefix: /}",
        )
        .env("DESK_TOKEN", secret)
        .start();
    let wanted = format!("Bearer {secret}");
    guard.agent().get("/tasks").must_be(200);
    let draft = guard.agent().hold_task("with the guard's credential");
    guard.approver().confirm_fully(&draft);
    assert!(
        upstream.seen().iter().all(|seen| seen.header("Authorization") == Some(wanted.as_str())),
        "{:?}",
        upstream.seen()
    );
    let own = guard
        .agent()
        .with("Authorization", "Bearer something-of-the-agent")
        .post("/tasks", &json!({"title": "two credentials"}));
    assert_eq!(own.status, 400, "an agent's credential beside an injected one: {}", own.text());
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn an_agents_own_upstream_credential_is_sealed_and_goes_with_the_release() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent().with("Authorization", "Bearer agents-own-credential-77");
    agent.get("/tasks").must_be(200);
    let draft = agent.hold_task("with my own credential");
    let card = guard.draft(&draft.id).to_string();
    assert!(!card.contains("agents-own-credential-77"), "{card}");
    guard.approver().confirm_fully(&draft);
    assert!(upstream.seen().iter().all(|seen| seen.header("Authorization") == Some("Bearer agents-own-credential-77")));
    let other = guard.agent().with("Authorization", "Bearer another-credential").hold_task("with my own credential");
    assert_ne!(other.id, draft.id, "another credential is another call");
}

#[test]
fn clients_that_take_202_for_success_get_the_status_that_the_policy_chose() {
    let upstream = Upstream::start();
    let desk = edited(crate::support::DESK, "    ttl: 5m\n", "    ttl: 5m\n    held_status: 409\n");
    let guard = Setup::over(&upstream).policy("desk.yaml", &desk).start();
    let held = guard.agent().post("/tasks", &json!({"title": "strict client"})).must_be(409);
    assert_eq!(held.json()["result"], "WAIT_CONFIRM");
    guard.approver().confirm_fully(&Draft::from(&held));
    assert_eq!(upstream.effects("/tasks"), 1);
}
