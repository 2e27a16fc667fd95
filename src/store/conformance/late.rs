//! Answers that come late, and resolutions by people.

use crate::base::digest::Digest;
use crate::draft::decision::{Decider, DeciderKind};
use crate::draft::outcome::Failure;
use crate::draft::state::{State, Verdict};
use crate::store::contract::{Settle, Settled, StoreError};
use crate::store::row::{Row, Stored};

use super::harness::{Harness, LEASE, node};

async fn late(h: &Harness, draft: &Stored, verdict: Verdict) -> Settled {
    let failure = (verdict == Verdict::Failed).then_some(Failure::Refused);
    let mut ask = h.end(draft, verdict, failure);
    "late_answer".clone_into(&mut ask.evidence.source);
    h.store().late_answer(ask).await.expect("answers")
}

/// A late answer settles sending, verifying and unverifiable drafts, whatever the epoch.
pub async fn settles_what_is_open(h: &Harness) {
    for (n, verdict) in [Verdict::Succeeded, Verdict::Failed].into_iter().enumerate() {
        let call = |state: &str| h.call(&format!("{state} {n}"));
        let sending = h.sending(&h.held(&call("sending")).await).await;
        let mut verifying = h.verifying(&call("verifying")).await;
        verifying.row.epoch = 1; // the epoch that the attempt was made under
        let unverifiable = h.unverifiable(&call("unverifiable")).await;
        for draft in [sending, verifying, unverifiable] {
            let answer = late(h, &draft, verdict).await;
            let Settled::Done(stored) = answer else { panic!("{:?} {verdict:?}: {answer:?}", draft.row.state) };
            let expected = if verdict == Verdict::Succeeded { State::Succeeded } else { State::Failed };
            assert_eq!(stored.row.state, expected);
            assert_eq!(stored.response.is_some(), verdict == Verdict::Succeeded);
            assert_eq!(stored.row.evidence.last().map(|piece| piece.source.as_str()), Some("late_answer"));
            assert_eq!(h.kinds(&draft.row.id).await.last().map(String::as_str), Some("late_answer"));
            let holder =
                h.store().settle(h.end(&h.get(&draft.row.id).await, Verdict::Failed, Some(Failure::Refused))).await;
            assert!(matches!(holder, Ok(Settled::Superseded(_))), "the holder of the lease comes too late: {holder:?}");
        }
    }
}

/// "Still nobody can tell" is no answer: it moves nothing, and is kept as evidence.
pub async fn cannot_tell_moves_nothing(h: &Harness) {
    let sending = h.sending(&h.held(&h.call("sending")).await).await;
    let verifying = h.verifying(&h.call("verifying")).await;
    let unverifiable = h.unverifiable(&h.call("unverifiable")).await;
    for draft in [sending, verifying, unverifiable] {
        assert!(matches!(late(h, &draft, Verdict::Unverifiable).await, Settled::Superseded(_)));
        let after = h.get(&draft.row.id).await.row;
        assert_eq!((after.state, after.lease_until), (draft.row.state, draft.row.lease_until));
        assert_eq!(after.evidence.len(), draft.row.evidence.len() + 1);
    }
}

/// A success, or a failure that a response proved, stays; the evidence is kept beside it.
pub async fn changes_nothing_that_is_proved(h: &Harness) {
    let succeeded = h.succeeded(&h.call("s")).await;
    let refused = h.refused(&h.call("r")).await;
    for (draft, verdict) in [(succeeded, Verdict::Failed), (refused, Verdict::Succeeded)] {
        assert!(matches!(late(h, &draft, verdict).await, Settled::Superseded(_)));
        let after = h.get(&draft.row.id).await;
        assert_eq!(
            (after.row.state, &after.row.receipt, after.row.failure),
            (draft.row.state, &draft.row.receipt, draft.row.failure)
        );
        assert_eq!(after.response, draft.response);
        assert_eq!((after.row.ended_at, after.row.evidence.len()), (draft.row.ended_at, 2));
        assert_eq!(
            h.kinds(&draft.row.id).await.last().map(String::as_str),
            Some("late_answer"),
            "somebody should look"
        );
    }
}

