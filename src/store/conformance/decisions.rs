//! Votes, decision keys, what was verified, tokens, ends.

use std::time::Duration;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, Partition};
use crate::draft::decision::{Channel, DeciderKind, Verb};
use crate::draft::outcome::Failure;
use crate::draft::state::{State, Status, Verdict};
use crate::store::contract::{Decided, Ended, Settled, StoreError, TakenOver};

use super::harness::{Harness, LEASE, MAC, TTL, node};

/// A quorum of two: one principal counts once over all channels; the second one claims.
pub async fn a_quorum_counts_principals_once(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let vote = |who: &str, channel| {
        let mut ask = h.yes(&draft, who);
        ask.quorum = 2;
        ask.vote.decider.channel = channel;
        ask
    };
    let first = h.store().decide(vote("ada", Channel::Api)).await.expect("answers");
    let Decided::Voted { have: 1, need: 2, stored } = first else { panic!("{first:?}") };
    assert_eq!((stored.row.state, stored.row.epoch), (State::Pending, 0));
    for channel in [Channel::Api, Channel::Console, Channel::Token] {
        let again = h.store().decide(vote("ada", channel)).await.expect("answers");
        assert!(matches!(again, Decided::AlreadyVoted { have: 1, need: 2, .. }), "{again:?}");
    }
    let mut raised = vote("bob", Channel::Api);
    raised.quorum = 3;
    let second = h.store().decide(raised).await.expect("answers");
    assert!(matches!(second, Decided::Voted { have: 2, need: 3, .. }), "{second:?}");
    let third = h.store().decide(vote("eve", Channel::Api)).await.expect("answers");
    let Decided::Claimed(claim, stored) = third else { panic!("{third:?}") };
    assert_eq!((claim.epoch(), stored.row.votes.len()), (1, 3));
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "voted", "voted", "confirmed"]);
}

/// A decision key answers again for its verb, and is refused for the other one, at any time.
pub async fn a_decision_key_answers_for_its_verb(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let yes = |who: &str, key: &str| {
        let mut ask = h.yes(&draft, who);
        ask.quorum = 2;
        ask.decision_key = Some(key.to_owned());
        ask
    };
    let no = |key: &str| {
        let mut ask = h.no(&draft, h.person("ada"));
        ask.decision_key = Some(key.to_owned());
        ask
    };
    assert!(matches!(h.store().decide(yes("ada", "k1")).await, Ok(Decided::Voted { .. })));
    assert!(matches!(h.store().decide(yes("ada", "k1")).await, Ok(Decided::AlreadyVoted { .. })));
    let other = h.store().decide(yes("bob", "k1")).await;
    assert!(matches!(other, Ok(Decided::AlreadyVoted { have: 1, .. })), "one key is one vote: {other:?}");
    assert!(matches!(h.store().reject(no("k1")).await, Ok(Ended::KeyReused)));
    assert!(matches!(h.store().reject(no("k2")).await, Ok(Ended::Done(_))));
    assert!(matches!(h.store().reject(no("k2")).await, Ok(Ended::NotPending(_))));
    assert!(matches!(h.store().decide(yes("bob", "k2")).await, Ok(Decided::KeyReused)));
    assert!(matches!(h.store().reject(no("k1")).await, Ok(Ended::KeyReused)));
    let keys: Vec<_> = h.get(&draft.row.id).await.row.decision_keys.into_iter().collect();
    assert_eq!(keys, [("k1".to_owned(), Verb::Confirm), ("k2".to_owned(), Verb::Reject)]);
}

/// Another digest than the stored one, or another epoch: nothing is decided.
pub async fn what_changed_is_not_decided(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let mut yes = h.yes(&draft, "ada");
    yes.sealed_digest = Digest::of(b"something else");
    assert!(matches!(h.store().decide(yes).await, Ok(Decided::Changed)));
    let mut yes = h.yes(&draft, "ada");
    yes.vote.epoch = 2;
    assert!(matches!(h.store().decide(yes).await, Ok(Decided::Changed)));
    let mut no = h.no(&draft, h.person("ada"));
    no.sealed_digest = Digest::of(b"something else");
    assert_eq!(h.store().reject(no).await, Ok(Ended::Changed));
    assert_eq!(h.get(&draft.row.id).await, draft);
}

/// Of a draft that is decided, whoever asks is told how it stands, also with a card of something else
/// or an old one: the four branches of a confirm are two, with a record and without.
pub async fn what_is_decided_is_told_whatever_was_seen(h: &Harness) {
    let sending = h.sending(&h.held(&h.call("s")).await).await;
    let claimed = h.claimed(&h.held(&h.call("c")).await).await;
    let succeeded = h.succeeded(&h.call("a")).await;
    let rejected = h.rejected(&h.call("r"), h.person("bob")).await;
    let before = h.events().await.len();
    for draft in [sending, claimed, succeeded, rejected] {
        let mut yes = h.yes(&draft, "ada");
        yes.sealed_digest = Digest::of(b"something else");
        yes.vote.epoch = 1;
        let answer = h.store().decide(yes).await.expect("answers");
        assert!(matches!(&answer, Decided::NotPending(stored) if **stored == draft), "{answer:?}");
        let mut no = h.no(&draft, h.person("ada"));
        no.sealed_digest = Digest::of(b"something else");
        let answer = h.store().reject(no).await.expect("answers");
        assert!(matches!(&answer, Ended::NotPending(stored) if **stored == draft), "{answer:?}");
        assert_eq!(h.get(&draft.row.id).await, draft);
    }
    assert_eq!(h.events().await.len(), before);
}

