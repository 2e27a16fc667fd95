//! Ends: an outcome gets its MAC, goes to the store, and waits in the journal while the store
//! does not take it.
//!
//! Owns what an outcome is before it is stored. Must never judge an attempt.

use std::collections::BTreeSet;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, StepId};
use crate::base::time::Timestamp;
use crate::draft::decision::Decider;
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::proof::End;
use crate::draft::receipt::{Judged, Receipt, ReceiptStatus};
use crate::draft::seal::{IntegrityFailed, Opened};
use crate::draft::state::Verdict;
use crate::store::contract::{Settle, Settled, StoreError};
use crate::store::row::Row;

use super::core::{Guard, ask};
use super::verify;

/// What became of a draft, before it is bound to it.
pub(super) struct Outcome {
    pub(super) epoch: u64,
    pub(super) verdict: Verdict,
    pub(super) failure: Option<Failure>,
    pub(super) receipt: Option<Receipt>,
    /// The sealed response.
    pub(super) response: Option<Vec<u8>>,
    pub(super) evidence: Evidence,
}

impl Outcome {
    /// Nobody can tell.
    pub(super) const fn unknown(epoch: u64, evidence: Evidence) -> Self {
        Self { epoch, verdict: Verdict::Unverifiable, failure: None, receipt: None, response: None, evidence }
    }
}

impl Guard {
    /// Binds an outcome to its draft, so that nobody who can write to the store can make or change
    /// one (promises 2 and 6).
    pub(super) fn prove(
        &self,
        opened: &Opened,
        outcome: Outcome,
        by: Option<&Decider>,
    ) -> Result<Settle, IntegrityFailed> {
        let Outcome { epoch, verdict, failure, receipt, response, evidence } = outcome;
        let end = End {
            epoch,
            verdict,
            failure,
            receipt: receipt.as_ref(),
            response: response.as_deref().map(Digest::of),
            evidence: &evidence,
            by,
        };
        let mac = end.mac(&self.parts.keys, opened)?;
        let (id, step) = (opened.draft.id.clone(), StepId::new(&*self.parts.chance));
        Ok(Settle { id, step, epoch, verdict, failure, receipt, response, evidence, mac })
    }

    /// Settles, and keeps the outcome in the journal if the store does not take it (promise 8).
    pub(super) async fn settle(&self, opened: &Opened, outcome: Outcome) {
        let Ok(settle) = self.prove(opened, outcome, None) else {
            tracing::error!(draft = %opened.draft.id, "the draft's keys are gone; it will be found by the lease");
            return;
        };
        match self.ask_settle(&settle).await {
            Ok(settled) => self.settled(&settle, &settled),
            Err(error) => {
                tracing::error!(draft = %settle.id, %error, "outcome was not taken by the store; it is kept in the journal");
                if let Err(error) = self.parts.journal.keep(&settle).await {
                    tracing::error!(draft = %settle.id, %error, "outcome could not be kept; it will be found by the lease");
                }
            }
        }
    }

    /// Settles under the epoch; where another node has taken over, gives it as a late answer.
    async fn ask_settle(&self, settle: &Settle) -> Result<Settled, StoreError> {
        let settled = ask(|| self.parts.store.settle(settle.clone())).await?;
        // Only an answer of the upstream says something about somebody else's epoch. "Not sent by
        // me" and "I cannot tell" do not: the node that has the draft now knows better.
        let answered = settle.verdict == Verdict::Succeeded || settle.failure == Some(Failure::Refused);
        if answered && matches!(settled, Settled::Superseded(_)) {
            self.parts.observer.late_answer();
            return self.parts.store.late_answer(settle.clone()).await;
        }
        Ok(settled)
    }

    /// Whether what the journal kept is not what a guard bound to this draft.
    async fn is_forged(&self, outcome: &Settle) -> bool {
        let keys = &self.parts.keys;
        let Ok(Some(stored)) = self.parts.store.get(&outcome.id).await else { return false };
        let Ok(opened) = verify::open(&stored, keys) else { return false };
        let Settle { epoch, verdict, failure, receipt, response, evidence, mac, .. } = outcome;
        let response = response.as_deref().map(Digest::of);
        let (epoch, verdict, failure) = (*epoch, *verdict, *failure);
        let end = End { epoch, verdict, failure, receipt: receipt.as_ref(), response, evidence, by: None };
        end.mac(keys, &opened) != Ok(*mac)
    }

    fn settled(&self, outcome: &Settle, settled: &Settled) {
        let receipt = outcome.receipt.as_ref().map(|receipt| receipt.id.as_str());
        match settled {
            Settled::Done(stored) => {
                let row = &stored.row;
                self.parts.observer.draft(&row.tool, row.state.status());
                tracing::info!(draft = %row.id, tool = %row.tool, status = %row.state.status(), "settled");
            }
            Settled::Superseded(stored) => {
                let status = stored.row.state.status();
                tracing::warn!(draft = %outcome.id, receipt, %status, "an outcome came after another that stands");
            }
            Settled::NotFound => {
                tracing::error!(draft = %outcome.id, receipt, "the store has lost a draft whose outcome is known");
            }
        }
    }

    /// Gives the store what it has not taken yet, oldest first. Each outcome leaves the journal by
    /// itself; one that the store does not take holds up neither the others nor the sweep. Tells whose
    /// outcomes still wait: those must not be taken for unknown.
    pub(super) async fn settle_from_journal(&self) -> BTreeSet<DraftId> {
        let mut waiting = BTreeSet::new();
        for outcome in self.parts.journal.waiting().await {
            if self.is_forged(&outcome).await {
                tracing::error!(draft = %outcome.id, "an outcome in the journal does not verify and is not believed");
                continue;
            }
            match self.ask_settle(&outcome).await {
                Ok(settled) => self.settled(&outcome, &settled),
                Err(error) => {
                    tracing::error!(draft = %outcome.id, %error, "an outcome still waits in the journal for the store");
                    waiting.insert(outcome.id);
                    continue;
                }
            }
            if let Err(error) = self.parts.journal.taken(&outcome.id, outcome.step).await {
                tracing::warn!(draft = %outcome.id, %error, "the journal could not note that an outcome was taken");
            }
        }
        waiting
    }
}

/// A receipt with everything that does not depend on the attempt.
pub(super) fn receipt_frame(row: &Row, opened: &Opened, now: Timestamp) -> Receipt {
    let draft = &opened.draft;
    Receipt {
        id: row.id.receipt_id(),
        action_id: row.id.clone(),
        service: draft.service.clone(),
        tool: draft.tool.clone(),
        capability: draft.capability.clone(),
        status: ReceiptStatus::Failed,
        summary: String::new(),
        judged: Judged::Status,
        partial: false,
        accepted: false,
        recovered: false,
        superseded: false,
        args_hash: draft.args_hash,
        sent_digest: None,
        policy_version: draft.policy_version.clone(),
        decided_by: row.votes.iter().map(|vote| vote.decider.clone()).collect(),
        effect_key: draft.effect_key.clone(),
        attempts: row.attempts,
        upstream_status: None,
        response_digest: None,
        truncated: false,
        sent_at: row.sent_at,
        settled_at: now,
    }
}
