//! Who decided what, when and through which channel.

use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::id::Principal;
use crate::base::time::Timestamp;

/// What kind of principal decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeciderKind {
    /// A person with an approver's credential.
    Approver,
    /// The owner, through a product's own backend.
    Owner,
    /// A named rule of the policy.
    Policy,
    /// The guard itself; only ever rejects.
    Guard,
}

/// How the decision reached the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// The control API.
    Api,
    /// The console's form.
    Console,
    /// A confirmation token, from an app.
    Token,
    /// A rule of the guard.
    Guard,
}

/// Who decides: always named, never anonymous.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decider {
    /// What kind of principal.
    pub kind: DeciderKind,
    /// Its name: an approver's name, `app:NAME`, `policy:ID`, `guard`.
    pub id: Principal,
    /// How it proved who it is: `bearer`, `session`, `token`, `rule`.
    pub auth_method: String,
    /// The channel.
    pub channel: Channel,
    /// When, by the store's clock.
    pub at: Timestamp,
}

/// Most characters that a person may write beside a decision: a comment, a reason.
pub const WORDS_CHARS_MAX: usize = 1_000;

/// A vote or a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Yes: release it.
    Confirm,
    /// No.
    Reject,
}

impl Verb {
    /// `confirm` or `reject`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirm => "confirm",
            Self::Reject => "reject",
        }
    }
}

/// One yes, bound by a MAC to the draft, the epoch it counts for, the decider and the time, so
/// that whoever can write to the store cannot forge a confirmation (promise 2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Who.
    pub decider: Decider,
    /// The epoch that the claim will have if this vote completes the quorum.
    pub epoch: u64,
    /// What the person wrote beside the click; at most [`WORDS_CHARS_MAX`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// [`crate::draft::binding::vote_mac`].
    pub mac: Digest,
}

/// Why a draft ended without being sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Who said no. `None` where nobody did (expiry, withdrawal by the agent).
    pub by: Option<Decider>,
    /// A person's words or the guard's reason code (`POLICY_CHANGED`, …).
    pub reason: String,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// [`super::proof::refusal_mac`]; `None` for an expiry, which follows from the draft's times.
    pub mac: Option<Digest>,
}

impl Refused {
    /// Whether a person said no: then the same call is refused for the refusal memory.
    #[must_use]
    pub fn by_person(&self) -> bool {
        matches!(self.by.as_ref().map(|by| by.kind), Some(DeciderKind::Approver | DeciderKind::Owner))
    }
}
