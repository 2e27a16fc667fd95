//! A decision, a mark and an end count when a replica has them: what a replica did not acknowledge is
//! uncertain, and is never sent on the word of the primary alone.

use serde_json::{Value, json};

use super::{DURABLE, brisk, ended, field, must_be_true, start_confirming};
use crate::support::{Draft, Guard, Redis, Setup, Upstream, eventually, until};

/// A primary with one replica whose acknowledgement is asked for, and a guard on them.
fn replicated(change: impl Fn(Setup) -> Setup) -> (Guard, Redis, Redis, Upstream) {
    let (primary, upstream) = (Redis::start_on_tcp(&DURABLE), Upstream::start());
    let replica = Redis::replica_of(&primary, &DURABLE);
    let store = "min_replica_acks: 1, lease: 3s, timeout: 1200ms";
    let guard = change(brisk(Setup::over(&upstream).on_redis(&primary, store))).start();
    (guard, replica, primary, upstream)
}

fn unacknowledged(guard: &Guard) -> f64 {
    guard.metrics().sum("countersign_store_errors_total", &["kind=\"unacknowledged\""])
}

/// Asks the same confirm again until it is answered with an end.
fn confirmed_at_last(guard: &Guard, draft: &Draft) -> Value {
    eventually("the same confirm ends", || {
        let answer = guard.approver().confirm(draft);
        (answer.status == 200).then(|| answer.json())
    })
}

#[test]
fn what_a_caller_was_told_the_replica_has() {
    let (guard, replica, _primary, upstream) = replicated(|setup| setup);
    // A replica that has just come may be too late for the look at the start.
    until("the guard is ready", || guard.control_get("/readyz").status == 200);
    let begun = unacknowledged(&guard);
    for n in 0..5 {
        let draft = guard.agent().hold_task(&format!("task {n}"));
        guard.approver().confirm_fully(&draft);
        assert_eq!(field(&replica, &draft, "state"), "succeeded", "acknowledged before it was told");
        let other = guard.agent().hold_task(&format!("unwanted {n}"));
        guard.approver().reject(&other, "no").must_be(200);
        assert_eq!(field(&replica, &other, "state"), "rejected");
    }
    assert_eq!(upstream.effects("/tasks"), 5);
    assert_eq!(unacknowledged(&guard), begun);
}

/// Fewer acknowledgements than replicas leave a gap at a failover, and whoever runs it is told.
#[test]
fn more_replicas_than_acknowledgements_are_warned_of() {
    let (guard, _replica, primary, _upstream) = replicated(|setup| setup);
    assert!(!guard.printed().contains("more replicas follow"), "{}", guard.printed());
    let _second = Redis::replica_of(&primary, &DURABLE);
    until("it is told", || {
        guard.control_get("/readyz");
        guard.printed().contains("more replicas follow")
    });
}

