//! Tasks: a draft together with the answer that it brought, for a shell that hands both out at once and
//! names every decision after the first one a conflict.
//!
//! Owns which decisions are the same one again: those that name the same decision key. Must never hold,
//! decide or tell by rules of its own: it asks the same questions in the same order as every other way in.

use std::sync::Arc;
use std::time::Duration;

use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::base::secret::Secret;
use crate::draft::binding;
use crate::draft::decision::Verb;
use crate::draft::outcome::StoredResponse;
use crate::draft::record::Identity;
use crate::draft::state::Status;
use crate::store::row::Stored;

use super::core::Guard;
use super::decide::{Confirm, Reached, Refusing, key_used_for, same_args, words};
use super::desk::{may_see, may_see_damaged};
use super::hold::{Placed, Proposal};
use super::problem::Problem;
use super::views::DraftView;
use super::who::Approver;

/// A draft and what it brought.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// The draft, with secret args masked.
    pub draft: DraftView,
    /// The upstream's answer, where one is kept.
    pub response: Option<StoredResponse>,
}

/// The draft of a proposal: a new one, or an earlier one for an equal call.
#[derive(Debug)]
pub struct Proposed {
    /// The draft as it stands.
    pub draft: DraftView,
    /// The confirmation token, while nobody has carried it out and if the agent's runtime gets tokens.
    pub token: Option<Secret>,
}

/// A decision about a task, as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskDecision {
    /// What the approver saw, where they say so.
    pub args_hash: Option<Digest>,
    /// What they wrote beside it; the reason of a no.
    pub words: String,
    /// Their key for this decision.
    pub decision_key: Option<String>,
    /// How long to wait for the outcome; bounded by `confirm_wait`.
    pub wait: Option<Duration>,
}

/// What a decision about a task came to.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskDecided {
    /// It was counted; the task as it stands after the wait.
    Now(Box<Task>),
    /// It had been made before, under the same decision key.
    Again(Box<Task>),
    /// The task was decided, or had ended, before. Nothing was changed.
    Before(Box<Task>),
}

impl Guard {
    /// Holds a write as [`Self::hold`] does, and gives the draft instead of an answer. Nothing is
    /// collected.
    ///
    /// # Errors
    ///
    /// The problem that [`Self::hold`] would answer.
    pub async fn propose(&self, proposal: Proposal<'_>) -> Result<Proposed, Problem> {
        let Placed { stored, who, .. } = self.place(proposal).await?;
        let opened = self.open(&stored)?;
        let token = match stored.row.state.status() {
            Status::Rejected | Status::Expired | Status::Withdrawn => return Err(self.ended_problem(&stored)),
            Status::Succeeded | Status::Failed => None,
            Status::Pending | Status::Running | Status::Verifying | Status::Unverifiable => {
                let token = who.deliver_token.then(|| binding::token(&self.parts.keys, &opened.key_id, &stored.row.id));
                token.transpose().map_err(|_| self.hold_unavailable())?
            }
        };
        Ok(Proposed { draft: Self::full(&stored, Some(&opened)), token })
    }

    /// A task for the agent that asked for it, by the rules of [`Self::agent_status`].
    ///
    /// # Errors
    ///
    /// As [`Self::agent_status`].
    pub async fn own_task(&self, who: &Identity, id: &DraftId, collect: bool) -> Result<Task, Problem> {
        let stored = self.load_own(who, id).await?;
        let task = self.task(&stored).await?;
        if collect && stored.row.receipt.is_some() {
            self.collected(&stored).await;
        }
        Ok(task)
    }

    /// A task for an approver who may see it; notes that it was seen, and collects nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::show`], and `DRAFT_INTEGRITY_FAILED`.
    pub async fn show_task(&self, who: &Approver, id: &DraftId) -> Result<Task, Problem> {
        let stored = self.load_for(who, id).await?;
        let visible = match self.open(&stored) {
            Ok(opened) => may_see(who, &opened.draft),
            Err(_) => may_see_damaged(who, &stored),
        };
        if !visible {
            return Err(self.not_allowed(who, "see this task"));
        }
        let task = self.task(&stored).await?;
        self.seen(&stored).await;
        Ok(task)
    }

