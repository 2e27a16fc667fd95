//! The table "A call that comes again", row by row.

use std::time::Duration;

use crate::draft::decision::{Channel, DeciderKind};
use crate::draft::outcome::Failure;
use crate::draft::state::{Status, Verdict};
use crate::store::contract::{Held, OwnerLimits};
use crate::store::row::Stored;

use super::harness::{Call, Harness, MAC, TTL};

async fn new_draft_instead_of(h: &Harness, call: &Call, old: &Stored) -> Stored {
    let new = h.held(call).await;
    assert_ne!(new.row.id, old.row.id);
    assert_eq!(new.row.state.status(), Status::Pending);
    new
}

/// Pending, running (before and after the mark), verifying and unverifiable drafts answer.
pub async fn while_it_lives_an_equal_call_joins(h: &Harness) {
    let pending = h.held(&h.call("pending")).await;
    let claimed = h.held(&h.call("claimed")).await;
    h.claimed(&claimed).await;
    let sending = h.held(&h.call("sending")).await;
    h.sending(&sending).await;
    let verifying = h.verifying(&h.call("verifying")).await;
    let unverifiable = h.unverifiable(&h.call("unverifiable")).await;
    h.advance(TTL - Duration::from_secs(1)).await;
    for (args, draft) in [
        ("pending", pending),
        ("claimed", claimed),
        ("sending", sending),
        ("verifying", verifying),
        ("unverifiable", unverifiable),
    ] {
        assert_eq!(h.joined(&h.call(args)).await.row.id, draft.row.id, "{args}");
    }
    h.advance(Duration::from_secs(86_400)).await;
    for args in ["claimed", "sending", "verifying", "unverifiable"] {
        h.joined(&h.call(args)).await;
    }
}

/// A keyless call joins whatever key the earlier one had.
pub async fn a_keyless_call_joins_whatever_key_the_earlier_had(h: &Harness) {
    let draft = h.held(&h.call("a").key("k")).await;
    assert_eq!(h.joined(&h.call("a")).await.row.id, draft.row.id);
    assert_eq!(h.joined(&h.call("a").key("k")).await.row.id, draft.row.id);
}

/// Calls under new keys that were taken back do not hide an earlier draft that answers: neither one
/// whose outcome nobody knows, nor a result.
pub async fn calls_taken_back_do_not_hide_an_earlier_answer(h: &Harness) {
    let unknown = h.unverifiable(&h.call("unknown")).await;
    let done = h.succeeded(&h.call("done")).await;
    for n in 0..40 {
        for args in ["unknown", "done"] {
            let other = h.held(&h.call(args).key(&format!("{args} {n}"))).await;
            h.store().withdraw(&other.row.id, h.step(), "agent", MAC).await.expect("answers");
        }
    }
    assert_eq!(h.joined(&h.call("unknown")).await.row.id, unknown.row.id);
    assert_eq!(h.joined(&h.call("done")).await.row.id, done.row.id);
}

/// Another key never joins, whether the earlier call had a key or none.
pub async fn another_key_never_joins(h: &Harness) {
    let keyless = h.held(&h.call("a")).await;
    let one = new_draft_instead_of(h, &h.call("a").key("1"), &keyless).await;
    let two = new_draft_instead_of(h, &h.call("a").key("2"), &one).await;
    assert_eq!(h.joined(&h.call("a").key("1")).await.row.id, one.row.id);
    assert_eq!(h.joined(&h.call("a").key("2")).await.row.id, two.row.id);
    let done = h.succeeded(&h.call("b").key("3")).await;
    assert_eq!(new_draft_instead_of(h, &h.call("b").key("4"), &done).await.row.possible_duplicate_of, None);
}

/// Promise 8: a result that nobody collected answers an equal call, however late.
pub async fn an_uncollected_result_is_kept_for_the_agent(h: &Harness) {
    let succeeded = h.succeeded(&h.call("a")).await;
    let refused = h.refused(&h.call("b")).await;
    h.advance(Duration::from_secs(7 * 86_400)).await;
    let again = h.joined(&h.call("a")).await;
    assert_eq!(again.row.id, succeeded.row.id);
    assert_eq!(again.response.as_deref(), Some(&b"sealed response"[..]), "the stored result comes with it");
    assert_eq!(h.joined(&h.call("b")).await.row.id, refused.row.id);
}

