//! The one table from a code to what a client is told (RFC 9457). Exhaustive, no default arm.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::code::Code;
use crate::base::id::DraftId;
use crate::base::refusal::{FieldError, Refusal};
use crate::store::contract::StoreError;

use super::answer::Answer;

/// What a problem says about the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executed {
    /// It certainly did not happen.
    No,
    /// It happened.
    Yes,
    /// Nobody can tell.
    Unknown,
    /// The problem is not about an effect.
    NotSaid,
}

impl Executed {
    /// `false`, `true`, `"unknown"` or `null`.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            Self::No => Value::Bool(false),
            Self::Yes => Value::Bool(true),
            Self::Unknown => Value::String("unknown".to_owned()),
            Self::NotSaid => Value::Null,
        }
    }
}

/// A line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// HTTP status.
    pub status: u16,
    /// What it says about the effect.
    pub executed: Executed,
    /// Whether the same request may be sent again.
    pub safe_to_retry: bool,
    /// A short title.
    pub title: &'static str,
}

/// The table.
#[must_use]
#[allow(clippy::too_many_lines)]
pub const fn line(code: Code) -> Line {
    use Executed::{No, NotSaid, Unknown, Yes};
    const fn of(status: u16, executed: Executed, safe_to_retry: bool, title: &'static str) -> Line {
        Line { status, executed, safe_to_retry, title }
    }
    match code {
        Code::RequestAmbiguous => of(400, No, false, "The request can be read in two ways"),
        Code::BodyMalformed => of(400, No, false, "The body is not what its type says"),
        Code::IdempotencyKeyInvalid => of(400, No, false, "The Idempotency-Key is not usable"),
        Code::AgentUnknown => of(401, No, false, "No known agent credential"),
        Code::ToolNotFound => of(403, No, false, "No tool declares this call"),
        Code::CapabilityPlanned => of(403, No, false, "This is planned and cannot be done yet"),
        Code::CapabilityForbidden => of(403, No, false, "Agents may not do this"),
        Code::IdentityMissing => of(403, No, false, "The call does not say for whom it is made"),
        Code::RoleNotAllowed => of(403, No, false, "This role may not ask for this"),
        Code::SubjectMismatch => of(403, No, false, "The call touches somebody else's data"),
        Code::AdminReadonly => of(403, No, false, "A read-only administration context"),
        Code::DraftNotYours => of(403, NotSaid, false, "Not yours"),
        Code::ApproverNotAllowed => of(403, NotSaid, false, "No right to decide this"),
        Code::SelfConfirmForbidden => of(403, NotSaid, false, "The one who asked may not decide"),
        Code::AgentMayNotDecide => of(403, NotSaid, false, "An agent may not decide"),
        Code::DraftNotFound => of(404, NotSaid, false, "No such draft"),
        Code::DraftAlreadyDecided => of(409, NotSaid, false, "Decided already"),
        Code::ArgsHashMismatch => of(409, No, false, "What was seen is not what is stored"),
        Code::DraftIntegrityFailed => of(409, No, false, "The stored draft does not verify"),
        Code::ConfirmWindowClosed => of(409, No, false, "Outside the confirmation window"),
        Code::DraftExpired => of(410, No, false, "The draft's time is over"),
        Code::DraftRejected => of(403, No, false, "The call was rejected"),
        Code::BodyTooLarge => of(413, No, false, "The body is too large"),
        Code::MediaTypeUnsupported => of(415, No, false, "The body's type is not taken here"),
        Code::ArgsInvalid => of(422, No, false, "The args do not fit the tool"),
        Code::ArgsHashRequired => of(422, No, false, "A confirm must name what was seen"),
        Code::PreviewIncomplete => of(422, No, false, "The call cannot be shown completely"),
        Code::IdempotencyKeyReused => of(422, No, false, "The key was used for something else"),
        Code::RequestInvalid => of(422, NotSaid, false, "The request does not fit"),
        Code::ToolConfirmationRequired => of(428, No, false, "A confirmation is required"),
        Code::TooManyPending => of(429, No, true, "Too many open drafts"),
        Code::RateLimited => of(429, No, true, "Too many calls"),
        Code::UpstreamNotReached => of(502, No, false, "The upstream was not reached"),
        Code::ExecutionFailed => of(500, No, false, "Confirmed, and not carried out"),
        Code::ReleaseTooLate => of(502, No, false, "The release came too late"),
        Code::ResultTooLarge => of(502, Yes, false, "Executed; the result is too large to keep"),
        Code::ConfirmationServiceUnavailable => of(503, No, true, "The confirmation service is unavailable"),
        Code::DecisionUncertain => of(503, Unknown, true, "It is not known whether this was recorded"),
        Code::RouteNotFound => of(404, No, false, "No service for this request"),
        Code::HostRefused => of(403, No, false, "This address is never reachable through the guard"),
        Code::MethodRefused => of(405, No, false, "This method is never forwarded"),
        Code::RequestTimeout => of(408, No, false, "The request did not arrive in time"),
        Code::ExpectationFailed => of(417, No, false, "An expectation that the guard does not meet"),
        Code::HeadTooLarge => of(431, No, false, "The request's head is too large"),
        Code::CredentialUnknown => of(401, NotSaid, false, "No known credential"),
        Code::CsrfFailed => of(403, NotSaid, false, "The form did not come from this console"),
        Code::UpstreamFailed => of(502, NotSaid, true, "The upstream broke off"),
        Code::CommitOutcomeUnknown => of(504, Unknown, false, "The result cannot be verified"),
    }
}

