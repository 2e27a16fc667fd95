//! The same step id again: the same answer, nothing twice, no second event; and nothing at all
//! once the epoch has moved on.

use std::time::Duration;

use crate::draft::outcome::Failure;
use crate::draft::state::{Status, Verdict};
use crate::store::contract::{Decided, Ended, Held, Mark, Renewed, Settled, TakenOver};

use super::harness::{Harness, LEASE, MAC, WINDOW, node};

/// A hold repeated makes no second draft and is not counted twice.
pub async fn hold(h: &Harness) {
    let mut call = h.call("a").key("k");
    call.limits.pending_max = 1;
    call.limits.holds_max = 1;
    let ask = h.hold_of(&call);
    let first = h.store().hold(ask.clone()).await.expect("answers");
    assert!(matches!(first, Held::New(_)));
    h.advance(Duration::from_secs(5)).await;
    assert_eq!(
        h.store().hold(ask.clone()).await.expect("answers"),
        first,
        "also when its time is no longer the store's"
    );
    let Held::New(draft) = first else { panic!("not new") };
    assert_eq!(h.kinds(&draft.row.id).await, ["held"]);
    h.claimed(&draft).await;
    let late = h.store().hold(ask).await.expect("answers");
    assert!(matches!(late, Held::Joined(stored) if stored.row.state.status() == Status::Running));
}

/// A confirm repeated has the same claim, and the claim still gives one mark.
pub async fn decide(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let ask = h.yes(&draft, "ada");
    let Ok(Decided::Claimed(first, one)) = h.store().decide(ask.clone()).await else { panic!("not claimed") };
    let Ok(Decided::Claimed(second, two)) = h.store().decide(ask.clone()).await else { panic!("not the same answer") };
    assert_eq!((first.epoch(), first.claimed_at()), (second.epoch(), second.claimed_at()));
    assert_eq!(one, two);
    let mark = h.store().mark_sending(first.id(), first.epoch(), h.step(), WINDOW).await;
    assert!(matches!(mark, Ok(Mark::Marked { .. })));
    let mark = h.store().mark_sending(second.id(), second.epoch(), h.step(), WINDOW).await;
    assert_eq!(mark, Ok(Mark::Superseded));
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed", "sending"]);
}

/// A confirm repeated after a take-over has nothing any more.
pub async fn decide_after_a_take_over(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let ask = h.yes(&draft, "ada");
    assert!(matches!(h.store().decide(ask.clone()).await, Ok(Decided::Claimed(..))));
    h.advance(LEASE).await;
    let taken = h.store().take_over(&draft.row.id, h.step(), &node("n2"), LEASE, &[]).await;
    assert!(matches!(taken, Ok(TakenOver::Claimed(..))));
    let late = h.store().decide(ask).await;
    assert!(matches!(&late, Ok(Decided::NotPending(stored)) if stored.row.epoch == 2), "{late:?}");
}

/// A vote repeated is counted once and has the same answer.
pub async fn vote(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let mut ask = h.yes(&draft, "ada");
    ask.quorum = 2;
    for _ in 0..3 {
        let answer = h.store().decide(ask.clone()).await;
        assert!(matches!(answer, Ok(Decided::Voted { have: 1, need: 2, .. })), "{answer:?}");
    }
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "voted"]);
}

/// A no or a withdrawal repeated is done once.
pub async fn reject_and_withdraw(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let ask = h.no(&draft, h.person("bob"));
    let first = h.store().reject(ask.clone()).await.expect("answers");
    assert!(matches!(first, Ended::Done(_)));
    h.advance(Duration::from_secs(1)).await;
    assert_eq!(h.store().reject(ask).await, Ok(first));
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "rejected"]);

    let draft = h.held(&h.call("b")).await;
    let step = h.step();
    let first = h.store().withdraw(&draft.row.id, step, "agent", MAC).await.expect("answers");
    assert!(matches!(first, Ended::Done(_)));
    assert_eq!(h.store().withdraw(&draft.row.id, step, "agent", MAC).await, Ok(first));
    assert!(matches!(h.store().withdraw(&draft.row.id, h.step(), "agent", MAC).await, Ok(Ended::NotPending(_))));
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "withdrawn"]);
}

