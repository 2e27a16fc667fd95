//! One decision counts, for exactly what was shown; every other click learns what happened.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use crate::support::browser::{Browser, form_to};
use crate::support::{Agent, Approver, Draft, Guard, Request, Response, Setup, Upstream, tokens};

/// Runs the calls at the same moment and gathers their answers in order.
fn at_once(calls: Vec<Box<dyn FnOnce() -> Response + Send>>) -> Vec<Response> {
    let barrier = Barrier::new(calls.len());
    thread::scope(|scope| {
        let started: Vec<_> = calls
            .into_iter()
            .map(|call| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    call()
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("a caller")).collect()
    })
}

fn confirming(who: &Approver, draft: &Draft) -> Box<dyn FnOnce() -> Response + Send> {
    let (who, draft) = (who.clone(), draft.clone());
    Box::new(move || who.confirm(&draft))
}

fn rejecting(who: &Approver, draft: &Draft) -> Box<dyn FnOnce() -> Response + Send> {
    let (who, draft) = (who.clone(), draft.clone());
    Box::new(move || who.reject(&draft, "no"))
}

#[test]
fn p3_sixty_four_confirms_at_once_are_one_effect_and_one_receipt() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/pay", &json!({"to": "acct-1", "amount": 70}));
    let (alice, bob) = (guard.approver(), guard.approver_with(tokens::BOB));
    let calls = (0..64).map(|n| confirming(if n % 2 == 0 { &alice } else { &bob }, &draft)).collect();
    let answers = at_once(calls);
    assert_eq!(upstream.effects("/pay"), 1);
    let settled = alice.confirm(&draft).must_be(200).json();
    assert_eq!(settled["replayed"], true);
    let mut winners = 0;
    for answer in answers {
        let answer = answer.must_be(200).json();
        assert_eq!(answer["status"], "succeeded", "{answer}");
        assert_eq!(answer["receipt"], settled["receipt"], "everyone gets the same receipt");
        winners += usize::from(answer["replayed"] == false);
    }
    assert_eq!(winners, 1, "one caller confirmed, the others are told so");
    assert_eq!(guard.metrics().sum("countersign_duplicate_release_total", &[]), 0.0);
    assert_eq!(upstream.effects("/pay"), 1);
}

#[test]
fn api_console_and_app_at_once_are_one_effect_and_one_decision() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let answer = guard.agent_with(tokens::RUNTIME).post("/tasks", &json!({"title": "on every surface"})).must_be(202);
    let token = answer.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    let draft = Draft::from(&answer);
    let mut calls: Vec<Box<dyn FnOnce() -> Response + Send>> = Vec::new();
    for n in 0..20 {
        calls.push(match n % 4 {
            0 => confirming(&guard.approver(), &draft),
            1 => confirming(&guard.approver_with(tokens::BOB), &draft),
            2 => {
                let (app, token) = (guard.app(), token.clone());
                Box::new(move || app.confirm(&token))
            }
            _ => {
                let mut browser = Browser::at(guard.control_address());
                browser.sign_in(tokens::BOB).must_be(200);
                let page = browser.open(&format!("/drafts/{}", draft.id)).must_be(200).text();
                Box::new(move || browser.submit(&form_to(&page, "/confirm")))
            }
        });
    }
    for answer in at_once(calls) {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let settled = guard.draft_when(&draft.id, "succeeded");
    assert_eq!(settled["receipt"]["decided_by"].as_array().map(Vec::len), Some(1), "{settled}");
    let events = guard.approver().get("/v1/events?after=0").must_be(200).json();
    let confirmed =
        events["events"].as_array().expect("events").iter().filter(|event| event["kind"] == "draft.confirmed");
    assert_eq!(confirmed.count(), 1, "{events}");
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn two_approvers_clicking_many_drafts_at_once_release_each_of_them_once() {
    let upstream = Upstream::start();
    // Twelve releases at once on a busy machine may miss the usual window, and are then not sent.
    let guard = Setup::over(&upstream).section("guard", "{listen: 127.0.0.1:0, send_window: 10s}").start();
    let agent = guard.agent();
    let (alice, bob) = (guard.approver(), guard.approver_with(tokens::BOB));
    let drafts: Vec<Draft> =
        (0..12).map(|n| agent.hold("/pay", &json!({"to": format!("acct-{n}"), "amount": n}))).collect();
    let calls =
        drafts.iter().flat_map(|draft| (0..6).map(|n| confirming(if n % 2 == 0 { &alice } else { &bob }, draft)));
    for answer in at_once(calls.collect()) {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(upstream.effects("/pay"), drafts.len());
    for draft in &drafts {
        let shown = guard.draft(&draft.id);
        assert_eq!(shown["status"], "succeeded", "{shown}");
        assert_eq!(shown["receipt"]["decided_by"].as_array().map(Vec::len), Some(1), "{shown}");
    }
}

#[test]
fn a_confirm_against_a_reject_has_one_winner_and_the_upstream_agrees() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let (alice, bob) = (guard.approver(), guard.approver_with(tokens::BOB));
    let mut released = 0;
    for n in 0..24 {
        let draft = agent.hold("/pay", &json!({"to": "race", "amount": n}));
        let calls = if n % 2 == 0 {
            vec![confirming(&alice, &draft), rejecting(&bob, &draft)]
        } else {
            vec![rejecting(&alice, &draft), confirming(&bob, &draft)]
        };
        let mut statuses: Vec<u16> = at_once(calls).iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "one of two wins");
        match guard.draft(&draft.id)["status"].as_str() {
            Some("succeeded") => released += 1,
            Some("rejected") => {}
            other => panic!("neither released nor rejected: {other:?}"),
        }
    }
    assert_eq!(upstream.effects("/pay"), released);
}