/// Collected: the result replays until the window is over, then a flagged draft is made.
pub async fn a_collected_result_replays_for_its_window(h: &Harness) {
    for draft in [h.succeeded(&h.call("a")).await, h.refused(&h.call("b")).await] {
        h.store().collect(&draft.row.id).await.expect("answers");
    }
    h.advance(Duration::from_millis(119_999)).await;
    let old = h.joined(&h.call("a")).await;
    h.joined(&h.call("b")).await;
    // A later collection does not begin the window again.
    h.store().collect(&old.row.id).await.expect("answers");
    h.advance(Duration::from_millis(1)).await;
    let new = new_draft_instead_of(h, &h.call("a"), &old).await;
    assert_eq!(new.row.possible_duplicate_of, Some(old.row.id.clone()));
    assert!(h.held(&h.call("b")).await.row.possible_duplicate_of.is_some());
    assert_eq!(h.joined(&h.call("a")).await.row.id, new.row.id, "the new one answers from now on");
}

/// `replay_window: 0`: only what was never collected replays.
pub async fn a_window_of_zero_replays_only_what_was_not_collected(h: &Harness) {
    let mut call = h.call("a");
    call.replay_window = Duration::ZERO;
    let old = h.succeeded(&call).await;
    h.joined(&call).await;
    h.store().collect(&old.row.id).await.expect("answers");
    assert_eq!(h.held(&call).await.row.possible_duplicate_of, Some(old.row.id));
}

/// The same key gets the stored result as long as the draft is kept.
pub async fn the_same_key_always_gets_the_stored_result(h: &Harness) {
    for draft in [h.succeeded(&h.call("a").key("1")).await, h.refused(&h.call("b").key("2")).await] {
        h.store().collect(&draft.row.id).await.expect("answers");
    }
    h.advance(Duration::from_secs(86_400)).await;
    h.joined(&h.call("a").key("1")).await;
    h.joined(&h.call("b").key("2")).await;
}

/// Within the refusal memory a person's no answers an equal call with any key and with none.
pub async fn a_persons_no_is_remembered(h: &Harness) {
    let old = h.rejected(&h.call("a"), h.person("bob")).await;
    let owner = h.rejected(&h.call("o").key("k"), h.decider("olga", DeciderKind::Owner, Channel::Token)).await;
    h.advance(Duration::from_millis(599_999)).await;
    for call in [h.call("a"), h.call("a").key("1")] {
        let Held::RejectedBefore(stored) = h.ask(&call).await else { panic!("a new card") };
        assert_eq!(stored.row.id, old.row.id);
        assert_eq!(stored.row.refused.map(|refused| refused.reason).as_deref(), Some("not this one"));
    }
    assert!(matches!(h.ask(&h.call("o")).await, Held::RejectedBefore(stored) if stored.row.id == owner.row.id));
    h.advance(Duration::from_millis(1)).await;
    new_draft_instead_of(h, &h.call("a"), &old).await;
    new_draft_instead_of(h, &h.call("a").key("1"), &old).await;
}

/// With the same key a person's no answers for as long as the draft is kept.
pub async fn the_same_key_keeps_a_persons_no(h: &Harness) {
    let old = h.rejected(&h.call("a").key("k"), h.person("bob")).await;
    h.advance(Duration::from_secs(86_400)).await;
    assert!(matches!(h.ask(&h.call("a").key("k")).await, Held::RejectedBefore(stored) if stored.row.id == old.row.id));
    new_draft_instead_of(h, &h.call("a"), &old).await;
}

/// A guard's or a policy's no is no person's: a new draft, and the key moves.
pub async fn a_guards_no_is_not_remembered(h: &Harness) {
    for (args, kind) in [("a", DeciderKind::Guard), ("b", DeciderKind::Policy)] {
        let old = h.rejected(&h.call(args).key(args), h.decider("guard", kind, Channel::Guard)).await;
        let new = new_draft_instead_of(h, &h.call(args).key(args), &old).await;
        assert_eq!(new.row.caller_key, old.row.caller_key);
        assert_eq!(h.get(&old.row.id).await.row.caller_key, None);
    }
}

/// Expired, withdrawn, not sent, released too late: a new draft, with and without the key.
pub async fn what_never_ran_opens_a_new_draft(h: &Harness) {
    for keyed in [false, true] {
        let call = |args: &str| {
            let call = h.call(&format!("{args} {keyed}"));
            if keyed { call.key(args) } else { call }
        };
        let not_sent = h.not_sent(&call("not sent")).await;
        let late = h.held(&call("late")).await;
        h.claimed(&late).await;
        let late = h.settle(&late, Verdict::Failed, Some(Failure::ReleaseTooLate)).await;
        let withdrawn = h.held(&call("withdrawn")).await;
        h.store().withdraw(&withdrawn.row.id, h.step(), "agent", MAC).await.expect("answers");
        let expired = h.held(&call("expired")).await;
        h.advance(TTL).await;
        h.store().expire(&expired.row.id).await.expect("answers");
        for (args, old) in [("not sent", not_sent), ("late", late), ("withdrawn", withdrawn), ("expired", expired)] {
            let new = new_draft_instead_of(h, &call(args), &old).await;
            assert_eq!(new.row.possible_duplicate_of, None, "{args}");
            assert_eq!(new.row.caller_key, old.row.caller_key, "{args}");
            assert_eq!(h.joined(&call(args)).await.row.id, new.row.id, "{args}: the key has moved");
        }
    }
}

