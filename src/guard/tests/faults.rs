//! A store that loses answers or goes away at every step: nothing is sent twice, nothing is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bench::{Bench, answers, approver, ask, confirm, held, identity, json, status};
use super::faulty::{Fault, Faulty};
use crate::base::code::Code;
use crate::draft::outcome::Failure;
use crate::draft::state::Verdict;
use crate::guard::pause::NoPause;
use crate::guard::who::Pattern;
use crate::store::contract::Store as _;
use crate::store::cursor::Cursor;
use crate::upstream::fake::{Script, Stop};

fn bench() -> (Bench, Arc<Faulty>) {
    let mut faulty = None;
    let bench = Bench::over(|twin| {
        let wrapped = Faulty::over(twin);
        faulty = Some(Arc::clone(&wrapped));
        wrapped
    });
    (bench, faulty.expect("wrapped"))
}

#[tokio::test]
async fn a_step_whose_answer_is_lost_is_asked_again_and_happens_once() {
    for step in ["hold", "decide", "mark_sending", "settle"] {
        for times in 1..=2 {
            let (bench, faulty) = bench();
            let guard = bench.ready();
            faulty.next(step, Fault::LoseAnswer, times);
            let (id, hash) = held(&guard, r#"{"a":1}"#).await;
            let answer = confirm(&guard, &id, hash).await;
            assert_eq!(json(&answer)["status"], "succeeded", "{step} {times}");
            assert_eq!(bench.effects(), 1, "{step} {times}");
            let events = bench.store.events(&Cursor::default(), 100).await.unwrap().events;
            let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
            assert_eq!(kinds, ["draft.held", "draft.confirmed", "draft.sending", "draft.succeeded"], "{step} {times}");
        }
    }
}

#[tokio::test]
async fn readiness_says_what_is_wrong_and_not_where() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    assert_eq!(guard.ready().await, Ok(()));
    for fault in [Fault::Refuse, Fault::LoseAnswer] {
        faulty.next("check", fault, 1);
        let reason = guard.ready().await.expect_err("not ready");
        assert!(reason.contains("The store ") && !reason.contains('/') && !reason.contains("secret"), "{reason}");
    }
    assert_eq!(guard.ready().await, Ok(()));
}

#[tokio::test]
async fn p7_while_the_store_is_away_nothing_is_held_or_decided_and_it_heals() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;

    faulty.next("hold", Fault::Refuse, 1);
    let refused = ask(&guard, identity("u1"), r#"{"a":2}"#, None).await;
    let body = json(&refused);
    assert_eq!((refused.status, body["code"].clone()), (503, "CONFIRMATION_SERVICE_UNAVAILABLE".into()));
    assert_eq!((body["executed"].clone(), body["safe_to_retry"].clone()), (false.into(), true.into()));
    assert!(body["detail"].as_str().unwrap().contains("安全确认服务暂不可用，请稍后重试。"));
    assert!(!refused.headers.iter().any(|(name, _)| name == "x-should-retry"));

    faulty.next("decide", Fault::Refuse, 1);
    let uncertain = confirm(&guard, &id, hash).await;
    assert_eq!((uncertain.status, json(&uncertain)["code"].clone()), (503, "DECISION_UNCERTAIN".into()));
    assert_eq!(json(&uncertain)["executed"], "unknown");
    assert_eq!(status(&bench, &id).await, "pending");
    assert!(bench.counts.failed_closed.load(Ordering::SeqCst) >= 2);

    assert_eq!(confirm(&guard, &id, hash).await.status, 200);
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn p4_without_a_durable_mark_nothing_is_sent() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    faulty.next("mark_sending", Fault::Refuse, 1);
    let answer = json(&confirm(&guard, &id, hash).await);
    assert_eq!((answer["status"].clone(), answer["failure"].clone()), ("failed".into(), "not_sent".into()));
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn p8_an_outcome_that_the_store_does_not_take_is_kept_and_settled_later() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    faulty.next("settle", Fault::Refuse, 2);
    let alice = super::bench::approver("alice");
    let answer = guard.confirm(&alice, &id, Some(hash), None, None, Some(std::time::Duration::ZERO)).await;
    assert_eq!(answer.status, 202);
    guard.drain(std::time::Duration::from_secs(5)).await;
    assert_eq!(bench.journal.waiting_len(), 1);
    assert_eq!(status(&bench, &id).await, "running");
    // The store refuses it still, and its lease is over: that does not make it unknown.
    bench.clock.advance(Duration::from_secs(31));
    guard.sweep().await.unwrap();
    assert_eq!((bench.journal.waiting_len(), status(&bench, &id).await.as_str()), (1, "running"));
    faulty.heal();
    guard.sweep().await.unwrap();
    assert_eq!(bench.journal.waiting_len(), 0);
    let receipt = json(&confirm(&guard, &id, hash).await)["receipt"].clone();
    assert_eq!(receipt["status"], "succeeded");
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn p6_an_outcome_that_was_changed_in_the_journal_is_not_given_to_the_store() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    faulty.next("settle", Fault::Refuse, 1);
    let alice = super::bench::approver("alice");
    guard.confirm(&alice, &id, Some(hash), None, None, Some(Duration::ZERO)).await;
    guard.drain(Duration::from_secs(5)).await;
    assert_eq!(bench.journal.waiting_len(), 1);
    bench.journal.alter(|outcome| {
        (outcome.verdict, outcome.failure) = (Verdict::Failed, Some(Failure::NotSent));
        (outcome.receipt, outcome.response) = (None, None);
    });
    guard.sweep().await.unwrap();
    assert_eq!(status(&bench, &id).await, "running");
    // Nobody can tell any more, and a person is told so.
    bench.clock.advance(Duration::from_secs(31));
    guard.sweep().await.unwrap();
    assert_eq!((status(&bench, &id).await.as_str(), bench.effects()), ("unverifiable", 1));
}

