//! Collection, limits, deletion, repetition, lists, sweeps, the clock.

use std::time::Duration;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, Tenant, ToolName};
use crate::base::time::Timestamp;
use crate::draft::outcome::Failure;
use crate::draft::record::Risk;
use crate::draft::state::{State, Status, Verdict};
use crate::store::contract::{Ended, Filter, Held, Hold, PAGE_BYTES_MAX, StoreError, page_is_full};

use super::harness::{Harness, LEASE, MAC, TTL, node};

/// The first collection counts; what has no result yet cannot be collected.
pub async fn collected_once(h: &Harness) {
    let pending = h.held(&h.call("p")).await;
    let sending = h.sending(&h.held(&h.call("s")).await).await;
    let unverifiable = h.unverifiable(&h.call("u")).await;
    for draft in [&pending, &sending, &unverifiable] {
        h.store().collect(&draft.row.id).await.expect("answers");
        assert_eq!(h.get(&draft.row.id).await, *draft, "{:?}", draft.row.state);
    }
    let done = h.succeeded(&h.call("a")).await;
    let first = h.store().now();
    for _ in 0..3 {
        h.store().collect(&done.row.id).await.expect("answers");
        h.advance(Duration::from_secs(1)).await;
    }
    assert_eq!(h.get(&done.row.id).await.row.collected_at, Some(first));
    assert_eq!(h.kinds(&done.row.id).await.iter().filter(|kind| *kind == "collected").count(), 1);
}

/// The first opening of a pending draft's card counts.
pub async fn seen_once(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let first = h.store().now();
    for _ in 0..3 {
        h.store().note_seen(&draft.row.id).await.expect("answers");
        h.advance(Duration::from_secs(1)).await;
    }
    assert_eq!(h.get(&draft.row.id).await.row.seen_at, Some(first));
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "seen"]);
    let done = h.succeeded(&h.call("b")).await;
    h.store().note_seen(&done.row.id).await.expect("answers");
    assert_eq!(h.get(&done.row.id).await, done);
    h.advance(TTL).await;
    h.store().note_seen(&draft.row.id).await.expect("answers");
    assert_eq!(h.get(&draft.row.id).await.row.state, State::Expired);
}

/// Joins, replays and refusals cost nothing; ended and overdue drafts free their place.
pub async fn limits_count_new_drafts_only(h: &Harness) {
    let call = |args: &str| {
        let mut call = h.call(args);
        (call.limits.pending_max, call.limits.holds_max) = (2, 4);
        call
    };
    let one = h.held(&call("1")).await;
    let two = h.held(&call("2")).await;
    for _ in 0..5 {
        h.joined(&call("1")).await;
    }
    assert_eq!(h.ask(&call("3")).await, Held::TooManyPending);
    h.claimed(&one).await;
    let three = h.held(&call("3")).await;
    h.store().withdraw(&two.row.id, h.step(), "agent", MAC).await.expect("answers");
    h.store().withdraw(&three.row.id, h.step(), "agent", MAC).await.expect("answers");
    h.held(&call("4")).await;
    assert_eq!(h.ask(&call("5")).await, Held::RateLimited, "four in the window");
    assert_eq!(h.kinds(&one.row.id).await, ["held", "confirmed"]);
    h.advance(Duration::from_secs(59)).await;
    assert_eq!(h.ask(&call("5")).await, Held::RateLimited);
    h.advance(Duration::from_secs(1)).await;
    h.held(&call("5")).await;
    assert_eq!(h.ask(&call("6")).await, Held::TooManyPending);
    h.advance(TTL).await;
    h.held(&call("6")).await;
    h.held(&call("7")).await;
    assert_eq!(h.ask(&call("8")).await, Held::TooManyPending, "overdue drafts no longer count, new ones do");
}

