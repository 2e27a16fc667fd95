//! The outbox: one event per transition, in order, complete; and the hints.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::draft::state::Verdict;
use crate::store::contract::Ended;

use super::harness::{Harness, LEASE, TTL, node};

/// A whole life in events: one per transition, numbered without a gap, with what they tell of.
pub async fn one_event_per_transition_in_order(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let other = h.held(&h.call("b")).await;
    h.joined(&h.call("a").session("s2")).await;
    h.store().note_seen(&draft.row.id).await.expect("answers");
    h.sending(&draft).await;
    h.advance(LEASE).await;
    h.store().take_over(&draft.row.id, h.step(), &node("n2"), LEASE, &[]).await.expect("answers");
    h.settle(&draft, Verdict::Unverifiable, None).await;
    h.store().resolve(h.end(&draft, Verdict::Succeeded, None), &h.person("ada")).await.expect("answers");
    h.store().collect(&draft.row.id).await.expect("answers");
    h.advance(TTL).await;
    assert!(matches!(h.store().expire(&other.row.id).await, Ok(Ended::Done(_))));
    h.store().delete(&draft.row.id, h.store().now()).await.expect("answers");

    let told: Vec<(String, String, u64)> = h
        .events()
        .await
        .into_iter()
        .filter(|event| event.draft_id == draft.row.id)
        .map(|event| (event.kind, event.status, event.epoch))
        .collect();
    let told: Vec<(&str, &str, u64)> =
        told.iter().map(|(kind, status, epoch)| (kind.as_str(), status.as_str(), *epoch)).collect();
    assert_eq!(
        told,
        [
            ("draft.held", "pending", 0),
            ("draft.joined", "pending", 0),
            ("draft.seen", "pending", 0),
            ("draft.confirmed", "running", 1),
            ("draft.sending", "running", 1),
            ("draft.verifying", "verifying", 2),
            ("draft.unverifiable", "unverifiable", 2),
            ("draft.resolved", "succeeded", 2),
            ("draft.collected", "succeeded", 2),
            ("draft.deleted", "succeeded", 2),
        ]
    );
    let events = h.events().await;
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
    for event in events {
        let row = if event.draft_id == draft.row.id { &draft.row } else { &other.row };
        assert_eq!(
            (event.tenant, event.owner_hash, event.tool, event.args_hash),
            (row.tenant.clone(), row.owner_hash, row.tool.clone(), row.args_hash)
        );
    }
}

/// Every committed event is hinted at; a receiver that reads after a hint sees the change.
pub async fn hints_follow_commits(h: &Harness) {
    let mut hints = h.store().hints();
    let mut next =
        async || tokio::time::timeout(Duration::from_secs(10), hints.recv()).await.expect("a hint in time").ok();
    let draft = h.held(&h.call("a")).await;
    assert_eq!(next().await, Some(draft.row.id.clone()));
    h.claimed(&draft).await;
    assert_eq!(next().await, Some(draft.row.id.clone()));
    assert_eq!(h.get(&draft.row.id).await.row.epoch, 1);
    h.joined(&h.call("a")).await;
    assert!(hints.try_recv().is_err(), "nothing changed, nothing is hinted at");
}

/// Events are read in pages; old ones are dropped by the steps that add new ones, never the
/// newest, and numbers are never used again.
pub async fn pages(h: &Harness) {
    for n in 0..10 {
        h.held(&h.call(&format!("{n}"))).await;
    }
    let page = h.store().events(3, 4).await.expect("answers");
    assert_eq!(page.iter().map(|event| event.seq).collect::<Vec<_>>(), [4, 5, 6, 7]);
    assert!(h.store().events(10, 4).await.expect("answers").is_empty());
    assert!(h.store().events(u64::MAX, 4).await.expect("answers").is_empty());
    h.advance(Duration::from_secs(40 * 86_400)).await;
    for n in 10..16 {
        h.held(&h.call(&format!("{n}"))).await;
    }
    let left: Vec<u64> = h.events().await.into_iter().map(|event| event.seq).collect();
    assert_eq!(left, (11..=16).collect::<Vec<_>>());
    assert_eq!(left.iter().collect::<BTreeSet<_>>().len(), left.len());
}
