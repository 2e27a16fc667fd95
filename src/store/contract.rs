//! The written contract of a store.
//!
//! Every method that changes something is one atomic step: it checks everything before its first
//! write, writes its event in the same step, and is durable when it answers `Ok`. Refusal is an
//! answer; [`StoreError`] is a failure. A step repeated with the same step id (for a hold: the
//! draft id) gives the same answer while the epoch holds and changes nothing more.
//!
//! Times inside a store come from the store's clock, which never goes backwards.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::base::digest::Digest;
use crate::base::id::{
    CapabilityId, DraftId, Initiator, NodeId, Partition, ServiceName, SessionId, StepId, Tenant, ToolName,
};
use crate::base::time::Timestamp;
use crate::draft::decision::{Decider, Vote};
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::receipt::Receipt;
use crate::draft::record::Risk;
use crate::draft::state::{Status, Verdict};

use super::cursor::{Cursor, Page};
use super::rights::Claim;
use super::row::Stored;

/// A store that could not answer. Says nothing about a refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The step certainly did not run. The text is for the log: disk full, closed, locked.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The step may have run: ask again with the same step id.
    #[error("the store did not answer: {0}")]
    Uncertain(String),
    /// What is stored cannot be read.
    #[error("the store holds something unreadable: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// The label in `countersign_store_errors_total{kind}`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Uncertain(_) => "uncertain",
            Self::Corrupt(_) => "corrupt",
        }
    }
}

/// The bounds of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Open (pending) drafts at one time.
    pub pending_max: u32,
    /// New drafts in `window`.
    pub holds_max: u32,
    /// The sliding window of `holds_max`.
    pub window: Duration,
}

/// How many drafts a page holds at most.
pub const PAGE_MAX: usize = 200;

/// How many ids of each kind a sweep finds, and how many events are read at once, at most.
pub const SWEEP_MAX: usize = 1_000;

/// How many hints a slow receiver may be behind before it lags.
pub const HINTS_MAX: usize = 1_024;

/// How far a hold's time may be ahead of the store's clock.
pub const HOLD_AHEAD_MAX: Duration = Duration::from_secs(1);

/// How far a hold's time may be behind the store's clock: a hold is sealed with its time before it
/// waits for its turn, behind a slow disk or many others, and is asked again when its answer is
/// lost. Fifteen times the default of `store.timeout`.
pub const HOLD_BEHIND_MAX: Duration = Duration::from_secs(30);

/// A draft to be held. The draft's id is the step id.
#[derive(Debug, Clone)]
pub struct Hold {
    /// The new draft's id, used only if no earlier draft answers the call.
    pub id: DraftId,
    /// Tenant.
    pub tenant: Tenant,
    /// Keyed owner hash.
    pub owner_hash: Digest,
    /// The agent.
    pub initiator: Initiator,
    /// The conversation.
    pub session: SessionId,
    /// The service.
    pub service: ServiceName,
    /// The tool.
    pub tool: ToolName,
    /// The capability.
    pub capability: CapabilityId,
    /// The risk.
    pub risk: Risk,
    /// The args hash.
    pub args_hash: Digest,
    /// Under which equal calls meet.
    pub join_key: Digest,
    /// The caller's key, as a keyed digest.
    pub caller_key: Option<Digest>,
    /// Digest of the confirmation token.
    pub token_digest: Digest,
    /// When it is held, by the node's idea of the store's clock: at most [`HOLD_AHEAD_MAX`] ahead
    /// of it and [`HOLD_BEHIND_MAX`] behind it.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// See [`super::row::Row::replay_window_ms`].
    pub replay_window_ms: u64,
    /// See [`super::row::Row::refusal_memory_ms`].
    pub refusal_memory_ms: u64,
    /// The owner's bounds; count only when a new draft is made.
    pub limits: OwnerLimits,
    /// Sealed record and body.
    pub sealed: Vec<u8>,
}