/// One owner's drafts cost another owner nothing.
pub async fn limits_are_per_owner(h: &Harness) {
    let mut call = h.call("a");
    (call.limits.pending_max, call.limits.holds_max) = (1, 1);
    h.held(&call).await;
    h.held(&call.clone().from("default", "otto", "agent")).await;
    h.held(&call.clone().from("second", "olga", "agent")).await;
    let mut other = h.call("b").from("default", "olga", "other agent");
    other.limits = call.limits;
    assert_eq!(h.ask(&other).await, Held::TooManyPending, "the same owner by another agent");
}

/// Only what has ended, is resolved and past retention is deleted.
pub async fn what_is_not_resolved_is_never_deleted(h: &Harness) {
    let open = [
        h.sending(&h.held(&h.call("s")).await).await,
        h.verifying(&h.call("v")).await,
        h.unverifiable(&h.call("u")).await,
    ];
    let pending = h.held(&h.call("p")).await;
    let done = h.succeeded(&h.call("a").key("k")).await;
    let ended_at = done.row.ended_at.expect("ended");
    h.advance(Duration::from_secs(10)).await;
    let now = h.store().now();
    for draft in open.iter().chain([&pending]) {
        assert_eq!(h.store().delete(&draft.row.id, now).await, Ok(false), "{:?}", draft.row.state);
        assert_eq!(h.get(&draft.row.id).await, *draft);
    }
    assert_eq!(h.store().delete(&done.row.id, ended_at).await, Ok(false), "it did not end before that");
    assert_eq!(h.store().delete(&done.row.id, now).await, Ok(true));
    assert_eq!(h.store().delete(&done.row.id, now).await, Ok(false));
    assert_eq!(h.store().get(&done.row.id).await, Ok(None));
    assert_eq!(h.kinds(&done.row.id).await.last().map(String::as_str), Some("deleted"));
    let resolved = h.end(&open[2], Verdict::Failed, Some(Failure::Resolved));
    h.store().resolve(resolved, &h.person("ada")).await.expect("answers");
    assert_eq!(h.store().delete(&open[2].row.id, now).await, Ok(false), "its time counts from the resolution");
    h.advance(Duration::from_millis(1)).await;
    assert_eq!(h.store().delete(&open[2].row.id, h.store().now()).await, Ok(true));
}

/// A repetition: only of what was provably not sent, and once.
pub async fn again_once_and_only_if_not_sent(h: &Harness) {
    let refused = h.refused(&h.call("r")).await;
    let rejected = h.rejected(&h.call("n"), h.person("bob")).await;
    let unverifiable = h.unverifiable(&h.call("u")).await;
    let pending = h.held(&h.call("p")).await;
    for (args, draft) in [("r", refused), ("n", rejected), ("u", unverifiable), ("p", pending)] {
        let answer = h.store().again(&draft.row.id, h.hold_of(&h.call(args))).await.expect("answers");
        assert!(matches!(answer, Err(Ended::NotPending(_))), "{args}: {answer:?}");
        assert_eq!(h.get(&draft.row.id).await, draft, "{args}");
    }
    let old = h.not_sent(&h.call("a").key("k")).await;
    let mut limited = h.call("a").key("k");
    limited.limits.pending_max = 0;
    assert!(matches!(h.store().again(&old.row.id, h.hold_of(&limited)).await, Ok(Ok(Held::TooManyPending))));
    let answer = h.store().again(&old.row.id, h.hold_of(&h.call("a").key("k"))).await.expect("answers");
    let Ok(Held::New(new)) = answer else { panic!("{answer:?}") };
    assert_eq!((new.row.state, new.row.caller_key), (State::Pending, old.row.caller_key));
    assert_eq!(h.get(&old.row.id).await.row.caller_key, None, "the key has moved");
    let answer = h.store().again(&old.row.id, h.hold_of(&h.call("a").key("k"))).await.expect("answers");
    assert!(matches!(answer, Err(Ended::NotPending(_))), "{answer:?}");
    let foreign = h.hold_of(&h.call("a").from("default", "otto", "agent"));
    let other = h.not_sent(&h.call("o")).await;
    assert!(matches!(h.store().again(&other.row.id, foreign).await, Err(StoreError::Unavailable(_))));
}

