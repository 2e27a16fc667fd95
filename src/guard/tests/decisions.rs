//! Who may decide, on what, and what each caller is told.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, approver, ask, confirm, held, identity, json, status};
use crate::base::digest::Digest;
use crate::base::id::{NodeId, Owner, Principal, SessionId, StepId, Tenant};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::draft::binding;
use crate::draft::decision::{Channel, Decider, DeciderKind, Verb, Vote};
use crate::draft::record::Risk;
use crate::guard::verify;
use crate::guard::who::{AppCaller, Pattern, Rights};
use crate::policy::model::PolicySet;
use crate::store::contract::{Decide, Decided};
use crate::store::cursor::Cursor;
use crate::store::row::Stored;

#[tokio::test]
async fn p3_sixty_four_confirms_one_send_one_receipt() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let calls = (0..64).map(|n| {
        let (guard, id) = (Arc::clone(&guard), id.clone());
        tokio::spawn(async move {
            guard.confirm(&approver(&format!("person-{n}")), &id, Some(hash), None, None, None).await
        })
    });
    let mut receipts = std::collections::BTreeSet::new();
    let mut first_hand = 0;
    for call in calls.collect::<Vec<_>>() {
        let answer = call.await.unwrap();
        assert_eq!(answer.status, 200);
        let body = json(&answer);
        assert_eq!(body["status"], "succeeded");
        first_hand += u32::from(body["replayed"] == false);
        receipts.insert(body["receipt"].to_string());
    }
    assert_eq!(bench.effects(), 1);
    assert_eq!(first_hand, 1);
    assert_eq!(receipts.len(), 1);
}

