//! A guard that dies leaves nothing behind that another guard could send twice, and nothing that
//! nobody sends.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Pair, ended, field, must_be_true, start_confirming};
use crate::support::{Draft, past, until};

/// The lease of [`super::SHORT_LEASE`].
const LEASE: Duration = Duration::from_secs(3);

/// A draft whose release the first guard began; it was killed at `point`.
fn killed_at(point: &str) -> (Pair, Draft) {
    let mut pair = Pair::stopping_at(point);
    let draft = pair.one.agent().hold_task("began at the first");
    let _wire = start_confirming(&pair.one, &draft);
    pair.one.wait_at_point();
    pair.one.crash();
    (pair, draft)
}

#[test]
fn killed_between_the_claim_and_the_mark_the_other_sends_it_once() {
    let (mut pair, draft) = killed_at("after_claim");
    assert_eq!((field(&pair.redis, &draft, "state").as_str(), pair.upstream.heads()), ("running/claimed", 0));
    let end = ended(&pair.two, &draft);
    assert_eq!(end["status"], "succeeded", "within `late_release` the confirmed call is carried out: {end}");
    assert_eq!(pair.upstream.effects("/tasks"), 1);
    assert_eq!(pair.two.metrics().sum("countersign_take_overs_total", &[]), 1.0);
    let replay = pair.two.approver().confirm(&draft).must_be(200).json();
    assert_eq!((&replay["replayed"], &replay["receipt"]), (&json!(true), &end["receipt"]), "{replay}");
    // The first one comes back and finds nothing left to do.
    pair.one.start_again();
    assert_eq!(pair.one.approver().confirm(&draft).must_be(200).json()["replayed"], true);
    pair.one.agent().result(&draft).must_be(201);
    assert_eq!(pair.upstream.effects("/tasks"), 1);
}

#[test]
fn killed_between_the_mark_and_the_first_byte_it_is_never_sent() {
    let (mut pair, draft) = killed_at("after_mark_before_deadline_check");
    let end = ended(&pair.two, &draft);
    assert_eq!(end["status"], "unverifiable", "nobody saw whether a byte left: {end}");
    pair.two.approver().confirm(&draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    pair.one.start_again();
    pair.one.approver().confirm(&draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    assert_eq!(pair.upstream.heads(), 0, "p4: a mark without bytes is never turned into bytes by somebody else");
}

#[test]
fn killed_after_the_answer_and_before_the_settle_it_is_not_sent_again() {
    let (mut pair, draft) = killed_at("after_send_before_settle");
    assert_eq!(pair.upstream.effects("/tasks"), 1);
    let end = ended(&pair.two, &draft);
    assert_eq!(end["status"], "unverifiable", "the answer died with the process: {end}");
    let resolved = pair.two.approver().resolve(&draft, "succeeded", "the task is there").must_be(200).json();
    assert_eq!(resolved["status"], "succeeded", "{resolved}");
    pair.one.start_again();
    assert_eq!(pair.one.draft(&draft.id)["status"], "succeeded");
    assert_eq!(pair.upstream.effects("/tasks"), 1);
}

#[test]
fn killed_after_the_settle_the_other_tells_the_result() {
    let (pair, draft) = killed_at("after_settle_before_answer");
    let replay = pair.two.approver().confirm(&draft).must_be(200).json();
    assert_eq!((&replay["status"], &replay["replayed"]), (&json!("succeeded"), &json!(true)), "{replay}");
    pair.two.agent().result(&draft).must_be(201);
    assert_eq!(pair.upstream.effects("/tasks"), 1);
}

#[test]
fn a_guard_that_comes_back_first_goes_on_with_its_own_without_waiting_for_the_lease() {
    let mut pair = Pair::build("lease: 10m", &|setup| setup.stopping_at("after_claim"), &|setup| setup);
    let draft = pair.one.agent().hold_task("its own");
    let _wire = start_confirming(&pair.one, &draft);
    pair.one.wait_at_point();
    pair.one.crash_and_restart();
    assert_eq!(ended(&pair.one, &draft)["status"], "succeeded");
    assert_eq!(pair.upstream.effects("/tasks"), 1);
}

/// The first guard stands still at `point` until the other has taken the draft over, and goes on then.
fn frozen_at(point: &str) -> (Pair, Draft) {
    let pair = Pair::stopping_at(point);
    let draft = pair.one.agent().hold_task("frozen at the first");
    let _wire = start_confirming(&pair.one, &draft);
    pair.one.wait_at_point();
    pair.one.freeze();
    pair.one.go_on();
    past(Instant::now() + LEASE);
    until("the other has taken it over", || pair.two.metrics().sum("countersign_take_overs_total", &[]) >= 1.0);
    pair.one.thaw();
    (pair, draft)
}

#[test]
fn p4_a_guard_that_wakes_after_its_claim_was_taken_over_sends_nothing() {
    let (mut pair, draft) = frozen_at("after_claim");
    let end = ended(&pair.two, &draft);
    assert_eq!(end["status"], "succeeded", "{end}");
    pair.one.must_be_alive();
    pair.one.stop();
    assert_eq!(pair.upstream.effects("/tasks"), 1);
}

#[test]
fn p4_a_guard_that_wakes_after_its_mark_was_taken_over_sends_nothing() {
    let (mut pair, draft) = frozen_at("after_mark_before_deadline_check");
    let end = ended(&pair.two, &draft);
    assert_ne!(end["status"], "succeeded", "{end}");
    pair.one.must_be_alive();
    pair.one.stop();
    assert_eq!(pair.upstream.heads(), 0, "the permit's deadline had passed");
}

#[test]
fn an_answer_that_comes_after_the_take_over_still_counts_once() {
    let (mut pair, draft) = frozen_at("after_send_before_settle");
    let end = pair.two.draft_when(&draft.id, "succeeded");
    must_be_true(&end, pair.upstream.effects("/tasks"));
    assert_eq!(pair.one.metrics().sum("countersign_late_answers_total", &[]), 1.0);
    pair.one.must_be_alive();
    pair.two.agent().result(&draft).must_be(201);
    assert_eq!(pair.upstream.effects("/tasks"), 1);
}
