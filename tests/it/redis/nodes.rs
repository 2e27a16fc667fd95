//! Two guards on one server behave as one: one draft, one effect, one answer, whichever is asked.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Pair, answer_of, at_once, field, start_confirming};
use crate::support::{Act, Answer, Draft, Gate, Guard, Request, past, tokens, until};

/// An answer of the origin that waits until the test opens the gate.
fn gated(pair: &Pair, path: &str) -> Gate {
    let gate = Gate::default();
    let answer = Act::Answer(Answer::json(201, r#"{"id":"r-1","made":true}"#));
    pair.upstream.on(path, Act::After(gate.clone(), Box::new(answer)));
    gate
}

#[test]
fn p3_sixty_four_confirms_over_two_guards_are_one_effect_and_one_receipt() {
    let pair = Pair::start();
    let draft = pair.one.agent().hold_task("once");
    let answers = at_once(64, |n| {
        let guard = if n % 2 == 0 { &pair.one } else { &pair.two };
        guard.approver_with(if n % 4 < 2 { tokens::ALICE } else { tokens::BOB }).confirm(&draft)
    });
    assert_eq!(pair.upstream.effects("/tasks"), 1);
    let answers: Vec<Value> = answers.into_iter().map(|answer| answer.must_be(200).json()).collect();
    let first = &answers[0];
    assert_eq!((&first["status"], &first["executed"]), (&json!("succeeded"), &json!(true)), "{first}");
    for answer in &answers {
        for member in ["status", "outcome", "executed", "receipt", "decided_by", "args_hash"] {
            assert_eq!(answer[member], first[member], "{member}: {answer}");
        }
    }
    let own = answers.iter().filter(|answer| answer["replayed"] == false).count();
    assert_eq!(own, 1, "one caller decided, the others are told what was decided");
    for guard in [&pair.one, &pair.two] {
        assert_eq!(guard.metrics().sum("countersign_duplicate_release_total", &[]), 0.0);
        guard.agent().result(&draft).must_be(201);
    }
}

#[test]
fn a_confirm_meets_a_ready_a_running_a_settled_and_a_missing_draft_on_either_guard() {
    let pair = Pair::start();
    let gate = gated(&pair, "/free/slow");
    let draft = pair.one.agent().hold("/free/slow", &json!({}));
    let other = pair.one.agent().hold("/free/other", &json!({}));
    let stale = Draft { args_hash: other.args_hash.clone(), ..draft.clone() };
    // What was shown is not what is stored: nothing happens, whether it waits, runs or has ended.
    pair.two.approver().confirm(&stale).must_refuse(409, "ARGS_HASH_MISMATCH");
    let mut claiming = start_confirming(&pair.one, &draft);
    until("the origin has the call", || gate.arrivals() == 1);
    pair.two.approver().confirm(&stale).must_refuse(409, "ARGS_HASH_MISMATCH");
    let running = pair.two.approver().confirm_at_once(&draft).must_be(202).json();
    assert_eq!((&running["status"], &running["replayed"]), (&json!("running"), &json!(true)), "{running}");
    gate.open();
    let won = answer_of(&mut claiming).must_be(200).json();
    let replayed = pair.two.approver().confirm(&draft).must_be(200).json();
    assert_eq!((&replayed["receipt"], &replayed["replayed"]), (&won["receipt"], &json!(true)), "{replayed}");
    pair.two.approver().confirm(&stale).must_refuse(409, "ARGS_HASH_MISMATCH");
    let unknown = Draft { id: draft.id.replace(|c: char| c.is_ascii_digit(), "7"), ..draft.clone() };
    pair.two.approver().confirm(&unknown).must_refuse(404, "DRAFT_NOT_FOUND");
    assert_eq!((pair.upstream.effects("/free/slow"), pair.upstream.effects("/free/other")), (1, 0));
}

#[test]
fn p3_the_same_call_to_both_guards_at_once_is_one_draft_and_one_effect() {
    let pair = Pair::start();
    for keyed in [true, false] {
        let body = json!({"to": "a", "amount": if keyed { 3 } else { 4 }});
        let drafts = at_once(32, |n| {
            let agent = if n % 2 == 0 { pair.one.agent() } else { pair.two.agent() };
            let agent = if keyed { agent.keyed("first-use") } else { agent };
            Draft::from(&agent.post("/pay", &body).must_be(202))
        });
        assert!(drafts.iter().all(|draft| *draft == drafts[0]), "keyed {keyed}: {drafts:?}");
        assert_eq!(pair.two.approver().list("status=pending").len(), 1);
        pair.two.approver().confirm_fully(&drafts[0]);
    }
    assert_eq!(pair.upstream.effects("/pay"), 2);
}

#[test]
fn the_same_call_to_the_second_while_the_first_releases_it_joins_and_then_replays() {
    let pair = Pair::start();
    let gate = gated(&pair, "/free/slow");
    let agent = pair.two.agent();
    let call = || agent.send(Request::post("/free/slow").json(&json!({"n": 1})));
    let draft = Draft::from(&call().must_be(202));
    let _releasing = start_confirming(&pair.one, &draft);
    until("the origin has the call", || gate.arrivals() == 1);
    assert_eq!(Draft::from(&call().must_be(202)), draft, "it joins what is on its way");
    gate.open();
    pair.two.draft_when(&draft.id, "succeeded");
    assert_eq!(call().must_be(201).header("Countersign-Replayed"), Some("true"));
    assert_eq!(pair.upstream.effects("/free/slow"), 1);
}

#[test]
fn what_one_holds_the_other_lists_shows_and_decides() {
    let pair = Pair::start();
    let drafts: Vec<Draft> = (0..6).map(|n| pair.one.agent().hold_task(&format!("task {n}"))).collect();
    let listed = pair.two.approver().list("status=pending");
    assert_eq!(listed.len(), drafts.len());
    for draft in &drafts {
        assert!(listed.iter().any(|line| line["draft_id"] == draft.id.as_str()), "{} is not listed", draft.id);
    }
    let shown = pair.two.draft(&drafts[0].id);
    assert_eq!((&shown["status"], &shown["intact"]), (&json!("pending"), &json!(true)), "{shown}");
    assert_eq!(shown["args"]["title"], "task 0", "{shown}");

    let receipt = pair.two.approver().confirm_fully(&drafts[0])["receipt"].clone();
    pair.two.approver().reject(&drafts[1], "not this one").must_be(200);
    pair.two.agent().withdraw(&drafts[2]).must_be(200);
    for guard in [&pair.one, &pair.two] {
        let (agent, approver) = (guard.agent(), guard.approver());
        assert_eq!(guard.draft(&drafts[0].id)["receipt"], receipt);
        assert_eq!(agent.status(&drafts[0]).must_be(200).json()["status"], "succeeded");
        agent.result(&drafts[0]).must_be(201);
        approver.confirm(&drafts[1]).must_refuse(409, "DRAFT_ALREADY_DECIDED");
        agent.result(&drafts[1]).must_refuse(403, "DRAFT_REJECTED");
        assert_eq!(guard.draft(&drafts[2].id)["status"], "withdrawn");
        assert_eq!(approver.list("status=pending").len(), 3);
        assert_eq!(guard.metrics().sum("countersign_drafts", &["status=\"pending\""]), 3.0);
    }
    assert_eq!(pair.upstream.effects("/tasks"), 1);
}

#[test]
fn an_owners_token_and_a_decision_key_are_good_at_either_guard() {
    let pair = Pair::start();
    let runtime = pair.one.agent_with(tokens::RUNTIME);
    let held = runtime.post("/tasks", &json!({"title": "for the owner"})).must_be(202);
    let token = held.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    assert_eq!(pair.two.app().confirm(&token).must_be(200).json()["status"], "succeeded");
    assert_eq!(pair.one.app().confirm(&token).must_be(200).json()["replayed"], true);

    let draft = pair.one.agent().hold_task("keyed");
    let keyed = |guard: &Guard, path: &str, body: &Value| {
        let request = Request::post(&format!("/v1/drafts/{}/{path}", draft.id)).json(body);
        guard.approver().send(request.header("Idempotency-Key", "decision-1"))
    };
    let yes = json!({"args_hash": draft.args_hash});
    assert_eq!(keyed(&pair.one, "confirm", &yes).must_be(200).json()["replayed"], false);
    assert_eq!(keyed(&pair.two, "confirm", &yes).must_be(200).json()["replayed"], true);
    keyed(&pair.two, "reject", &json!({"reason": "no"})).must_refuse(422, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(pair.upstream.effects("/tasks"), 2);
}

#[test]
fn an_owners_bounds_count_over_both_guards() {
    let limits =
        |setup: crate::support::Setup| setup.section("limits", "{pending_per_owner: 3, holds_per_owner: 1000/1m}");
    let pair = Pair::with("", limits);
    let answers = at_once(12, |n| {
        let agent = if n % 2 == 0 { pair.one.agent() } else { pair.two.agent() };
        agent.post("/tasks", &json!({ "title": format!("task {n}") })).status
    });
    assert_eq!(answers.iter().filter(|status| **status == 202).count(), 3, "{answers:?}");
    assert_eq!(answers.iter().filter(|status| **status == 429).count(), 9, "{answers:?}");
    pair.two.agent().for_owner("u-18").hold_task("another owner");
}

#[test]
fn a_confirm_that_waits_on_one_ends_as_soon_as_the_other_settles() {
    // Only a hint of the other node can wake this waiter in time: its own patience is much longer.
    let pair = Pair::with("", |setup| setup.section("guard", "{listen: 127.0.0.1:0, confirm_wait: 55s}"));
    let gate = gated(&pair, "/free/slow");
    let draft = pair.one.agent().hold("/free/slow", &json!({}));
    let mut releasing = start_confirming(&pair.one, &draft);
    until("the origin has the call", || gate.arrivals() == 1);
    let mut waiting = start_confirming(&pair.two, &draft);
    // It reads the draft once to answer and once to wait.
    let reads = || pair.two.metrics().sum("countersign_store_seconds_count", &["step=\"get\""]);
    until("the second waits", || reads() >= 2.0);
    let opened = Instant::now();
    gate.open();
    let told = answer_of(&mut waiting).must_be(200).json();
    let took = opened.elapsed();
    assert!(took < Duration::from_secs(20), "woken after {took:?}");
    let first = answer_of(&mut releasing).must_be(200).json();
    assert_eq!((&told["receipt"], &told["replayed"]), (&first["receipt"], &json!(true)), "{told}");
    assert_eq!(pair.upstream.effects("/free/slow"), 1);
}

#[test]
fn what_a_dead_guard_held_is_expired_by_the_sweeper_of_the_other() {
    let mut pair = Pair::start();
    let draft = pair.one.agent().hold("/brief", &json!({"n": 1}));
    let over = Instant::now() + Duration::from_secs(10);
    pair.one.crash();
    past(over);
    // The server is asked, not a guard: whoever asks for a draft that is over expires it.
    until("the sweeper has expired it", || field(&pair.redis, &draft, "state") == "expired");
    let problem = pair.two.approver().confirm(&draft).must_refuse(410, "DRAFT_EXPIRED");
    assert_eq!(problem["executed"], false, "{problem}");
    pair.two.agent().result(&draft).must_refuse(410, "DRAFT_EXPIRED");
    assert_eq!(pair.upstream.effects("/brief"), 0);
}
