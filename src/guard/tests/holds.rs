//! What an agent is told when it asks, and asks again.

use super::bench::{Bench, ask, confirm, held, identity, json};
use crate::base::id::{Initiator, Owner};
use std::time::Duration;

#[tokio::test]
async fn p1_a_write_is_held_and_nothing_is_sent() {
    let bench = Bench::new();
    let guard = bench.ready();
    let answer = ask(&guard, identity("u1"), r#"{"title":"x"}"#, None).await;
    let body = json(&answer);
    assert_eq!(answer.status, 202);
    assert_eq!(body["result"], "WAIT_CONFIRM");
    assert_eq!(body["executed"], false);
    assert_eq!(body["status"], "pending");
    assert_eq!(body["may_claim_success"], false);
    assert!(answer.headers.iter().any(|(name, value)| name == "x-should-retry" && value == "false"));
    assert!(!answer.headers.iter().any(|(name, _)| name == "Countersign-Confirmation-Token"));
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn the_same_call_joins_and_another_is_another_draft() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (first, _) = held(&guard, r#"{"a":1,"b":{"d":4,"c":3}}"#).await;
    let (same, _) = held(&guard, "{\"b\":{\"c\":3,\"d\":4},\n \"a\":1}").await;
    let (other, _) = held(&guard, r#"{"a":2}"#).await;
    assert_eq!(first, same);
    assert_ne!(first, other);
}

#[tokio::test]
async fn the_result_is_replayed_once_it_is_there() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    assert_eq!(confirm(&guard, &id, hash).await.status, 200);
    let replay = ask(&guard, identity("u1"), r#"{"a":1}"#, None).await;
    assert_eq!(replay.status, 201);
    assert_eq!(&replay.body[..], br#"{"id":1}"#);
    for (name, value) in [("Countersign-Replayed", "true"), ("Countersign-Status", "succeeded")] {
        assert!(replay.headers.iter().any(|header| header.0 == name && header.1 == value), "{name}");
    }
    assert_eq!(bench.effects(), 1);
    // Long after it was collected the same call is a new wish, and says so.
    bench.clock.advance(Duration::from_secs(3600));
    let new = json(&ask(&guard, identity("u1"), r#"{"a":1}"#, None).await);
    assert_eq!(new["status"], "pending");
    assert_eq!(new["possible_duplicate_of"], id.to_string());
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn one_key_with_other_args_is_refused_and_changes_nothing() {
    let bench = Bench::new();
    let guard = bench.ready();
    let first = json(&ask(&guard, identity("u1"), r#"{"amount":1}"#, Some("k")).await);
    let second = ask(&guard, identity("u1"), r#"{"amount":2}"#, Some("k")).await;
    assert_eq!((second.status, json(&second)["code"].clone()), (422, "IDEMPOTENCY_KEY_REUSED".into()));
    let again = json(&ask(&guard, identity("u1"), r#"{"amount":1}"#, Some("k")).await);
    assert_eq!(again["draft_id"], first["draft_id"]);
    // The keys of two owners never meet.
    let other = ask(&guard, identity("u2"), r#"{"amount":2}"#, Some("k")).await;
    assert_eq!(other.status, 202);
}

#[tokio::test]
async fn another_owners_or_agents_draft_tells_nothing() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, _) = held(&guard, r#"{"a":1}"#).await;
    let mut other_agent = identity("u1");
    other_agent.initiator = Initiator::new("another").unwrap();
    let mut other_owner = identity("u1");
    other_owner.owner = Owner::new("u2").unwrap();
    for who in [other_agent, other_owner] {
        let status = guard.agent_status(&who, &id, true).await.unwrap_err();
        assert_eq!(status.code.as_str(), "DRAFT_NOT_YOURS");
        assert!(status.draft_id.is_none() && status.members.is_empty());
        assert_eq!(guard.agent_result(&who, &id, true).await.status, 403);
        assert_eq!(guard.withdraw(&who, &id).await.unwrap_err().status(), 403);
        assert!(guard.agent_pending(&who).await.unwrap().is_empty());
    }
    assert_eq!(guard.agent_pending(&identity("u1")).await.unwrap().len(), 1);
    assert_eq!(super::bench::status(&bench, &id).await, "pending");
}

#[tokio::test]
async fn a_withdrawn_call_can_not_be_confirmed_and_may_be_asked_again() {
    let bench = Bench::new();
    let guard = bench.ready();
    let (id, hash) = held(&guard, r#"{"a":1}"#).await;
    let view = guard.withdraw(&identity("u1"), &id).await.unwrap();
    assert_eq!(view.status.as_str(), "withdrawn");
    let late = confirm(&guard, &id, hash).await;
    assert_eq!((late.status, json(&late)["status"].clone()), (409, "withdrawn".into()));
    let (new, _) = held(&guard, r#"{"a":1}"#).await;
    assert_ne!(new, id);
    assert_eq!(bench.effects(), 0);
}