/// When to ask again where the store is away (RFC 9110, section 10.2.3): most failures of a connection heal
/// with the next step, a failover takes some seconds.
const RETRY_AFTER_SECONDS: &str = "5";

/// The text of `CONFIRMATION_SERVICE_UNAVAILABLE`, in both languages.
pub const UNAVAILABLE_TEXT: &str = "安全确认服务暂不可用，请稍后重试。 / The confirmation service is unavailable; \
nothing was executed. Reads are not affected.";

/// The text of `COMMIT_OUTCOME_UNKNOWN`, in both languages.
pub const UNKNOWN_TEXT: &str = "结果暂时无法核验 / The result cannot be verified at present; do not repeat the call.";

/// A problem on its way to a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The code.
    pub code: Code,
    /// A policy's own code, which stands in `code` instead.
    pub policy_code: Option<String>,
    /// What happened and what to do, one or two sentences.
    pub detail: String,
    /// What it says about the effect, where the table's word is not exact enough.
    pub executed: Executed,
    /// Whether the upstream was called on behalf of this call.
    pub upstream_called: bool,
    /// Which draft.
    pub draft_id: Option<DraftId>,
    /// The policy's guidance.
    pub guidance: Option<String>,
    /// Where the mistakes are.
    pub errors: Vec<FieldError>,
    /// Further members (`status`, `reason`, `receipt`, `expired_at`, …).
    pub members: Map<String, Value>,
}