/// The answer to a hold. "A call that comes again" in docs/lifecycle.md is decided inside it.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    /// A new draft.
    New(Box<Stored>),
    /// An earlier draft answers the call; what to say depends on its state: pending (the same
    /// draft), running, verifying, unverifiable (being carried out), succeeded or failed (the
    /// stored result).
    Joined(Box<Stored>),
    /// A person rejected an equal call within the refusal memory, or one with the same key.
    RejectedBefore(Box<Stored>),
    /// The same caller's key came with other args; the draft that has the key is untouched.
    KeyReused(DraftId),
    /// The owner has `pending_max` open drafts.
    TooManyPending,
    /// The owner has made `holds_max` drafts in the window.
    RateLimited,
    /// `created_at` is too far from the store's clock, or `expires_at` has come: seal it anew with
    /// this time, which the store's clock says, and ask again. Nothing was written.
    Clock(Timestamp),
}

/// One yes.
#[derive(Debug, Clone)]
pub struct Decide {
    /// The draft.
    pub id: DraftId,
    /// The intention.
    pub step: StepId,
    /// The sealed digest that the caller read and verified.
    pub sealed_digest: Digest,
    /// The vote; `vote.epoch` is the row's epoch as read plus one.
    pub vote: Vote,
    /// How many different principals must vote yes: the stricter of stored and current rule.
    pub quorum: u32,
    /// The caller's decision key, as a keyed digest in hex.
    pub decision_key: Option<String>,
    /// Which process will release it.
    pub node: NodeId,
    /// How long that process may work before others take over.
    pub lease: Duration,
}

/// The answer to a yes. Rows are as they stand after the step.
#[derive(Debug)]
pub enum Decided {
    /// The quorum is complete and this caller has the claim.
    Claimed(Claim, Box<Stored>),
    /// Counted; more are needed.
    Voted {
        /// Votes now.
        have: u32,
        /// Votes needed.
        need: u32,
        /// The draft.
        stored: Box<Stored>,
    },
    /// This principal has voted already; nothing changed.
    AlreadyVoted {
        /// Votes now.
        have: u32,
        /// Votes needed.
        need: u32,
        /// The draft.
        stored: Box<Stored>,
    },
    /// Not pending any more (decided, expired by this very step or earlier, withdrawn).
    NotPending(Box<Stored>),
    /// The sealed bytes or the epoch are not what the caller verified.
    Changed,
    /// The decision key was used for the other verb.
    KeyReused,
    /// Never known, or gone.
    NotFound,
}

/// The answer to a no, a withdrawal or an expiry.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// It ended by this step (or by the same step id before).
    Done(Box<Stored>),
    /// Not pending any more.
    NotPending(Box<Stored>),
    /// The sealed bytes are not what the caller verified.
    Changed,
    /// The decision key was used for the other verb.
    KeyReused,
    /// Never known, or gone.
    NotFound,
}

/// A no by a person or the guard.
#[derive(Debug, Clone)]
pub struct Reject {
    /// The draft.
    pub id: DraftId,
    /// The intention.
    pub step: StepId,
    /// The sealed digest that the caller read and verified.
    pub sealed_digest: Digest,
    /// Who.
    pub by: Decider,
    /// Why; at most [`crate::draft::decision::WORDS_CHARS_MAX`] characters.
    pub reason: String,
    /// [`crate::draft::proof::refusal_mac`]; opaque to the store.
    pub mac: Digest,
    /// The caller's decision key, as a keyed digest in hex.
    pub decision_key: Option<String>,
}

/// The answer to a sending mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Durable: bytes may go out until the permit's deadline.
    Marked {
        /// Which attempt, from 1.
        attempt: u32,
        /// When, by the store's clock.
        sent_at: Timestamp,
    },
    /// The lease has not more than the send window left.
    LeaseTooShort,
    /// Another epoch, another phase, or not running.
    Superseded,
}

/// The answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewed {
    /// The lease is extended to this time.
    Until(Timestamp),
    /// Another epoch, or not running or verifying.
    Superseded,
}

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct Settle {
    /// The draft.
    pub id: DraftId,
    /// The intention.
    pub step: StepId,
    /// The epoch under which the work was done; ignored for a late answer.
    pub epoch: u64,
    /// What it says.
    pub verdict: Verdict,
    /// Why, where the verdict is `Failed`.
    pub failure: Option<Failure>,
    /// The proof; present unless the verdict is `Unverifiable`.
    pub receipt: Option<Receipt>,
    /// The sealed response.
    pub response: Option<Vec<u8>>,
    /// What was seen; within its bounds, because the MAC covers it.
    pub evidence: Evidence,
    /// [`crate::draft::proof::End::mac`] over all of it; opaque to the store, which keeps it
    /// beside the outcome for whoever reads it.
    pub mac: Digest,
}

