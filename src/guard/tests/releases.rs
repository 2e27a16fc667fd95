//! Claimed before sent, marked before the first byte, classified, never sent twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::bench::{At, Bench, CLOSES, answers, approver, ask, confirm, held, identity, json, status};
use crate::base::time::ManualClock;
use crate::draft::state::Verdict;
use crate::guard::Guard;
use crate::guard::pause::NoPause;
use crate::policy::model::Service;
use crate::upstream::contract::{Exchange, NotReached, Upstream};
use crate::upstream::fake::{FakeUpstream, Script, Stop};

#[tokio::test]
async fn p5_a_connection_that_dies_after_the_first_byte_is_unknown_and_never_repeated() {
    let bench = Bench::new().plays([CLOSES]);
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let answer = confirm(&guard, &id, hash).await;
    assert_eq!((answer.status, json(&answer)["code"].clone()), (504, "COMMIT_OUTCOME_UNKNOWN".into()));
    assert_eq!(json(&answer)["executed"], "unknown");
    for _ in 0..3 {
        assert_eq!(confirm(&guard, &id, hash).await.status, 504);
        let asked = json(&ask(&guard, identity("u1"), r#"{"a":1}"#, None).await);
        assert_eq!((asked["executed"].clone(), asked["status"].clone()), ("unknown".into(), "unverifiable".into()));
        guard.sweep().await.unwrap();
    }
    assert_eq!(bench.effects(), 1);

    let alice = approver("alice");
    assert_eq!(guard.resolve(&alice, &id, Verdict::Succeeded, "  ".to_owned()).await.status, 422);
    let resolved = guard.resolve(&alice, &id, Verdict::Succeeded, "it is in the list".to_owned()).await;
    assert_eq!(resolved.status, 200);
    let receipt = &json(&resolved)["receipt"];
    assert_eq!((receipt["judged"].clone(), receipt["recovered"].clone()), ("person".into(), true.into()));
    assert_eq!(guard.resolve(&alice, &id, Verdict::Failed, "no".to_owned()).await.status, 409);
    assert_eq!(bench.effects(), 1);

    // No answer of the upstream's is made up for the agent: it gets a problem with the receipt.
    for told in
        [ask(&guard, identity("u1"), r#"{"a":1}"#, None).await, guard.agent_result(&identity("u1"), &id, true).await]
    {
        let body = json(&told);
        assert_eq!((told.status, body["code"].as_str()), (409, Some("DRAFT_ALREADY_DECIDED")), "{body}");
        assert_eq!((&body["executed"], &body["upstream_called"]), (&true.into(), &true.into()), "{body}");
        assert_eq!(body["receipt"]["judged"], "person", "{body}");
        assert!(body["detail"].as_str().is_some_and(|words| words.contains("A person found out")), "{body}");
    }
}

#[tokio::test]
async fn answers_are_judged_by_their_status() {
    for (play, code, word, executed) in [
        (answers(201, "{}"), 200, "succeeded", true.into()),
        (answers(400, "{}"), 200, "failed", false.into()),
        (answers(409, "{}"), 200, "failed", false.into()),
        (answers(307, "{}"), 200, "failed", false.into()),
        (answers(501, "{}"), 200, "failed", false.into()),
        (answers(408, "{}"), 504, "unverifiable", serde_json::json!("unknown")),
        (answers(500, "{}"), 504, "unverifiable", serde_json::json!("unknown")),
        (answers(302, "{}"), 504, "unverifiable", serde_json::json!("unknown")),
        (answers(200, "{\"cut"), 504, "unverifiable", serde_json::json!("unknown")),
    ] {
        let bench = Bench::new().plays([play]);
        let guard = bench.ready();
        let (id, hash) = held(&guard, r#"{"a":1}"#).await;
        let answer = confirm(&guard, &id, hash).await;
        let body = json(&answer);
        assert_eq!((answer.status, &body["status"], &body["executed"]), (code, &word.into(), &executed));
        assert_eq!(bench.effects(), 1);
    }
}

#[tokio::test]
async fn p6_a_202_is_no_success_that_may_be_claimed() {
    let bench = Bench::new().plays([answers(202, "{}")]);
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let receipt = json(&confirm(&guard, &id, hash).await)["receipt"].clone();
    assert_eq!((receipt["status"].clone(), receipt["accepted"].clone()), ("succeeded".into(), true.into()));
    assert!(!guard.agent_status(&identity("u1"), &id, true).await.unwrap().may_claim_success);
}

#[tokio::test]
async fn what_was_provably_not_sent_is_offered_again_with_one_effect_key() {
    let bench = Bench::new().plays([Script::NotReached, Script::NotReached]);
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let answer = json(&confirm(&guard, &id, hash).await);
    assert_eq!((answer["status"].clone(), answer["failure"].clone()), ("failed".into(), "not_sent".into()));
    assert_eq!(answer["executed"], false);
    let result = guard.agent_result(&identity("u1"), &id, true).await;
    assert_eq!((result.status, json(&result)["code"].clone()), (502, "UPSTREAM_NOT_REACHED".into()));

    let alice = approver("alice");
    let again = guard.again(&alice, &id).await;
    assert_eq!(again.status, 201);
    assert_eq!(guard.again(&alice, &id).await.status, 409, "once only");
    let second: crate::base::id::DraftId = json(&again)["draft_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(json(&again)["args_hash"], hash.to_string());
    confirm(&guard, &second, hash).await;
    let third = json(&guard.again(&alice, &second).await)["draft_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(confirm(&guard, &third, hash).await.status, 200);
    assert_eq!(bench.effects(), 1);
    let root = bench.store.get(&third).await.unwrap().unwrap();
    let opened = crate::draft::seal::open(&root.sealed, &third, &bench.keys).unwrap();
    assert_eq!(opened.draft.root, id);
}

#[tokio::test]
async fn p4_a_process_that_slept_past_its_deadline_sends_nothing() {
    let bench = Bench::new();
    let clock = Arc::clone(&bench.clock);
    let slept: Box<dyn Fn() + Send + Sync> = Box::new(move || clock.advance(Duration::from_secs(120)));
    let pause =
        At { point: "after_mark_before_deadline_check", then: slept, hang: false, reached: Arc::new(Notify::new()) };
    let guard = bench.guard(1, Arc::new(pause));
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let answer = json(&confirm(&guard, &id, hash).await);
    assert_eq!(bench.effects(), 0);
    assert_eq!((answer["status"].clone(), answer["failure"].clone()), ("failed".into(), "not_sent".into()));
}

/// Runs a confirm in a process that hangs at `point` and is then killed.
fn killed_at(bench: &Bench, point: &'static str) -> (crate::base::id::DraftId, crate::base::digest::Digest) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let reached = Arc::new(Notify::new());
    let pause = At { point, then: Box::new(|| {}), hang: true, reached: Arc::clone(&reached) };
    let guard: Arc<Guard> = bench.guard(1, Arc::new(pause));
    let draft = runtime.block_on(async {
        let (id, hash) = held(&guard, r#"{"a":1}"#).await;
        let confirming = Arc::clone(&guard);
        let of = id.clone();
        tokio::spawn(async move { confirm(&confirming, &of, hash).await });
        reached.notified().await;
        (id, hash)
    });
    runtime.shutdown_background();
    draft
}

fn on_a_new_process<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn p8_a_claim_whose_process_died_before_the_mark_is_released_by_the_next() {
    let bench = Bench::new();
    let (id, hash) = killed_at(&bench, "after_claim");
    on_a_new_process(async {
        let guard = bench.guard(2, Arc::new(NoPause));
        guard.sweep().await.unwrap();
        assert_eq!(status(&bench, &id).await, "running", "the lease is not over");
        bench.clock.advance(Duration::from_secs(31));
        guard.sweep().await.unwrap();
        let answer = confirm(&guard, &id, hash).await;
        assert_eq!(json(&answer)["status"], "succeeded");
        assert_eq!(bench.effects(), 1);
        assert_eq!(bench.counts.taken_over.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_claim_that_is_taken_over_too_late_is_not_sent() {
    let bench = Bench::new();
    let (id, hash) = killed_at(&bench, "after_claim");
    on_a_new_process(async {
        let guard = bench.guard(2, Arc::new(NoPause));
        bench.clock.advance(Duration::from_secs(61));
        guard.sweep().await.unwrap();
        let answer = json(&confirm(&guard, &id, hash).await);
        assert_eq!((answer["status"].clone(), answer["failure"].clone()), ("failed".into(), "release_too_late".into()));
        assert_eq!((bench.effects(), bench.upstream.connections()), (0, 0), "nobody is even called up");
        let result = guard.agent_result(&identity("u1"), &id, true).await;
        assert_eq!(json(&result)["code"], "RELEASE_TOO_LATE");
    });
}

/// An upstream that takes so long to reach.
struct Far {
    near: FakeUpstream,
    clock: Arc<ManualClock>,
    takes: Duration,
}

#[async_trait]
impl Upstream for Far {
    async fn connect(&self, service: &Service, patience: Duration) -> Result<Box<dyn Exchange>, NotReached> {
        self.clock.advance(self.takes);
        self.near.connect(service, patience).await
    }
}

#[tokio::test]
async fn a_release_that_reached_its_upstream_too_late_is_not_sent() {
    for (takes, effects) in [(Duration::from_secs(60), 1), (Duration::from_millis(60_001), 0)] {
        let bench = Bench::new();
        let far = Far { near: bench.upstream.clone(), clock: Arc::clone(&bench.clock), takes };
        let guard = bench.guard_before(1, Arc::new(NoPause), Arc::new(far));
        let (id, hash) = held(&guard, r#"{"a":1}"#).await;
        let answer = json(&confirm(&guard, &id, hash).await);
        let failure = if effects == 1 { serde_json::Value::Null } else { "release_too_late".into() };
        assert_eq!((&answer["failure"], bench.effects()), (&failure, effects), "{takes:?}: {answer}");
    }
}

#[tokio::test]
async fn p5_only_an_answer_is_taken_of_somebody_who_comes_too_late() {
    for woken in ["past its deadline", "without an answer"] {
        let stop = Stop::new();
        let script = match woken {
            "past its deadline" => Script::Suspended(stop.clone(), Box::new(answers(201, "{}"))),
            _ => Script::Slow(stop.clone(), Box::new(CLOSES)),
        };
        let bench = Bench::new().plays([script]);
        let first = bench.guard(1, Arc::new(NoPause));
        let (id, hash) = held(&first, r#"{"a":1}"#).await;
        let alice = approver("alice");
        assert_eq!(first.confirm(&alice, &id, Some(hash), None, None, Some(Duration::ZERO)).await.status, 202);
        stop.reached().await;
        bench.clock.advance(Duration::from_secs(31));
        let second = bench.guard(2, Arc::new(NoPause));
        second.sweep().await.unwrap();
        let before = bench.store.get(&id).await.unwrap().unwrap();
        assert_eq!(before.row.state.status().as_str(), "unverifiable", "{woken}");
        // The first process learns what became of its own attempt. The draft is not its any more.
        stop.open();
        first.drain(Duration::from_secs(5)).await;
        assert_eq!(bench.store.get(&id).await.unwrap().unwrap(), before, "{woken}");
        assert_eq!(confirm(&second, &id, hash).await.status, 504, "{woken}");
        assert_eq!(bench.effects(), u64::from(woken == "without an answer"));
    }
}

#[test]
fn p5_a_draft_whose_process_died_after_the_mark_is_never_sent_again() {
    for (point, effects) in [("after_mark_before_deadline_check", 0), ("after_send_before_settle", 1)] {
        let bench = Bench::new();
        let (id, hash) = killed_at(&bench, point);
        on_a_new_process(async {
            let guard = bench.guard(2, Arc::new(NoPause));
            bench.clock.advance(Duration::from_secs(31));
            guard.sweep().await.unwrap();
            guard.sweep().await.unwrap();
            assert_eq!(confirm(&guard, &id, hash).await.status, 504, "{point}");
            assert_eq!(status(&bench, &id).await, "unverifiable", "{point}");
            assert_eq!(bench.effects(), effects, "{point}");
        });
    }
}

#[tokio::test]
async fn p3_an_attempt_that_the_journal_knows_is_not_sent_again() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    // The store went back in time: this node sent attempt 1 already, and the store says pending.
    bench.journal.remember(&id);
    assert_eq!(confirm(&guard, &id, hash).await.status, 504);
    assert_eq!(bench.effects(), 0);
    assert_eq!(bench.counts.duplicate_releases.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_confirm_that_cannot_wait_is_told_that_it_runs() {
    let stop = Stop::new();
    let bench = Bench::new().plays([Script::Slow(stop.clone(), Box::new(answers(201, "{}")))]);
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let alice = approver("alice");
    let now = guard.confirm(&alice, &id, Some(hash), None, None, Some(Duration::ZERO)).await;
    assert_eq!((now.status, json(&now)["status"].clone()), (202, "running".into()));
    let asked = ask(&guard, identity("u1"), r#"{"a":1}"#, None).await;
    assert_eq!(json(&asked)["executed"], "unknown");
    stop.open();
    let then = guard.confirm(&alice, &id, Some(hash), None, None, None).await;
    assert_eq!((then.status, json(&then)["status"].clone()), (200, "succeeded".into()));
    assert_eq!(bench.effects(), 1);
}
