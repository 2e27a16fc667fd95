//! The facade's words: names of statuses, reasons, and the exact texts of its refusals.
//!
//! Owns those tables. What the guard says of a refusal stays beside them, as `guidance`.

use serde_json::Value;

use crate::base::code::Code;
use crate::draft::outcome::Failure;
use crate::draft::state::Status;
use crate::guard::problem::Problem;
use crate::guard::views::DraftView;

use super::asserted;

/// The name of a task's status; `opened`: an approver has opened it or voted.
pub(super) const fn name(status: Status, opened: bool) -> &'static str {
    match status {
        Status::Pending if opened => "RECEIVED",
        Status::Pending => "PENDING",
        Status::Running | Status::Verifying => "CONFIRMED",
        Status::Succeeded => "EXECUTED",
        Status::Failed => "FAILED",
        Status::Unverifiable => "UNKNOWN",
        Status::Rejected => "REJECTED",
        Status::Expired => "EXPIRED",
        Status::Withdrawn => "WITHDRAWN",
    }
}

/// Every name, for `/openapi.json`.
pub(in crate::control) const NAMES: [&str; 9] =
    ["PENDING", "RECEIVED", "CONFIRMED", "EXECUTED", "FAILED", "UNKNOWN", "REJECTED", "EXPIRED", "WITHDRAWN"];

/// The name of the status of a draft.
pub(super) fn name_of(draft: &DraftView) -> &'static str {
    name(draft.line.status, draft.line.seen || !draft.votes.is_empty())
}

/// `failure_reason`: why the task was not carried out, or `None` where it was or may be. Says nothing of
/// the upstream's answer but its status.
pub(super) fn reason(draft: &DraftView) -> Option<String> {
    let refused = || draft.refused.as_ref().map(|refused| asserted::without(&refused.reason).to_owned());
    match draft.line.status {
        Status::Pending | Status::Running | Status::Verifying | Status::Succeeded => None,
        Status::Failed => Some(failed(draft)),
        Status::Unverifiable => Some("the result cannot be verified".to_owned()),
        Status::Rejected => refused(),
        Status::Expired => Some(EXPIRED.to_owned()),
        Status::Withdrawn => refused(),
    }
}

fn failed(draft: &DraftView) -> String {
    match draft.failure {
        Some(Failure::NotSent) => "the upstream was not reached and nothing was sent".to_owned(),
        Some(Failure::ReleaseTooLate) => "it could not be sent in time after the confirm and was not sent".to_owned(),
        Some(Failure::Refused) => match draft.receipt.as_ref().and_then(|receipt| receipt.upstream_status) {
            Some(status) => format!("the upstream answered {status}"),
            None => "the upstream refused it".to_owned(),
        },
        Some(Failure::Resolved) => "a person found out that it was not carried out".to_owned(),
        Some(Failure::Integrity) => "its confirmation does not verify and it was not sent".to_owned(),
        None => "why is not known here".to_owned(),
    }
}

/// 404.
const NOT_FOUND: &str = "task not found";
/// 410.
pub(super) const EXPIRED: &str = "task expired";
/// 409 of a reject.
pub(super) const NOT_PENDING: &str = "task is not pending";

/// 409 of a confirm.
pub(super) fn cannot_confirm(status: &str) -> String {
    format!("task status is {status}, cannot confirm")
}

/// A problem of the guard's in the facade's words.
pub(super) fn told(mut problem: Problem) -> Problem {
    let exact = match problem.code {
        Code::DraftNotFound => NOT_FOUND.to_owned(),
        Code::DraftExpired => EXPIRED.to_owned(),
        Code::DraftAlreadyDecided => {
            let status = problem.members.get("status").and_then(Value::as_str).and_then(Status::parse);
            let Some(status) = status.map(|status| name(status, false)) else { return problem };
            problem.members.insert("status".to_owned(), status.into());
            cannot_confirm(status)
        }
        _ => return problem,
    };
    let said = std::mem::replace(&mut problem.detail, exact);
    problem.guidance.get_or_insert(said);
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_name_and_every_name_a_status() {
        let mut names: Vec<&str> =
            Status::ALL.iter().flat_map(|status| [name(*status, false), name(*status, true)]).collect();
        names.sort_unstable();
        names.dedup();
        let mut known = NAMES.to_vec();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn what_the_guard_said_stays_beside_the_exact_words() {
        let problem = told(Problem::new(Code::DraftNotFound, "There is no such draft."));
        assert_eq!(
            (problem.detail.as_str(), problem.guidance.as_deref()),
            (NOT_FOUND, Some("There is no such draft."))
        );
        let decided = told(Problem::new(Code::DraftAlreadyDecided, "POLICY").with("status", &"rejected"));
        assert_eq!(decided.detail, "task status is REJECTED, cannot confirm");
        assert_eq!(decided.members["status"], "REJECTED");
        let other = Problem::new(Code::ApproverNotAllowed, "No right.");
        assert_eq!(told(other.clone()), other);
    }
}