/// The same key with other args is refused in every state and changes nothing.
pub async fn a_key_with_other_args_is_refused(h: &Harness) {
    let pending = h.held(&h.call("a").key("pending")).await;
    let done = h.succeeded(&h.call("a").key("done")).await;
    let rejected = h.rejected(&h.call("r").key("rejected"), h.person("bob")).await;
    let withdrawn = h.held(&h.call("a").key("withdrawn")).await;
    h.store().withdraw(&withdrawn.row.id, h.step(), "agent", MAC).await.expect("answers");
    for (key, draft) in [("pending", pending), ("done", done), ("rejected", rejected), ("withdrawn", withdrawn)] {
        let before = h.get(&draft.row.id).await;
        assert_eq!(h.ask(&h.call("other").key(key)).await, Held::KeyReused(draft.row.id.clone()), "{key}");
        assert_eq!(h.get(&draft.row.id).await, before, "{key}");
    }
}

/// A caller's key lives exactly as long as its draft.
pub async fn the_key_lives_as_long_as_its_draft(h: &Harness) {
    let draft = h.succeeded(&h.call("a").key("k")).await;
    h.advance(Duration::from_secs(60)).await;
    assert!(h.store().delete(&draft.row.id, h.store().now()).await.expect("answers"));
    h.held(&h.call("other").key("k")).await;
}

/// A pending draft past its time is expired by the call that meets it, with its event, also where
/// the call itself is refused.
pub async fn an_overdue_draft_is_expired_by_the_call(h: &Harness) {
    let keyless = h.held(&h.call("a")).await;
    let keyed = h.held(&h.call("b").key("k")).await;
    let mut limited = h.call("c");
    let refused = h.held(&limited).await;
    h.advance(TTL).await;
    let new = new_draft_instead_of(h, &h.call("a"), &keyless).await;
    assert_eq!(new.row.possible_duplicate_of, None);
    let moved = new_draft_instead_of(h, &h.call("b").key("k"), &keyed).await;
    assert_eq!(moved.row.caller_key, keyed.row.caller_key);
    limited.limits = OwnerLimits { pending_max: 0, ..limited.limits };
    assert_eq!(h.ask(&limited).await, Held::TooManyPending);
    for draft in [keyless, keyed, refused] {
        assert_eq!(h.get(&draft.row.id).await.row.state.status(), Status::Expired);
        assert_eq!(h.kinds(&draft.row.id).await, ["held", "expired"]);
    }
}

/// A join notes its session once; at most 16 are noted.
pub async fn sessions_are_added_and_bounded(h: &Harness) {
    let draft = h.held(&h.call("a")).await;
    h.joined(&h.call("a")).await;
    assert_eq!(h.kinds(&draft.row.id).await, ["held"], "a known session changes nothing");
    for n in 2..40 {
        h.joined(&h.call("a").session(&format!("s{n}"))).await;
        h.joined(&h.call("a").session(&format!("s{n}"))).await;
    }
    let row = h.get(&draft.row.id).await.row;
    let sessions: Vec<_> = row.sessions.iter().map(|session| session.as_str().to_owned()).collect();
    assert_eq!(sessions, (1..=16).map(|n| format!("s{n}")).collect::<Vec<_>>());
    assert_eq!(h.kinds(&draft.row.id).await.len(), 1 + 15);
}

/// A live draft answers an equal keyless call also when later drafts of other keys have ended.
pub async fn a_live_draft_is_found_behind_later_ones(h: &Harness) {
    let live = h.unverifiable(&h.call("a")).await;
    let later = h.held(&h.call("a").key("k")).await;
    h.store().withdraw(&later.row.id, h.step(), "agent", MAC).await.expect("answers");
    assert_eq!(h.joined(&h.call("a")).await.row.id, live.row.id);
}

/// Two owners, two agents, two tenants: equal calls and equal keys never meet.
pub async fn owners_agents_and_tenants_never_meet(h: &Harness) {
    let own = h.succeeded(&h.call("a").key("1")).await;
    let refused = h.rejected(&h.call("r"), h.person("bob")).await;
    for (tenant, owner, agent) in
        [("default", "otto", "agent"), ("default", "olga", "other"), ("second", "olga", "agent")]
    {
        let stranger = |args: &str| h.call(args).from(tenant, owner, agent);
        new_draft_instead_of(h, &stranger("a").key("1"), &own).await;
        new_draft_instead_of(h, &stranger("b").key("2"), &own).await;
        new_draft_instead_of(h, &stranger("r"), &refused).await;
    }
    assert_eq!(h.get(&own.row.id).await, own, "nothing of the first owner's changed");
}
