//! Where a draft stands, in words for people: one table for the console and the command line.
//!
//! Owns those words. They say what is known and not a word more: done only where there is a receipt,
//! and of an ended draft never that something will be sent.

use serde::Serialize;

use crate::draft::decision::{Decider, DeciderKind, Refused};
use crate::draft::outcome::Failure;
use crate::draft::receipt::Receipt;
use crate::draft::state::{Phase, Status};

/// What is known of a draft.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Its status.
    pub status: Status,
    /// Where it stands while it is running.
    pub phase: Option<Phase>,
    /// Whether the stored draft verifies.
    pub intact: bool,
    /// Whether somebody has voted for it.
    pub voted: bool,
    /// Why it failed; `None` also where that is a word which this program does not know.
    pub failure: Option<Failure>,
    /// The proof.
    pub receipt: Option<&'a Receipt>,
    /// Who said no, and why.
    pub refused: Option<&'a Refused>,
}

/// The words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// A few words.
    pub headline: &'static str,
    /// What that means and what to do. May hold what somebody else wrote.
    pub sentence: String,
    /// What the request below is: one that will be sent, was sent, or was not.
    pub request: &'static str,
}

impl Told {
    /// The words for a draft.
    #[must_use]
    pub fn of(standing: &Standing<'_>) -> Self {
        let (headline, sentence) = words(standing);
        Self { headline, sentence, request: request(standing) }
    }
}

fn words(standing: &Standing<'_>) -> (&'static str, String) {
    let of = |headline, sentence: &str| (headline, sentence.to_owned());
    match standing.status {
        _ if !standing.intact => of(
            "What is stored does not verify.",
            "Nothing it says of decisions and of the outcome is believed. Do not repeat the call.",
        ),
        Status::Pending if standing.voted => of(
            "Waiting for more votes.",
            "Nothing was sent. With enough votes it is sent once, exactly as it stands here.",
        ),
        Status::Pending => of(
            "Waiting for a decision.",
            "Nothing was sent. Once confirmed, it is sent once, exactly as it stands here.",
        ),
        Status::Running if standing.phase == Some(Phase::Claimed) => {
            of("Confirmed.", "It is about to be sent. There is nothing more to do.")
        }
        Status::Running => of("Confirmed and sent.", "The answer is awaited. There is nothing more to do."),
        Status::Verifying => of(
            "Confirmed and sent; no clear answer came back.",
            "What happened is being found out. Do not repeat the call.",
        ),
        Status::Succeeded => succeeded(standing.receipt),
        Status::Failed => failed(standing),
        Status::Unverifiable => of(
            "It cannot be verified whether this happened.",
            "It was sent, and no answer tells. Look at the upstream; do not repeat the call before you know.",
        ),
        Status::Rejected => ("Rejected.", rejected(standing.refused)),
        Status::Expired => {
            of("Too late.", "Its time ended before anybody decided. Nothing was sent. The agent may ask again.")
        }
        Status::Withdrawn => {
            of("Taken back.", "The agent took the call back before anybody decided. Nothing was sent.")
        }
    }
}

/// What the receipt proves, and not a word more.
fn succeeded(receipt: Option<&Receipt>) -> (&'static str, String) {
    let proven = |headline| (headline, "There is a receipt.".to_owned());
    match receipt {
        None => ("The receipt is missing.", "Do not take it for done; look at the upstream.".to_owned()),
        Some(receipt) if receipt.accepted => proven("Accepted by the upstream; it does not say that it is done."),
        Some(receipt) if receipt.partial => proven("Done in part."),
        Some(receipt) if receipt.recovered => proven("Done, as a person found out."),
        Some(_) => ("Done.", "It was confirmed and sent once. There is a receipt.".to_owned()),
    }
}

fn failed(standing: &Standing<'_>) -> (&'static str, String) {
    let not_done = |sentence: &str| ("Not done.", sentence.to_owned());
    match standing.failure {
        Some(Failure::NotSent) => not_done("It was confirmed. The upstream was not reached, and nothing was sent."),
        Some(Failure::ReleaseTooLate) => {
            not_done("It was confirmed, and could not be sent in time after that. Nothing was sent.")
        }
        Some(Failure::Refused) => match standing.receipt.and_then(|receipt| receipt.upstream_status) {
            Some(status) => {
                not_done(&format!("It was confirmed and sent. The upstream refused it with status {status}."))
            }
            None => not_done("It was confirmed and sent. The upstream refused it."),
        },
        Some(Failure::Resolved) => not_done("A person looked and recorded that it did not happen."),
        Some(Failure::Integrity) => not_done(
            "Its confirmation did not verify: somebody wrote to the store. Nothing was sent. Tell your operator.",
        ),
        None => (
            "It failed, and why is not known here.",
            "Look at the receipt and at the upstream before you repeat it.".to_owned(),
        ),
    }
}

