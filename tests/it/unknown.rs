//! Once a byte may have left, an error is no proof of anything: the outcome is unknown, nothing
//! is sent a second time, and a person settles it.

use serde_json::{Value, json};

use crate::support::{Act, Agent, Answer, Draft, End, Gate, Guard, Request, Setup, Upstream};

/// Confirms a draft whose origin misbehaves and checks everything that must follow.
#[track_caller]
fn confirm_into_the_unknown(guard: &Guard, draft: &Draft) {
    let told = guard.approver().confirm(draft);
    let problem = told.must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    assert_eq!(problem["executed"], "unknown", "{problem}");
    assert_eq!(problem["safe_to_retry"], false, "{problem}");
    assert_eq!(guard.draft(&draft.id)["status"], "unverifiable");
}

/// The agent's view of an unknown outcome: no success, no "not executed", no invitation to retry.
#[track_caller]
fn agent_is_told_unknown(agent: &Agent, draft: &Draft) {
    let problem = agent.result(draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    assert_eq!(problem["executed"], "unknown", "{problem}");
    let words = problem.to_string();
    assert!(words.contains("结果暂时无法核验"), "{words}");
    let status = agent.status(draft).must_be(200).json();
    assert_eq!((&status["status"], &status["may_claim_success"]), (&json!("unverifiable"), &json!(false)), "{status}");
}

fn hold(agent: &Agent, method: &str, path: &str) -> Draft {
    Draft::from(&agent.send(Request::new(method, path).json(&json!({"n": path}))).must_be(202))
}

#[test]
fn an_origin_that_reads_everything_and_closes_has_one_effect_and_an_unknown_outcome() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let agent = guard.agent();
    let mut drafts = Vec::new();
    for (n, method) in ["POST", "PUT", "PATCH", "DELETE"].into_iter().enumerate() {
        for warmed in [false, true] {
            let path = format!("/free/closed/{n}-{warmed}");
            if warmed {
                agent.get("/tasks").must_be(200);
                agent.get("/tasks").must_be(200);
            }
            upstream.on(&path, Act::CloseAfterRead);
            let draft = hold(&agent, method, &path);
            confirm_into_the_unknown(&guard, &draft);
            agent_is_told_unknown(&agent, &draft);
            assert_eq!(upstream.effects(&path), 1, "{method} {path}");
            drafts.push((path, draft));
        }
    }
    // No second click, repeated call, restart or recovery sends it again.
    for (path, draft) in &drafts {
        guard.approver().confirm(draft);
        agent.send(Request::post(path).json(&json!({"n": path})));
    }
    guard.stop();
    guard.start_again();
    for (path, draft) in &drafts {
        assert_eq!(guard.draft(&draft.id)["status"], "unverifiable", "{path}");
        assert_eq!(upstream.effects(path), 1, "{path}");
    }
    assert_eq!(guard.metrics().sum("countersign_duplicate_release_total", &[]), 0.0);
}

#[test]
fn writes_without_a_body_are_held_and_never_repeated_either() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let empty = Request::post("/free/run/1").header("Content-Length", "0");
    let lengthless = Request::post("/free/run/2");
    let delete = Request::new("DELETE", "/tasks/77");
    for (path, request) in [("/free/run/1", empty), ("/free/run/2", lengthless), ("/tasks/77", delete)] {
        upstream.on(path, Act::CloseAfterRead);
        agent.get("/tasks").must_be(200);
        let draft = Draft::from(&agent.send(request).must_be(202));
        confirm_into_the_unknown(&guard, &draft);
        assert_eq!(upstream.effects(path), 1, "{path}");
        assert_eq!(upstream.the_one(path).body, b"");
    }
    let nothing = Draft::from(&agent.send(Request::post("/free/empty").body("application/json", "{}")).must_be(202));
    let bodiless = Draft::from(&agent.send(Request::post("/free/empty")).must_be(202));
    assert_ne!(nothing.args_hash, bodiless.args_hash, "no body and an empty object are two things");
}

#[test]
fn a_reset_is_no_proof_that_nothing_happened() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    for (path, warmed) in [("/free/reset/a", false), ("/free/reset/b", true)] {
        upstream.on(path, Act::ResetUnread);
        if warmed {
            agent.get("/tasks").must_be(200);
        }
        let heads = upstream.heads();
        let draft = hold(&agent, "POST", path);
        confirm_into_the_unknown(&guard, &draft);
        agent_is_told_unknown(&agent, &draft);
        let writes = upstream.heads() - heads;
        assert_eq!(writes, 1, "one attempt was made on {path}");
    }
}

