//! The proof of an outcome. No receipt, no success (promise 6).

use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::id::{CapabilityId, DraftId, ServiceName, ToolName};
use crate::base::time::Timestamp;

use super::decision::Decider;

/// What the outcome was judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// The upstream's status.
    Status,
    /// The upstream's body.
    Body,
    /// A probe.
    Probe,
    /// A person.
    Person,
}

/// The status a receipt proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptStatus {
    /// It happened.
    Succeeded,
    /// The upstream refused it, or it was provably not sent.
    Failed,
}

/// A receipt, with the members of the wire in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// `rc_N_ULID`, derived from the draft's id.
    pub id: String,
    /// The draft.
    pub action_id: DraftId,
    /// The upstream service.
    pub service: ServiceName,
    /// The tool.
    pub tool: ToolName,
    /// The capability.
    pub capability: CapabilityId,
    /// What it proves.
    pub status: ReceiptStatus,
    /// One sentence for a person, from the policy's `summary` template.
    pub summary: String,
    /// What it was judged by.
    pub judged: Judged,
    /// Whether a bulk answer succeeded only in part.
    pub partial: bool,
    /// Whether the upstream only accepted it (202 without a declared `async`).
    pub accepted: bool,
    /// Whether it was restored from a probe or by a person.
    pub recovered: bool,
    /// Whether a later receipt replaces this one.
    pub superseded: bool,
    /// The draft's args hash.
    pub args_hash: Digest,
    /// SHA-256 of the request as it was sent: method, target, headers without credentials, body.
    pub sent_digest: Option<Digest>,
    /// The policy version in force at the hold.
    pub policy_version: String,
    /// Who decided.
    pub decided_by: Vec<Decider>,
    /// The effect key that went upstream.
    pub effect_key: Option<String>,
    /// How many attempts were marked.
    pub attempts: u32,
    /// The upstream's status.
    pub upstream_status: Option<u16>,
    /// SHA-256 of the whole response body.
    pub response_digest: Option<Digest>,
    /// Whether the stored response is shorter than the upstream's.
    pub truncated: bool,
    /// When the sending mark was set.
    pub sent_at: Option<Timestamp>,
    /// When it was settled.
    pub settled_at: Timestamp,
}

impl Receipt {
    /// Whether an agent may tell its user that the call was carried out.
    #[must_use]
    pub fn may_claim_success(&self) -> bool {
        self.status == ReceiptStatus::Succeeded && !self.accepted && !self.partial
    }
}