#[tokio::test]
async fn p5_a_damaged_draft_that_may_have_been_sent_is_never_called_unexecuted() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    let (pending, _) = held(&guard, r#"{"a":1}"#).await;
    let (done, hash) = held(&guard, r#"{"a":2}"#).await;
    assert_eq!(confirm(&guard, &done, hash).await.status, 200);
    faulty.damage();
    for (id, executed) in [(pending, serde_json::json!(false)), (done, serde_json::json!("unknown"))] {
        let answers = [
            guard.agent_status(&identity("u1"), &id, true).await.unwrap_err().answer(),
            guard.agent_result(&identity("u1"), &id, true).await,
            confirm(&guard, &id, hash).await,
        ];
        for answer in answers {
            let body = json(&answer);
            assert_eq!((body["code"].clone(), &body["executed"]), ("DRAFT_INTEGRITY_FAILED".into(), &executed));
        }
    }
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn p2_a_new_draft_that_comes_back_altered_is_not_answered_from_what_was_sealed() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    faulty.damage();
    let answer = ask(&guard, identity("u1"), r#"{"a":1}"#, None).await;
    assert_eq!(json(&answer)["code"], "DRAFT_INTEGRITY_FAILED");
}

#[tokio::test]
async fn a_damaged_draft_is_shown_as_such_to_those_of_its_service_alone() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    let (id, _) = held(&guard, r#"{"a":1}"#).await;
    faulty.damage();
    let mut bob = approver("bob");
    let seen = guard.show(&bob, &id).await.expect("shown");
    assert_eq!((seen.line.intact, seen.args), (false, serde_json::Value::Null));
    bob.rights.as_mut().unwrap().services = vec![Pattern::new("other")];
    assert_eq!(guard.show(&bob, &id).await.unwrap_err().code, Code::ApproverNotAllowed);
    bob.rights = None;
    assert_eq!(guard.show(&bob, &id).await.unwrap_err().code, Code::ApproverNotAllowed);
}

#[tokio::test]
async fn p8_a_confirm_that_is_dropped_at_any_point_is_lost_or_carried_out_and_never_stuck() {
    let mut carried_out = 0;
    for polls in 0..40 {
        let (bench, _) = bench();
        let guard = bench.ready();
        let (id, hash) = held(&guard, r#"{"a":1}"#).await;
        let mut confirming = Box::pin(confirm(&guard, &id, hash));
        for _ in 0..polls {
            if futures_util::poll!(confirming.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        // The client is gone.
        drop(confirming);
        guard.drain(std::time::Duration::from_secs(5)).await;
        match status(&bench, &id).await.as_str() {
            "pending" => assert_eq!(bench.effects(), 0, "after {polls} polls"),
            "succeeded" => {
                assert_eq!(bench.effects(), 1, "after {polls} polls");
                carried_out += 1;
            }
            other => panic!("{other} after {polls} polls"),
        }
    }
    assert!((1..40).contains(&carried_out), "both ends were seen: {carried_out}");
}

#[tokio::test]
async fn p2_a_join_that_leads_to_another_call_or_another_owner_is_not_believed() {
    let (bench, faulty) = bench();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    assert_eq!(confirm(&guard, &id, hash).await.status, 200);
    let stored = bench.store.get(&id).await.unwrap().unwrap();
    faulty.mislead(stored);
    for (who, body) in [(identity("u2"), r#"{"a":1}"#), (identity("u1"), r#"{"a":2}"#)] {
        let answer = ask(&guard, who, body, None).await;
        assert_eq!((answer.status, json(&answer)["code"].clone()), (409, "DRAFT_INTEGRITY_FAILED".into()));
        assert!(
            !answer.headers.iter().any(|(name, _)| name == "Countersign-Replayed" || name == "Countersign-Receipt")
        );
    }
    let own = ask(&guard, identity("u1"), r#"{"a":1}"#, None).await;
    assert_eq!(own.status, 201, "the call that it is gets its result");
}

/// How long a draft of these tests lives.
const TTL: Duration = Duration::from_secs(300);

#[tokio::test]
async fn a_hold_that_waits_long_for_its_turn_is_held() {
    // Inside the bound it is held with the time at which it was asked for; beyond it with the
    // store's. Only where the store is too slow every time is it refused.
    for (waits, held_at) in [(vec![5], Some(0)), (vec![30], Some(0)), (vec![31], Some(31)), (vec![40, 50], Some(90))] {
        let (bench, faulty) = bench();
        let guard = bench.ready();
        let start = bench.store.now();
        for seconds in waits.clone() {
            let clock = Arc::clone(&bench.clock);
            faulty.wait("hold", move || clock.advance(Duration::from_secs(seconds)));
        }
        let (id, hash) = held(&guard, r#"{"a":1}"#).await;
        let row = bench.store.get(&id).await.unwrap().unwrap().row;
        let created_at = start + Duration::from_secs(held_at.unwrap());
        assert_eq!((row.created_at, row.expires_at), (created_at, created_at + TTL), "{waits:?}");
        assert_eq!(confirm(&guard, &id, hash).await.status, 200, "{waits:?}");
        assert_eq!(bench.effects(), 1);
    }
    let (bench, faulty) = bench();
    let guard = bench.ready();
    for _ in 0..3 {
        let clock = Arc::clone(&bench.clock);
        faulty.wait("hold", move || clock.advance(Duration::from_secs(31)));
    }
    let refused = ask(&guard, identity("u1"), r#"{"a":1}"#, None).await;
    assert_eq!((refused.status, json(&refused)["executed"].clone()), (503, false.into()));
    assert_eq!(ask(&guard, identity("u1"), r#"{"a":1}"#, None).await.status, 202, "and nothing stays behind");
}

#[tokio::test]
async fn a_node_whose_clock_is_an_hour_off_holds_by_the_stores_clock() {
    for off_ms in [3_600_000, -3_600_000] {
        let (bench, faulty) = bench();
        let guard = bench.ready();
        faulty.off_by(off_ms);
        let answer = ask(&guard, identity("u1"), r#"{"a":1}"#, None).await;
        assert_eq!(answer.status, 202, "{off_ms}");
        let expires_at = json(&answer)["expires_at"].clone();
        let store_says = bench.twin.now();
        assert_eq!(expires_at, (store_says + TTL).to_string(), "{off_ms}");
        let id = json(&answer)["draft_id"].as_str().unwrap().parse().unwrap();
        let row = bench.store.get(&id).await.unwrap().unwrap().row;
        assert_eq!((row.created_at, row.expires_at), (store_says, store_says + TTL), "{off_ms}");
        assert_eq!(id.to_string()[5..15], ulid_time(store_says), "{off_ms}");
    }
}

/// The part of an id that sorts it by time.
fn ulid_time(at: crate::base::time::Timestamp) -> String {
    let millis = u64::try_from(at.as_millis()).unwrap();
    ulid::Ulid::from_parts(millis, 0).to_string()[..10].to_owned()
}

#[tokio::test]
async fn a_repetition_follows_the_stores_clock_too() {
    let (bench, faulty) = bench();
    bench.upstream.push(Script::NotReached);
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    confirm(&guard, &id, hash).await;
    let clock = Arc::clone(&bench.clock);
    faulty.wait("again", move || clock.advance(Duration::from_secs(40)));
    let again = guard.again(&super::bench::approver("alice"), &id).await;
    assert_eq!(again.status, 201, "{:?}", json(&again));
    assert_eq!(json(&again)["created_at"], bench.twin.now().to_string());
}

#[tokio::test]
async fn p8_two_outcomes_of_one_draft_leave_the_journal_one_by_one() {
    let stop = Stop::new();
    let (bench, faulty) = bench();
    bench.upstream.push(Script::Slow(stop.clone(), Box::new(answers(201, r#"{"id":1}"#))));
    let first = bench.guard(1, Arc::new(NoPause));
    let (id, hash) = held(&first, r#"{"a":1}"#).await;
    let alice = super::bench::approver("alice");
    assert_eq!(first.confirm(&alice, &id, Some(hash), None, None, Some(Duration::ZERO)).await.status, 202);
    stop.reached().await;
    // Another process takes it over and cannot tell; then the answer comes. The store takes neither.
    bench.clock.advance(Duration::from_secs(31));
    faulty.next("settle", Fault::Refuse, 2);
    let second = bench.guard(2, Arc::new(NoPause));
    second.sweep().await.unwrap();
    stop.open();
    first.drain(Duration::from_secs(5)).await;
    assert_eq!((bench.journal.waiting_len(), status(&bench, &id).await.as_str()), (2, "verifying"));
    // The store takes the first one and goes away again.
    faulty.next("late_answer", Fault::Refuse, 1);
    second.sweep().await.unwrap();
    assert_eq!((bench.journal.waiting_len(), status(&bench, &id).await.as_str()), (1, "unverifiable"));
    let restarted = bench.guard(3, Arc::new(NoPause));
    restarted.sweep().await.unwrap();
    assert_eq!((bench.journal.waiting_len(), status(&bench, &id).await.as_str()), (0, "succeeded"));
    assert_eq!(json(&confirm(&restarted, &id, hash).await)["receipt"]["status"], "succeeded");
    assert_eq!(bench.effects(), 1);
}
