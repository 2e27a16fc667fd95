//! What ties an end to its draft: MACs over outcomes and refusals.
//!
//! Whoever can write to the store can neither forge a receipt, nor turn an outcome that nobody
//! knows into one that is offered again, nor put a refusal into somebody's mouth (promises 2
//! and 6). Owns what those MACs cover. Must never read a clock or a store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::time::Timestamp;

use super::decision::Decider;
use super::keys::{KeySet, keyed_json};
use super::outcome::{Evidence, Failure};
use super::receipt::Receipt;
use super::seal::{IntegrityFailed, Opened};
use super::state::Verdict;

/// Everything that an outcome says.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// The epoch under which the work was done.
    pub epoch: u64,
    /// What it says about the effect.
    pub verdict: Verdict,
    /// Why, where the verdict is `Failed`.
    pub failure: Option<Failure>,
    /// The proof for people, unless the verdict is `Unverifiable`.
    pub receipt: Option<&'a Receipt>,
    /// SHA-256 of the sealed response, where one is kept.
    pub response: Option<Digest>,
    /// What was seen, and when.
    pub evidence: &'a Evidence,
    /// The person who resolved it, where one did.
    pub by: Option<&'a Decider>,
}

impl End<'_> {
    /// The MAC over the draft's MAC and all of this, under the keys of the draft.
    ///
    /// # Errors
    ///
    /// [`IntegrityFailed`] if the draft was sealed with keys that this guard does not have.
    pub fn mac(&self, keys: &KeySet, opened: &Opened) -> Result<Digest, IntegrityFailed> {
        let Self { epoch, verdict, failure, receipt, response, evidence, by } = self;
        let said = (epoch, verdict, failure, receipt, response, evidence, by);
        mac(keys, opened, "end", &said)
    }
}

/// What a store keeps beside an outcome so that its readers can verify it: what the MAC covers
/// and the row does not say elsewhere. Written once per end, replaced by a later one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The epoch under which the work was done.
    pub epoch: u64,
    /// What was seen, and when.
    pub evidence: Evidence,
    /// SHA-256 of the sealed response, where one is kept.
    pub response: Option<Digest>,
    /// The person who resolved it, where one did.
    pub by: Option<Decider>,
    /// [`End::mac`].
    pub mac: Digest,
}

/// How a draft was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// By a person or a rule of the guard.
    Rejected,
    /// By the agent that asked for it.
    Withdrawn,
}

/// The MAC of a refusal, over the draft's MAC, how, who (with the time at which they did) and why.
///
/// # Errors
///
/// [`IntegrityFailed`] if the draft was sealed with keys that this guard does not have.
pub fn refusal_mac(
    keys: &KeySet,
    opened: &Opened,
    how: Refusal,
    by: Option<&Decider>,
    reason: &str,
) -> Result<Digest, IntegrityFailed> {
    mac(keys, opened, "refusal", &(how, by, reason))
}

/// The reason that stands beside a withdrawal.
#[must_use]
pub fn withdrawn_by(agent: &str) -> String {
    format!("withdrawn by {agent}")
}

/// A time this far ahead can only come from a clock that was wrong.
const WRONG_CLOCK: Duration = Duration::from_secs(24 * 60 * 60);

/// How far a node's idea of the store's clock may be off a time that the store has written.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// The reason that stands beside an expiry.
pub const EXPIRED: &str = "EXPIRED";

/// Whether a draft cannot have expired by `now`. An expiry has no MAC, because it follows from the
/// sealed times alone: nothing that stands beside it in the store is asked. A draft that was made by
/// a clock more than a day ahead of `now` has been ended early, on purpose.
#[must_use]
pub fn cannot_have_expired(created_at: Timestamp, expires_at: Timestamp, now: Timestamp) -> bool {
    now + CLOCK_SLACK < expires_at && created_at <= now + WRONG_CLOCK
}

/// Whether a refusal's time in the store is the one that its decider's MAC binds, as far as a step
/// may take.
#[must_use]
pub fn is_time_of(by: &Decider, at: Timestamp) -> bool {
    at.since(by.at).max(by.at.since(at)) <= 2 * CLOCK_SLACK
}

/// Whether a yes was given when the draft was over. The store judges by its own clock, in the step that
/// claims; a node's idea of that clock may be ahead, so a yes that the store counted is not doubted for that.
#[must_use]
pub fn is_too_late(by: &Decider, expires_at: Timestamp) -> bool {
    by.at >= expires_at + CLOCK_SLACK
}