/// Where no attempt was marked there is nothing to answer: nothing is kept.
pub async fn is_no_answer_where_nothing_was_marked(h: &Harness) {
    let pending = h.held(&h.call("p")).await;
    let claimed = h.held(&h.call("c")).await;
    let claimed = h.claimed(&claimed).await;
    let not_sent = h.not_sent(&h.call("n")).await;
    let rejected = h.rejected(&h.call("r"), h.person("bob")).await;
    for draft in [pending, claimed, not_sent, rejected] {
        for verdict in [Verdict::Succeeded, Verdict::Failed, Verdict::Unverifiable] {
            assert!(matches!(late(h, &draft, verdict).await, Settled::Superseded(_)), "{:?}", draft.row.state);
        }
        assert_eq!(h.get(&draft.row.id).await, draft);
    }
}

/// At most 16 pieces of evidence: the first, the latest and the outcome's stay. Longer texts than
/// the bounds are refused: a MAC covers them, so they cannot be cut.
pub async fn keeps_the_first_and_the_latest_evidence(h: &Harness) {
    let first = h.succeeded(&h.call("a")).await;
    // Here the outcome's is the second piece, behind the one of the take-over.
    let second = h.verifying(&h.call("b")).await;
    let second = h.settle(&second, Verdict::Failed, Some(Failure::Refused)).await;
    for (draft, latest_from) in [(first, 1), (second, 2)] {
        for n in 0..40 {
            let mut ask = h.end(&draft, Verdict::Unverifiable, None);
            ask.evidence.text = format!("{n:02} {}", "ü".repeat(497));
            ask.evidence.source = "x".repeat(32);
            h.store().late_answer(ask).await.expect("answers");
        }
        let row = h.get(&draft.row.id).await.row;
        let evidence = &row.evidence;
        assert_eq!(evidence.len(), 16);
        assert_eq!(evidence[..latest_from], draft.row.evidence);
        assert_eq!(evidence[latest_from - 1].text, "it ended");
        assert_eq!(row.outcome.expect("an outcome").evidence, evidence[latest_from - 1]);
        assert!(evidence[latest_from].text.starts_with(&format!("{} ", 24 + latest_from)));
        assert!(evidence[15].text.starts_with("39 "));
    }
    let draft = h.sending(&h.held(&h.call("c")).await).await;
    let mut long = h.end(&draft, Verdict::Succeeded, None);
    long.evidence.text = "ü".repeat(501);
    let mut long_source = h.end(&draft, Verdict::Succeeded, None);
    long_source.evidence.source = "x".repeat(33);
    for ask in [long, long_source] {
        assert!(matches!(h.store().settle(ask.clone()).await, Err(StoreError::Unavailable(_))));
        assert!(matches!(h.store().late_answer(ask).await, Err(StoreError::Unavailable(_))));
    }
    assert_eq!(h.get(&draft.row.id).await, draft);
}

