//! Many at once: exactly one wins, and everybody else sees the same draft.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::base::id::DraftId;
use crate::draft::state::{Status, Verdict};
use crate::store::contract::{Decided, Ended, Held, Settled, TakenOver};

use super::harness::{Harness, LEASE, MAC, TTL, node};

/// Promise 3: 64 confirms at once, one claim; the others see the claimed draft.
pub async fn p3_sixty_four_confirms_one_claim(h: &Harness) {
    let draft = h.held(&h.call("race")).await;
    let barrier = Arc::new(Barrier::new(64));
    let mut tasks = JoinSet::new();
    for n in 0..64 {
        let (store, ask, barrier) = (h.shared(), h.yes(&draft, &format!("person {n}")), barrier.clone());
        tasks.spawn(async move {
            barrier.wait().await;
            store.decide(ask).await.expect("answers")
        });
    }
    let (mut claimed, mut others) = (Vec::new(), Vec::new());
    for answer in tasks.join_all().await {
        match answer {
            Decided::Claimed(claim, stored) => {
                assert_eq!(claim.epoch(), 1);
                claimed.push(stored.row);
            }
            Decided::NotPending(stored) => others.push(stored.row),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((claimed.len(), others.len()), (1, 63));
    assert!(others.iter().all(|row| *row == claimed[0]), "everybody sees the same row");
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed"]);
}

/// Fifty first uses of one caller's key at once: one draft.
pub async fn fifty_first_uses_of_one_key_make_one_draft(h: &Harness) {
    let call = h.call("race").key("k");
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (store, ask) = (h.shared(), h.hold_of(&call));
        tasks.spawn(async move { store.hold(ask).await.expect("answers") });
    }
    let (mut new, mut ids) = (0, Vec::new());
    for answer in tasks.join_all().await {
        match answer {
            Held::New(stored) => {
                new += 1;
                ids.push(stored.row.id);
            }
            Held::Joined(stored) => ids.push(stored.row.id),
            other => panic!("{other:?}"),
        }
    }
    ids.dedup();
    assert_eq!((new, ids.len()), (1, 1));
}

/// Confirm and reject at once: one of them, never both.
pub async fn confirm_against_reject(h: &Harness) {
    for n in 0..50 {
        let draft = h.held(&h.call(&format!("race {n}"))).await;
        let (yes, no) = (h.yes(&draft, "ada"), h.no(&draft, h.person("bob")));
        let (confirming, rejecting) = (h.shared(), h.shared());
        let confirmed = tokio::spawn(async move { confirming.decide(yes).await.expect("answers") });
        let rejected = tokio::spawn(async move { rejecting.reject(no).await.expect("answers") });
        let confirmed = matches!(confirmed.await.expect("joins"), Decided::Claimed(..));
        let rejected = matches!(rejected.await.expect("joins"), Ended::Done(_));
        assert!(confirmed ^ rejected, "confirmed {confirmed}, rejected {rejected}");
        let end = if confirmed { "confirmed" } else { "rejected" };
        assert_eq!(h.kinds(&draft.row.id).await, ["held", end]);
    }
}

/// Confirm and withdrawal at once: one of them, never both.
pub async fn confirm_against_withdrawal(h: &Harness) {
    for n in 0..50 {
        let draft = h.held(&h.call(&format!("race {n}"))).await;
        let (yes, step, id) = (h.yes(&draft, "ada"), h.step(), draft.row.id.clone());
        let (confirming, withdrawing) = (h.shared(), h.shared());
        let confirmed = tokio::spawn(async move { confirming.decide(yes).await.expect("answers") });
        let withdrawn =
            tokio::spawn(async move { withdrawing.withdraw(&id, step, "agent", MAC).await.expect("answers") });
        let confirmed = matches!(confirmed.await.expect("joins"), Decided::Claimed(..));
        let withdrawn = matches!(withdrawn.await.expect("joins"), Ended::Done(_));
        assert!(confirmed ^ withdrawn, "confirmed {confirmed}, withdrawn {withdrawn}");
    }
}

/// 200 drafts at the boundary of their time, confirmed and swept at once while the clock passes
/// it: each ends in exactly one of claimed and expired.
pub async fn at_the_boundary_each_draft_ends_once(h: &Harness) {
    let mut drafts = Vec::new();
    for n in 0..200 {
        drafts.push(h.held(&h.call(&format!("boundary {n}"))).await);
    }
    h.advance(TTL - Duration::from_millis(1)).await;
    let mut tasks: JoinSet<(DraftId, bool)> = JoinSet::new();
    for (n, draft) in drafts.iter().enumerate() {
        if n == 100 {
            h.advance(Duration::from_millis(1)).await;
        }
        let (store, yes, id) = (h.shared(), h.yes(draft, "ada"), draft.row.id.clone());
        tasks.spawn(async move { (id, matches!(store.decide(yes).await.expect("answers"), Decided::Claimed(..))) });
        let (store, id) = (h.shared(), draft.row.id.clone());
        tasks.spawn(async move {
            store.expire(&id).await.expect("answers");
            (id, false)
        });
    }
    let answers = tasks.join_all().await;
    for draft in &drafts {
        let id = &draft.row.id;
        let claimed = answers.iter().any(|(of, claimed)| of == id && *claimed);
        let status = h.get(id).await.row.state.status();
        let (expected, end) = if claimed { (Status::Running, "confirmed") } else { (Status::Expired, "expired") };
        assert_eq!(status, expected);
        assert_eq!(h.kinds(id).await, ["held", end]);
    }
    assert_eq!(h.get(&drafts[199].row.id).await.row.state.status(), Status::Expired, "from expires_at on it is over");
}

/// Many take over one draft at once: one has it.
pub async fn one_of_many_takes_over(h: &Harness) {
    let draft = h.held(&h.call("race")).await;
    h.sending(&draft).await;
    h.advance(LEASE).await;
    let mut tasks = JoinSet::new();
    for n in 0..16 {
        let (store, id, step) = (h.shared(), draft.row.id.clone(), h.step());
        let taker = node(&format!("taker {n}"));
        tasks.spawn(async move { store.take_over(&id, step, &taker, LEASE, &[]).await.expect("answers") });
    }
    let taken = tasks.join_all().await;
    let won = taken.iter().filter(|taken| matches!(taken, TakenOver::Verifying { epoch: 2, .. })).count();
    let lost = taken.iter().filter(|taken| matches!(taken, TakenOver::NotDue)).count();
    assert_eq!((won, lost), (1, 15));
}

/// Many settle one draft at once, some as succeeded and some as failed: one end.
pub async fn one_settles_of_many(h: &Harness) {
    let draft = h.sending(&h.held(&h.call("race")).await).await;
    let mut tasks = JoinSet::new();
    for n in 0..16 {
        let ask = if n % 2 == 0 {
            h.end(&draft, Verdict::Succeeded, None)
        } else {
            h.end(&draft, Verdict::Failed, Some(crate::draft::outcome::Failure::Refused))
        };
        let store = h.shared();
        tasks.spawn(async move { store.settle(ask).await.expect("answers") });
    }
    let ends = tasks.join_all().await;
    assert_eq!(ends.iter().filter(|end| matches!(end, Settled::Done(_))).count(), 1);
    assert_eq!(h.kinds(&draft.row.id).await.len(), 4);
}