/// A repetition is a call like any other, with one draft more that must be there and must be its own;
/// whatever it is answered, the draft that was not sent stays as it is.
pub async fn again_answers_as_a_call_does(h: &Harness) {
    let old = h.not_sent(&h.call("a")).await;
    let keyed = h.held(&h.call("b").key("k")).await;
    let ask = |change: &dyn Fn(&mut Hold)| {
        let mut ask = h.hold_of(&h.call("a"));
        change(&mut ask);
        ask
    };
    let mut unknown = old.row.id.clone();
    while unknown.partition() != old.row.id.partition() || unknown == old.row.id {
        unknown = ask(&|_| {}).id;
    }
    let again = async |id: &DraftId, ask| h.store().again(id, ask).await;
    assert!(matches!(again(&unknown, ask(&|_| {})).await, Ok(Err(Ended::NotFound))));
    let other_call = h.hold_of(&h.call("c"));
    assert!(matches!(again(&old.row.id, other_call).await, Err(StoreError::Unavailable(_))));
    let other_agent = h.hold_of(&h.call("a").from("default", "olga", "another"));
    assert!(matches!(again(&old.row.id, other_agent).await, Err(StoreError::Unavailable(_))));
    let other_draft = ask(&|ask| ask.id = keyed.row.id.clone());
    assert!(matches!(again(&old.row.id, other_draft).await, Err(StoreError::Unavailable(_))));
    let late = ask(&|ask| ask.created_at = ask.created_at + Duration::from_secs(60));
    assert!(matches!(again(&old.row.id, late).await, Ok(Ok(Held::Clock(_)))));
    let limited = ask(&|ask| ask.limits.holds_max = 0);
    assert!(matches!(again(&old.row.id, limited).await, Ok(Ok(Held::RateLimited))));
    let with_key = h.hold_of(&h.call("a").key("k"));
    let answer = again(&old.row.id, with_key).await;
    assert!(matches!(&answer, Ok(Ok(Held::KeyReused(id))) if *id == keyed.row.id), "{answer:?}");
    let refused = h.rejected(&h.call("a"), h.person("ada")).await;
    let answer = again(&old.row.id, ask(&|_| {})).await;
    assert!(matches!(&answer, Ok(Ok(Held::RejectedBefore(no))) if no.row.id == refused.row.id), "{answer:?}");
    assert_eq!(h.get(&old.row.id).await, old);
    assert_eq!(h.get(&keyed.row.id).await, keyed);
}

/// If an equal call is held by now, it answers the repetition: no second card for one intent.
pub async fn again_joins_what_is_live(h: &Harness) {
    let old = h.not_sent(&h.call("a")).await;
    let live = h.held(&h.call("a")).await;
    let answer = h.store().again(&old.row.id, h.hold_of(&h.call("a"))).await.expect("answers");
    assert!(matches!(&answer, Ok(Held::Joined(stored)) if stored.row.id == live.row.id), "{answer:?}");
}

