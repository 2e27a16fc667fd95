//! What the control shell may ask of the guard, and nothing else.
//!
//! Owns the list of questions. It names no way to hold, to withdraw or to collect: whoever stands
//! at this listener decides about drafts and cannot make one (the reverse of promise 1). What an agent may
//! ask here is a list of its own ([`super::facade::Tasks`]), which no approver reaches.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::base::secret::Secret;
use crate::draft::state::Verdict;
use crate::guard::Guard;
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;
use crate::guard::views::{DraftView, Page};
use crate::guard::who::{AppCaller, Approver};
use crate::policy::model::PolicySet;
use crate::store::contract::Filter;
use crate::store::cursor::{Cursor, Page as EventPage};

/// The guard as approvers, apps and operators see it. The methods are those of [`Guard`].
#[async_trait]
pub trait Desk: Send + Sync {
    /// The policy set in force.
    fn policies(&self) -> Arc<PolicySet>;

    /// A hint for every committed event on this node; the truth is [`Self::events`].
    fn hints(&self) -> broadcast::Receiver<DraftId>;

    /// Whether holds can be taken now.
    ///
    /// # Errors
    ///
    /// The reason, in a sentence.
    async fn ready(&self) -> Result<(), String>;

    /// See [`Guard::list`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn list(&self, who: &Approver, filter: Filter) -> Result<Page, Problem>;

    /// See [`Guard::show`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn show(&self, who: &Approver, id: &DraftId) -> Result<DraftView, Problem>;

    /// See [`Guard::body`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn body(&self, who: &Approver, id: &DraftId) -> Result<(String, Vec<u8>), Problem>;

    /// See [`Guard::confirm`].
    async fn confirm(&self, who: &Approver, id: &DraftId, confirm: Confirm) -> Answer;

    /// See [`Guard::reject`].
    async fn reject(&self, who: &Approver, id: &DraftId, reason: String, decision_key: Option<String>) -> Answer;

    /// See [`Guard::resolve`].
    async fn resolve(&self, who: &Approver, id: &DraftId, verdict: Verdict, evidence: String) -> Answer;

    /// See [`Guard::again`].
    async fn again(&self, who: &Approver, id: &DraftId) -> Answer;

    /// See [`Guard::confirm_by_token`].
    async fn confirm_by_token(
        &self,
        app: &AppCaller,
        token: &Secret,
        decision_key: Option<String>,
        wait: Option<Duration>,
    ) -> Answer;

    /// See [`Guard::reject_by_token`].
    async fn reject_by_token(
        &self,
        app: &AppCaller,
        token: &Secret,
        reason: String,
        decision_key: Option<String>,
    ) -> Answer;

    /// See [`Guard::events`].
    ///
    /// # Errors
    ///
    /// A problem document.
    async fn events(&self, who: &Approver, after: &Cursor, limit: usize) -> Result<EventPage, Problem>;
}

/// A confirm as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confirm {
    /// What the approver saw.
    pub args_hash: Option<Digest>,
    /// What the approver wrote beside it.
    pub comment: Option<String>,
    /// The caller's key for this decision.
    pub decision_key: Option<String>,
    /// How long to wait for the outcome; the guard bounds it.
    pub wait: Option<Duration>,
}

#[async_trait]
impl Desk for Arc<Guard> {
    fn policies(&self) -> Arc<PolicySet> {
        Guard::policies(self)
    }

    fn hints(&self) -> broadcast::Receiver<DraftId> {
        Guard::hints(self)
    }

    async fn ready(&self) -> Result<(), String> {
        Guard::ready(self).await
    }

    async fn list(&self, who: &Approver, filter: Filter) -> Result<Page, Problem> {
        Guard::list(self, who, filter).await
    }

    async fn show(&self, who: &Approver, id: &DraftId) -> Result<DraftView, Problem> {
        Guard::show(self, who, id).await
    }

    async fn body(&self, who: &Approver, id: &DraftId) -> Result<(String, Vec<u8>), Problem> {
        Guard::body(self, who, id).await
    }

    async fn confirm(&self, who: &Approver, id: &DraftId, confirm: Confirm) -> Answer {
        let Confirm { args_hash, comment, decision_key, wait } = confirm;
        Guard::confirm(self, who, id, args_hash, comment, decision_key, wait).await
    }

    async fn reject(&self, who: &Approver, id: &DraftId, reason: String, decision_key: Option<String>) -> Answer {
        Guard::reject(self, who, id, reason, decision_key).await
    }

    async fn resolve(&self, who: &Approver, id: &DraftId, verdict: Verdict, evidence: String) -> Answer {
        Guard::resolve(self, who, id, verdict, evidence).await
    }

    async fn again(&self, who: &Approver, id: &DraftId) -> Answer {
        Guard::again(self, who, id).await
    }

    async fn confirm_by_token(
        &self,
        app: &AppCaller,
        token: &Secret,
        decision_key: Option<String>,
        wait: Option<Duration>,
    ) -> Answer {
        Guard::confirm_by_token(self, app, token, decision_key, wait).await
    }

    async fn reject_by_token(
        &self,
        app: &AppCaller,
        token: &Secret,
        reason: String,
        decision_key: Option<String>,
    ) -> Answer {
        Guard::reject_by_token(self, app, token, reason, decision_key).await
    }

    async fn events(&self, who: &Approver, after: &Cursor, limit: usize) -> Result<EventPage, Problem> {
        Guard::events(self, who, after, limit).await
    }
}
