//! Decisions: who may, on what evidence, and what each caller is told. The store decides the race.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::{DraftId, Principal, StepId};
use crate::draft::binding;
use crate::draft::decision::{Channel, Decider, DeciderKind, Verb, Vote, WORDS_CHARS_MAX};
use crate::draft::proof::{self, Refusal};
use crate::draft::seal::Opened;
use crate::draft::state::Status;
use crate::policy::judge;
use crate::store::contract::{Decide, Decided, Ended, Reject};
use crate::store::row::{Row, Stored};

use super::answer::Answer;
use super::core::{Guard, ask, not_found};
use super::problem::Problem;
use super::render::deciders;

/// What a confirm is told that made the guard reject the draft.
const POLICY_CHANGED: &str = "The policy does not allow this call any more as it was held: it is stricter now, or its upstream has \
                              another address. The guard rejected the draft, and nothing was sent. Let the agent ask again.";

/// A confirm as a shell hands it over, once the caller is known.
pub(super) struct Confirm {
    pub(super) decider: Decider,
    pub(super) comment: Option<String>,
    pub(super) decision_key: Option<String>,
    pub(super) wait: Duration,
}

/// What a confirm came to, before anybody is told.
pub(super) enum Reached {
    /// It won the claim; the draft as it stands after the wait.
    Claimed(Box<Stored>),
    /// The draft was decided, or had ended, before.
    Before(Box<Stored>),
    /// One vote of several.
    Voted { have: u32, need: u32, again: bool, stored: Box<Stored> },
}

/// What a no came to, before anybody is told.
pub(super) enum Refusing {
    /// It ended the draft.
    Done(Box<Stored>),
    /// The draft was decided, or had ended, before.
    Before(Box<Stored>),
}

impl Guard {
    /// Confirms a verified draft: evaluates policy again, votes, releases, waits, answers.
    pub(super) async fn confirm_draft(self: &Arc<Self>, stored: Stored, confirm: Confirm) -> Result<Answer, Problem> {
        let wait = confirm.wait;
        match self.reach(stored, confirm).await? {
            Reached::Claimed(settled) => self.answer_confirmed(*settled, false, Duration::ZERO).await,
            Reached::Before(stored) => self.answer_confirmed(*stored, true, wait).await,
            Reached::Voted { have, need, again, stored } => Ok(voted(&stored.row, have, need, again)),
        }
    }

    /// Confirms a verified draft, and says what this confirm came to. One that claims the draft has its
    /// release started and waited for.
    pub(super) async fn reach(self: &Arc<Self>, stored: Stored, confirm: Confirm) -> Result<Reached, Problem> {
        let opened = self.open(&stored)?;
        let key = self.decision_key(&stored.row.id, &confirm.decider, confirm.decision_key.as_deref());
        if key_used_for(&stored.row, key.as_deref(), Verb::Reject) {
            return Err(key_reused(&stored.row.id));
        }
        if stored.row.state.status() != Status::Pending {
            return Ok(Reached::Before(Box::new(stored)));
        }
        self.ends_before(&stored).await?;
        if judge::recheck(&self.policies(), &opened.draft).is_err() {
            let refused = self.guard_rejects(&stored, &opened, "POLICY_CHANGED").await?;
            let mut problem = self.decided_problem(&refused);
            problem.detail = POLICY_CHANGED.to_owned();
            return Err(problem);
        }
        let (id, wait) = (stored.row.id.clone(), confirm.wait);
        // A caller who hangs up between the claim and the release changes nothing: both happen in
        // a task of their own.
        let guard = Arc::clone(self);
        let voting = self.releases.spawn(async move { guard.vote_and_release(&stored, &opened, &confirm, key).await });
        let decided = voting.await.map_err(|error| {
            tracing::error!(%error, "a decision broke off");
            Problem::new(Code::DecisionUncertain, "The decision broke off. Read the draft to see where it stands.")
                .about(&id)
        })??;
        let Some(decided) = decided else {
            return Ok(Reached::Claimed(Box::new(self.wait_settled(&id, wait).await?)));
        };
        match decided {
            Decided::Claimed(..) => Err(not_found(&id)),
            Decided::Voted { have, need, stored } => Ok(Reached::Voted { have, need, again: false, stored }),
            Decided::AlreadyVoted { have, need, stored } => Ok(Reached::Voted { have, need, again: true, stored }),
            Decided::NotPending(stored) => Ok(Reached::Before(stored)),
            Decided::Changed => Err(Problem::new(
                Code::DraftIntegrityFailed,
                "The stored draft changed between reading and deciding. Nothing was sent.",
            )
            .about(&id)),
            Decided::KeyReused => Err(key_reused(&id)),
            Decided::NotFound => Err(not_found(&id)),
        }
    }

