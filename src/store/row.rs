//! What a store keeps of a draft beside the sealed record: copies in clear that steps read, and
//! control data. Copies are never trusted: a load compares them with the opened record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::digest::Digest;
use crate::base::id::{CapabilityId, DraftId, Initiator, NodeId, ServiceName, SessionId, StepId, Tenant, ToolName};
use crate::base::time::Timestamp;
use crate::draft::decision::{Refused, Verb, Vote};
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::proof::Proof;
use crate::draft::receipt::Receipt;
use crate::draft::record::Risk;
use crate::draft::state::State;

/// A draft's row without its sealed bytes. Everything here is small and bounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The draft.
    pub id: DraftId,
    /// Where it stands.
    pub state: State,
    /// Fencing epoch: 0 while pending, 1 after the claim, +1 per take-over.
    pub epoch: u64,
    /// Until when the holder of the epoch may work.
    pub lease_until: Option<Timestamp>,
    /// Which process holds the lease.
    pub lease_node: Option<NodeId>,
    /// When the claim was won; `late_release` counts from here.
    pub claimed_at: Option<Timestamp>,
    /// How many attempts were marked.
    pub attempts: u32,
    /// When the last sending mark was set.
    pub sent_at: Option<Timestamp>,

    /// Copy: tenant.
    pub tenant: Tenant,
    /// Copy: keyed owner hash.
    pub owner_hash: Digest,
    /// Copy: the agent.
    pub initiator: Initiator,
    /// Copy: the service.
    pub service: ServiceName,
    /// Copy: the tool.
    pub tool: ToolName,
    /// Copy: the capability.
    pub capability: CapabilityId,
    /// Copy: the risk.
    pub risk: Risk,
    /// Copy: the args hash.
    pub args_hash: Digest,
    /// Copy: when it was held.
    pub created_at: Timestamp,
    /// Copy: when it ends.
    pub expires_at: Timestamp,
    /// SHA-256 of the sealed bytes; a decision names the one it verified.
    pub sealed_digest: Digest,
    /// Digest of the confirmation token; resolvable also after it was used.
    pub token_digest: Digest,
    /// Under which equal calls meet.
    pub join_key: Digest,
    /// The caller's key of this draft, as a keyed digest.
    pub caller_key: Option<Digest>,
    /// How long after its first collection an equal keyless call gets the result again, ms.
    pub replay_window_ms: u64,
    /// How long a person's rejection answers an equal call, ms.
    pub refusal_memory_ms: u64,

    /// The sessions that asked for it: the first, then joins; at most 16.
    pub sessions: Vec<SessionId>,
    /// Flag for the card: an equal call was carried out before and collected.
    pub possible_duplicate_of: Option<DraftId>,
    /// Equal drafts that were taken to have ended without a send, so that this one was made: at most
    /// 17. Whoever answers or decides this draft verifies those ends first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<DraftId>,
    /// When an approver first opened it.
    pub seen_at: Option<Timestamp>,
    /// Yes votes; the last one of a complete quorum is the decision.
    pub votes: Vec<Vote>,
    /// Who said no, or the guard's reason, or expiry and withdrawal.
    pub refused: Option<Refused>,
    /// Decision keys (keyed digests) and the verb each one was used for; at most 32.
    pub decision_keys: BTreeMap<String, Verb>,
    /// Why it is `failed`.
    pub failure: Option<Failure>,
    /// The proof, once there is one.
    pub receipt: Option<Receipt>,
    /// What makes the outcome believable: present in every state that an outcome brings.
    pub outcome: Option<Proof>,
    /// Whether a sealed response is kept.
    pub has_response: bool,
    /// At most 16 pieces; the first, the latest and the one of the outcome are kept.
    pub evidence: Vec<Evidence>,
    /// When it reached a terminal state.
    pub ended_at: Option<Timestamp>,
    /// When the agent first got the result.
    pub collected_at: Option<Timestamp>,
    /// Last step id, epoch and answer per step name: the same id again gets the same answer.
    pub steps: BTreeMap<String, StepMemo>,
}

impl Row {
    /// Whether the state, the epoch and the times fit together. A row for which they do not was
    /// altered, and nothing of it is believed.
    pub(in crate::store) fn is_possible(&self) -> bool {
        self.expires_at >= self.created_at
            && match self.state {
                State::Pending => self.epoch == 0 && self.claimed_at.is_none(),
                State::Running(_) | State::Verifying => self.epoch > 0 && self.claimed_at.is_some(),
                State::Succeeded
                | State::Failed
                | State::Unverifiable
                | State::Rejected
                | State::Expired
                | State::Withdrawn => self.ended_at.is_some(),
            }
    }
}

/// The memory of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepMemo {
    /// The intention.
    pub id: StepId,
    /// The epoch it was answered at.
    pub epoch: u64,
    /// The answer, as the step wrote it.
    pub answer: Value,
}

/// A row together with its sealed bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The row.
    pub row: Row,
    /// The sealed record and body.
    pub sealed: Vec<u8>,
    /// The sealed response, where one is kept.
    pub response: Option<Vec<u8>>,
}

/// One line of the outbox, written in the same step as the transition it tells of. Carries ids
/// and digests, never args.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the outbox of the store, or in that of the draft's partition where the store has
    /// one for each; grows by one.
    pub seq: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// `draft.held`, `draft.joined`, `draft.voted`, `draft.confirmed`, `draft.sending`,
    /// `draft.verifying`, `draft.succeeded`, `draft.failed`, `draft.unverifiable`,
    /// `draft.rejected`, `draft.withdrawn`, `draft.expired`, `draft.resolved`,
    /// `draft.late_answer`, `draft.collected`, `draft.seen`, `draft.deleted`.
    pub kind: String,
    /// The draft.
    pub draft_id: DraftId,
    /// Its tenant.
    pub tenant: Tenant,
    /// Its keyed owner hash.
    pub owner_hash: Digest,
    /// Its tool.
    pub tool: ToolName,
    /// Its status after the step.
    pub status: String,
    /// Its epoch after the step.
    pub epoch: u64,
    /// Its args hash.
    pub args_hash: Digest,
    /// Who did it, where somebody did: a principal's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// A guard's reason code or a failure word, never free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
