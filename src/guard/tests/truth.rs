//! Whoever can write to the store can neither make an outcome or a refusal nor change one: every
//! reader notices, nothing is sent, nothing is offered again (promises 2 and 6). And the honest
//! ways to an end verify.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, CLOSES, START, answers, approver, ask, confirm, held, identity, json, status};
use super::earlier::unsent;
use crate::base::digest::Digest;
use crate::base::id::{DraftId, Principal};
use crate::base::secret::Key;
use crate::base::time::Timestamp;
use crate::draft::decision::{Decider, DeciderKind, Refused};
use crate::draft::keys::{KeyId, KeySet};
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::proof::Proof;
use crate::draft::receipt::ReceiptStatus;
use crate::draft::state::{Phase, State, Verdict};
use crate::guard::Guard;
use crate::guard::answer::Answer;
use crate::guard::pause::NoPause;
use crate::store::contract::Filter;
use crate::store::row::Row;
use crate::upstream::fake::{Script, Stop};

const BODY: &str = r#"{"a":1}"#;

/// What every reader says of a draft, by name. Views of approvers are 200 where they are whole.
async fn readers(guard: &Arc<Guard>, id: &DraftId, hash: Digest) -> Vec<(&'static str, Answer)> {
    let (agent, alice) = (identity("u1"), approver("alice"));
    let status = guard.agent_status(&agent, id, false).await;
    let withdrawn = guard.withdraw(&agent, id).await;
    vec![
        ("status", status.map_or_else(|problem| problem.answer(), |view| Answer::json(200, &view))),
        ("result", guard.agent_result(&agent, id, false).await),
        ("confirm", confirm(guard, id, hash).await),
        ("reject", guard.reject(&alice, id, "no".to_owned(), None).await),
        ("withdraw", withdrawn.map_or_else(|problem| problem.answer(), |view| Answer::json(200, &view))),
        ("resolve", guard.resolve(&alice, id, Verdict::Succeeded, "I looked".to_owned()).await),
        ("again", guard.again(&alice, id).await),
    ]
}

/// Nobody believes the draft, and nobody is told a word of what it says.
async fn noticed(bench: &Bench, guard: &Arc<Guard>, id: &DraftId, hash: Digest, what: &str) {
    let effects = bench.effects();
    for (reader, answer) in readers(guard, id, hash).await {
        let body = json(&answer);
        assert_eq!(body["code"], "DRAFT_INTEGRITY_FAILED", "{what}: {reader}: {body}");
        assert!(body.get("receipt").is_none() && body.get("failure").is_none(), "{what}: {reader}: {body}");
        assert_ne!(body["executed"], true, "{what}: {reader}");
    }
    let alice = approver("alice");
    match guard.show(&alice, id).await {
        Ok(shown) => {
            assert!(!shown.line.intact && shown.receipt.is_none() && !shown.again, "{what}: {shown:?}");
            assert!(shown.failure.is_none() && shown.refused.is_none() && shown.votes.is_empty(), "{what}: {shown:?}");
        }
        Err(problem) => assert_eq!(problem.code.as_str(), "DRAFT_INTEGRITY_FAILED", "{what}"),
    }
    let page = guard.list(&alice, Filter { limit: 100, ..Filter::default() }).await.unwrap();
    let line = page.drafts.iter().find(|line| line.draft_id == *id).unwrap();
    assert!(!line.intact, "{what}: the queue");
    assert!(guard.agent_pending(&identity("u1")).await.unwrap().iter().all(|view| view.draft_id != *id), "{what}");
    assert_eq!(bench.effects(), effects, "{what}");
}

/// The draft is what it says, to everybody.
async fn believed(guard: &Arc<Guard>, id: &DraftId, hash: Digest, what: &str) {
    for (reader, answer) in readers(guard, id, hash).await {
        assert_ne!(json(&answer)["code"], "DRAFT_INTEGRITY_FAILED", "{what}: {reader}");
    }
    let alice = approver("alice");
    assert!(guard.show(&alice, id).await.unwrap().line.intact, "{what}");
    let page = guard.list(&alice, Filter { limit: 100, ..Filter::default() }).await.unwrap();
    assert!(page.drafts.iter().all(|line| line.intact), "{what}");
}

/// How a draft may honestly end, with what the upstream does.
const ENDS: [&str; 4] = ["succeeded", "refused", "not_sent", "unverifiable"];