impl Problem {
    /// A problem with a sentence.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let upstream_called = matches!(code, Code::ResultTooLarge | Code::UpstreamFailed | Code::CommitOutcomeUnknown);
        Self {
            code,
            policy_code: None,
            detail: detail.into(),
            executed: line(code).executed,
            upstream_called,
            draft_id: None,
            guidance: None,
            errors: Vec::new(),
            members: Map::new(),
        }
    }

    /// Names the draft.
    #[must_use]
    pub fn about(mut self, id: &DraftId) -> Self {
        self.draft_id = Some(id.clone());
        self
    }

    /// Adds a member.
    #[must_use]
    pub fn with<T: Serialize>(mut self, name: &str, value: &T) -> Self {
        self.members.insert(name.to_owned(), serde_json::to_value(value).unwrap_or(Value::Null));
        self
    }

    /// A hold that the store could not take: nothing was executed (promise 7).
    #[must_use]
    pub fn hold_unavailable() -> Self {
        Self::new(Code::ConfirmationServiceUnavailable, UNAVAILABLE_TEXT)
    }

    /// A decision or a status read that the store could not answer. The cause goes to the log.
    #[must_use]
    pub fn uncertain(_error: &StoreError) -> Self {
        Self::new(
            Code::DecisionUncertain,
            "The store did not answer. It may or may not have been recorded; ask again with the same key.",
        )
    }

    /// The status it is answered with.
    #[must_use]
    pub const fn status(&self) -> u16 {
        line(self.code).status
    }

    /// The problem document.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let Line { status, safe_to_retry, title, .. } = line(self.code);
        let mut body = Map::new();
        let code = self.policy_code.clone().unwrap_or_else(|| self.code.as_str().to_owned());
        let kebab = code.to_ascii_lowercase().replace('_', "-");
        let members = [
            ("type", Value::String(format!("urn:countersign:problem:{kebab}"))),
            ("title", Value::String(title.to_owned())),
            ("status", Value::from(status)),
            ("detail", Value::String(self.detail.clone())),
            ("code", Value::String(code)),
            ("executed", self.executed.to_value()),
            ("upstream_called", Value::Bool(self.upstream_called)),
            ("safe_to_retry", Value::Bool(safe_to_retry)),
        ];
        for (name, value) in members {
            body.insert(name.to_owned(), value);
        }
        // A problem about a decided draft says the draft's status word in `status`. RFC 9457
        // section 3.1 lets readers ignore a member of another type; the number is in the head.
        body.extend(self.members.clone());
        if let Some(id) = &self.draft_id {
            body.insert("draft_id".to_owned(), Value::String(id.to_string()));
        }
        if let Some(guidance) = &self.guidance {
            body.insert("guidance".to_owned(), Value::String(guidance.clone()));
        }
        if !self.errors.is_empty() {
            body.insert("errors".to_owned(), serde_json::to_value(&self.errors).unwrap_or(Value::Null));
        }
        let mut answer = Answer::typed(status, "application/problem+json", &body);
        // Client libraries that know this header leave the call alone. Only what is refused before
        // anything was held may be sent again by a library on its own.
        let again_by_itself =
            matches!(self.code, Code::ConfirmationServiceUnavailable | Code::TooManyPending | Code::RateLimited);
        if !again_by_itself {
            answer = answer.with("x-should-retry", "false");
        }
        if status == 503 {
            answer = answer.with("Retry-After", RETRY_AFTER_SECONDS);
        }
        answer
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let mut problem = Self::new(refusal.code, refusal.detail);
        problem.policy_code = refusal.policy_code;
        problem.guidance = refusal.guidance;
        problem.errors = refusal.errors;
        problem
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;

    fn body(problem: &Problem) -> Value {
        serde_json::from_slice(&problem.answer().body).expect("a problem is JSON")
    }

    #[test]
    fn the_whole_table() {
        let mut table = String::new();
        for code in Code::ALL {
            let Line { status, executed, safe_to_retry, title } = line(*code);
            table.push_str(&format!(
                "{code} {status} executed={} retry={safe_to_retry}: {title}\n",
                executed.to_value()
            ));
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn p6_only_an_executed_call_says_so() {
        for code in Code::ALL {
            let said = body(&Problem::new(*code, "x"))["executed"].clone();
            assert_eq!(said == Value::Bool(true), *code == Code::ResultTooLarge, "{code}");
        }
    }

    #[test]
    fn a_policys_own_code_stands_in_place_of_ours() {
        let mut refusal = Refusal::new(Code::ArgsInvalid, "no title").with_error("/title", "is empty");
        refusal.policy_code = Some("TODO_TITLE_REQUIRED".to_owned());
        let problem = Problem::from(refusal);
        let body = body(&problem);
        assert_eq!(problem.status(), 422);
        assert_eq!(body["code"], "TODO_TITLE_REQUIRED");
        assert_eq!(body["type"], "urn:countersign:problem:todo-title-required");
        assert_eq!(body["errors"][0]["pointer"], "/title");
        assert_eq!(body["safe_to_retry"], false);
    }

    #[test]
    fn a_decided_draft_says_its_own_status() {
        let body = body(&Problem::new(Code::DraftAlreadyDecided, "x").with("status", &"rejected"));
        assert_eq!(body["status"], "rejected");
    }

    #[test]
    fn a_store_that_is_away_says_when_to_ask_again() {
        for code in Code::ALL {
            let problem = Problem::new(*code, "x");
            let when = problem.answer().headers.into_iter().find(|(name, _)| name == "Retry-After");
            let expected = (problem.status() == 503).then(|| ("Retry-After".to_owned(), "5".to_owned()));
            assert_eq!(when, expected, "{code}");
        }
    }

    #[test]
    fn only_what_was_never_held_invites_a_library_to_retry() {
        for code in Code::ALL {
            let answer = Problem::new(*code, "x").answer();
            let told = answer.headers.iter().any(|(name, value)| name == "x-should-retry" && value == "false");
            let invited =
                matches!(code, Code::ConfirmationServiceUnavailable | Code::TooManyPending | Code::RateLimited);
            assert_eq!(told, !invited, "{code}");
        }
    }
}