/// A refusal is kept with its MAC as it was handed in; a guard's reason code stands in its event.
pub async fn a_refusal_keeps_its_mac(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let mut guard = h.no(&draft, h.decider("guard", DeciderKind::Guard, Channel::Guard));
    "POLICY_CHANGED".clone_into(&mut guard.reason);
    guard.mac = Digest::of(b"a MAC");
    let ask = guard.clone();
    assert!(matches!(h.store().reject(guard).await, Ok(Ended::Done(_))));
    let refused = h.get(&draft.row.id).await.row.refused.expect("refused");
    assert_eq!((refused.by, refused.reason, refused.mac), (Some(ask.by), ask.reason, Some(ask.mac)));
    let events = h.events().await;
    assert_eq!(events.last().and_then(|event| event.reason.as_deref()), Some("POLICY_CHANGED"));

    let draft = h.held(&h.call("b")).await;
    h.store().withdraw(&draft.row.id, h.step(), "agent", Digest::of(b"another")).await.expect("answers");
    let refused = h.get(&draft.row.id).await.row.refused.expect("refused");
    assert_eq!((refused.by, refused.mac), (None, Some(Digest::of(b"another"))));
    assert_eq!(refused.reason, crate::draft::proof::withdrawn_by("agent"));

    let draft = h.held(&h.call("c")).await;
    h.advance(TTL).await;
    h.store().expire(&draft.row.id).await.expect("answers");
    assert_eq!(h.get(&draft.row.id).await.row.refused.expect("expired").mac, None, "it follows from the draft's times");
}

/// From `expires_at` on no decision counts; the late step writes the expiry with its event.
pub async fn an_overdue_draft_cannot_be_decided(h: &Harness) {
    let (a, b, c, d) = (
        h.held(&h.call("a")).await,
        h.held(&h.call("b")).await,
        h.held(&h.call("c")).await,
        h.held(&h.call("d")).await,
    );
    assert!(matches!(h.store().expire(&d.row.id).await, Ok(Ended::NotPending(_))), "its time is not over");
    h.advance(TTL - Duration::from_millis(1)).await;
    assert!(matches!(h.store().expire(&d.row.id).await, Ok(Ended::NotPending(_))), "its time is not over");
    h.advance(Duration::from_millis(1)).await;
    assert!(matches!(h.store().decide(h.yes(&a, "ada")).await, Ok(Decided::NotPending(_))));
    assert!(matches!(h.store().reject(h.no(&b, h.person("ada"))).await, Ok(Ended::NotPending(_))));
    assert!(matches!(h.store().withdraw(&c.row.id, h.step(), "agent", MAC).await, Ok(Ended::NotPending(_))));
    assert!(matches!(h.store().expire(&d.row.id).await, Ok(Ended::Done(_))));
    assert!(matches!(h.store().expire(&d.row.id).await, Ok(Ended::NotPending(_))));
    for draft in [a, b, c, d] {
        let row = h.get(&draft.row.id).await.row;
        assert_eq!((row.state, row.ended_at), (State::Expired, Some(h.store().now())));
        assert!(row.refused.is_some_and(|refused| refused.by.is_none() && refused.reason == "EXPIRED"));
        assert_eq!(h.kinds(&draft.row.id).await, ["held", "expired"]);
    }
}

/// Promise 9: what has ended takes no decision any more.
pub async fn ends_are_ends(h: &Harness) {
    let rejected = h.rejected(&h.call("r"), h.person("bob")).await;
    let withdrawn = h.held(&h.call("w")).await;
    let Ok(Ended::Done(withdrawn)) = h.store().withdraw(&withdrawn.row.id, h.step(), "agent", MAC).await else {
        panic!("not withdrawn")
    };
    let succeeded = h.succeeded(&h.call("s")).await;
    let claimed = h.held(&h.call("c")).await;
    let claimed = h.claimed(&claimed).await;
    for draft in [rejected, *withdrawn, succeeded, claimed] {
        let events = h.events().await.len();
        let status = draft.row.state.status();
        assert!(matches!(h.store().decide(h.yes(&draft, "eve")).await, Ok(Decided::NotPending(_))), "{status}");
        assert!(matches!(h.store().reject(h.no(&draft, h.person("eve"))).await, Ok(Ended::NotPending(_))), "{status}");
        assert!(
            matches!(h.store().withdraw(&draft.row.id, h.step(), "agent", MAC).await, Ok(Ended::NotPending(_))),
            "{status}"
        );
        assert!(matches!(h.store().expire(&draft.row.id).await, Ok(Ended::NotPending(_))), "{status}");
        assert_eq!(h.get(&draft.row.id).await.row, draft.row, "{status}");
        assert_eq!(h.events().await.len(), events, "{status}");
    }
}

