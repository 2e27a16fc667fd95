//! What this node keeps for itself: which attempts it began, and outcomes that the store has not
//! taken yet. Per node, never shared, locked; every line is on disk before the call returns.
//!
//! Owns the folder of [`FileJournal`]: a lock, the node's name, and append-only segments of
//! checksummed lines. Must never decide what an attempt or an outcome means.

use async_trait::async_trait;

use crate::base::id::{DraftId, NodeId, StepId};
use crate::base::time::Timestamp;

use super::contract::Settle;

mod file;
mod folder;
mod line;
mod segment;
mod state;
mod writer;

pub use file::FileJournal;
pub use folder::OpenError;

/// A line could not be made durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal could not be written: {0}")]
pub struct JournalError(pub String);

/// The answer to an attempt's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    /// On disk: the first byte may go out.
    New,
    /// An attempt of this draft is in the journal already: the store went back in time, or was
    /// written to. It must not be sent (promise 3).
    Already,
}

/// A node's send log.
#[async_trait]
pub trait SendLog: Send + Sync {
    /// This process.
    fn node(&self) -> &NodeId;

    /// Former processes of this node. The journal's lock proves them dead.
    fn own_dead(&self) -> &[NodeId];

    /// Notes an attempt, with fsync, before its first byte.
    async fn attempt(&self, id: &DraftId, epoch: u64, attempt: u32, at: Timestamp) -> Result<Logged, JournalError>;

    /// Whether an attempt of this draft was begun, by this process or a former one, as far back as
    /// the log remembers. Must not block.
    fn began(&self, id: &DraftId) -> bool;

    /// Keeps an outcome until the store has taken it.
    async fn keep(&self, outcome: &Settle) -> Result<(), JournalError>;

    /// The store has taken this very outcome: the draft's, of this step. Others of the same draft
    /// go on waiting.
    async fn taken(&self, id: &DraftId, step: StepId) -> Result<(), JournalError>;

    /// Outcomes that the store has not taken yet, also from former processes, oldest first.
    async fn waiting(&self) -> Vec<Settle>;

    /// Forgets attempts older than `before`, so that the log stays bounded.
    async fn trim(&self, before: Timestamp) -> Result<(), JournalError>;
}