/// `purpose` keeps the MACs of one key apart; a tuple in JSON delimits itself.
fn mac<T: Serialize>(keys: &KeySet, opened: &Opened, purpose: &str, said: &T) -> Result<Digest, IntegrityFailed> {
    let ring = keys.ring(&opened.key_id).ok_or(IntegrityFailed)?;
    let input = (purpose, opened.draft.id.as_str(), opened.mac, said);
    keyed_json(&ring.outcome, &input).map_err(|_| IntegrityFailed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::base::chance::SeededChance;
    use crate::base::id::Principal;
    use crate::draft::decision::{Channel, DeciderKind};
    use crate::draft::record::sample;
    use crate::draft::seal;

    fn opened() -> (KeySet, Opened) {
        let chance = SeededChance::new(5);
        let keys = KeySet::ephemeral(&chance);
        let draft = sample::draft(&keys, br#"{"title":"x"}"#);
        let sealed = seal::seal(&draft, br#"{"title":"x"}"#, &keys, &chance).expect("seals");
        let opened = seal::open(&sealed, &draft.id, &keys).expect("opens");
        (keys, opened)
    }

    fn person(name: &str, opened: &Opened, seconds: u64) -> Decider {
        Decider {
            kind: DeciderKind::Approver,
            id: Principal::new(name).expect("a legal name"),
            auth_method: "bearer".to_owned(),
            channel: Channel::Api,
            at: opened.draft.created_at + Duration::from_secs(seconds),
        }
    }

    #[test]
    fn p6_an_end_is_bound_to_its_draft_and_to_every_word_of_it() {
        let (keys, opened) = opened();
        let at = opened.draft.created_at;
        let seen = Evidence::new(at, "attempt", "it ended", Some(200));
        let later = Evidence { at: at + Duration::from_secs(1), ..seen.clone() };
        let other_status = Evidence { upstream_status: Some(201), ..seen.clone() };
        let other_words = Evidence::new(at, "attempt", "it did not", Some(200));
        let ada = person("ada", &opened, 1);
        let (eve, ada_later) = (person("eve", &opened, 1), person("ada", &opened, 2));
        let end = End {
            epoch: 1,
            verdict: Verdict::Failed,
            failure: Some(Failure::NotSent),
            receipt: None,
            response: None,
            evidence: &seen,
            by: Some(&ada),
        };
        let mac = |end: End<'_>| end.mac(&keys, &opened).expect("macs");
        let one = mac(end);
        assert_eq!(one, mac(end));
        for (what, other) in [
            ("epoch", End { epoch: 2, ..end }),
            ("verdict", End { verdict: Verdict::Unverifiable, ..end }),
            ("failure", End { failure: Some(Failure::Refused), ..end }),
            ("no failure", End { failure: None, ..end }),
            ("response", End { response: Some(Digest::of(b"")), ..end }),
            ("time", End { evidence: &later, ..end }),
            ("status", End { evidence: &other_status, ..end }),
            ("words", End { evidence: &other_words, ..end }),
            ("resolver", End { by: Some(&eve), ..end }),
            ("time of the resolver", End { by: Some(&ada_later), ..end }),
            ("no resolver", End { by: None, ..end }),
        ] {
            assert_ne!(one, mac(other), "{what}");
        }
        let mut foreign = opened.clone();
        foreign.mac = Digest::of(b"another draft");
        assert_ne!(one, end.mac(&keys, &foreign).expect("macs"));
        foreign.key_id = "gone".to_owned();
        assert_eq!(end.mac(&keys, &foreign), Err(IntegrityFailed));
    }

    #[test]
    fn p2_a_refusal_is_bound_to_its_draft_and_to_who_said_what_when() {
        let (keys, opened) = opened();
        let mac = |how, by: Option<&Decider>, reason| refusal_mac(&keys, &opened, how, by, reason).expect("macs");
        let ada = person("ada", &opened, 1);
        let one = mac(Refusal::Rejected, Some(&ada), "no");
        assert_eq!(one, mac(Refusal::Rejected, Some(&ada), "no"));
        assert_ne!(one, mac(Refusal::Withdrawn, Some(&ada), "no"));
        assert_ne!(one, mac(Refusal::Rejected, Some(&person("eve", &opened, 1)), "no"));
        assert_ne!(one, mac(Refusal::Rejected, Some(&person("ada", &opened, 2)), "no"));
        assert_ne!(one, mac(Refusal::Rejected, None, "no"));
        assert_ne!(one, mac(Refusal::Rejected, Some(&ada), "yes"));
    }

    #[test]
    fn an_expiry_follows_from_the_sealed_times_and_from_now_alone() {
        let hour = |n: u64| Timestamp::from_millis(1_700_000_000_000) + Duration::from_secs(n * 3600);
        // Made, over, now, in hours; whether it cannot be.
        for (created, expires, now, forged) in [
            (0, 1, 0, true),
            (0, 2, 1, true),
            (0, 1, 1, false),
            (0, 1, 400, false),
            (0, 200, 190, true),
            // Made by a clock that was two days ahead.
            (48, 49, 0, false),
            (23, 25, 0, true),
        ] {
            let found = cannot_have_expired(hour(created), hour(expires), hour(now));
            assert_eq!(found, forged, "{created} {expires} {now}");
        }
    }
}