#[test]
fn broken_answers_leave_the_outcome_unknown() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let broken: &[(&str, Act)] = &[
        ("cut-short", Act::Answer(Answer::json(200, "{\"id\":\"rf").ending(End::CutShort))),
        ("bad-json", Act::Answer(Answer::json(200, "{\"id\":\"rf"))),
        ("garbage", Act::Raw(b"\x00\x01\x02 nothing like HTTP\r\n\r\n".to_vec())),
        ("half-a-head", Act::Raw(b"HTTP/1.1 201 Created\r\nContent-Le".to_vec())),
        ("bad-chunk", Act::Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec())),
        ("no-last-chunk", Act::Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n".to_vec())),
        ("only-continue", Act::Raw(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec())),
    ];
    for (name, act) in broken {
        let path = format!("/free/broken/{name}");
        upstream.on(&path, act.clone());
        let draft = hold(&agent, "POST", &path);
        guard.approver().confirm(&draft);
        let end = guard.draft(&draft.id);
        assert_eq!(end["status"], "unverifiable", "{name}: {end}");
        agent_is_told_unknown(&agent, &draft);
        assert_eq!(upstream.effects(&path), 1, "{name}");
    }
    assert_eq!(guard.metrics().sum("countersign_unknown_total", &["tool=\"free\""]), 7.0);
}

#[test]
fn an_answer_that_never_comes_is_unknown_and_a_late_one_settles_it_or_not_but_sends_nothing() {
    let upstream = Upstream::start();
    let gate = Gate::default();
    upstream.on("/free/never", Act::After(gate.clone(), Box::new(Act::Answer(Answer::json(201, "{}")))));
    let guard = Setup::over(&upstream).desk_with("read: 20s, total: 40s", "read: 1s, total: 2s").start();
    let agent = guard.agent();
    let draft = hold(&agent, "POST", "/free/never");
    guard.approver().confirm(&draft);
    guard.draft_when(&draft.id, "unverifiable");
    agent_is_told_unknown(&agent, &draft);
    gate.open();
    guard.approver().confirm(&draft);
    assert_eq!(upstream.effects("/free/never"), 1);
}

#[test]
fn a_person_settles_what_nobody_could_verify() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    for (outcome, may_claim) in [("succeeded", true), ("failed", false)] {
        let path = format!("/free/resolve/{outcome}");
        upstream.on(&path, Act::CloseAfterRead);
        let draft = hold(&agent, "POST", &path);
        let too_early = guard.approver().resolve(&draft, outcome, "it is not even sent");
        assert_eq!(too_early.status, 409, "{}", too_early.text());
        confirm_into_the_unknown(&guard, &draft);

        for (bad_outcome, evidence) in [("maybe", "saw it"), (outcome, "")] {
            let answer = guard.approver().resolve(&draft, bad_outcome, evidence);
            assert_eq!(answer.status, 422, "{}", answer.text());
        }
        let foreign = guard.approver_with(crate::support::tokens::DORA).resolve(&draft, outcome, "saw it");
        assert_eq!(foreign.status, 403, "{}", foreign.text());
        let answer = guard.approver().resolve(&draft, outcome, "looked it up in the desk").must_be(200).json();
        assert_eq!(answer["status"], outcome, "{answer}");
        let receipt = &answer["receipt"];
        assert_eq!(receipt["judged"], "person", "{receipt}");
        assert_eq!(receipt["recovered"], true, "{receipt}");
        let status = agent.status(&draft).must_be(200).json();
        assert_eq!(
            (&status["status"], &status["may_claim_success"]),
            (&json!(outcome), &Value::Bool(may_claim)),
            "{status}"
        );
        // What a person found out is never given as if the upstream had said it.
        for told in [agent.result(&draft), agent.post(&path, &json!({"n": path}))] {
            let problem = told.must_refuse(409, "DRAFT_ALREADY_DECIDED");
            let (executed, receipt) = (json!(may_claim), &problem["receipt"]);
            assert_eq!((&problem["executed"], &problem["upstream_called"]), (&executed, &json!(true)), "{problem}");
            assert_eq!((&problem["status"], &problem["outcome"]), (&json!(outcome), &json!(outcome)), "{problem}");
            assert_eq!((&receipt["status"], &receipt["judged"]), (&json!(outcome), &json!("person")), "{problem}");
            assert_eq!(problem["safe_to_retry"], false, "{problem}");
        }
        let twice = guard.approver().resolve(&draft, outcome, "once more");
        assert_eq!(twice.status, 409, "{}", twice.text());
        assert_eq!(upstream.effects(&path), 1);
    }
}

#[test]
fn the_same_call_meets_the_unknown_one_and_makes_no_new_card() {
    let upstream = Upstream::start();
    upstream.on("/free/once", Act::CloseAfterRead);
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let draft = hold(&agent, "POST", "/free/once");
    confirm_into_the_unknown(&guard, &draft);
    let told = agent.post("/free/once", &json!({"n": "/free/once"})).must_be(202).json();
    assert_eq!(told["draft_id"], draft.id.as_str(), "{told}");
    assert_eq!(told["executed"], "unknown", "{told}");
    assert_eq!(guard.approver().list("status=pending").len(), 0);
    assert_eq!(upstream.effects("/free/once"), 1);
}

#[test]
fn a_read_that_breaks_is_not_repeated_either() {
    let upstream = Upstream::start();
    upstream.on("/tasks", Act::CloseAfterRead);
    let guard = Guard::over(&upstream);
    guard.agent().get("/warm").must_be(200);
    let problem = guard.agent().get("/tasks").must_refuse(502, "UPSTREAM_FAILED");
    assert_eq!(problem["safe_to_retry"], true);
    assert_eq!(upstream.seen().iter().filter(|seen| seen.path() == "/tasks").count(), 1);
}
