//! Where a draft stands, in words for people: one table for the console and the command line.
//!
//! Owns those words. They say what is known and not a word more: done only where there is a receipt,
//! and of an ended draft never that something will be sent.

use serde::Serialize;

use crate::draft::decision::{Decider, DeciderKind, Refused};
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
    /// Why it failed, as the API says it.
    pub failure: Option<&'a str>,
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
        Status::Failed => ("Not done.", failed(standing)),
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

fn failed(standing: &Standing<'_>) -> String {
    match (standing.failure, standing.receipt.and_then(|receipt| receipt.upstream_status)) {
        (Some("not_sent"), _) => "It was confirmed. The upstream was not reached, and nothing was sent.".to_owned(),
        (Some("release_too_late"), _) => {
            "It was confirmed, and could not be sent in time after that. Nothing was sent.".to_owned()
        }
        (Some("resolved"), _) => "A person looked and recorded that it did not happen.".to_owned(),
        (Some("integrity"), _) => {
            "Its confirmation did not verify: somebody wrote to the store. Nothing was sent. Tell your operator."
                .to_owned()
        }
        (_, Some(status)) => format!("It was confirmed and sent. The upstream refused it with status {status}."),
        (_, None) => "It did not happen.".to_owned(),
    }
}

fn rejected(refused: Option<&Refused>) -> String {
    let Some(refused) = refused else { return "Nothing was sent.".to_owned() };
    let who = refused.by.as_ref().map_or_else(|| "nobody".to_owned(), by);
    // A detail may follow the word.
    let meaning = match refused.reason.split(' ').next().unwrap_or_default() {
        "POLICY_CHANGED" => " (the policy became stricter after the hold)",
        "RESOURCE_CHANGED" => " (what it would change was changed by somebody else)",
        "REPLACED" => " (an edited draft took its place)",
        "EARLIER_DRAFT_INTEGRITY" => " (an equal draft before it does not verify)",
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
    match (standing.status, standing.phase, standing.failure) {
        _ if !standing.intact => "The request",
        (Status::Pending, ..) => "What will be sent, once confirmed",
        (Status::Running, Some(Phase::Claimed), _) => "What is about to be sent",
        (Status::Running | Status::Verifying | Status::Unverifiable, ..) | (Status::Failed, _, Some("resolved")) => {
            "What was sent, or may have been"
        }
        (Status::Failed, _, Some("not_sent" | "release_too_late" | "integrity"))
        | (Status::Rejected | Status::Expired | Status::Withdrawn, ..) => "What was asked for, and not sent",
        (Status::Succeeded | Status::Failed, ..) => "What was sent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(status: Status, failure: Option<&str>) -> Standing<'_> {
        Standing { status, phase: None, intact: true, voted: false, failure, receipt: None, refused: None }
    }

    #[test]
    fn only_what_waits_will_be_sent() {
        let failures = [None, Some("not_sent"), Some("release_too_late"), Some("refused"), Some("resolved")];
        for status in Status::ALL {
            for failure in failures {
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
    fn what_was_provably_not_sent_is_not_called_sent() {
        for failure in ["not_sent", "release_too_late", "integrity"] {
            let told = Told::of(&standing(Status::Failed, Some(failure)));
            assert_eq!(told.request, "What was asked for, and not sent", "{failure}");
            assert!(told.sentence.to_lowercase().contains("nothing was sent"), "{failure}: {}", told.sentence);
        }
    }
}