/// The answer to a settle, a late answer or a resolve.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// Settled by this step (or by the same step id before).
    Done(Box<Stored>),
    /// Another epoch, or a state that this step does not move; the evidence of a late answer is
    /// kept all the same.
    Superseded(Box<Stored>),
    /// Never known, or gone.
    NotFound,
}

/// The answer to a take-over.
#[derive(Debug)]
pub enum TakenOver {
    /// Never marked: the new owner may verify and release it.
    Claimed(Claim, Box<Stored>),
    /// Marked before, now verifying under the new epoch: find out what happened, never send.
    Verifying {
        /// The new epoch.
        epoch: u64,
        /// The draft.
        stored: Box<Stored>,
    },
    /// The lease is not over, or somebody else was faster, or there is nothing to take over.
    NotDue,
    /// Never known, or gone.
    NotFound,
}

/// What work a sweep finds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Due {
    /// Pending drafts past `expires_at`.
    pub expired: Vec<DraftId>,
    /// Running or verifying drafts whose lease is over.
    pub orphaned: Vec<DraftId>,
    /// Terminal drafts past retention; never an unresolved `unverifiable`.
    pub deletable: Vec<DraftId>,
}

/// A page takes no further draft once its sealed bytes are this many. Bodies are sealed with
/// their cards, and a page of the longest ones must not fill memory or keep a store busy.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// Whether a page of [`Store::list`] is full: `limit` drafts, or [`PAGE_BYTES_MAX`]. Then more may
/// stand behind its last draft; a page that is not full is the last one.
#[must_use]
pub fn page_is_full(page: &[Stored], limit: usize) -> bool {
    page.len() >= limit || page.iter().map(|stored| stored.sealed.len()).sum::<usize>() >= PAGE_BYTES_MAX
}

/// Which drafts to list. Newest first.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this tenant's.
    pub tenant: Option<Tenant>,
    /// Only these statuses; empty means all.
    pub statuses: Vec<Status>,
    /// Only this tool's.
    pub tool: Option<ToolName>,
    /// Only this owner's.
    pub owner_hash: Option<Digest>,
    /// Only this agent's.
    pub initiator: Option<Initiator>,
    /// Only this risk.
    pub risk: Option<Risk>,
    /// Only ids strictly before this one in the order (the last id of the page before).
    pub before: Option<DraftId>,
    /// At most this many, 1 to [`PAGE_MAX`].
    pub limit: usize,
}

/// A store of drafts. See the module's documentation for what every step promises.
#[async_trait]
pub trait Store: Send + Sync {
    /// The best idea this node has of the store's clock.
    fn now(&self) -> Timestamp;

    /// The same of the drafts of one partition, whose steps may be ahead of the others': where a server's
    /// clock was set back, the time of what it had seen goes on. As good as the last read of one of them.
    fn now_in(&self, partition: Partition) -> Timestamp {
        let _ = partition;
        self.now()
    }

    /// Stores a draft, or finds the one that already answers the call.
    async fn hold(&self, hold: Hold) -> Result<Held, StoreError>;

    /// Counts a yes; the one that completes the quorum claims the draft. A pending draft past
    /// its time is expired by this step, with its event.
    async fn decide(&self, decide: Decide) -> Result<Decided, StoreError>;

    /// Ends a pending draft with a no. A pending draft past its time is expired instead.
    async fn reject(&self, reject: Reject) -> Result<Ended, StoreError>;

    /// Ends a pending draft because the agent `by` took it back. `mac` is
    /// [`crate::draft::proof::refusal_mac`] over [`crate::draft::proof::withdrawn_by`].
    async fn withdraw(&self, id: &DraftId, step: StepId, by: &str, mac: Digest) -> Result<Ended, StoreError>;

