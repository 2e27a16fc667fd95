//! What a new draft relies on: the ends of the equal drafts before it. A forged "not sent" must lead
//! to no second effect, whenever it is written and whichever process looks (promise 3).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::bench::{At, Bench, CLOSES, answers, approver, ask, confirm, held, identity, json, status};
use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::base::secret::Key;
use crate::draft::decision::Refused;
use crate::draft::keys::{KeyId, KeySet};
use crate::draft::outcome::Failure;
use crate::draft::state::{State, Status};
use crate::guard::Guard;
use crate::guard::core::fell_with;
use crate::guard::pause::NoPause;
use crate::policy::model::PolicySet;
use crate::store::contract::Filter;
use crate::store::row::Row;
use crate::upstream::fake::Script;

const BODY: &str = r#"{"a":1}"#;

/// Makes a draft that was carried out or whose end is unknown look as if it had ended without a send.
pub(super) fn unsent(row: &mut Row, state: State) {
    (row.state, row.ended_at) = (state, row.ended_at.or(Some(row.created_at)));
    (row.outcome, row.receipt, row.has_response) = (None, None, false);
    row.failure = (state == State::Failed).then_some(Failure::NotSent);
    let refused = |reason: &str| Some(Refused { by: None, reason: reason.to_owned(), at: row.created_at, mac: None });
    row.refused = match state {
        State::Withdrawn => refused("withdrawn by bot"),
        State::Rejected => refused("POLICY_CHANGED"),
        State::Expired => refused("EXPIRED"),
        _ => None,
    };
}