/// Pages come newest first, go on where the last one ended, and hold only what is asked for.
pub async fn pages_and_filters(h: &Harness) {
    let mut ids: Vec<DraftId> = Vec::new();
    for n in 0..25 {
        let mut call = h.call(&format!("list {n}"));
        if n % 5 == 0 {
            call = call.from("second", "otto", "other").tool("delete", Risk::High);
        }
        ids.insert(0, h.held(&call).await.row.id);
        h.advance(Duration::from_millis(3)).await;
    }
    let list = async |filter: Filter| -> Vec<DraftId> {
        h.store().list(&filter).await.expect("answers").into_iter().map(|stored| stored.row.id).collect()
    };
    let mut paged = Vec::new();
    loop {
        let page = list(Filter { limit: 7, before: paged.last().cloned(), ..Filter::default() }).await;
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 7);
        paged.extend(page);
    }
    assert_eq!(paged, ids);
    assert_eq!(list(Filter { limit: 0, ..Filter::default() }).await.len(), 1, "a limit is at least 1");
    let stranger = h.call("").from("second", "otto", "other");
    let by_five: Vec<DraftId> = ids.iter().rev().step_by(5).rev().cloned().collect();
    let all = Filter { limit: 200, ..Filter::default() };
    for filter in [
        Filter { tenant: Tenant::new("second").ok(), ..all.clone() },
        Filter { tool: ToolName::new("delete").ok(), ..all.clone() },
        Filter { owner_hash: Some(stranger.owner_hash()), ..all.clone() },
        Filter { initiator: crate::base::id::Initiator::new("other").ok(), ..all.clone() },
        Filter { risk: Some(Risk::High), ..all.clone() },
    ] {
        assert_eq!(list(filter.clone()).await, by_five, "{filter:?}");
    }
    assert_eq!(list(Filter { risk: Some(Risk::Medium), ..all.clone() }).await, []);
    h.claimed(&h.get(&ids[3]).await).await;
    h.store().withdraw(&ids[9], h.step(), "agent", MAC).await.expect("answers");
    let two = vec![Status::Running, Status::Withdrawn];
    assert_eq!(list(Filter { statuses: two, ..all.clone() }).await, [ids[3].clone(), ids[9].clone()]);
    assert_eq!(list(Filter { statuses: vec![Status::Pending], ..all.clone() }).await.len(), 23);
    let done = h.succeeded(&h.call("with a response")).await;
    let listed = h.store().list(&all).await.expect("answers");
    assert_eq!((&listed[0].row, &listed[0].sealed, &listed[0].response), (&done.row, &done.sealed, &None));
}

/// A page of long bodies ends early and says so; nothing is left out by going on.
pub async fn long_bodies_make_short_pages(h: &Harness) {
    let mut ids: Vec<DraftId> = Vec::new();
    for n in 0..7 {
        let mut ask = h.hold_of(&h.call(&format!("long {n}")));
        ask.sealed = vec![n; PAGE_BYTES_MAX / 3];
        let Ok(Held::New(held)) = h.store().hold(ask).await else { panic!("a new draft") };
        ids.insert(0, held.row.id);
        h.advance(Duration::from_millis(3)).await;
    }
    for statuses in [Vec::new(), vec![Status::Pending, Status::Expired]] {
        let (mut paged, mut sizes): (Vec<DraftId>, Vec<usize>) = Default::default();
        loop {
            let before = paged.last().cloned();
            let filter = Filter { limit: 200, before, statuses: statuses.clone(), ..Filter::default() };
            let page = h.store().list(&filter).await.expect("answers");
            let bytes: usize = page.iter().map(|stored| stored.sealed.len()).sum();
            assert!(bytes <= PAGE_BYTES_MAX + PAGE_BYTES_MAX / 3, "{bytes}");
            sizes.push(page.len());
            let full = page_is_full(&page, filter.limit);
            paged.extend(page.into_iter().map(|stored| stored.row.id));
            if !full {
                break;
            }
        }
        assert_eq!((&paged, sizes), (&ids, vec![4, 3]));
    }
}

/// A sweep finds what is overdue, orphaned and past retention, and nothing else.
pub async fn sweeps_find_their_work(h: &Harness) {
    let done = h.succeeded(&h.call("done")).await;
    h.unverifiable(&h.call("unverifiable")).await;
    let overdue = h.held(&h.call("overdue")).await;
    h.advance(TTL - Duration::from_secs(10)).await;
    let pending = h.held(&h.call("pending")).await;
    let sending = h.sending(&h.held(&h.call("sending")).await).await;
    let ended_before = h.store().now();
    let due = h.store().due(ended_before, &[], 100).await.expect("answers");
    assert_eq!((due.expired.len(), due.orphaned.len()), (0, 0));
    assert_eq!(due.deletable.as_slice(), std::slice::from_ref(&done.row.id));
    assert_eq!(
        h.store().due(ended_before, &[node("n1")], 100).await.expect("answers").orphaned.as_slice(),
        std::slice::from_ref(&sending.row.id)
    );
    h.advance(LEASE).await;
    let due = h.store().due(ended_before, &[], 100).await.expect("answers");
    assert_eq!((due.expired, due.orphaned), (vec![overdue.row.id], vec![sending.row.id]));
    h.advance(TTL).await;
    let due = h.store().due(ended_before, &[], 1).await.expect("answers");
    assert_eq!(due.expired.len(), 1, "at most as many as asked for");
    let due = h.store().due(ended_before, &[], 100).await.expect("answers");
    assert!(due.expired.contains(&pending.row.id));
}

