//! The outbox: one event per transition, in order, complete; and the hints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::base::id::DraftId;
use crate::draft::state::Verdict;
use crate::store::contract::{Ended, SWEEP_MAX};
use crate::store::cursor::{Cursor, Page};
use crate::store::row::Event;

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
    for sequence in sequences(h, &events).await {
        let numbers: Vec<u64> = sequence.iter().map(|event| event.seq).collect();
        assert_eq!(numbers, (1..=sequence.len() as u64).collect::<Vec<_>>());
        assert!(sequence.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }
    for event in events {
        let row = if event.draft_id == draft.row.id { &draft.row } else { &other.row };
        assert_eq!(
            (event.tenant, event.owner_hash, event.tool, event.args_hash),
            (row.tenant.clone(), row.owner_hash, row.tool.clone(), row.args_hash)
        );
    }
}

/// Events by the sequence that they are numbered in, each in the order given: one sequence, or one
/// per partition.
async fn sequences<'e>(h: &Harness, events: &'e [Event]) -> Vec<Vec<&'e Event>> {
    let parted = is_parted(h).await;
    let mut by_sequence: BTreeMap<usize, Vec<&Event>> = BTreeMap::new();
    for event in events {
        let sequence = if parted { event.draft_id.partition().index() } else { 0 };
        by_sequence.entry(sequence).or_default().push(event);
    }
    by_sequence.into_values().collect()
}

async fn is_parted(h: &Harness) -> bool {
    matches!(h.page(&Cursor::default(), 1).await.from, Cursor::Each(_))
}

/// Every committed event is hinted at; a receiver that reads after a hint sees the change.
pub async fn hints_follow_commits(h: &Harness) {
    let mut hints = h.store().hints();
    // A store on a server listens from a moment after it was opened; what is hinted at before is lost.
    let mut listens = false;
    for n in 0..100 {
        h.held(&h.call(&format!("before {n}"))).await;
        listens = tokio::time::timeout(Duration::from_millis(100), hints.recv()).await.is_ok();
        if listens {
            break;
        }
    }
    assert!(listens, "a hint in time");
    let mut hinted = async |id: &DraftId| {
        let told = async { while hints.recv().await.expect("the store is there") != *id {} };
        tokio::time::timeout(Duration::from_secs(10), told).await.expect("a hint in time");
    };
    let draft = h.held(&h.call("a")).await;
    hinted(&draft.row.id).await;
    h.claimed(&draft).await;
    hinted(&draft.row.id).await;
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
    let numbers = |page: &Page| page.events.iter().map(|event| event.seq).collect::<Vec<_>>();
    // One owner's drafts are in one partition.
    let first = h.page(&Cursor::default(), 3).await;
    let second = h.page(&first.next(), 4).await;
    assert_eq!((numbers(&first), numbers(&second)), (vec![1, 2, 3], vec![4, 5, 6, 7]));
    assert_eq!(second.from, first.next());
    let end = h.page(&second.next(), 4).await.next();
    let far = if is_parted(h).await { Cursor::Each([u64::MAX; 16]) } else { Cursor::One(u64::MAX) };
    for nothing_behind in [end, far] {
        let page = h.page(&nothing_behind, 4).await;
        assert_eq!((page.next(), page.events), (nothing_behind, Vec::new()), "it stays where it stands");
    }
    h.advance(Duration::from_secs(40 * 86_400)).await;
    for n in 10..16 {
        h.held(&h.call(&format!("{n}"))).await;
    }
    let left: Vec<u64> = h.events().await.into_iter().map(|event| event.seq).collect();
    assert_eq!(left, (11..=16).collect::<Vec<_>>());
    assert_eq!(left.iter().collect::<BTreeSet<_>>().len(), left.len());
}

/// Owners whose drafts are in several partitions.
const OWNERS: [&str; 8] = ["olga", "ben", "cleo", "dora", "emil", "finn", "gita", "hugo"];

/// Whoever reads on from the cursor of any event, in pages of any size, gets what stands behind it,
/// each event once and in the order of its sequence.
pub async fn every_cursor_leads_to_the_rest(h: &Harness) {
    for n in 0..3 {
        for owner in OWNERS {
            h.held(&h.call(&format!("{n}")).from("default", owner, "agent")).await;
        }
        h.advance(Duration::from_millis(1)).await;
    }
    let all = h.page(&Cursor::default(), SWEEP_MAX).await;
    assert_eq!(all.events.len(), 3 * OWNERS.len());
    let places = |events: &[Event]| -> BTreeSet<(DraftId, u64)> {
        events.iter().map(|event| (event.draft_id.clone(), event.seq)).collect()
    };
    let mut rest = places(&all.events);
    assert_eq!(rest.len(), all.events.len(), "each once");
    let begins = [(all.from.clone(), None)];
    let steps = all.with_cursors().map(|(cursor, event)| (cursor, Some(event)));
    for (cursor, read) in begins.into_iter().chain(steps) {
        if let Some(event) = read {
            rest.remove(&(event.draft_id.clone(), event.seq));
        }
        for limit in [1, 2, 7, SWEEP_MAX] {
            let behind = h.events_after(cursor.clone(), limit).await;
            assert_eq!((behind.len(), places(&behind)), (rest.len(), rest.clone()), "after {cursor} by {limit}");
            for sequence in sequences(h, &behind).await {
                assert!(sequence.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq), "after {cursor} by {limit}");
            }
        }
    }
    // What comes later is behind the end of today, whoever it is of.
    let end = all.next();
    h.held(&h.call("later").from("default", OWNERS[3], "agent")).await;
    assert_eq!(h.events_after(end, 1).await.len(), 1);
}

/// A cursor of the other kind of store begins at the oldest event, and its page is one of this
/// store's.
pub async fn another_stores_cursor_begins_anew(h: &Harness) {
    for owner in OWNERS {
        h.held(&h.call("a").from("default", owner, "agent")).await;
    }
    let others = if is_parted(h).await { Cursor::One(5) } else { Cursor::Each([5; 16]) };
    assert_eq!(h.page(&others, 3).await, h.page(&Cursor::default(), 3).await);
    assert_eq!(h.events_after(others, 3).await.len(), OWNERS.len());
}
