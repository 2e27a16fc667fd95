//! The closed list of problem codes. What each one answers stands in one table, `guard::problem`.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A machine-readable reason why a call, a decision or a request was not carried out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it stands on the wire, `UPPER_SNAKE`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Reads a code as it stands on the wire.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// Framing, path or method that two parsers could read in two ways.
    RequestAmbiguous = "REQUEST_AMBIGUOUS";
    /// The body is not what its type says.
    BodyMalformed = "BODY_MALFORMED";
    /// The caller's key is empty, over-long, repeated or has control characters.
    IdempotencyKeyInvalid = "IDEMPOTENCY_KEY_INVALID";
    /// No or a wrong agent credential.
    AgentUnknown = "AGENT_UNKNOWN";
    /// A write that no tool declares.
    ToolNotFound = "TOOL_NOT_FOUND";
    /// The capability is planned: nothing can carry it out.
    CapabilityPlanned = "CAPABILITY_PLANNED";
    /// The capability is forbidden to agents.
    CapabilityForbidden = "CAPABILITY_FORBIDDEN";
    /// A declared identity source is absent.
    IdentityMissing = "IDENTITY_MISSING";
    /// The role may not ask for this tool.
    RoleNotAllowed = "ROLE_NOT_ALLOWED";
    /// The subject is somebody else than the owner.
    SubjectMismatch = "SUBJECT_MISMATCH";
    /// A read-only administration context.
    AdminReadonly = "ADMIN_READONLY";
    /// The draft belongs to another owner, initiator or session.
    DraftNotYours = "DRAFT_NOT_YOURS";
    /// This approver has no right over this draft.
    ApproverNotAllowed = "APPROVER_NOT_ALLOWED";
    /// The one who asked may not decide.
    SelfConfirmForbidden = "SELF_CONFIRM_FORBIDDEN";
    /// An agent's credential tried to decide.
    AgentMayNotDecide = "AGENT_MAY_NOT_DECIDE";
    /// Never known, or past retention.
    DraftNotFound = "DRAFT_NOT_FOUND";
    /// Decided already, otherwise.
    DraftAlreadyDecided = "DRAFT_ALREADY_DECIDED";
    /// The approver saw something else than what is stored.
    ArgsHashMismatch = "ARGS_HASH_MISMATCH";
    /// The stored draft does not verify.
    DraftIntegrityFailed = "DRAFT_INTEGRITY_FAILED";
    /// Outside the confirmation window.
    ConfirmWindowClosed = "CONFIRM_WINDOW_CLOSED";
    /// The draft's time is over.
    DraftExpired = "DRAFT_EXPIRED";
    /// A person or the guard rejected the draft.
    DraftRejected = "DRAFT_REJECTED";
    /// The body is longer than `max_body`.
    BodyTooLarge = "BODY_TOO_LARGE";
    /// The media type, charset or content coding is not one that this tool takes.
    MediaTypeUnsupported = "MEDIA_TYPE_UNSUPPORTED";
    /// The args do not fit the tool's schema.
    ArgsInvalid = "ARGS_INVALID";
    /// A confirm without `args_hash`.
    ArgsHashRequired = "ARGS_HASH_REQUIRED";
    /// The card could not be made complete.
    PreviewIncomplete = "PREVIEW_INCOMPLETE";
    /// The same key came with other args, or another decision.
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED";
    /// A control request whose body has unknown or missing members.
    RequestInvalid = "REQUEST_INVALID";
    /// An attempt to execute without a claimed draft.
    ToolConfirmationRequired = "TOOL_CONFIRMATION_REQUIRED";
    /// The owner has too many open drafts.
    TooManyPending = "TOO_MANY_PENDING";
    /// Too many holds in the window, or too many bytes held in memory.
    RateLimited = "RATE_LIMITED";
    /// Provably not sent.
    UpstreamNotReached = "UPSTREAM_NOT_REACHED";
    /// Confirmed and not carried out: not sent, or refused by the upstream.
    ExecutionFailed = "EXECUTION_FAILED";
    /// The claim was too old to be sent.
    ReleaseTooLate = "RELEASE_TOO_LATE";
    /// Executed; the response is longer than `max_response`.
    ResultTooLarge = "RESULT_TOO_LARGE";
    /// A hold while the store is down.
    ConfirmationServiceUnavailable = "CONFIRMATION_SERVICE_UNAVAILABLE";
    /// A decision or a status read while the store is down.
    DecisionUncertain = "DECISION_UNCERTAIN";
    /// No service for this request.
    RouteNotFound = "ROUTE_NOT_FOUND";
    /// An address that is never reachable through the guard.
    HostRefused = "HOST_REFUSED";
    /// A method that is never forwarded.
    MethodRefused = "METHOD_REFUSED";
    /// The request did not arrive whole in time.
    RequestTimeout = "REQUEST_TIMEOUT";
    /// An `Expect` other than `100-continue`.
    ExpectationFailed = "EXPECTATION_FAILED";
    /// The head is longer than its bounds.
    HeadTooLarge = "HEAD_TOO_LARGE";
    /// No or a wrong credential on the control listener.
    CredentialUnknown = "CREDENTIAL_UNKNOWN";
    /// The form's token, `Origin` or `Host` is wrong.
    CsrfFailed = "CSRF_FAILED";
    /// A read that broke or timed out.
    UpstreamFailed = "UPSTREAM_FAILED";
    /// The outcome cannot be verified.
    CommitOutcomeUnknown = "COMMIT_OUTCOME_UNKNOWN";
}

impl Code {
    /// The code in kebab case, as it stands in `type` (`urn:countersign:problem:<this>`).
    #[must_use]
    pub fn kebab(self) -> String {
        self.as_str().to_ascii_lowercase().replace('_', "-")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a problem code"))
    }
}