    /// Confirms, releases and waits as [`Self::confirm`] does; what was seen need not be named.
    ///
    /// # Errors
    ///
    /// As [`Self::confirm`], but for a draft that was decided or has ended.
    pub async fn confirm_task(
        self: &Arc<Self>,
        who: &Approver,
        id: &DraftId,
        ask: TaskDecision,
    ) -> Result<TaskDecided, Problem> {
        let (stored, _) = self.for_decision(who, id).await?;
        self.saw(&stored, ask.args_hash)?;
        let decider = self.approver_decider(who, id);
        let key = self.decision_key(id, &decider, ask.decision_key.as_deref());
        let comment = Some(words(&ask.words)).filter(|words| !words.is_empty());
        let wait = self.bounded(ask.wait);
        let confirm = Confirm { decider, comment, decision_key: ask.decision_key, wait };
        let (stored, decided): (_, fn(Box<Task>) -> TaskDecided) = match self.reach(stored, confirm).await? {
            Reached::Claimed(stored) | Reached::Voted { stored, .. } => (stored, TaskDecided::Now),
            Reached::Before(stored) if key_used_for(&stored.row, key.as_deref(), Verb::Confirm) => {
                self.parts.observer.confirm_conflict("replayed");
                let going_on = matches!(stored.row.state.status(), Status::Running | Status::Verifying);
                let stored = if going_on { Box::new(self.wait_settled(id, wait).await?) } else { stored };
                (stored, TaskDecided::Again)
            }
            Reached::Before(stored) => (self.came_late(stored), TaskDecided::Before),
        };
        Ok(decided(Box::new(self.task(&stored).await?)))
    }

    /// Rejects as [`Self::reject`] does.
    ///
    /// # Errors
    ///
    /// As [`Self::reject`], but for a draft that was decided or has ended.
    pub async fn reject_task(
        self: &Arc<Self>,
        who: &Approver,
        id: &DraftId,
        ask: TaskDecision,
    ) -> Result<TaskDecided, Problem> {
        let (stored, opened) = self.for_decision(who, id).await?;
        self.saw(&stored, ask.args_hash)?;
        let by = self.approver_decider(who, id);
        let key = self.decision_key(id, &by, ask.decision_key.as_deref());
        let refused = self.refuse(stored, &opened, by, words(&ask.words), ask.decision_key.as_deref()).await?;
        let (stored, decided): (_, fn(Box<Task>) -> TaskDecided) = match refused {
            Refusing::Done(stored) => (stored, TaskDecided::Now),
            Refusing::Before(stored) if key_used_for(&stored.row, key.as_deref(), Verb::Reject) => {
                (stored, TaskDecided::Again)
            }
            Refusing::Before(stored) => (self.came_late(stored), TaskDecided::Before),
        };
        Ok(decided(Box::new(self.task(&stored).await?)))
    }

    /// Whether the approver saw what is stored, if they say what they saw.
    fn saw(&self, stored: &Stored, seen: Option<Digest>) -> Result<(), Problem> {
        match seen {
            None => Ok(()),
            seen => same_args(&stored.row, seen).inspect_err(|_| self.parts.observer.confirm_conflict("hash")),
        }
    }

    fn came_late(&self, stored: Box<Stored>) -> Box<Stored> {
        let expired = stored.row.state.status() == Status::Expired;
        self.parts.observer.confirm_conflict(if expired { "expired" } else { "decided" });
        stored
    }

    /// The verified draft with its answer.
    async fn task(&self, stored: &Stored) -> Result<Task, Problem> {
        let opened = self.open(stored)?;
        Ok(Task { draft: Self::full(stored, Some(&opened)), response: self.response_of(stored).await? })
    }
}