/// One that is started while its replica is away lets reads pass, says that it is not ready, and takes
/// holds once the replica is there.
#[test]
fn a_guard_without_its_replica_starts_and_is_not_ready() {
    let (primary, upstream) = (Redis::start_on_tcp(&DURABLE), Upstream::start());
    let store = "min_replica_acks: 1, timeout: 1200ms";
    let guard = Setup::over(&upstream).on_redis(&primary, store).start();
    guard.control_get("/readyz").must_be(503);
    assert!(guard.printed().contains("0 of 1 replicas"), "{}", guard.printed());
    guard.agent().get("/tasks").must_be(200);
    guard.agent().post("/tasks", &json!({"title": "not yet"})).must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    let _replica = Redis::replica_of(&primary, &DURABLE);
    until("the guard is ready", || guard.control_get("/readyz").status == 200);
    let draft = guard.agent().hold_task("now");
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_decision_that_no_replica_has_is_uncertain_and_the_same_confirm_ends_with_one_effect() {
    let (mut guard, replica, _primary, upstream) = replicated(|setup| setup);
    let draft = guard.agent().hold_task("who has it");
    let unwanted = guard.agent().hold_task("nobody wants it");
    replica.pause();
    let problem = guard.approver().confirm(&draft).must_refuse(503, "DECISION_UNCERTAIN");
    assert_eq!(problem["executed"], "unknown", "{problem}");
    assert!(unacknowledged(&guard) >= 1.0, "{}", guard.metrics().text());
    assert_eq!(upstream.heads(), 0, "nothing goes out on the primary's word alone");
    guard.agent().get("/tasks").must_be(200);
    guard
        .agent()
        .post("/tasks", &json!({"title": "no replica would know it"}))
        .must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    guard.approver().reject(&unwanted, "no").must_refuse(503, "DECISION_UNCERTAIN");

    replica.resume();
    let told = confirmed_at_last(&guard, &draft);
    assert_eq!((&told["status"], &told["replayed"]), (&json!("succeeded"), &json!(true)), "{told}");
    assert_eq!(guard.approver().reject(&unwanted, "no").must_be(200).json()["replayed"], true);
    assert_eq!(upstream.effects("/tasks"), 1);
    guard.must_be_alive();
}

/// What waits for a decision is still shown while the replica is away, without what it does not have; and
/// the guard says that nothing can be held.
#[test]
fn an_end_that_no_replica_has_hides_itself_and_nothing_else() {
    let (guard, replica, _primary, _upstream) = replicated(|setup| setup);
    let (unwanted, waiting) = (guard.agent().hold_task("nobody wants it"), guard.agent().hold_task("it waits"));
    let all = "/v1/drafts?status=pending,rejected";
    replica.pause();
    guard.approver().reject(&unwanted, "no").must_refuse(503, "DECISION_UNCERTAIN");
    guard.control_get("/readyz").must_be(503);
    let shown = guard.approver().get(all).must_be(200).json();
    let ids: Vec<&Value> = shown["drafts"].as_array().unwrap().iter().map(|line| &line["draft_id"]).collect();
    assert_eq!(ids, [&json!(waiting.id)], "{shown}");
    replica.resume();
    until("the guard is ready", || guard.control_get("/readyz").status == 200);
    let shown = guard.approver().get(all).must_be(200).json();
    assert_eq!(shown["drafts"].as_array().map(Vec::len), Some(2), "{shown}");
}

#[test]
fn p4_a_mark_that_no_replica_has_sends_nothing() {
    let (guard, replica, _primary, upstream) = replicated(|setup| setup.stopping_at("after_claim"));
    let draft = guard.agent().hold_task("marked at the primary only");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    replica.pause();
    guard.go_on();
    until("the outcome waits for the replica", || guard.printed().contains("it is kept in the journal"));
    assert_eq!(upstream.heads(), 0);
    replica.resume();
    let end = ended(&guard, &draft);
    must_be_true(&end, upstream.effects("/tasks"));
    assert_eq!((&end["status"], upstream.heads()), (&json!("failed"), 0), "{end}");
}

#[test]
fn an_answer_that_no_replica_has_waits_in_the_journal_until_one_has_it() {
    let (guard, replica, _primary, upstream) = replicated(|setup| setup.stopping_at("after_send_before_settle"));
    let draft = guard.agent().hold_task("answered");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    assert_eq!(upstream.effects("/tasks"), 1);
    replica.pause();
    guard.go_on();
    until("the outcome waits for the replica", || guard.printed().contains("it is kept in the journal"));
    replica.resume();
    until("the replica has it", || field(&replica, &draft, "state") == "succeeded");
    assert_eq!(ended(&guard, &draft)["status"], "succeeded");
    guard.agent().result(&draft).must_be(201);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn what_was_told_survives_the_loss_of_the_primary() {
    let (mut guard, replica, mut primary, upstream) = replicated(|setup| setup);
    let [sent, unwanted, waiting] = ["sent", "unwanted", "waits"].map(|title| guard.agent().hold_task(title));
    let receipt = guard.approver().confirm_fully(&sent)["receipt"].clone();
    guard.approver().reject(&unwanted, "no").must_be(200);
    primary.kill();
    guard.crash();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let second = Setup::over(&upstream).on_redis(&replica, "").with_keys_of(&guard).start();
    let told = second.approver().confirm(&sent).must_be(200).json();
    assert_eq!((&told["receipt"], &told["replayed"]), (&receipt, &json!(true)), "{told}");
    second.approver().confirm(&unwanted).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    second.approver().confirm_fully(&waiting);
    assert_eq!(upstream.effects("/tasks"), 2);
}
