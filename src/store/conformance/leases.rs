//! Marks, leases, epochs and take-overs.

use std::time::Duration;

use crate::draft::outcome::Failure;
use crate::draft::state::{Phase, State, Verdict};
use crate::store::contract::{Mark, Renewed, Settled, StoreError, TakenOver};

use super::harness::{Harness, LEASE, TTL, WINDOW, node};

/// Promise 4: one claim, one mark.
pub async fn p4_the_mark_is_given_once(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    assert_eq!(h.store().mark_sending(&draft.row.id, 0, h.step(), WINDOW).await, Ok(Mark::Superseded), "not claimed");
    assert_eq!(h.store().mark_sending(&draft.row.id, 1, h.step(), WINDOW).await, Ok(Mark::Superseded), "not claimed");
    let sent = h.sending(&draft).await.row;
    assert_eq!((sent.state, sent.attempts, sent.sent_at), (State::Running(Phase::Sending), 1, Some(h.store().now())));
    assert_eq!(h.store().mark_sending(&draft.row.id, 1, h.step(), WINDOW).await, Ok(Mark::Superseded));
    h.settle(&draft, Verdict::Succeeded, None).await;
    assert_eq!(h.store().mark_sending(&draft.row.id, 1, h.step(), WINDOW).await, Ok(Mark::Superseded));
}

/// The lease must have more than the send window left; a renewal makes the mark possible.
pub async fn a_lease_must_outlast_the_send_window(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let (claim, _) = h.claim(&draft).await;
    let id = claim.id();
    h.advance(LEASE - WINDOW).await;
    assert_eq!(h.store().mark_sending(id, 1, h.step(), WINDOW).await, Ok(Mark::LeaseTooShort));
    h.advance(WINDOW * 2).await;
    assert_eq!(h.store().mark_sending(id, 1, h.step(), WINDOW).await, Ok(Mark::LeaseTooShort), "and when it is over");
    assert_eq!(h.kinds(id).await, ["held", "confirmed"]);
    assert!(matches!(h.store().renew(id, 1, h.step(), LEASE).await, Ok(Renewed::Until(_))));
    h.advance(LEASE - WINDOW - Duration::from_millis(1)).await;
    assert!(matches!(h.store().mark_sending(id, 1, h.step(), WINDOW).await, Ok(Mark::Marked { .. })));
}

/// An earlier epoch can neither renew, mark nor settle.
pub async fn epochs_fence(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let old = h.claimed(&draft).await;
    let id = &draft.row.id;
    h.advance(LEASE).await;
    let taken = h.store().take_over(id, h.step(), &node("n2"), LEASE, &[]).await.expect("answers");
    let TakenOver::Claimed(claim, new) = taken else { panic!("{taken:?}") };
    assert_eq!(
        (claim.epoch(), claim.claimed_at()),
        (2, old.row.claimed_at.expect("claimed")),
        "late release counts from the first claim"
    );
    for epoch in [0, 1, 3] {
        assert_eq!(h.store().renew(id, epoch, h.step(), LEASE).await, Ok(Renewed::Superseded));
        assert_eq!(h.store().mark_sending(id, epoch, h.step(), WINDOW).await, Ok(Mark::Superseded));
        let mut end = h.end(&old, Verdict::Failed, Some(Failure::NotSent));
        end.epoch = epoch;
        assert!(matches!(h.store().settle(end).await, Ok(Settled::Superseded(_))));
    }
    assert_eq!(h.get(id).await, *new, "nothing changed");
    assert!(matches!(h.store().mark_sending(id, 2, h.step(), WINDOW).await, Ok(Mark::Marked { .. })));
    h.settle(&draft, Verdict::Succeeded, None).await;
}