/// What an outcome's MAC covers is kept as it was handed in, by every step that brings an outcome,
/// and a later outcome replaces all of it.
pub async fn an_outcome_keeps_what_its_mac_covers(h: &Harness) {
    let proves = |row: &Row, ask: &Settle, by: Option<&Decider>| {
        let proof = row.outcome.clone().expect("an outcome");
        assert_eq!((proof.epoch, &proof.evidence, proof.mac), (ask.epoch, &ask.evidence, ask.mac));
        assert_eq!((proof.response, proof.by.as_ref()), (ask.response.as_deref().map(Digest::of), by));
        assert_eq!((row.failure, &row.receipt), (ask.failure, &ask.receipt));
        assert_eq!(row.has_response, ask.response.is_some());
    };
    let done = |settled: Result<Settled, StoreError>| match settled {
        Ok(Settled::Done(stored)) => stored.row,
        other => panic!("not settled: {other:?}"),
    };
    assert_eq!(h.held(&h.call("pending")).await.row.outcome, None);
    // An answer that was sent under epoch 1 comes when epoch 2 has given up.
    let sending = h.sending(&h.held(&h.call("late")).await).await;
    assert_eq!(sending.row.outcome, None);
    h.advance(LEASE).await;
    h.store().take_over(&sending.row.id, h.step(), &node("n2"), LEASE, &[]).await.expect("answers");
    let taken = h.get(&sending.row.id).await;
    let unknown = h.end(&taken, Verdict::Unverifiable, None);
    proves(&done(h.store().settle(unknown.clone()).await), &unknown, None);
    let mut answer = h.end(&sending, Verdict::Succeeded, None);
    answer.mac = Digest::of(b"the answer");
    proves(&done(h.store().late_answer(answer.clone()).await), &answer, None);
    // What is kept as evidence only replaces nothing.
    h.store().late_answer(h.end(&sending, Verdict::Failed, Some(Failure::Refused))).await.expect("answers");
    proves(&h.get(&sending.row.id).await.row, &answer, None);

    let unknown = h.unverifiable(&h.call("resolve")).await;
    let (by, mut person) = (h.person("ada"), h.end(&unknown, Verdict::Failed, Some(Failure::Resolved)));
    person.mac = Digest::of(b"the person");
    proves(&done(h.store().resolve(person.clone(), &by).await), &person, Some(&by));
}

/// A person settles what could not be verified, once, with a name; nothing else.
pub async fn a_person_resolves(h: &Harness) {
    let by = h.person("ada");
    assert_eq!(by.kind, DeciderKind::Approver);
    for (args, verdict, failure, state) in [
        ("yes", Verdict::Succeeded, None, State::Succeeded),
        ("no", Verdict::Failed, Some(Failure::Resolved), State::Failed),
    ] {
        let draft = h.unverifiable(&h.call(args)).await;
        let unsure = h.store().resolve(h.end(&draft, Verdict::Unverifiable, None), &by).await;
        assert!(matches!(unsure, Ok(Settled::Superseded(_))), "a person must say which: {unsure:?}");
        let end = h.store().resolve(h.end(&draft, verdict, failure), &by).await.expect("answers");
        assert!(matches!(end, Settled::Done(ref stored) if stored.row.state == state), "{end:?}");
        let events = h.events().await;
        let last = events.last().expect("an event");
        assert_eq!((last.kind.as_str(), last.by.as_deref()), ("draft.resolved", Some("ada")));
        let more = h.store().resolve(h.end(&draft, verdict, failure), &by).await;
        assert!(matches!(more, Ok(Settled::Superseded(_))));
    }
    let running = h.sending(&h.held(&h.call("running")).await).await;
    let early = h.store().resolve(h.end(&running, Verdict::Succeeded, None), &by).await;
    assert!(matches!(early, Ok(Settled::Superseded(_))), "what is still running is not a person's to settle");
}

/// An unverifiable draft that a late answer settles leaves nothing for a person or a taker.
pub async fn a_late_answer_resolves(h: &Harness) {
    let draft = h.unverifiable(&h.call("a")).await;
    assert!(matches!(late(h, &draft, Verdict::Succeeded).await, Settled::Done(_)));
    let person = h.store().resolve(h.end(&draft, Verdict::Failed, Some(Failure::Resolved)), &h.person("ada")).await;
    assert!(matches!(person, Ok(Settled::Superseded(_))));
    h.advance(LEASE).await;
    let taken = h.store().take_over(&draft.row.id, h.step(), &node("n2"), LEASE, &[node("n1")]).await;
    assert!(matches!(taken, Ok(crate::store::contract::TakenOver::NotDue)));
    assert_eq!(h.get(&draft.row.id).await.row.state, State::Succeeded);
}