/// A token opens its draft before and after it was used, and no other one.
pub async fn a_token_opens_before_and_after_use(h: &Harness) {
    let other = h.held(&h.call("b")).await;
    let draft = h.held(&h.call("a")).await;
    let (partition, token) = (draft.row.id.partition(), draft.row.token_digest);
    let opened = h.store().by_token(partition, &token).await.expect("answers").expect("opens");
    assert_eq!(opened, draft);
    h.claimed(&draft).await;
    let opened = h.store().by_token(partition, &token).await.expect("answers").expect("opens after use");
    assert_eq!((opened.row.id, opened.row.state.status()), (draft.row.id.clone(), Status::Running));
    h.settle(&draft, crate::draft::state::Verdict::Failed, Some(crate::draft::outcome::Failure::NotSent)).await;
    h.advance(Duration::from_secs(1)).await;
    assert!(h.store().delete(&draft.row.id, h.store().now()).await.expect("answers"));
    assert_eq!(h.store().by_token(partition, &token).await, Ok(None), "gone with its draft");
    assert_eq!(h.store().by_token(partition, &Digest::of(b"guessed")).await, Ok(None));
    assert!(h.store().by_token(other.row.id.partition(), &other.row.token_digest).await.expect("answers").is_some());
    let elsewhere = Partition::all().find(|one| *one != other.row.id.partition()).expect("there are sixteen");
    assert_eq!(h.store().by_token(elsewhere, &other.row.token_digest).await, Ok(None), "of another partition");
}

/// A draft that was never known is not found, and nothing is written.
pub async fn unknown_drafts_are_not_found(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let mut foreign = draft.clone();
    foreign.row.id = DraftId::new(Partition::of(&Digest::of(b"x")), h.store().now(), &crate::base::chance::OsChance);
    let id = foreign.row.id.clone();
    // The same time and random part under another partition is another draft.
    let moved = format!(
        "dr_{}_{}",
        if draft.row.id.partition().as_char() == '0' { '1' } else { '0' },
        &draft.row.id.as_str()[5..]
    );
    assert_eq!(h.store().get(&moved.parse().expect("an id")).await, Ok(None));
    assert_eq!(h.store().get(&id).await, Ok(None));
    assert!(matches!(h.store().decide(h.yes(&foreign, "ada")).await, Ok(Decided::NotFound)));
    assert_eq!(h.store().reject(h.no(&foreign, h.person("ada"))).await, Ok(Ended::NotFound));
    assert_eq!(h.store().withdraw(&id, h.step(), "agent", MAC).await, Ok(Ended::NotFound));
    assert_eq!(h.store().expire(&id).await, Ok(Ended::NotFound));
    assert_eq!(h.store().collect(&id).await, Ok(()));
    assert_eq!(h.store().note_seen(&id).await, Ok(()));
    assert_eq!(h.store().delete(&id, h.store().now()).await, Ok(false));
    assert!(matches!(h.store().again(&id, h.hold_of(&h.call("a"))).await, Ok(Err(Ended::NotFound))));
    // The end of an attempt and the answer of a person, to a draft that nobody knows (any more).
    let unknown = || h.end(&foreign, Verdict::Unverifiable, None);
    assert_eq!(h.store().settle(unknown()).await, Ok(Settled::NotFound));
    assert_eq!(
        h.store().late_answer(h.end(&foreign, Verdict::Failed, Some(Failure::Refused))).await,
        Ok(Settled::NotFound)
    );
    let resolved = h.store().resolve(h.end(&foreign, Verdict::Failed, Some(Failure::Refused)), &h.person("ada")).await;
    assert_eq!(resolved, Ok(Settled::NotFound));
    let taken = h.store().take_over(&id, h.step(), &node("n2"), LEASE, &[]).await;
    assert!(matches!(taken, Ok(TakenOver::NotFound)), "{taken:?}");
    assert_eq!(h.events().await.len(), 1);
}

/// A comment or a reason of more than 1,000 characters is refused: MACs cover them, so they cannot
/// be cut.
pub async fn words_are_bounded(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    let mut yes = h.yes(&draft, "ada");
    yes.vote.comment = Some("ü".repeat(1_001));
    assert!(matches!(h.store().decide(yes).await, Err(StoreError::Unavailable(_))));
    assert_eq!(h.get(&draft.row.id).await, draft);
    let mut no = h.no(&draft, h.person("ada"));
    no.reason = "ü".repeat(1_001);
    assert!(matches!(h.store().reject(no.clone()).await, Err(StoreError::Unavailable(_))));
    assert_eq!(h.get(&draft.row.id).await, draft);
    no.reason = "ü".repeat(1_000);
    assert!(matches!(h.store().reject(no).await, Ok(Ended::Done(_))));
    let refused = h.get(&draft.row.id).await.row.refused.expect("a reason");
    assert_eq!(refused.reason, "ü".repeat(1_000));
    let events = h.events().await;
    assert_eq!(events.last().and_then(|event| event.reason.clone()), None, "a person's words are no reason code");
}