/// A draft is taken over when its lease is over, or at once when its holder is known to be dead.
pub async fn take_over_waits_for_the_lease(h: &Harness) {
    let pending = h.held(&h.call("p")).await;
    let done = h.succeeded(&h.call("d")).await;
    let draft = h.held(&h.call("a")).await;
    h.claimed(&draft).await;
    let take =
        async |id, dead: &[_]| h.store().take_over(id, h.step(), &node("n2"), LEASE, dead).await.expect("answers");
    h.advance(LEASE - Duration::from_millis(1)).await;
    assert!(matches!(take(&draft.row.id, &[]).await, TakenOver::NotDue));
    assert!(matches!(take(&draft.row.id, &[node("n0")]).await, TakenOver::NotDue), "another process is dead");
    assert!(matches!(take(&draft.row.id, &[node("n0"), node("n1")]).await, TakenOver::Claimed(..)));
    assert!(matches!(take(&draft.row.id, &[node("n1")]).await, TakenOver::NotDue), "n2 holds it now");
    h.advance(LEASE).await;
    assert!(matches!(take(&draft.row.id, &[]).await, TakenOver::Claimed(..)));
    h.advance(TTL).await;
    assert!(matches!(take(&done.row.id, &[node("n1")]).await, TakenOver::NotDue));
    assert!(matches!(take(&pending.row.id, &[node("n1")]).await, TakenOver::NotDue));
    assert_eq!(h.get(&pending.row.id).await.row.state, State::Expired, "any step expires what it meets past its time");
}

/// Promise 5: what was marked is never sent by the one who takes over.
pub async fn p5_a_marked_draft_is_taken_over_as_verifying(h: &Harness) {
    let draft = h.sending(&h.held(&h.call("a")).await).await;
    let id = &draft.row.id;
    h.advance(LEASE).await;
    let taken = h.store().take_over(id, h.step(), &node("n2"), LEASE, &[]).await.expect("answers");
    let TakenOver::Verifying { epoch: 2, stored } = taken else { panic!("{taken:?}") };
    assert_eq!(stored.row.state, State::Verifying);
    assert_eq!(stored.row.evidence.last().map(|piece| piece.source.as_str()), Some("take_over"));
    assert_eq!(h.store().mark_sending(id, 2, h.step(), WINDOW).await, Ok(Mark::Superseded));
    h.advance(LEASE).await;
    let taken = h.store().take_over(id, h.step(), &node("n3"), LEASE, &[]).await;
    assert!(matches!(taken, Ok(TakenOver::Verifying { epoch: 3, .. })));
    assert_eq!(h.kinds(id).await, ["held", "confirmed", "sending", "verifying"]);
    assert!(
        matches!(h.store().settle(h.end(&draft, Verdict::Succeeded, None)).await, Ok(Settled::Superseded(_))),
        "epoch 1"
    );
    h.settle(&draft, Verdict::Unverifiable, None).await;
}

/// Before the mark nothing can have happened: only a failure can be settled.
pub async fn before_the_mark_only_failure_can_be_settled(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let claimed = h.claimed(&draft).await;
    for verdict in [Verdict::Succeeded, Verdict::Unverifiable] {
        assert!(matches!(h.store().settle(h.end(&claimed, verdict, None)).await, Ok(Settled::Superseded(_))));
    }
    let end = h.settle(&draft, Verdict::Failed, Some(Failure::NotSent)).await.row;
    assert_eq!(
        (end.state, end.failure, end.lease_until, end.lease_node),
        (State::Failed, Some(Failure::NotSent), None, None)
    );
    assert_eq!(end.ended_at, Some(h.store().now()));
}

/// Promise 6: an end without a receipt that says the same is not written.
pub async fn p6_no_receipt_no_success(h: &Harness) {
    let draft = h.sending(&h.held(&h.call("a")).await).await;
    let mut none = h.end(&draft, Verdict::Succeeded, None);
    none.receipt = None;
    let mut other = h.end(&draft, Verdict::Succeeded, None);
    other.verdict = Verdict::Failed;
    other.failure = Some(Failure::Refused);
    let mut failed = h.end(&draft, Verdict::Failed, Some(Failure::Refused));
    failed.verdict = Verdict::Succeeded;
    let mut foreign = h.end(&draft, Verdict::Succeeded, None);
    foreign.receipt = h.end(&h.held(&h.call("b")).await, Verdict::Succeeded, None).receipt;
    for end in [none, other, failed, foreign] {
        assert!(matches!(h.store().settle(end.clone()).await, Err(StoreError::Unavailable(_))), "{end:?}");
        assert!(matches!(h.store().late_answer(end.clone()).await, Err(StoreError::Unavailable(_))), "{end:?}");
        assert!(matches!(h.store().resolve(end, &h.person("ada")).await, Err(StoreError::Unavailable(_))));
    }
    assert_eq!(h.get(&draft.row.id).await, draft);
}