    /// Ends a pending draft whose time is over; `NotPending` also while its time is not over.
    async fn expire(&self, id: &DraftId) -> Result<Ended, StoreError>;

    /// Extends the lease of a running or verifying draft.
    async fn renew(&self, id: &DraftId, epoch: u64, step: StepId, lease: Duration) -> Result<Renewed, StoreError>;

    /// Writes the mark before the first byte. Called by [`Claim::mark`] only.
    async fn mark_sending(
        &self,
        id: &DraftId,
        epoch: u64,
        step: StepId,
        send_window: Duration,
    ) -> Result<Mark, StoreError>;

    /// Ends a running or verifying draft under its epoch.
    async fn settle(&self, settle: Settle) -> Result<Settled, StoreError>;

    /// Records an answer that came after its attempt was given up, whatever the epoch. Settles
    /// sending, verifying and unverifiable drafts; changes nothing else but the evidence.
    async fn late_answer(&self, settle: Settle) -> Result<Settled, StoreError>;

    /// Takes over a running or verifying draft whose lease is over, or whose lease is held by
    /// one of `own_dead` (former processes of this node, known to be dead).
    async fn take_over(
        &self,
        id: &DraftId,
        step: StepId,
        node: &NodeId,
        lease: Duration,
        own_dead: &[NodeId],
    ) -> Result<TakenOver, StoreError>;

    /// Settles an unverifiable draft by a named person, whom the MAC covers as well.
    async fn resolve(&self, settle: Settle, by: &Decider) -> Result<Settled, StoreError>;

    /// Notes that the agent got the result; the first time counts.
    async fn collect(&self, id: &DraftId) -> Result<(), StoreError>;

    /// Notes that a signed-in approver opened the card; the first time counts.
    async fn note_seen(&self, id: &DraftId) -> Result<(), StoreError>;

    /// Makes a new pending draft from one that was provably not sent. `hold.caller_key` moves to
    /// the new draft. Refused (`NotPending`) unless the old one is failed and provably not sent
    /// and has not been repeated before.
    async fn again(&self, old: &DraftId, hold: Hold) -> Result<Result<Held, Ended>, StoreError>;

    /// Deletes a terminal, resolved draft that ended before `ended_before`. `false` if it may not
    /// be deleted or is gone.
    async fn delete(&self, id: &DraftId, ended_before: Timestamp) -> Result<bool, StoreError>;

    /// One draft.
    async fn get(&self, id: &DraftId) -> Result<Option<Stored>, StoreError>;

    /// The draft of a partition that a token opens, used or not. The token names its partition.
    async fn by_token(&self, partition: Partition, token_digest: &Digest) -> Result<Option<Stored>, StoreError>;

    /// A page of drafts, newest first, without responses; ends where [`page_is_full`] says.
    async fn list(&self, filter: &Filter) -> Result<Vec<Stored>, StoreError>;

    /// Work for the sweeper, at most `limit` ids of each kind, 1 to [`SWEEP_MAX`].
    async fn due(&self, ended_before: Timestamp, own_dead: &[NodeId], limit: usize) -> Result<Due, StoreError>;

    /// How many drafts stand in each status.
    async fn counts(&self) -> Result<Vec<(Status, u64)>, StoreError>;

    /// What comes after a cursor, oldest first, at most `limit` events, 1 to [`SWEEP_MAX`]. A store
    /// has one sequence, or one per partition; the order holds within each. A page without events
    /// says that there is nothing more. A cursor of another kind of store begins at the oldest
    /// event: whoever reads on after a move to another store gets events at least once.
    async fn events(&self, after: &Cursor, limit: usize) -> Result<Page, StoreError>;

    /// A hint for waiters on this node: the draft of every committed event. A receiver that
    /// lags must read again; the truth is the store.
    fn hints(&self) -> broadcast::Receiver<DraftId>;

    /// Whether the store takes writes now; asked by readiness. Writes something small and
    /// durable, so that a full disk shows.
    async fn check(&self) -> Result<(), StoreError>;

    /// Compares the key-set fingerprint with the one of the first node; writes it if there is
    /// none. `false` means other keys.
    async fn same_keys(&self, fingerprint: &Digest) -> Result<bool, StoreError>;
}