#[test]
fn a_decision_stands_and_a_later_one_is_told_which() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let (alice, bob) = (guard.approver(), guard.approver_with(tokens::BOB));

    let done = agent.hold_task("to be done");
    let receipt = alice.confirm_fully(&done)["receipt"].clone();
    let late_no = bob.reject(&done, "too late").must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert!(late_no.to_string().contains("succeeded") && late_no["receipt"] == receipt, "{late_no}");
    assert_eq!(guard.draft(&done.id)["status"], "succeeded");

    let refused = agent.hold_task("not to be done");
    let no = alice.reject(&refused, "we have enough of these").must_be(200).json();
    assert_eq!(no["status"], "rejected", "{no}");
    let late_yes = bob.confirm(&refused).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert!(late_yes.to_string().contains("rejected") && late_yes.to_string().contains("alice"), "{late_yes}");
    assert_eq!(guard.draft(&refused.id)["status"], "rejected");
    let told = agent.result(&refused).must_refuse(403, "DRAFT_REJECTED");
    assert!(told.to_string().contains("we have enough of these"), "{told}");
    assert_eq!(told["executed"], false);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_double_click_and_a_second_approver_get_the_first_receipt() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("clicked twice");
    let first = guard.approver().confirm_fully(&draft);
    assert_eq!(first["replayed"], false);
    for (who, token) in [("alice", tokens::ALICE), ("bob", tokens::BOB)] {
        let again = guard.approver_with(token).confirm(&draft).must_be(200).json();
        assert_eq!(again["replayed"], true, "{who}: {again}");
        assert_eq!(again["receipt"], first["receipt"], "{who}");
    }
    let second = guard.approver_with(tokens::BOB).confirm(&draft).json();
    assert!(second["receipt"]["decided_by"].to_string().contains("alice"), "{second}");
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_confirm_must_name_the_args_that_were_shown() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let draft = agent.hold("/pay", &json!({"to": "acct-1", "amount": 1}));
    let other = agent.hold("/pay", &json!({"to": "acct-2", "amount": 2}));
    let path = format!("/v1/drafts/{}/confirm", draft.id);
    let alice = guard.approver();
    alice.post(&path, &json!({})).must_refuse(422, "ARGS_HASH_REQUIRED");
    for wrong in [other.args_hash, "0".repeat(64)] {
        alice.post(&path, &json!({ "args_hash": wrong })).must_refuse(409, "ARGS_HASH_MISMATCH");
    }
    for no_hash in [draft.args_hash.to_uppercase(), String::new()] {
        alice.post(&path, &json!({ "args_hash": no_hash })).must_refuse(422, "REQUEST_INVALID");
    }
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.draft(&draft.id)["status"], "pending");
    alice.confirm_fully(&draft);
    assert_eq!(upstream.effects("/pay"), 1);
    assert_eq!(guard.draft(&other.id)["status"], "pending");
}

