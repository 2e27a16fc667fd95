//! What a new draft relies on: the ends of the equal drafts before it. A forged one leads to no second
//! effect, also where the guard was killed before it had looked.

use serde_json::{Value, json};

use rusqlite::types::Value as Sql;

use crate::support::stored::{cells_of, forge, open};
use crate::support::{Act, Draft, Guard, Request, Upstream, Wire};

fn call() -> Request {
    Request::post("/free/unknown").json(&json!({"n": 1}))
}

/// A guard that sent a call without seeing an answer, in whose store the call was never sent.
fn forged() -> (Upstream, Guard, Draft) {
    let upstream = Upstream::start();
    upstream.on("/free/unknown", Act::CloseAfterRead);
    let mut guard = Guard::over(&upstream);
    let first = Draft::from(&guard.agent().send(call()).must_be(202));
    guard.approver().confirm(&first).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    guard.stop();
    forge(&open(&guard), &first, "withdrawn", |control| {
        control["refused"] = json!({"by": null, "reason": "withdrawn by desk-bot", "at": control["ended_at"]});
        for gone in ["outcome", "receipt", "failure"] {
            control[gone] = Value::Null;
        }
    });
    (upstream, guard, first)
}

#[test]
fn p3_killed_before_it_looked_back_it_does_not_send_what_was_held_meanwhile() {
    let (upstream, mut guard, first) = forged();
    guard.start_again_stopping_at(Some("after_hold_before_answer"));
    let mut wire = Wire::open(guard.agent_address());
    wire.send(&guard.agent().dress(call()).to_bytes("desk")).expect("sent");
    guard.wait_at_point();
    guard.crash_and_restart();
    let pending = guard.approver().list("status=pending");
    assert_eq!(pending.len(), 1, "the hold was durable: {pending:?}");
    let text = |member: &str| pending[0][member].as_str().unwrap_or_default().to_owned();
    let second = Draft { id: text("draft_id"), args_hash: text("args_hash") };
    let problem = guard.approver().confirm(&second).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(problem["draft_id"], first.id.as_str(), "{problem}");
    let shown = guard.draft(&second.id);
    let why = format!("EARLIER_DRAFT_INTEGRITY {}", first.id);
    assert_eq!((&shown["status"], &shown["refused"]["reason"]), (&json!("rejected"), &json!(why)), "{shown}");
    assert_eq!(upstream.effects("/free/unknown"), 1);
}

#[test]
fn p3_the_same_call_again_and_again_holds_nothing_after_a_forged_end() {
    let (upstream, mut guard, first) = forged();
    guard.start_again();
    for _ in 0..20 {
        let problem = guard.agent().send(call()).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        assert_eq!(problem["draft_id"], first.id.as_str(), "{problem}");
    }
    assert_eq!(guard.approver().list("status=pending").len(), 0);
    assert_eq!(upstream.effects("/free/unknown"), 1);
}

/// Writes a status that no guard knows: the row cannot be read any more.
fn make_unreadable(guard: &Guard, draft: &Draft) {
    let store = open(guard);
    let cells = cells_of(&store, &draft.id);
    let status = cells.iter().find(|cell| cell.column == "status").expect("a status");
    assert!(status.write(&store, &Sql::Text("paid".to_owned())), "{status:?}");
}

/// The draft was rejected by the guard because of the earlier one.
#[track_caller]
fn fell_with(guard: &Guard, draft: &str, earlier: &Draft) {
    let shown = guard.draft(draft);
    let why = format!("EARLIER_DRAFT_INTEGRITY {}", earlier.id);
    assert_eq!((&shown["status"], &shown["refused"]["reason"]), (&json!("rejected"), &json!(why)), "{shown}");
    assert_eq!(guard.approver().list("status=pending").len(), 0, "nothing is left that equal calls would join");
}

#[test]
fn p3_a_draft_falls_with_an_earlier_one_that_cannot_be_read_any_more() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let agent = guard.agent();
    let first = agent.hold_task("again");
    agent.withdraw(&first).must_be(200);
    let second = agent.hold_task("again");
    guard.stop();
    make_unreadable(&guard, &first);
    guard.start_again();
    let problem = guard.approver().confirm(&second).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(problem["draft_id"], first.id.as_str(), "it names the one that cannot be read: {problem}");
    fell_with(&guard, &second.id, &first);
    assert_eq!(upstream.effects("/tasks"), 0);
}

#[test]
fn p3_a_forged_end_that_cannot_be_read_any_more_stays_in_view_beyond_the_newest_equal_drafts() {
    let (upstream, mut guard, first) = forged();
    guard.start_again();
    for _ in 0..20 {
        guard.agent().send(call()).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    }
    guard.stop();
    make_unreadable(&guard, &first);
    guard.start_again();
    for _ in 0..2 {
        let problem = guard.agent().send(call()).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        assert_eq!(problem["draft_id"], first.id.as_str(), "{problem}");
        let newest = guard.approver().list("status=rejected&limit=1").remove(0);
        fell_with(&guard, newest["draft_id"].as_str().unwrap_or_default(), &first);
    }
    assert_eq!(upstream.effects("/free/unknown"), 1);
}
