//! Claims that stand in the store and were not won there: a confirmation that does not verify, and
//! earlier states that were put back. Nothing is sent, and "not executed" is never a guess.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bench::{Bench, CLOSES, approver, ask, confirm, held, identity, json, status};
use crate::base::digest::Digest;
use crate::base::id::{DraftId, Principal};
use crate::draft::decision::{Channel, Decider, DeciderKind, Refused, Vote};
use crate::draft::outcome::Failure;
use crate::draft::state::{Phase, State};
use crate::guard::Guard;
use crate::guard::pause::NoPause;
use crate::store::contract::Filter;
use crate::store::cursor::Cursor;
use crate::store::row::Row;

const BODY: &str = r#"{"a":1}"#;

fn forged_vote(row: &Row) -> Vote {
    let decider = Decider {
        kind: DeciderKind::Approver,
        id: Principal::new("mallory").unwrap(),
        auth_method: "bearer".to_owned(),
        channel: Channel::Api,
        at: row.created_at,
    };
    Vote { decider, epoch: 1, comment: None, mac: Digest::of(b"forged") }
}

/// Writes a draft into `phase`, under a lease that is over.
fn claim(row: &mut Row, phase: Phase) {
    (row.state, row.epoch) = (State::Running(phase), row.epoch.max(1));
    (row.claimed_at, row.lease_until) = (row.claimed_at.or(Some(row.created_at)), Some(row.created_at));
    (row.outcome, row.receipt, row.failure, row.refused) = (None, None, None, None);
    (row.has_response, row.ended_at) = (false, None);
    row.evidence.clear();
}

async fn swept(guard: &Arc<Guard>) {
    guard.sweep().await.unwrap();
    guard.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn p2_a_claim_whose_confirmation_does_not_verify_ends_and_says_so() {
    for votes in ["forged", "none"] {
        let bench = Bench::new();
        let guard = bench.ready();
        let (id, hash) = held(&guard, BODY).await;
        bench.twin.alter(&id, |row| {
            claim(row, Phase::Claimed);
            row.votes = if votes == "none" { Vec::new() } else { vec![forged_vote(row)] };
        });
        swept(&guard).await;
        let row = bench.store.get(&id).await.unwrap().unwrap().row;
        assert_eq!((row.state, row.failure.unwrap().as_str()), (State::Failed, "integrity"), "{votes}");
        assert!(bench.counts.integrity_failed.load(Ordering::SeqCst) >= 1);
        let last = bench.store.events(&Cursor::default(), 100).await.unwrap().events.pop().unwrap();
        assert_eq!((last.kind.as_str(), last.reason.as_deref()), ("draft.failed", Some("integrity")));
        told(&guard, &id, hash).await;
        // It has an end: no lease brings it back, and nobody is sent anything.
        let before = bench.counts.integrity_failed.load(Ordering::SeqCst);
        bench.clock.advance(Duration::from_secs(120));
        swept(&guard).await;
        assert_eq!(bench.counts.integrity_failed.load(Ordering::SeqCst), before, "{votes}");
        assert_eq!((bench.effects(), bench.counts.taken_over.load(Ordering::SeqCst)), (0, 1), "{votes}");
    }
}

/// Every reader sees the failed draft with its outcome, and nobody's name.
async fn told(guard: &Arc<Guard>, id: &DraftId, hash: Digest) {
    let (agent, alice) = (identity("u1"), approver("alice"));
    let decision = confirm(guard, id, hash).await;
    let body = json(&decision);
    assert_eq!((decision.status, &body["status"], &body["failure"]), (200, &"failed".into(), &"integrity".into()));
    assert_eq!((&body["executed"], &body["decided_by"]), (&false.into(), &serde_json::json!([])));
    assert_eq!(body["receipt"]["decided_by"], serde_json::json!([]));
    let view = guard.agent_status(&agent, id, false).await.unwrap();
    assert_eq!((view.status.as_str(), view.executed, view.may_claim_success), ("failed", false.into(), false));
    assert!(view.message.contains("NOT executed"), "{}", view.message);
    for result in [guard.agent_result(&agent, id, false).await, ask(guard, agent, BODY, None).await] {
        let body = json(&result);
        assert_eq!((result.status, body["code"].clone()), (409, "DRAFT_INTEGRITY_FAILED".into()));
        assert_eq!((&body["executed"], &body["failure"]), (&false.into(), &"integrity".into()), "{body}");
    }
    let shown = guard.show(&alice, id).await.unwrap();
    assert!(shown.line.intact && shown.votes.is_empty() && !shown.again, "{shown:?}");
    assert_eq!(shown.failure, Some(Failure::Integrity));
    assert!(guard.list(&alice, Filter { limit: 10, ..Filter::default() }).await.unwrap().drafts[0].intact);
    let again = guard.again(&alice, id).await;
    assert_eq!((again.status, json(&again)["decided_by"].clone()), (409, serde_json::Value::Null));
}

#[tokio::test]
async fn p5_a_marked_draft_whose_confirmation_does_not_verify_is_unknown_and_not_believed() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, BODY).await;
    bench.twin.alter(&id, |row| {
        claim(row, Phase::Sending);
        (row.attempts, row.sent_at) = (1, Some(row.created_at));
        row.votes = vec![forged_vote(row)];
    });
    swept(&guard).await;
    assert_eq!(status(&bench, &id).await, "unverifiable");
    let answer = json(&confirm(&guard, &id, hash).await);
    assert_eq!(
        (answer["code"].clone(), answer["executed"].clone()),
        ("DRAFT_INTEGRITY_FAILED".into(), "unknown".into())
    );
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn p5_what_was_sent_is_never_called_unsent_whatever_is_written_over_it() {
    for votes in ["genuine", "forged"] {
        let bench = Bench::new().plays([CLOSES]);
        let guard = bench.ready();
        let (id, hash) = held(&guard, BODY).await;
        confirm(&guard, &id, hash).await;
        // Back to claimed, long enough ago to be too late.
        bench.clock.advance(Duration::from_secs(600));
        bench.twin.alter(&id, |row| {
            claim(row, Phase::Claimed);
            (row.attempts, row.sent_at) = (0, None);
            if votes == "forged" {
                row.votes = vec![forged_vote(row)];
            }
        });
        swept(&guard).await;
        assert_eq!(status(&bench, &id).await, "unverifiable", "{votes}");
        let answer = json(&confirm(&guard, &id, hash).await);
        assert_eq!(answer["executed"], "unknown", "{votes}");
        assert!(bench.counts.duplicate_releases.load(Ordering::SeqCst) >= 1, "{votes}");
        assert_eq!(guard.again(&approver("alice"), &id).await.status, 409, "{votes}");
        assert_eq!(bench.effects(), 1, "{votes}");
    }
}