#[test]
fn decision_bodies_are_closed() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/pay", &json!({"to": "acct-1", "amount": 1}));
    let alice = guard.approver();
    let confirm = format!("/v1/drafts/{}/confirm", draft.id);
    let hash = &draft.args_hash;
    let refused: &[(&str, Value)] = &[
        (&confirm, json!({"args_hash": hash, "args": {"to": "acct-evil", "amount": 1}})),
        (&confirm, json!({"args_hash": hash, "tool": "drop_task"})),
        (&confirm, json!({"args_hash": hash, "approver": "bob"})),
        (&confirm, json!({"args_hash": hash, "decided_by": "bob"})),
        (&confirm, json!({"args_hash": [hash]})),
        (&confirm, json!({"args_hash": hash, "comment": 7})),
        (&confirm, json!({"args_hash": hash, "comment": "c".repeat(1001)})),
        (&confirm, json!([{"args_hash": hash}])),
        (&confirm, json!("yes")),
        (&confirm, Value::Null),
    ];
    for (path, body) in refused {
        let answer = alice.post(path, body);
        assert_eq!(answer.status, 422, "{body}: {}", answer.text());
    }
    for body in ["", "{", "{\"args_hash\":\"a\",\"args_hash\":\"b\"}", "args_hash=1"] {
        alice.send(Request::post(&confirm).body("application/json", body)).must_refuse(400, "BODY_MALFORMED");
    }
    let reject = format!("/v1/drafts/{}/reject", draft.id);
    for body in
        [json!({}), json!({"reason": "x", "also": 1}), json!({"reason": 1}), json!({"reason": "r".repeat(1001)})]
    {
        let answer = alice.post(&reject, &body);
        assert_eq!(answer.status, 422, "{body}: {}", answer.text());
    }
    assert_eq!(guard.draft(&draft.id)["status"], "pending");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_get_never_decides() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("previewed by a link scanner");
    let alice = guard.approver();
    for verb in ["confirm", "reject", "again", "resolve"] {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let request =
                Request::new(method, &format!("/v1/drafts/{}/{verb}?args_hash={}", draft.id, draft.args_hash));
            let answer = alice.send(request);
            assert_eq!(answer.status, 405, "{method} {verb}: {}", answer.text());
        }
    }
    for path in [format!("/drafts/{}", draft.id), "/".to_owned(), format!("/v1/drafts/{}", draft.id)] {
        alice.get(&path);
    }
    assert_eq!(guard.draft(&draft.id)["status"], "pending");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_decision_key_repeats_its_first_answer_and_no_other_decision() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent: Agent = guard.agent();
    let alice = guard.approver();
    let draft = agent.hold_task("with a decision key");
    let keyed = |request: Request| alice.send(request.header("Idempotency-Key", "click-1"));
    let first = keyed(Approver::confirm_request(&draft)).must_be(200).json();
    let again = keyed(Approver::confirm_request(&draft)).must_be(200).json();
    assert_eq!(again["receipt"], first["receipt"]);
    assert_eq!(again["replayed"], true);
    let reject = Request::post(&format!("/v1/drafts/{}/reject", draft.id)).json(&json!({"reason": "changed my mind"}));
    keyed(reject).must_refuse(422, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn what_does_not_exist_is_not_found() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let alice = guard.approver();
    let ghost = Draft { id: "dr_0_01JDZZZZZZZZZZZZZZZZZZZZZZ".to_owned(), args_hash: "a".repeat(64) };
    alice.confirm(&ghost).must_refuse(404, "DRAFT_NOT_FOUND");
    alice.reject(&ghost, "no").must_refuse(404, "DRAFT_NOT_FOUND");
    alice.resolve(&ghost, "failed", "looked").must_refuse(404, "DRAFT_NOT_FOUND");
    alice.again(&ghost).must_refuse(404, "DRAFT_NOT_FOUND");
    alice.show(&ghost.id).must_refuse(404, "DRAFT_NOT_FOUND");
    guard.agent().status(&ghost).must_refuse(404, "DRAFT_NOT_FOUND");
    guard.agent().result(&ghost).must_refuse(404, "DRAFT_NOT_FOUND");
    for odd in ["dr_0_", "../../etc/passwd", "%00", "dr_0_01J'--", "dr_g_01JDZZZZZZZZZZZZZZZZZZZZZZ"] {
        let answer = alice.get(&format!("/v1/drafts/{odd}"));
        assert_eq!(answer.status, 404, "{odd}: {}", answer.text());
    }
}

#[test]
fn an_owners_token_confirms_once_and_repeats_harmlessly() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let answer = guard.agent_with(tokens::RUNTIME).post("/tasks", &json!({"title": "for its user"})).must_be(202);
    let token =
        answer.header("Countersign-Confirmation-Token").expect("a token for a runtime that delivers it").to_owned();
    let draft = Draft::from(&answer);
    assert!(token.starts_with("ct_") && token.len() > 40, "{token}");
    assert!(!answer.text().contains(&token), "a token is never in a body");
    let joined = guard.agent_with(tokens::RUNTIME).post("/tasks", &json!({"title": "for its user"})).must_be(202);
    assert_eq!(
        joined.header("Countersign-Confirmation-Token"),
        Some(token.as_str()),
        "a join of the same runtime gets it again"
    );

    guard.app().confirm_with(&json!({"confirmation_token": token, "args": {}})).must_be(422);
    let wrong = format!("{}x", &token[..token.len() - 1]);
    guard.app().confirm(&wrong).must_refuse(404, "DRAFT_NOT_FOUND");
    assert_eq!(upstream.heads(), 0);

    let first = guard.app().confirm(&token).must_be(200).json();
    assert_eq!((&first["status"], &first["replayed"]), (&json!("succeeded"), &json!(false)), "{first}");
    assert!(first["receipt"]["decided_by"].to_string().contains("web"), "{first}");
    let again = guard.app().confirm(&token).must_be(200).json();
    assert_eq!((&again["receipt"], &again["replayed"]), (&first["receipt"], &json!(true)), "{again}");
    guard.app().reject(&token, "late").must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(guard.draft(&draft.id)["status"], "succeeded");
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn an_owners_token_rejects_as_well() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let answer = guard.agent_with(tokens::RUNTIME).post("/tasks", &json!({"title": "unwanted"})).must_be(202);
    let token = answer.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    let no = guard.app().reject(&token, "not like this").must_be(200).json();
    assert_eq!(no["status"], "rejected", "{no}");
    guard.app().confirm(&token).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(upstream.heads(), 0);
}
