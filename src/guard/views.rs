//! What people and agents are shown of a draft. Plain data that serialises as the wire says.

use serde::Serialize;
use serde_json::Value;

use crate::base::digest::Digest;
use crate::base::id::{CapabilityId, DraftId, ServiceName, ToolName};
use crate::base::time::Timestamp;
use crate::draft::decision::{Refused, Vote};
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::receipt::Receipt;
use crate::draft::record::{Preview, Risk};
use crate::draft::state::{Phase, Status};

/// What the agent sees of its own draft: the held answer and the status answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentView {
    /// `WAIT_CONFIRM` while pending, otherwise the status in upper case.
    pub result: String,
    /// `false`, `true` or `"unknown"`.
    pub executed: Value,
    /// The status word.
    pub status: Status,
    /// The draft.
    pub draft_id: DraftId,
    /// The tool.
    pub tool: ToolName,
    /// The capability.
    pub capability: CapabilityId,
    /// The risk.
    pub risk: Risk,
    /// The args hash.
    pub args_hash: Digest,
    /// The card; absent where the draft does not verify.
    pub preview: Option<Preview>,
    /// When it was held.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When to ask again.
    pub poll_after_ms: u64,
    /// An equal call that was carried out before.
    pub possible_duplicate_of: Option<DraftId>,
    /// Where a person decides.
    pub confirm_url: String,
    /// Where the agent reads on.
    pub status_url: String,
    /// What happened and what to do, for the model.
    pub message: String,
    /// Whether the agent may tell its user that it was done (promise 6).
    pub may_claim_success: bool,
    /// The proof, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// The reason of a rejection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A line of the queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DraftLine {
    /// The draft.
    pub draft_id: DraftId,
    /// The status word.
    pub status: Status,
    /// Where a running draft stands.
    pub phase: Option<Phase>,
    /// The service.
    pub service: ServiceName,
    /// The tool.
    pub tool: ToolName,
    /// The capability.
    pub capability: CapabilityId,
    /// The risk.
    pub risk: Risk,
    /// The args hash; a confirm must name it.
    pub args_hash: Digest,
    /// The card; absent where the draft does not verify.
    pub preview: Option<Preview>,
    /// Who it is for.
    pub owner: Option<String>,
    /// The agent.
    pub initiator: String,
    /// When it was held.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Whether an approver has opened it.
    pub seen: bool,
    /// Whether the stored draft verifies.
    pub intact: bool,
    /// An equal call that was carried out before.
    pub possible_duplicate_of: Option<DraftId>,
}

/// The request as it will be sent, for the approver.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestView {
    /// The method.
    pub method: String,
    /// The absolute target, with everything unusual made visible.
    pub target: String,
    /// The headers that will be sent; credentials only by name.
    pub headers: Vec<(String, String)>,
    /// Names of the credentials that will go with it.
    pub credentials: Vec<String>,
    /// `none`, `json`, `form`, `multipart` or `opaque`.
    pub kind: String,
    /// The body's type.
    pub content_type: String,
    /// The body's length in bytes.
    pub length: u64,
    /// The body's SHA-256.
    pub sha256: Digest,
    /// The whole body as text with invisible and bidirectional characters made visible; `None`
    /// where it is not UTF-8 (it can be downloaded).
    pub body: Option<String>,
}

/// Everything that an approver may see of one draft.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DraftView {
    /// The line of the queue.
    #[serde(flatten)]
    pub line: DraftLine,
    /// The prepared args with secrets masked.
    pub args: Value,
    /// The request.
    pub request: Option<RequestView>,
    /// The conversation.
    pub session: Option<String>,
    /// The person's role.
    pub role: Option<String>,
    /// Whose data is touched.
    pub subject: Option<String>,
    /// The delegated administration context: why the subject may be somebody else.
    pub admin_context: Option<String>,
    /// What that context may do.
    pub admin_mode: Option<String>,
    /// The message of the conversation that asked.
    pub message_id: Option<String>,
    /// The intercepted request's id.
    pub origin_request_id: Option<String>,
    /// The policy version at the hold.
    pub policy_version: Option<String>,
    /// Yes votes. These and everything below are empty where the draft does not verify.
    pub votes: Vec<Vote>,
    /// Who said no and why, or expiry and withdrawal.
    pub refused: Option<Refused>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// `again` is offered.
    pub again: bool,
    /// The proof.
    pub receipt: Option<Receipt>,
    /// What was seen of the outcome.
    pub evidence: Vec<Evidence>,
    /// When it was claimed.
    pub claimed_at: Option<Timestamp>,
    /// When the sending mark was set.
    pub sent_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When the agent first got the result.
    pub collected_at: Option<Timestamp>,
}

/// A page of the queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// Newest first.
    pub drafts: Vec<DraftLine>,
    /// The cursor of the next page.
    pub next: Option<DraftId>,
}