#[tokio::test]
async fn p5_a_claim_older_than_the_journals_memory_is_unknown_however_fresh_it_looks() {
    for votes in ["genuine", "forged"] {
        let bench = Bench::new();
        let guard = bench.ready();
        let (id, hash) = held(&guard, BODY).await;
        assert_eq!(confirm(&guard, &id, hash).await.status, 200);
        bench.clock.advance(Duration::from_secs(16 * 24 * 3600));
        bench.journal.forget();
        let now = bench.store.now();
        bench.twin.alter(&id, |row| {
            claim(row, Phase::Claimed);
            (row.attempts, row.sent_at, row.claimed_at) = (0, None, Some(now));
            if votes == "forged" {
                let mut vote = forged_vote(row);
                vote.decider.at = now;
                row.votes = vec![vote];
            }
        });
        swept(&guard).await;
        assert_eq!((status(&bench, &id).await.as_str(), bench.effects()), ("unverifiable", 1), "{votes}");
    }
}

#[tokio::test]
async fn p4_a_fresh_time_of_the_claim_does_not_make_an_old_confirmation_fresh() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, BODY).await;
    assert_eq!(confirm(&guard, &id, hash).await.status, 200);
    // Another node, whose journal knows nothing of it.
    bench.clock.advance(Duration::from_secs(600));
    bench.journal.forget();
    let now = bench.store.now();
    bench.twin.alter(&id, |row| {
        claim(row, Phase::Claimed);
        (row.attempts, row.sent_at, row.claimed_at) = (0, None, Some(now));
    });
    swept(&bench.guard(2, Arc::new(NoPause))).await;
    assert_eq!(bench.effects(), 1, "the vote in it is genuine, and old");
}

#[tokio::test]
async fn p5_an_ending_without_a_send_is_not_believed_of_what_this_node_began_to_send() {
    for state in [State::Expired, State::Rejected, State::Withdrawn] {
        let bench = Bench::new();
        let guard = bench.ready();
        let (id, hash) = held(&guard, BODY).await;
        assert_eq!(confirm(&guard, &id, hash).await.status, 200);
        // A backup from before the confirmation is put back, and then it ends.
        bench.twin.alter(&id, |row| {
            claim(row, Phase::Claimed);
            (row.state, row.epoch, row.claimed_at, row.lease_until) = (State::Pending, 0, None, None);
            (row.attempts, row.sent_at) = (0, None);
            row.votes.clear();
        });
        let answer = match state {
            State::Expired => {
                bench.clock.advance(Duration::from_secs(3600));
                confirm(&guard, &id, hash).await
            }
            State::Rejected => guard.reject(&approver("alice"), &id, "no".to_owned(), None).await,
            _ => guard.withdraw(&identity("u1"), &id).await.unwrap_err().answer(),
        };
        for answer in [answer, guard.agent_status(&identity("u1"), &id, false).await.unwrap_err().answer()] {
            let body = json(&answer);
            assert_eq!(
                (body["code"].clone(), body["executed"].clone()),
                ("DRAFT_INTEGRITY_FAILED".into(), "unknown".into())
            );
            assert_eq!(body["upstream_called"], true, "{state:?}");
        }
        assert_eq!(bench.effects(), 1);
    }
}

#[tokio::test]
async fn p2_an_integrity_failure_cannot_be_written_over_anything_else() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, BODY).await;
    assert_eq!(confirm(&guard, &id, hash).await.status, 200);
    bench.twin.alter(&id, |row| {
        row.state = State::Failed;
        row.failure = Some(Failure::Integrity);
        row.refused = None::<Refused>;
    });
    assert_eq!(json(&confirm(&guard, &id, hash).await)["code"], "DRAFT_INTEGRITY_FAILED");
    assert!(json(&confirm(&guard, &id, hash).await).get("failure").is_none());
}