/// Every status is counted, also those in which nothing stands.
pub async fn counts_name_every_status(h: &Harness) {
    h.held(&h.call("a")).await;
    h.held(&h.call("b")).await;
    h.succeeded(&h.call("c")).await;
    let counts = h.store().counts().await.expect("answers");
    assert_eq!(counts.iter().map(|(status, _)| *status).collect::<Vec<_>>(), Status::ALL);
    for (status, n) in counts {
        let expected = match status {
            Status::Pending => 2,
            Status::Succeeded => 1,
            _ => 0,
        };
        assert_eq!(n, expected, "{status}");
    }
}

/// The first guard's keys stay the store's.
pub async fn keys_are_those_of_the_first(h: &Harness) {
    let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
    assert_eq!(h.store().same_keys(&one).await, Ok(true));
    assert_eq!(h.store().same_keys(&other).await, Ok(false));
    assert_eq!(h.store().same_keys(&one).await, Ok(true));
}

/// A hold whose time is more than a second ahead, or further behind than a turn may take, or whose
/// life would be over, is told the store's time, and nothing is written.
pub async fn a_wrong_clock_writes_nothing(h: &Harness) {
    let call = h.call("a");
    let overdue = h.held(&call).await;
    h.advance(TTL).await;
    let now = h.store().now();
    let at = |off_ms: i64| Timestamp::from_millis(now.as_millis() + off_ms);
    for (off_ms, life_ms) in
        [(1_001, 900_000), (3_600_000, 900_000), (-30_001, 900_000), (-3_600_000, 900_000), (-20_000, 20_000)]
    {
        let mut ask = h.hold_of(&call);
        (ask.created_at, ask.expires_at) = (at(off_ms), at(off_ms + life_ms));
        assert_eq!(h.store().hold(ask).await, Ok(Held::Clock(now)), "{off_ms}");
        assert_eq!(h.kinds(&overdue.row.id).await, ["held"]);
    }
    for off_ms in [1_000, -1_001, -30_000] {
        let mut ask = h.hold_of(&h.call(&format!("{off_ms}")));
        (ask.created_at, ask.expires_at) = (at(off_ms), at(off_ms + 900_000));
        let Ok(Held::New(stored)) = h.store().hold(ask).await else { panic!("{off_ms}") };
        assert_eq!((stored.row.created_at, stored.row.expires_at), (at(off_ms), at(off_ms + 900_000)));
    }
}

/// Drafts that end before they begin, live for ever, or take another draft's id are refused.
pub async fn nonsense_is_refused(h: &Harness) {
    let call = h.call("a");
    let mut backwards = h.hold_of(&call);
    backwards.expires_at = backwards.created_at - Duration::from_millis(1);
    let mut for_ever = h.hold_of(&call);
    for_ever.expires_at = for_ever.created_at + Duration::from_secs(400 * 86_400);
    for ask in [backwards, for_ever] {
        assert!(matches!(h.store().hold(ask).await, Err(StoreError::Unavailable(_))));
    }
    let draft = h.held(&call).await;
    let mut taken = h.hold_of(&h.call("b"));
    taken.id = draft.row.id.clone();
    assert!(matches!(h.store().hold(taken).await, Err(StoreError::Unavailable(_))));
    assert_eq!(h.get(&draft.row.id).await, draft);
    assert_eq!(h.events().await.len(), 1);
}

/// The probe of readiness answers and leaves no event.
pub async fn check_answers(h: &Harness) {
    for _ in 0..3 {
        h.store().check().await.expect("answers");
    }
    assert!(h.events().await.is_empty());
}