#[tokio::test]
async fn p2_a_confirm_names_what_was_seen() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let (_, other) = held(&guard, r#"{"a":2}"#).await;
    for (seen, code) in [
        (None, "ARGS_HASH_REQUIRED"),
        (Some(other), "ARGS_HASH_MISMATCH"),
        (Some(Digest::of(b"")), "ARGS_HASH_MISMATCH"),
    ] {
        let answer = guard.confirm(&approver("alice"), &id, seen, None, None, None).await;
        assert_eq!(json(&answer)["code"], code);
        assert_eq!(status(&bench, &id).await, "pending");
    }
    assert_eq!(bench.effects(), 0);
    assert_eq!(confirm(&guard, &id, hash).await.status, 200);
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn an_approver_without_the_right_changes_nothing() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let rights = |change: fn(&mut Rights)| {
        let mut rights = Rights::all();
        change(&mut rights);
        Some(rights)
    };
    let cases = [
        None,
        rights(|rights| rights.max_risk = Risk::Low),
        rights(|rights| rights.services = vec![Pattern::new("other")]),
        rights(|rights| rights.capabilities = vec![Pattern::new("refund.*")]),
        rights(|rights| rights.owners = vec![Pattern::new("u2")]),
    ];
    for rights in cases {
        let mut who = approver("bob");
        who.rights = rights;
        let answer = guard.confirm(&who, &id, Some(hash), None, None, None).await;
        assert_eq!((answer.status, json(&answer)["code"].clone()), (403, "APPROVER_NOT_ALLOWED".into()));
        assert_eq!(guard.reject(&who, &id, "no".to_owned(), None).await.status, 403);
        assert!(json(&answer).get("preview").is_none() && json(&answer).get("draft_id").is_none());
    }
    let mut foreign = approver("carol");
    foreign.tenant = Tenant::new("other").unwrap();
    assert_eq!(guard.confirm(&foreign, &id, Some(hash), None, None, None).await.status, 404);
    assert!(guard.list(&foreign, crate::store::contract::Filter::default()).await.unwrap().drafts.is_empty());
    assert_eq!(status(&bench, &id).await, "pending");
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn an_expired_draft_is_gone_for_confirm_and_reject_alike() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    bench.clock.advance(Duration::from_secs(3600));
    let answer = confirm(&guard, &id, hash).await;
    assert_eq!((answer.status, json(&answer)["code"].clone()), (410, "DRAFT_EXPIRED".into()));
    assert_eq!(json(&answer)["recreate"], true);
    assert_eq!(guard.reject(&approver("alice"), &id, "no".to_owned(), None).await.status, 410);
    assert_eq!(status(&bench, &id).await, "expired");
    let events = bench.store.events(&Cursor::default(), 100).await.unwrap().events;
    assert_eq!(events.iter().filter(|event| event.kind == "draft.expired").count(), 1);
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn a_rejection_stands_and_answers_the_agent() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let first = guard.reject(&approver("alice"), &id, "too expensive".to_owned(), None).await;
    assert_eq!((first.status, json(&first)["status"].clone()), (200, "rejected".into()));
    let late = confirm(&guard, &id, hash).await;
    let body = json(&late);
    assert_eq!((late.status, body["code"].clone()), (409, "DRAFT_ALREADY_DECIDED".into()));
    assert_eq!((body["status"].clone(), body["decided_by"].clone()), ("rejected".into(), "alice".into()));
    let asked = ask(&guard, identity("u1"), r#"{"a":1}"#, None).await;
    assert_eq!((asked.status, json(&asked)["reason"].clone()), (403, "too expensive".into()));
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn one_decision_key_means_one_decision() {
    let bench = Bench::new();
    let guard = bench.ready();
    let alice = approver("alice");
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let key = || Some("d1".to_owned());
    assert_eq!(guard.confirm(&alice, &id, Some(hash), None, key(), None).await.status, 200);
    let repeat = guard.confirm(&alice, &id, Some(hash), None, key(), None).await;
    assert_eq!((repeat.status, json(&repeat)["replayed"].clone()), (200, true.into()));
    let other = guard.reject(&alice, &id, "no".to_owned(), key()).await;
    assert_eq!((other.status, json(&other)["code"].clone()), (422, "IDEMPOTENCY_KEY_REUSED".into()));
    assert_eq!(guard.reject(&alice, &id, "no".to_owned(), None).await.status, 409);
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn a_policy_that_does_not_allow_it_any_more_rejects_the_draft() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    bench.policies.store(Arc::new(PolicySet::open("api", "http://elsewhere.test").unwrap()));
    let answer = confirm(&guard, &id, hash).await;
    let body = json(&answer);
    assert_eq!((answer.status, body["status"].clone()), (409, "rejected".into()));
    assert_eq!((body["decided_by"].clone(), body["reason"].clone()), ("guard".into(), "POLICY_CHANGED".into()));
    assert!(body["detail"].as_str().unwrap().contains("The guard rejected the draft"), "this confirm did it: {body}");
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn a_token_works_for_its_owner_and_session_only_and_replays() {
    let bench = Bench::new();
    let guard = bench.ready();
    let mut who = identity("u1");
    who.deliver_token = true;
    let answer = ask(&guard, who, r#"{"a":1}"#, None).await;
    let token = answer.headers.iter().find(|(name, _)| name == "Countersign-Confirmation-Token").unwrap().1.clone();
    let token = Secret::new(token);
    let app = |owner: &str, session: &str| AppCaller {
        app: Principal::new("web").unwrap(),
        tenant: Tenant::new("default").unwrap(),
        owner: Owner::new(owner).unwrap(),
        session: SessionId::new(session).unwrap(),
    };
    for foreign in [app("u2", "s1"), app("u1", "s2")] {
        let answer = guard.confirm_by_token(&foreign, &token, None, None).await;
        assert_eq!((answer.status, json(&answer)["code"].clone()), (403, "DRAFT_NOT_YOURS".into()));
        assert_eq!(guard.reject_by_token(&foreign, &token, "x".to_owned(), None).await.status, 403);
    }
    assert_eq!(guard.confirm_by_token(&app("u1", "s1"), &Secret::new("ct_0_x"), None, None).await.status, 404);
    assert_eq!(bench.effects(), 0);
    let first = guard.confirm_by_token(&app("u1", "s1"), &token, None, None).await;
    assert_eq!((first.status, json(&first)["replayed"].clone()), (200, false.into()));
    let second = guard.confirm_by_token(&app("u1", "s1"), &token, None, None).await;
    assert_eq!((second.status, json(&second)["replayed"].clone()), (200, true.into()));
    assert_eq!(json(&first)["receipt"], json(&second)["receipt"]);
    assert_eq!(bench.effects(), 1);
}

/// What the store holds of a draft, with another vote than the one that confirmed it.
fn with_vote(stored: &Stored, vote: Vote) -> Stored {
    let mut stored = stored.clone();
    stored.row.votes = vec![vote];
    stored
}

#[tokio::test]
async fn p2_a_vote_counts_for_its_claim_and_before_the_end_only() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    assert_eq!(confirm(&guard, &id, hash).await.status, 200);
    let stored = bench.store.get(&id).await.unwrap().unwrap();
    let opened = verify::open(&stored, &bench.keys).unwrap();
    let given = stored.row.votes[0].clone();
    let counts = |epoch: u64, at: Timestamp| {
        // Each is signed as the guard signs, so that only what it says can refuse it.
        let decider = Decider { at, ..given.decider.clone() };
        let mac = binding::vote_mac(&bench.keys, &opened, epoch, Verb::Confirm, &decider, None).unwrap();
        let stored = with_vote(&stored, Vote { decider, epoch, comment: None, mac });
        verify::votes(&stored, &opened, &bench.keys, 1).is_ok()
    };
    let (at, end) = (given.decider.at, opened.draft.expires_at);
    assert!(counts(1, at) && counts(1, end - Duration::from_millis(1)));
    assert!(!counts(2, at) && !counts(0, at), "a take-over raises the epoch and needs no new vote");
    // The store judged the end by its own clock, when it claimed; this node's may have been ahead.
    let slack = Duration::from_secs(60);
    assert!(counts(1, end + slack - Duration::from_millis(1)));
    assert!(!counts(1, end + slack), "from the end on nobody decides");
    let other = Vote { mac: Digest::of(b"not signed"), ..given.clone() };
    assert!(verify::votes(&with_vote(&stored, other), &opened, &bench.keys, 1).is_err());
    assert!(verify::votes(&stored, &opened, &bench.keys, 2).is_err(), "one person is not two");
}

#[tokio::test]
async fn p2_a_claim_by_a_vote_that_nobody_signed_sends_nothing() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let stored = bench.store.get(&id).await.unwrap().unwrap();
    let forged = Vote {
        decider: Decider {
            kind: DeciderKind::Approver,
            id: Principal::new("alice").unwrap(),
            auth_method: "bearer".to_owned(),
            channel: Channel::Api,
            at: stored.row.created_at,
        },
        epoch: 1,
        comment: None,
        mac: Digest::of(b"not signed"),
    };
    let decide = Decide {
        id: id.clone(),
        step: StepId::from_bytes([7; 16]),
        sealed_digest: stored.row.sealed_digest,
        vote: forged,
        quorum: 1,
        decision_key: None,
        node: NodeId::new("node.1").unwrap(),
        lease: Duration::from_secs(30),
    };
    let Decided::Claimed(claim, claimed) = bench.store.decide(decide).await.unwrap() else { panic!("a claim") };
    guard.spawn_release(claim, *claimed);
    guard.drain(Duration::from_secs(20)).await;
    assert_eq!(bench.effects(), 0);
    let told = json(&confirm(&guard, &id, hash).await);
    let unsent = told["status"] == "failed" && told["executed"] == false;
    assert!(unsent || told["code"] == "DRAFT_INTEGRITY_FAILED", "{told}");
    assert_eq!(bench.effects(), 0);
}