    /// Votes, and starts the release if this vote won the claim: then there is nothing more to say.
    async fn vote_and_release(
        self: &Arc<Self>,
        stored: &Stored,
        opened: &Opened,
        confirm: &Confirm,
        decision_key: Option<String>,
    ) -> Result<Option<Decided>, Problem> {
        match self.vote(stored, opened, confirm, decision_key).await? {
            Decided::Claimed(claim, stored) => {
                self.parts.observer.draft(&stored.row.tool, Status::Running);
                self.parts.observer.decided(&stored.row.tool, self.now_of(&stored.row.id).since(stored.row.created_at));
                self.spawn_release(claim, *stored);
                Ok(None)
            }
            other => Ok(Some(other)),
        }
    }

    async fn vote(
        &self,
        stored: &Stored,
        opened: &Opened,
        confirm: &Confirm,
        decision_key: Option<String>,
    ) -> Result<Decided, Problem> {
        let epoch = stored.row.epoch + 1;
        let comment = confirm.comment.as_deref();
        let mac = binding::vote_mac(&self.parts.keys, opened, epoch, Verb::Confirm, &confirm.decider, comment);
        let mac = mac.map_err(|_| Problem::new(Code::DraftIntegrityFailed, "The draft's keys are not here."))?;
        let decide = Decide {
            id: stored.row.id.clone(),
            step: StepId::new(&*self.parts.chance),
            sealed_digest: stored.row.sealed_digest,
            vote: Vote { decider: confirm.decider.clone(), epoch, comment: confirm.comment.clone(), mac },
            quorum: 1,
            decision_key,
            node: self.parts.journal.node().clone(),
            lease: self.parts.settings.lease,
        };
        ask(|| self.parts.store.decide(decide.clone())).await.map_err(|error| self.uncertain("decide", &error))
    }

    /// Rejects a verified draft.
    pub(super) async fn reject_draft(
        &self,
        stored: Stored,
        opened: &Opened,
        by: Decider,
        reason: String,
        decision_key: Option<&str>,
    ) -> Result<Answer, Problem> {
        match self.refuse(stored, opened, by, reason, decision_key).await? {
            Refusing::Done(now) => Ok(rejected(&now.row, false)),
            Refusing::Before(now) if now.row.state.status() == Status::Rejected && by_person(&now.row) => {
                Ok(rejected(&now.row, true))
            }
            Refusing::Before(now) => {
                self.parts.observer.confirm_conflict("decided");
                Err(self.decided_problem(&now))
            }
        }
    }

    /// Rejects a verified draft, and says what this no came to.
    pub(super) async fn refuse(
        &self,
        stored: Stored,
        opened: &Opened,
        by: Decider,
        reason: String,
        decision_key: Option<&str>,
    ) -> Result<Refusing, Problem> {
        let key = self.decision_key(&stored.row.id, &by, decision_key);
        if key_used_for(&stored.row, key.as_deref(), Verb::Confirm) {
            return Err(key_reused(&stored.row.id));
        }
        let reject = self.refusal(&stored, opened, by, reason, key)?;
        match self.ask_reject(reject).await? {
            Ended::Done(now) => {
                self.open(&now)?;
                self.parts.observer.draft(&now.row.tool, Status::Rejected);
                self.parts.observer.rejected(&now.row.tool, "person");
                self.parts.observer.decided(&now.row.tool, self.now_of(&now.row.id).since(now.row.created_at));
                Ok(Refusing::Done(now))
            }
            Ended::NotPending(now) => {
                self.open(&now)?;
                Ok(Refusing::Before(now))
            }
            Ended::Changed => {
                Err(Problem::new(Code::DraftIntegrityFailed, "The stored draft changed.").about(&stored.row.id))
            }
            Ended::KeyReused => Err(key_reused(&stored.row.id)),
            Ended::NotFound => Err(not_found(&stored.row.id)),
        }
    }

    /// The guard itself says no, with a reason code.
    pub(super) async fn guard_rejects(
        &self,
        stored: &Stored,
        opened: &Opened,
        reason: &str,
    ) -> Result<Stored, Problem> {
        let reject = self.refusal(stored, opened, self.guard_decider(&stored.row.id), reason.to_owned(), None)?;
        match self.ask_reject(reject).await? {
            Ended::Done(now) => {
                self.parts.observer.draft(&now.row.tool, Status::Rejected);
                self.parts.observer.rejected(&now.row.tool, "guard");
                Ok(*now)
            }
            Ended::NotPending(now) => {
                self.open(&now)?;
                Ok(*now)
            }
            Ended::Changed => Err(self.integrity_failed(stored)),
            Ended::KeyReused | Ended::NotFound => Err(not_found(&stored.row.id)),
        }
    }

    /// A no, bound to the draft.
    fn refusal(
        &self,
        stored: &Stored,
        opened: &Opened,
        by: Decider,
        reason: String,
        decision_key: Option<String>,
    ) -> Result<Reject, Problem> {
        let mac = proof::refusal_mac(&self.parts.keys, opened, Refusal::Rejected, Some(&by), &reason);
        Ok(Reject {
            id: stored.row.id.clone(),
            step: StepId::new(&*self.parts.chance),
            sealed_digest: stored.row.sealed_digest,
            by,
            reason,
            mac: mac.map_err(|_| self.integrity_failed(stored))?,
            decision_key,
        })
    }