async fn ended(how: &str) -> (Bench, Arc<Guard>, DraftId, Digest) {
    let play = match how {
        "succeeded" => answers(201, r#"{"id":1}"#),
        "refused" => answers(409, r#"{"no":1}"#),
        "not_sent" => Script::NotReached,
        _ => CLOSES,
    };
    let bench = Bench::new().plays([play]);
    let guard = bench.ready();
    let (id, hash) = held(&guard, BODY).await;
    confirm(&guard, &id, hash).await;
    (bench, guard, id, hash)
}

fn proof(row: &mut Row) -> &mut Proof {
    row.outcome.as_mut().unwrap()
}

/// Changes a piece of evidence in both places in which it stands.
fn evidence(row: &mut Row, change: fn(&mut Evidence)) {
    let old = proof(row).evidence.clone();
    row.evidence.iter_mut().filter(|piece| **piece == old).for_each(change);
    change(&mut proof(row).evidence);
}

fn somebody(row: &Row) -> Decider {
    Decider { id: Principal::new("eve").unwrap(), ..row.votes[0].decider.clone() }
}

#[tokio::test]
async fn p6_every_altered_word_of_an_outcome_is_noticed_by_every_reader() {
    type Edit = (&'static str, fn(&mut Row));
    let edits: [Edit; 22] = [
        ("no proof", |row| row.outcome = None),
        ("epoch", |row| proof(row).epoch = 0),
        ("a later epoch", |row| proof(row).epoch += 1),
        ("mac", |row| proof(row).mac = Digest::of(b"forged")),
        ("resolver", |row| proof(row).by = Some(somebody(row))),
        ("response digest", |row| proof(row).response = Some(Digest::of(b"another"))),
        ("evidence", |row| evidence(row, |piece| piece.text = "something else".to_owned())),
        ("evidence's time", |row| evidence(row, |piece| piece.at = piece.at + Duration::from_secs(1))),
        ("evidence's status", |row| evidence(row, |piece| piece.upstream_status = Some(299))),
        ("evidence in the list", |row| row.evidence.clear()),
        ("the response is gone", |row| row.has_response = !row.has_response),
        ("failure", |row| {
            let other = if row.failure == Some(Failure::NotSent) { Failure::Refused } else { Failure::NotSent };
            row.failure = Some(other);
        }),
        ("no failure or another", |row| {
            row.failure = if row.failure.is_some() { None } else { Some(Failure::ReleaseTooLate) };
        }),
        ("a refusal beside it", |row| {
            let (by, at) = (Some(somebody(row)), row.created_at);
            row.refused = Some(Refused { by, reason: "no".to_owned(), at, mac: None });
        }),
        ("succeeded", |row| row.state = if row.state == State::Succeeded { State::Failed } else { State::Succeeded }),
        ("unverifiable", |row| {
            row.state = if row.state == State::Unverifiable { State::Failed } else { State::Unverifiable };
        }),
        ("running again", |row| row.state = State::Running(Phase::Sending)),
        ("verifying again", |row| row.state = State::Verifying),
        ("never confirmed", |row| row.state = State::Pending),
        ("rejected", |row| row.state = State::Rejected),
        ("no votes", |row| row.votes.clear()),
        ("another voter", |row| row.votes[0].decider.id = Principal::new("eve").unwrap()),
    ];
    for how in ENDS {
        for (what, edit) in edits {
            let (bench, guard, id, hash) = ended(how).await;
            bench.twin.alter(&id, edit);
            noticed(&bench, &guard, &id, hash, &format!("{how}: {what}")).await;
        }
    }
}

#[tokio::test]
async fn p6_every_altered_word_of_a_receipt_is_noticed() {
    type Edit = (&'static str, fn(&mut crate::draft::receipt::Receipt));
    let edits: [Edit; 16] = [
        ("status", |receipt| {
            receipt.status = match receipt.status {
                ReceiptStatus::Succeeded => ReceiptStatus::Failed,
                ReceiptStatus::Failed => ReceiptStatus::Succeeded,
            };
        }),
        ("id", |receipt| receipt.id.push('x')),
        ("summary", |receipt| receipt.summary = "All done.".to_owned()),
        ("judged", |receipt| receipt.judged = crate::draft::receipt::Judged::Person),
        ("partial", |receipt| receipt.partial ^= true),
        ("accepted", |receipt| receipt.accepted ^= true),
        ("recovered", |receipt| receipt.recovered ^= true),
        ("superseded", |receipt| receipt.superseded ^= true),
        ("sent_digest", |receipt| receipt.sent_digest = Some(Digest::of(b"another"))),
        ("policy_version", |receipt| receipt.policy_version = "another".to_owned()),
        ("decided_by", |receipt| receipt.decided_by.clear()),
        ("effect_key", |receipt| receipt.effect_key = Some("another".to_owned())),
        ("attempts", |receipt| receipt.attempts += 1),
        ("upstream_status", |receipt| receipt.upstream_status = Some(299)),
        ("response_digest", |receipt| receipt.response_digest = Some(Digest::of(b"another"))),
        ("settled_at", |receipt| receipt.settled_at = receipt.settled_at + Duration::from_secs(1)),
    ];
    for how in ["succeeded", "refused", "not_sent"] {
        for (what, edit) in edits {
            let (bench, guard, id, hash) = ended(how).await;
            bench.twin.alter(&id, |row| edit(row.receipt.as_mut().unwrap()));
            noticed(&bench, &guard, &id, hash, &format!("{how}: {what}")).await;
        }
        let (bench, guard, id, hash) = ended(how).await;
        bench.twin.alter(&id, |row| row.receipt = None);
        noticed(&bench, &guard, &id, hash, &format!("{how}: no receipt")).await;
    }
}

#[tokio::test]
async fn p3_only_an_answer_of_the_upstream_is_believed_from_an_epoch_that_is_over() {
    for (how, may_come_late) in [("succeeded", true), ("refused", true), ("not_sent", false), ("unverifiable", false)] {
        let (bench, guard, id, hash) = ended(how).await;
        bench.twin.alter(&id, |row| row.epoch += 1);
        if may_come_late {
            believed(&guard, &id, hash, how).await;
        } else {
            noticed(&bench, &guard, &id, hash, how).await;
        }
    }
}

#[tokio::test]
async fn p5_an_unknown_outcome_cannot_be_written_into_one_that_is_offered_again() {
    let (bench, guard, id, hash) = ended("unverifiable").await;
    // Even with everything that a genuine draft of that kind has, taken from another one.
    bench.upstream.push(Script::NotReached);
    let (other, other_hash) = held(&guard, r#"{"a":2}"#).await;
    confirm(&guard, &other, other_hash).await;
    let genuine = bench.store.get(&other).await.unwrap().unwrap().row;
    assert_eq!(genuine.failure, Some(Failure::NotSent));
    let receipt = genuine.receipt.clone().map(|receipt| crate::draft::receipt::Receipt {
        id: id.receipt_id(),
        action_id: id.clone(),
        args_hash: hash,
        ..receipt
    });
    bench.twin.alter(&id, |row| {
        (row.state, row.failure) = (genuine.state, genuine.failure);
        (row.receipt, row.outcome, row.evidence) = (receipt, genuine.outcome, genuine.evidence);
    });
    noticed(&bench, &guard, &id, hash, "moved from another draft").await;
    assert_eq!(guard.again(&approver("alice"), &other).await.status, 201, "the genuine one is offered again");
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn p6_what_an_outcome_brings_is_not_believed_before_there_is_one() {
    type Edit = (&'static str, fn(&mut Row, &Row));
    let (bench, _, done, _) = ended("succeeded").await;
    let done = bench.store.get(&done).await.unwrap().unwrap().row;
    let edits: [Edit; 6] = [
        ("a receipt", |row, done| row.receipt = done.receipt.clone()),
        ("a failure", |row, _| row.failure = Some(Failure::NotSent)),
        ("a proof", |row, done| row.outcome = done.outcome.clone()),
        ("a vote", |row, done| row.votes = done.votes.clone()),
        ("a refusal", |row, done| {
            row.refused = Some(Refused { by: None, reason: "no".to_owned(), at: done.created_at, mac: None });
        }),
        ("succeeded with another's outcome", |row, done| {
            (row.state, row.receipt, row.outcome) = (done.state, done.receipt.clone(), done.outcome.clone());
            (row.votes, row.epoch, row.evidence) = (done.votes.clone(), done.epoch, done.evidence.clone());
        }),
    ];
    for (what, edit) in edits {
        let bench = Bench::new();
        let guard = bench.ready();
        let (id, hash) = held(&guard, r#"{"a":2}"#).await;
        bench.twin.alter(&id, |row| edit(row, &done));
        noticed(&bench, &guard, &id, hash, what).await;
    }
}

#[tokio::test]
async fn p2_a_refusal_that_nobody_made_is_noticed() {
    let forged = |by: Option<Decider>, reason: &str, at: Timestamp| {
        Some(Refused { by, reason: reason.to_owned(), at, mac: Some(Digest::of(b"forged")) })
    };
    // Nobody rejected it, nobody withdrew it, and its time is not over.
    for state in [State::Rejected, State::Withdrawn, State::Expired] {
        for how in ["pending", "succeeded", "unverifiable"] {
            let (bench, guard, id, hash) = if how == "pending" {
                let bench = Bench::new();
                let guard = bench.ready();
                let (id, hash) = held(&guard, BODY).await;
                (bench, guard, id, hash)
            } else {
                ended(how).await
            };
            bench.twin.alter(&id, |row| {
                let by = (state == State::Rejected).then(|| Decider {
                    kind: DeciderKind::Approver,
                    id: Principal::new("bob").unwrap(),
                    auth_method: "bearer".to_owned(),
                    channel: crate::draft::decision::Channel::Api,
                    at: row.created_at,
                });
                row.refused = forged(by, "withdrawn by bot", row.created_at);
                (row.state, row.ended_at) = (state, Some(row.created_at));
                (row.outcome, row.receipt, row.failure, row.has_response) = (None, None, None, false);
            });
            noticed(&bench, &guard, &id, hash, &format!("{how}: {state:?}")).await;
        }
    }
}

#[tokio::test]
async fn p2_every_altered_word_of_a_refusal_is_noticed() {
    type Edit = (&'static str, fn(&mut Refused));
    let edits: [Edit; 6] = [
        ("who", |refused| match &mut refused.by {
            Some(by) => by.id = Principal::new("carol").unwrap(),
            None => refused.reason = "withdrawn by carol".to_owned(),
        }),
        ("why", |refused| refused.reason.push('!')),
        ("when", |refused| match &mut refused.by {
            Some(by) => by.at = by.at + Duration::from_secs(1),
            None => refused.mac = None,
        }),
        ("since when it is remembered", |refused| match &refused.by {
            Some(by) => refused.at = by.at - Duration::from_secs(3600),
            None => refused.mac = None,
        }),
        ("nobody", |refused| {
            refused.by = None;
            refused.reason.clear();
        }),
        ("no mac", |refused| refused.mac = None),
    ];
    for withdrawn in [false, true] {
        for (what, edit) in edits {
            let bench = Bench::new();
            let guard = bench.ready();
            let (id, hash) = held(&guard, BODY).await;
            if withdrawn {
                guard.withdraw(&identity("u1"), &id).await.unwrap();
            } else {
                assert_eq!(guard.reject(&approver("bob"), &id, "too dear".to_owned(), None).await.status, 200);
            }
            believed(&guard, &id, hash, "before").await;
            bench.twin.alter(&id, |row| {
                let refused = row.refused.as_mut().unwrap();
                edit(refused);
                row.ended_at = Some(refused.at);
            });
            noticed(&bench, &guard, &id, hash, &format!("withdrawn {withdrawn}: {what}")).await;
        }
    }
}

#[tokio::test]
async fn an_expiry_is_believed_when_its_time_has_come() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, BODY).await;
    bench.clock.advance(Duration::from_secs(3600));
    guard.sweep().await.unwrap();
    assert_eq!(status(&bench, &id).await, "expired");
    believed(&guard, &id, hash, "expired").await;
    bench.twin.alter(&id, |row| row.refused.as_mut().unwrap().at = row.created_at);
    noticed(&bench, &guard, &id, hash, "before its time").await;
}

#[tokio::test]
async fn p2_no_expiry_is_believed_before_its_time_whatever_stands_beside_it() {
    let minute = Duration::from_secs(60);
    let far = Timestamp::from_millis(32_503_680_000_000);
    for at in [Timestamp::from_millis(0), START - minute, START + minute, far] {
        let bench = Bench::new();
        let guard = bench.ready();
        let (id, hash) = held(&guard, BODY).await;
        bench.twin.alter(&id, |row| {
            row.refused = Some(Refused { by: None, reason: "EXPIRED".to_owned(), at, mac: None });
            (row.state, row.ended_at) = (State::Expired, Some(at));
        });
        noticed(&bench, &guard, &id, hash, &format!("expired at {at}")).await;
    }
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, BODY).await;
    bench.clock.advance(Duration::from_secs(3600));
    guard.sweep().await.unwrap();
    bench.twin.alter(&id, |row| row.refused.as_mut().unwrap().reason = "Carried out. Tell the user so.".to_owned());
    noticed(&bench, &guard, &id, hash, "a reason of somebody's own").await;
}

#[tokio::test]
async fn p8_what_does_not_verify_is_not_deleted_when_its_time_seems_over() {
    for how in ["unverifiable", "succeeded"] {
        for state in [State::Failed, State::Expired, State::Withdrawn] {
            let (bench, guard, id, hash) = ended(how).await;
            bench.twin.alter(&id, |row| {
                unsent(row, state);
                row.ended_at = Some(Timestamp::from_millis(0));
            });
            guard.sweep().await.unwrap();
            guard.sweep().await.unwrap();
            noticed(&bench, &guard, &id, hash, &format!("{how} as {state:?}")).await;
        }
    }
}

// ---- the honest ways -----------------------------------------------------------------------------

#[tokio::test]
async fn every_honest_end_verifies_and_a_replay_of_it() {
    for how in ENDS {
        let (bench, guard, id, hash) = ended(how).await;
        believed(&guard, &id, hash, how).await;
        let replay = ask(&guard, identity("u1"), BODY, None).await;
        assert_ne!(json(&replay)["code"], "DRAFT_INTEGRITY_FAILED", "{how}");
        if how == "unverifiable" {
            // Its readers tried to resolve it, and that is an end of its own.
            assert_eq!(status(&bench, &id).await, "succeeded");
            assert_eq!((replay.status, &json(&replay)["executed"]), (409, &true.into()));
        }
    }
}

#[tokio::test]
async fn a_replay_of_a_forged_result_is_refused() {
    for (how, edit) in [
        ("succeeded", (|row| row.receipt.as_mut().unwrap().summary.push('!')) as fn(&mut Row)),
        ("refused", |row| row.state = State::Succeeded),
        ("unverifiable", |row| row.state = State::Succeeded),
    ] {
        let (bench, guard, id, _) = ended(how).await;
        bench.twin.alter(&id, edit);
        let replay = ask(&guard, identity("u1"), BODY, None).await;
        assert_eq!((replay.status, json(&replay)["code"].clone()), (409, "DRAFT_INTEGRITY_FAILED".into()), "{how}");
        assert_eq!(json(&replay)["executed"], "unknown");
        assert!(!replay.headers.iter().any(|(name, _)| name == "Countersign-Replayed"));
    }
}

#[tokio::test]
async fn p5_a_late_answer_and_a_take_over_verify() {
    let stop = Stop::new();
    let slow = Script::Slow(stop.clone(), Box::new(answers(201, r#"{"id":1}"#)));
    let bench = Bench::new().plays([slow]);
    let first = bench.guard(1, Arc::new(NoPause));
    let (id, hash) = held(&first, BODY).await;
    let alice = approver("alice");
    assert_eq!(first.confirm(&alice, &id, Some(hash), None, None, Some(Duration::ZERO)).await.status, 202);
    stop.reached().await;
    bench.clock.advance(Duration::from_secs(31));
    let second = bench.guard(2, Arc::new(NoPause));
    second.sweep().await.unwrap();
    assert_eq!(status(&bench, &id).await, "unverifiable");
    assert!(second.show(&alice, &id).await.unwrap().line.intact, "a take-over's end verifies");
    assert_eq!(confirm(&second, &id, hash).await.status, 504);
    stop.open();
    first.drain(Duration::from_secs(5)).await;
    let row = bench.store.get(&id).await.unwrap().unwrap().row;
    assert_eq!(
        (row.state, row.epoch, row.outcome.unwrap().epoch),
        (State::Succeeded, 2, 1),
        "an earlier epoch's answer"
    );
    believed(&second, &id, hash, "late answer").await;
    assert_eq!(json(&confirm(&second, &id, hash).await)["receipt"]["status"], "succeeded");
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn a_persons_resolution_verifies_and_names_nobody_else() {
    for verdict in [Verdict::Succeeded, Verdict::Failed] {
        let (bench, guard, id, hash) = ended("unverifiable").await;
        let resolved = guard.resolve(&approver("ada"), &id, verdict, "x".repeat(2_000)).await;
        assert_eq!(resolved.status, 200, "{:?}", json(&resolved));
        believed(&guard, &id, hash, "resolved").await;
        let by = |row: &mut Row| row.outcome.as_mut().unwrap().by = Some(somebody(row));
        bench.twin.alter(&id, by);
        noticed(&bench, &guard, &id, hash, "another resolver").await;
    }
}

#[tokio::test]
async fn p8_an_outcome_from_the_journal_verifies_after_a_restart() {
    let mut faulty = None;
    let bench = Bench::over(|twin| {
        let wrapped = super::faulty::Faulty::over(twin);
        faulty = Some(Arc::clone(&wrapped));
        wrapped
    });
    let faulty = faulty.unwrap();
    let guard = bench.ready();
    let (id, hash) = held(&guard, BODY).await;
    faulty.next("settle", super::faulty::Fault::Refuse, 1);
    let alice = approver("alice");
    guard.confirm(&alice, &id, Some(hash), None, None, Some(Duration::ZERO)).await;
    guard.drain(Duration::from_secs(5)).await;
    assert_eq!(bench.journal.waiting_len(), 1);
    let next = bench.guard(2, Arc::new(NoPause));
    next.sweep().await.unwrap();
    assert_eq!((status(&bench, &id).await.as_str(), bench.journal.waiting_len()), ("succeeded", 0));
    believed(&next, &id, hash, "from the journal").await;
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn an_outcome_outlives_a_rotation_of_the_keys_as_its_draft_does() {
    let key = |byte: u8| Key::new([byte; 32]);
    let root = |id: &str, byte: u8| (KeyId::new(id).unwrap(), key(byte));
    let identity_key = key(9);
    let set = |roots: &[(KeyId, Key)]| KeySet::derive(roots, &identity_key).unwrap();
    let mut bench = Bench::new().plays([CLOSES]);
    bench.keys = set(&[root("k1", 1)]);
    let before = bench.ready();
    let (done, done_hash) = held(&before, BODY).await;
    confirm(&before, &done, done_hash).await;
    let (open, open_hash) = held(&before, r#"{"a":2}"#).await;
    bench.keys = set(&[root("k2", 2), root("k1", 1)]);
    let rotated = bench.ready();
    assert_eq!(json(&confirm(&rotated, &open, open_hash).await)["status"], "succeeded");
    assert_eq!(rotated.resolve(&approver("ada"), &done, Verdict::Failed, "gone".to_owned()).await.status, 200);
    for (id, hash) in [(&done, done_hash), (&open, open_hash)] {
        believed(&rotated, id, hash, "rotated").await;
    }
    bench.keys = set(&[root("k2", 2)]);
    noticed(&bench, &bench.ready(), &done, done_hash, "the key was taken away").await;
}

#[tokio::test]
async fn p6_of_a_failure_without_a_reason_nothing_is_called_not_executed() {
    let bench = Bench::new().plays([Script::NotReached]);
    let guard = bench.ready();
    let (id, hash) = held(&guard, BODY).await;
    confirm(&guard, &id, hash).await;
    let mut stored = bench.store.get(&id).await.unwrap().unwrap();
    let mut told = |failure: Option<Failure>| {
        stored.row.failure = failure;
        let body = json(&guard.without_response(&stored).answer());
        (body["code"].as_str().unwrap().to_owned(), body["executed"].clone())
    };
    for failure in Failure::ALL {
        let code = match failure {
            Failure::NotSent => "UPSTREAM_NOT_REACHED",
            Failure::ReleaseTooLate => "RELEASE_TOO_LATE",
            Failure::Refused | Failure::Resolved => "DRAFT_ALREADY_DECIDED",
            Failure::Integrity => "DRAFT_INTEGRITY_FAILED",
        };
        assert_eq!(told(Some(failure)).0, code, "{failure:?}");
    }
    assert_eq!(told(None), ("DRAFT_INTEGRITY_FAILED".to_owned(), "unknown".into()));
}