fn rejected(refused: Option<&Refused>) -> String {
    let Some(refused) = refused else { return "Nothing was sent.".to_owned() };
    let who = refused.by.as_ref().map_or_else(|| "nobody".to_owned(), by);
    let meaning = match refused.reason.as_str() {
        // A person may write whatever they like.
        _ if refused.by_person() => "",
        "POLICY_CHANGED" => " (the policy or the upstream's address changed after the hold)",
        "RESOURCE_CHANGED" => " (what it would change was changed by somebody else)",
        "REPLACED" => " (an edited draft took its place)",
        // The id follows.
        reason if reason.starts_with("EARLIER_DRAFT_INTEGRITY ") => " (an equal draft before it does not verify)",
        _ => "",
    };
    format!("By {who}: {}{meaning}. Nothing was sent.", refused.reason)
}

/// Who decided, in words.
#[must_use]
pub fn by(decider: &Decider) -> String {
    match decider.kind {
        DeciderKind::Approver => decider.id.to_string(),
        DeciderKind::Owner => format!("the owner, through {}", decider.id),
        DeciderKind::Policy => format!("the rule {}", decider.id),
        DeciderKind::Guard => "the guard".to_owned(),
    }
}

fn request(standing: &Standing<'_>) -> &'static str {
    match standing.status {
        _ if !standing.intact => "The request",
        Status::Pending => "What will be sent, once confirmed",
        Status::Running if standing.phase == Some(Phase::Claimed) => "What is about to be sent",
        Status::Running | Status::Verifying | Status::Unverifiable => MAYBE_SENT,
        Status::Failed => match standing.failure {
            Some(Failure::NotSent | Failure::ReleaseTooLate | Failure::Integrity) => NOT_SENT,
            Some(Failure::Refused) => "What was sent",
            Some(Failure::Resolved) | None => MAYBE_SENT,
        },
        Status::Rejected | Status::Expired | Status::Withdrawn => NOT_SENT,
        Status::Succeeded => "What was sent",
    }
}

const NOT_SENT: &str = "What was asked for, and not sent";
const MAYBE_SENT: &str = "What was sent, or may have been";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn standing(status: Status, failure: Option<Failure>) -> Standing<'static> {
        Standing { status, phase: None, intact: true, voted: false, failure, receipt: None, refused: None }
    }

    /// Every reason, and none that is known.
    fn failures() -> impl Iterator<Item = Option<Failure>> {
        Failure::ALL.into_iter().map(Some).chain([None])
    }

    #[test]
    fn only_what_waits_will_be_sent() {
        for status in Status::ALL {
            for failure in failures() {
                let told = Told::of(&standing(status, failure));
                let all = format!("{} {} {}", told.headline, told.sentence, told.request).to_lowercase();
                let future = ["once confirmed", "will be sent", "is sent once"].iter().any(|words| all.contains(words));
                assert_eq!(future, status == Status::Pending, "{status} {failure:?}: {all}");
            }
        }
    }

    #[test]
    fn p6_nothing_is_done_without_a_receipt() {
        for status in Status::ALL {
            let told = Told::of(&standing(status, None));
            assert!(!told.headline.starts_with("Done"), "{status}: {told:?}");
        }
    }

    #[test]
    fn what_was_provably_not_sent_is_not_called_sent_and_nothing_else_is_called_unsent() {
        for failure in failures() {
            let unsent = match failure {
                Some(Failure::NotSent | Failure::ReleaseTooLate | Failure::Integrity) => true,
                Some(Failure::Refused | Failure::Resolved) | None => false,
            };
            let told = Told::of(&standing(Status::Failed, failure));
            assert_eq!(told.request == NOT_SENT, unsent, "{failure:?}: {told:?}");
            assert_eq!(told.sentence.to_lowercase().contains("nothing was sent"), unsent, "{failure:?}: {told:?}");
        }
    }

    #[test]
    fn of_a_failure_without_a_known_reason_nothing_is_guessed() {
        let told = Told::of(&standing(Status::Failed, None));
        assert_ne!(told.headline, "Not done.");
        assert!(told.sentence.contains("Look at the receipt and at the upstream"), "{told:?}");
        assert_eq!(told.request, MAYBE_SENT);
    }

    #[test]
    fn only_the_guards_own_reasons_are_explained() {
        let refused = |kind: DeciderKind, reason: &str| {
            let by = serde_json::json!({"kind": kind, "id": "x", "auth_method": "rule", "channel": "api",
                                        "at": "2026-01-01T00:01:00.000Z"});
            let refused =
                serde_json::json!({"by": by, "reason": reason, "at": "2026-01-01T00:01:00.000Z", "mac": null});
            rejected(Some(&serde_json::from_value(refused).unwrap()))
        };
        for reason in ["POLICY_CHANGED", "EARLIER_DRAFT_INTEGRITY dr_1"] {
            assert!(refused(DeciderKind::Guard, reason).contains(&format!("{reason} (")), "{reason}");
            assert!(!refused(DeciderKind::Approver, reason).contains('('), "a person wrote {reason}");
        }
        for other in ["EARLIER_DRAFT_INTEGRITY", "EARLIER_DRAFT_INTEGRITYdr_1", "POLICY_CHANGED again"] {
            assert!(!refused(DeciderKind::Guard, other).contains('('), "{other}");
        }
    }
}