#[tokio::test]
async fn p3_an_equal_call_after_a_forged_end_makes_no_second_effect() {
    for how in ["succeeded", "unverifiable"] {
        for state in [State::Withdrawn, State::Rejected, State::Expired, State::Failed] {
            for key in [None, Some("k1")] {
                let play = if how == "succeeded" { answers(201, r#"{"id":1}"#) } else { CLOSES };
                let bench = Bench::new().plays([play]);
                let guard = bench.ready();
                let first = json(&ask(&guard, identity("u1"), BODY, key).await);
                let id: DraftId = first["draft_id"].as_str().unwrap().parse().unwrap();
                let hash: Digest = first["args_hash"].as_str().unwrap().parse().unwrap();
                confirm(&guard, &id, hash).await;
                let effects = bench.effects();
                bench.twin.alter(&id, |row| unsent(row, state));
                let again = json(&ask(&guard, identity("u1"), BODY, key).await);
                assert_eq!(again["code"], "DRAFT_INTEGRITY_FAILED", "{how} {state:?} {key:?}");
                assert!(pending(&bench).await.is_empty(), "{how} {state:?} {key:?}: nothing is left to confirm");
                assert_eq!(bench.effects(), effects);
            }
        }
    }
}

/// The drafts that somebody could confirm.
async fn pending(bench: &Bench) -> Vec<(DraftId, Digest)> {
    let filter = Filter { statuses: vec![Status::Pending], limit: 10, ..Filter::default() };
    let found = bench.store.list(&filter).await.unwrap();
    found.into_iter().map(|stored| (stored.row.id.clone(), stored.row.args_hash)).collect()
}

/// Confirming `id` is refused because of `earlier`, sends nothing, and takes the draft off the queue.
async fn falls_with(bench: &Bench, guard: &Arc<Guard>, (id, hash): (&DraftId, Digest), earlier: &DraftId, what: &str) {
    let effects = bench.effects();
    let answer = json(&confirm(guard, id, hash).await);
    assert_eq!((&answer["code"], &answer["draft_id"]), (&"DRAFT_INTEGRITY_FAILED".into(), &earlier.to_string().into()));
    let again = json(&confirm(guard, id, hash).await);
    assert_eq!((&again["code"], &again["decided_by"]), (&"DRAFT_ALREADY_DECIDED".into(), &"guard".into()), "{what}");
    assert_eq!(again["reason"], format!("EARLIER_DRAFT_INTEGRITY {earlier}"), "{what}");
    assert_eq!((status(bench, id).await.as_str(), bench.effects()), ("rejected", effects), "{what}");
}

#[tokio::test]
async fn p3_repeating_a_refused_call_does_not_put_the_forged_end_out_of_sight() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (first, hash) = held(&guard, BODY).await;
    confirm(&guard, &first, hash).await;
    bench.twin.alter(&first, |row| unsent(row, State::Withdrawn));
    // More often than the store looks back, twice over.
    for n in 0..40 {
        let refused = json(&ask(&guard, identity("u1"), BODY, None).await);
        assert_eq!(refused["code"], "DRAFT_INTEGRITY_FAILED", "call {n}: {refused}");
        assert_eq!(refused["draft_id"], first.to_string(), "call {n}");
    }
    assert_eq!((pending(&bench).await, bench.effects()), (Vec::new(), 1));
}

#[tokio::test]
async fn p3_a_hold_that_was_cut_off_before_it_looked_back_is_not_confirmed() {
    for how in ["succeeded", "unverifiable"] {
        for state in [State::Withdrawn, State::Rejected, State::Expired, State::Failed] {
            let play = if how == "succeeded" { answers(201, r#"{"id":1}"#) } else { CLOSES };
            let bench = Bench::new().plays([play]);
            let guard = bench.ready();
            let (first, hash) = held(&guard, BODY).await;
            confirm(&guard, &first, hash).await;
            bench.twin.alter(&first, |row| unsent(row, state));
            // The new draft is stored, and the process dies before it has read the earlier one.
            let reached = Arc::new(Notify::new());
            let dies = At {
                point: "after_hold_before_answer",
                then: Box::new(|| {}),
                hang: true,
                reached: Arc::clone(&reached),
            };
            let dying = bench.guard(2, Arc::new(dies));
            let holding = tokio::spawn(async move { ask(&dying, identity("u1"), BODY, None).await });
            reached.notified().await;
            holding.abort();
            let left = pending(&bench).await;
            assert_eq!(left.len(), 1, "{how} {state:?}: it was stored");
            let next = bench.guard(3, Arc::new(NoPause));
            falls_with(&bench, &next, (&left[0].0, left[0].1), &first, &format!("{how} {state:?}")).await;
            assert_eq!(bench.effects(), 1, "{how} {state:?}");
        }
    }
}

/// The honest ends after which an equal call is a new draft.
const UNSENT: [&str; 4] = ["not_sent", "rejected", "withdrawn", "expired"];

/// A draft that ended without a send, and an equal one that was held after it.
async fn one_after_another(how: &str) -> (Bench, Arc<Guard>, DraftId, DraftId, Digest) {
    let bench = Bench::new();
    let guard = bench.ready();
    let (first, hash) = held(&guard, BODY).await;
    match how {
        "not_sent" => {
            bench.upstream.push(Script::NotReached);
            confirm(&guard, &first, hash).await;
        }
        "rejected" => {
            let in_force = bench.policies.load_full();
            bench.policies.store(Arc::new(PolicySet::open("api", "http://elsewhere.test").unwrap()));
            confirm(&guard, &first, hash).await;
            bench.policies.store(in_force);
        }
        "withdrawn" => drop(guard.withdraw(&identity("u1"), &first).await.unwrap()),
        _ => {
            bench.clock.advance(Duration::from_secs(3600));
            guard.sweep().await.unwrap();
        }
    }
    let (second, _) = held(&guard, BODY).await;
    assert_ne!(first, second, "{how}");
    (bench, guard, first, second, hash)
}

#[tokio::test]
async fn a_draft_after_an_honest_end_is_confirmed() {
    for how in UNSENT {
        let (bench, guard, _, second, hash) = one_after_another(how).await;
        let answer = json(&confirm(&guard, &second, hash).await);
        assert_eq!((&answer["status"], bench.effects()), (&"succeeded".into(), 1), "{how}: {answer}");
    }
}

#[tokio::test]
async fn p3_an_end_that_is_altered_after_the_next_hold_takes_the_next_draft_with_it() {
    type Edit = (&'static str, fn(&mut Row));
    let edits: [Edit; 3] = [
        ("carried out", |row| (row.state, row.refused) = (State::Succeeded, None)),
        ("in doubt", |row| (row.state, row.refused) = (State::Unverifiable, None)),
        ("another reason", |row| match &mut row.refused {
            Some(refused) => refused.reason.push('!'),
            None => row.failure = Some(Failure::ReleaseTooLate),
        }),
    ];
    for how in UNSENT {
        for (what, edit) in edits {
            let (bench, guard, first, second, hash) = one_after_another(how).await;
            bench.twin.alter(&first, edit);
            falls_with(&bench, &guard, (&second, hash), &first, &format!("{how}: {what}")).await;
            assert_eq!(bench.effects(), 0, "{how}: {what}");
        }
    }
}

#[tokio::test]
async fn p3_a_draft_that_is_offered_again_falls_with_the_one_that_it_repeats() {
    let bench = Bench::new().plays([Script::NotReached]);
    let guard = bench.ready();
    let (first, hash) = held(&guard, BODY).await;
    confirm(&guard, &first, hash).await;
    let again = guard.again(&approver("alice"), &first).await;
    assert_eq!(again.status, 201);
    let second: DraftId = json(&again)["draft_id"].as_str().unwrap().parse().unwrap();
    bench.twin.alter(&first, |row| row.state = State::Unverifiable);
    falls_with(&bench, &guard, (&second, hash), &first, "again").await;
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn the_earlier_draft_is_read_back_from_exactly_what_the_guard_writes() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, _) = held(&guard, BODY).await;
    let mut row = bench.store.get(&id).await.unwrap().unwrap().row;
    let by = Some(guard.guard_decider(&id));
    let mut read = |reason: String| {
        row.refused = Some(Refused { by: by.clone(), reason, at: row.created_at, mac: None });
        fell_with(&row)
    };
    assert_eq!(read(format!("EARLIER_DRAFT_INTEGRITY {id}")), Some(id.clone()));
    for other in [
        format!("EARLIER_DRAFT_INTEGRITY{id}"),
        format!("EARLIER_DRAFT_INTEGRITY  {id}"),
        format!("EARLIER_DRAFT_INTEGRITY\t{id}"),
        format!("EARLIER_DRAFT_INTEGRITY {id} "),
        format!(" EARLIER_DRAFT_INTEGRITY {id}"),
        "EARLIER_DRAFT_INTEGRITY ".to_owned(),
    ] {
        assert_eq!(read(other.clone()), None, "{other:?}");
    }
}

#[tokio::test]
async fn a_key_taken_away_too_early_refuses_equal_calls_until_it_is_back() {
    let root = |id: &str, byte: u8| (KeyId::new(id).unwrap(), Key::new([byte; 32]));
    let set = |roots: &[(KeyId, Key)]| KeySet::derive(roots, &Key::new([9; 32])).unwrap();
    let mut bench = Bench::new().plays([Script::NotReached]);
    bench.keys = set(&[root("k1", 1)]);
    let before = bench.ready();
    let (first, hash) = held(&before, BODY).await;
    confirm(&before, &first, hash).await;
    bench.keys = set(&[root("k2", 2)]);
    let without = bench.ready();
    for _ in 0..2 {
        let refused = json(&ask(&without, identity("u1"), BODY, None).await);
        assert_eq!(refused["code"], "DRAFT_INTEGRITY_FAILED", "{refused}");
        assert_eq!(refused["draft_id"], first.to_string(), "it names the draft whose key is gone");
        assert!(pending(&bench).await.is_empty());
    }
    // Time does not heal it: what does not verify is not deleted, however old it is.
    bench.clock.advance(Duration::from_secs(400 * 24 * 3600));
    without.sweep().await.unwrap();
    assert_eq!(json(&ask(&without, identity("u1"), BODY, None).await)["code"], "DRAFT_INTEGRITY_FAILED");
    // A call with a key of its own is an intent of its own, and others are not touched.
    let keyed = ask(&without, identity("u1"), BODY, Some("anew")).await;
    assert_eq!((keyed.status, ask(&without, identity("u1"), r#"{"a":2}"#, None).await.status), (202, 202));
    let keyed: DraftId = json(&keyed)["draft_id"].as_str().unwrap().parse().unwrap();
    without.withdraw(&identity("u1"), &keyed).await.unwrap();
    // The key is back: what was refused in between does not stand in the way.
    bench.keys = set(&[root("k2", 2), root("k1", 1)]);
    let back = bench.ready();
    let (second, hash) = held(&back, BODY).await;
    back.sweep().await.unwrap();
    assert!(bench.store.get(&first).await.unwrap().is_none(), "it verifies again, and its time is over");
    assert_eq!(confirm(&back, &second, hash).await.status, 200);
    assert_eq!(bench.effects(), 1);
}