/// A renewal and a mark repeated have the first answer, also later.
pub async fn renew_and_mark(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let (claim, _) = h.claim(&draft).await;
    h.advance(Duration::from_secs(10)).await;
    let step = h.step();
    let until = h.store().now() + LEASE;
    assert_eq!(h.store().renew(claim.id(), 1, step, LEASE).await, Ok(Renewed::Until(until)));
    h.advance(Duration::from_secs(5)).await;
    assert_eq!(h.store().renew(claim.id(), 1, step, LEASE).await, Ok(Renewed::Until(until)));
    assert_eq!(h.get(claim.id()).await.row.lease_until, Some(until));
    assert_eq!(
        h.store().renew(claim.id(), 1, h.step(), Duration::ZERO).await,
        Ok(Renewed::Until(until)),
        "never shorter"
    );

    let step = h.step();
    let sent_at = h.store().now();
    let marked = Mark::Marked { attempt: 1, sent_at };
    assert_eq!(h.store().mark_sending(claim.id(), 1, step, WINDOW).await, Ok(marked));
    h.advance(Duration::from_secs(1)).await;
    assert_eq!(h.store().mark_sending(claim.id(), 1, step, WINDOW).await, Ok(marked));
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed", "sending"], "a renewal is no event");
}

/// A settle, a late answer and a resolution repeated end the draft once.
pub async fn settle_and_resolve(h: &Harness) {
    let draft = h.sending(&h.held(&h.call("a")).await).await;
    let ask = h.end(&draft, Verdict::Unverifiable, None);
    let first = h.store().settle(ask.clone()).await.expect("answers");
    assert!(matches!(first, Settled::Done(_)));
    assert_eq!(h.store().settle(ask.clone()).await, Ok(first));

    let resolution = h.end(&draft, Verdict::Failed, Some(Failure::Resolved));
    let by = h.person("ada");
    let first = h.store().resolve(resolution.clone(), &by).await.expect("answers");
    assert!(matches!(first, Settled::Done(_)));
    assert_eq!(h.store().resolve(resolution, &by).await, Ok(first));

    let late = h.end(&draft, Verdict::Succeeded, None);
    let first = h.store().late_answer(late.clone()).await.expect("answers");
    assert!(matches!(first, Settled::Superseded(_)));
    assert_eq!(h.store().late_answer(late).await, Ok(first));
    assert_eq!(h.get(&draft.row.id).await.row.evidence.len(), 3);
    let kinds = h.kinds(&draft.row.id).await;
    assert_eq!(kinds, ["held", "confirmed", "sending", "unverifiable", "resolved", "late_answer"]);
}

/// A take-over repeated has the same epoch; after the next one, nothing.
pub async fn take_over(h: &Harness) {
    let claimed = h.held(&h.call("c")).await;
    h.claimed(&claimed).await;
    let sending = h.sending(&h.held(&h.call("s")).await).await;
    h.advance(LEASE).await;
    for (id, marked) in [(claimed.row.id, false), (sending.row.id, true)] {
        let step = h.step();
        for _ in 0..2 {
            match h.store().take_over(&id, step, &node("n2"), LEASE, &[]).await.expect("answers") {
                TakenOver::Claimed(claim, stored) if !marked => assert_eq!((claim.epoch(), stored.row.epoch), (2, 2)),
                TakenOver::Verifying { epoch: 2, .. } if marked => {}
                other => panic!("{other:?}"),
            }
        }
        let next = h.store().take_over(&id, h.step(), &node("n3"), LEASE, &[node("n2")]).await;
        assert!(matches!(next, Ok(TakenOver::Claimed(..) | TakenOver::Verifying { epoch: 3, .. })), "{next:?}");
        let late = h.store().take_over(&id, step, &node("n2"), LEASE, &[]).await;
        assert!(matches!(late, Ok(TakenOver::NotDue)), "{late:?}");
        let verifying = h.kinds(&id).await.iter().filter(|kind| *kind == "verifying").count();
        assert_eq!(verifying, usize::from(marked));
    }
}

/// A repetition asked for twice makes one new draft.
pub async fn again(h: &Harness) {
    let old = h.not_sent(&h.call("a").key("k")).await;
    let ask = h.hold_of(&h.call("a").key("k"));
    let first = h.store().again(&old.row.id, ask.clone()).await.expect("answers");
    assert!(matches!(first, Ok(Held::New(_))), "{first:?}");
    assert_eq!(h.store().again(&old.row.id, ask.clone()).await, Ok(first));
    assert_eq!(h.kinds(&ask.id).await, ["held"]);
}
