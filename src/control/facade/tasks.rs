//! What the facade may ask of the guard, and nothing else.
//!
//! Owns the list of questions, apart from those of approvers and apps ([`crate::control::desk`]): an agent
//! that stands at this listener may propose and read its own, and only through here.

use std::sync::Arc;

use async_trait::async_trait;

use crate::base::id::DraftId;
use crate::draft::record::Identity;
use crate::guard::problem::Problem;
use crate::guard::task::{Proposed, Task, TaskDecided, TaskDecision};
use crate::guard::who::Approver;
use crate::guard::{Guard, Proposal};

/// The guard as the facade sees it. The methods are those of [`Guard`].
#[async_trait]
pub trait Tasks: Send + Sync {
    /// See [`Guard::propose`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn propose(&self, proposal: Proposal<'_>) -> Result<Proposed, Problem>;

    /// See [`Guard::own_task`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn own(&self, who: &Identity, id: &DraftId, collect: bool) -> Result<Task, Problem>;

    /// See [`Guard::show_task`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn show(&self, who: &Approver, id: &DraftId) -> Result<Task, Problem>;

    /// See [`Guard::confirm_task`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn confirm(&self, who: &Approver, id: &DraftId, ask: TaskDecision) -> Result<TaskDecided, Problem>;

    /// See [`Guard::reject_task`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn reject(&self, who: &Approver, id: &DraftId, ask: TaskDecision) -> Result<TaskDecided, Problem>;
}

#[async_trait]
impl Tasks for Arc<Guard> {
    async fn propose(&self, proposal: Proposal<'_>) -> Result<Proposed, Problem> {
        Guard::propose(self, proposal).await
    }

    async fn own(&self, who: &Identity, id: &DraftId, collect: bool) -> Result<Task, Problem> {
        Guard::own_task(self, who, id, collect).await
    }

    async fn show(&self, who: &Approver, id: &DraftId) -> Result<Task, Problem> {
        Guard::show_task(self, who, id).await
    }

    async fn confirm(&self, who: &Approver, id: &DraftId, ask: TaskDecision) -> Result<TaskDecided, Problem> {
        Guard::confirm_task(self, who, id, ask).await
    }

    async fn reject(&self, who: &Approver, id: &DraftId, ask: TaskDecision) -> Result<TaskDecided, Problem> {
        Guard::reject_task(self, who, id, ask).await
    }
}