    async fn ask_reject(&self, reject: Reject) -> Result<Ended, Problem> {
        ask(|| self.parts.store.reject(reject.clone())).await.map_err(|error| self.uncertain("reject", &error))
    }

    /// What a caller whose confirm did not change anything, or has just been carried out, is told.
    async fn answer_confirmed(&self, stored: Stored, replayed: bool, wait: Duration) -> Result<Answer, Problem> {
        let stored = match stored.row.state.status() {
            Status::Running | Status::Verifying if !wait.is_zero() => self.wait_settled(&stored.row.id, wait).await?,
            _ => stored,
        };
        let row = &stored.row;
        self.open(&stored)?;
        match row.state.status() {
            Status::Running | Status::Verifying => Ok(Answer::json(202, &decision_body(row, replayed))),
            Status::Succeeded | Status::Failed => {
                if replayed {
                    self.parts.observer.confirm_conflict("replayed");
                }
                self.parts.pause.at("after_settle_before_answer").await;
                Ok(Answer::json(200, &decision_body(row, replayed)))
            }
            Status::Unverifiable => Err(self.ended_problem(&stored).with("decided_by", &deciders(row, row.failure))),
            Status::Expired => {
                self.parts.observer.confirm_conflict("expired");
                Err(self.decided_problem(&stored))
            }
            Status::Pending | Status::Rejected | Status::Withdrawn => {
                self.parts.observer.confirm_conflict("decided");
                Err(self.decided_problem(&stored))
            }
        }
    }

    pub(super) fn decision_key(&self, id: &DraftId, by: &Decider, key: Option<&str>) -> Option<String> {
        let parts = |key: &str| {
            let parts = [id.as_str().as_bytes(), by.id.as_str().as_bytes(), key.as_bytes()];
            self.parts.keys.identity_digest("decision key", &parts).to_hex()
        };
        key.map(parts)
    }

    pub(super) fn guard_decider(&self, id: &DraftId) -> Decider {
        Decider {
            kind: DeciderKind::Guard,
            id: guard_principal(),
            auth_method: "rule".to_owned(),
            channel: Channel::Guard,
            at: self.now_of(id),
        }
    }
}

#[allow(clippy::expect_used)]
fn guard_principal() -> Principal {
    Principal::new("guard").expect("a legal name")
}

fn by_person(row: &Row) -> bool {
    row.refused.as_ref().is_some_and(crate::draft::decision::Refused::by_person)
}

pub(super) fn key_used_for(row: &Row, key: Option<&str>, verb: Verb) -> bool {
    key.and_then(|key| row.decision_keys.get(key)).is_some_and(|used| *used == verb)
}

fn key_reused(id: &DraftId) -> Problem {
    Problem::new(
        Code::IdempotencyKeyReused,
        "This Idempotency-Key was used for the other decision. Nothing was changed; use a new key.",
    )
    .about(id)
}

fn decision_body(row: &Row, replayed: bool) -> Value {
    json!({
        "draft_id": row.id,
        "status": row.state.status(),
        "phase": row.state.phase(),
        "outcome": row.receipt.as_ref().map(|receipt| receipt.status),
        "executed": super::render::executed(row),
        "failure": row.failure.map(crate::draft::outcome::Failure::as_str),
        "args_hash": row.args_hash,
        "decided_by": deciders(row, row.failure),
        "receipt": row.receipt,
        "replayed": replayed,
    })
}

fn voted(row: &Row, have: u32, need: u32, replayed: bool) -> Answer {
    let body = json!({
        "draft_id": row.id, "status": "pending", "votes": {"have": have, "need": need}, "replayed": replayed,
    });
    Answer::json(if replayed { 200 } else { 202 }, &body)
}

fn rejected(row: &Row, replayed: bool) -> Answer {
    let refused = row.refused.as_ref();
    let body = json!({
        "draft_id": row.id,
        "status": row.state.status(),
        "executed": false,
        "decided_by": refused.and_then(|refused| refused.by.as_ref()).map(|by| vec![by]),
        "reason": refused.map(|refused| refused.reason.as_str()),
        "replayed": replayed,
    });
    Answer::json(200, &body)
}

/// Whether the approver saw what is stored.
pub(super) fn same_args(row: &Row, seen: Option<Digest>) -> Result<(), Problem> {
    match seen {
        None => Err(Problem::new(
            Code::ArgsHashRequired,
            "A confirm must name the args_hash of what was shown. Read the draft again and confirm what you see.",
        )
        .about(&row.id)),
        Some(seen) if seen == row.args_hash => Ok(()),
        Some(_) => Err(Problem::new(
            Code::ArgsHashMismatch,
            "The args_hash is not that of the stored draft: you saw something else. Nothing was sent.",
        )
        .about(&row.id)),
    }
}

/// Bounds a person's words.
pub(super) fn words(text: &str) -> String {
    text.chars().take(WORDS_CHARS_MAX).collect()
}
