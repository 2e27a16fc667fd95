//! What happens to drafts that nobody holds: expiry, take-over, the journal's outcomes, a
//! person's resolution, another try for what was provably not sent, and the end of retention.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::base::code::Code;
use crate::base::id::{DraftId, StepId};
use crate::base::refusal::FieldError;
use crate::base::time::Timestamp;
use crate::draft::decision::Decider;
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::receipt::{Judged, Receipt, ReceiptStatus};
use crate::draft::record::Draft;
use crate::draft::seal::Opened;
use crate::draft::state::{Status, Verdict};
use crate::store::contract::{Ended, Held, Settled, StoreError, TakenOver};
use crate::store::row::Stored;

use super::answer::Answer;
use super::core::{Guard, JOURNAL_MARGIN, ask, not_found};
use super::hold::{CORRECTIONS_MAX, Meets};
use super::problem::Problem;
use super::render::offers_again;
use super::settle::{Outcome, receipt_frame};
use super::verify;

/// How many drafts that cannot be deleted are remembered, so that each is told of once.
const KEPT_MAX: usize = 10_000;
/// How often the sweeper looks. Expiry itself never waits for it: late callers expire a draft.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// How many drafts of a kind one sweep handles: fewer than a store would give, so that no sweep
/// keeps the outcomes of the journal waiting for long.
const SWEEP_DRAFTS_MAX: usize = 200;

impl Guard {
    /// Expires, takes over, settles what the journal kept, and deletes what is past retention,
    /// again and again, until the future is dropped.
    pub async fn sweep_forever(self: Arc<Self>) {
        let mut every = tokio::time::interval(SWEEP_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut told = String::new();
        loop {
            every.tick().await;
            // Told once for each cause, and when it is over.
            match self.sweep().await {
                Ok(()) if std::mem::take(&mut told).is_empty() => {}
                Ok(()) => tracing::info!("sweeps go through again"),
                Err(error) if told != error.to_string() => {
                    tracing::warn!(%error, "sweep was cut short; the next ones go on");
                    told = error.to_string();
                }
                Err(error) => tracing::debug!(%error, "sweep was cut short again"),
            }
        }
    }

    /// One sweep.
    ///
    /// # Errors
    ///
    /// The store's failure that cut it short; everything before it is done.
    pub async fn sweep(self: &Arc<Self>) -> Result<(), StoreError> {
        let parts = &self.parts;
        // Outcomes first: a draft that the journal can settle must not be taken for unknown.
        let waiting = self.settle_from_journal().await;
        let ended_before = self.now() - parts.settings.retention;
        let due = parts.store.due(ended_before, parts.journal.own_dead(), SWEEP_DRAFTS_MAX).await?;
        for id in &due.expired {
            if let Some(Ended::Done(now)) = readable(id, parts.store.expire(id).await)? {
                parts.observer.draft(&now.row.tool, Status::Expired);
            }
        }
        for id in due.orphaned.iter().filter(|id| !waiting.contains(*id)) {
            readable(id, self.take_over(id).await)?;
        }
        for id in &due.deletable {
            if self.may_delete(id).await? {
                readable(id, parts.store.delete(id, ended_before).await)?;
            }
        }
        if let Err(error) = parts.journal.trim(ended_before - JOURNAL_MARGIN).await {
            tracing::warn!(%error, "the journal could not be trimmed");
        }
        Ok(())
    }

    /// Whether a draft that is past its retention really ended as the store says: one that does not
    /// verify may be an unresolved one, and is kept for whoever looks for the reason.
    async fn may_delete(&self, id: &DraftId) -> Result<bool, StoreError> {
        let Some(Some(stored)) = readable(id, self.parts.store.get(id).await)? else { return Ok(false) };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.contains(id) {
            return Ok(false);
        }
        if self.open(&stored).is_ok() {
            return Ok(true);
        }
        if kept.len() < KEPT_MAX {
            kept.insert(id.clone());
        }
        Ok(false)
    }

    async fn take_over(self: &Arc<Self>, id: &DraftId) -> Result<(), StoreError> {
        let parts = &self.parts;
        let step = StepId::new(&*parts.chance);
        let node = parts.journal.node();
        let taken = parts.store.take_over(id, step, node, parts.settings.lease, parts.journal.own_dead()).await?;
        match taken {
            TakenOver::Claimed(claim, stored) => {
                parts.observer.taken_over();
                tracing::warn!(draft = %id, epoch = claim.epoch(), "took over a claimed draft that was never marked");
                self.spawn_release(claim, *stored);
            }
            TakenOver::Verifying { epoch, stored } => {
                parts.observer.taken_over();
                tracing::warn!(draft = %id, epoch, "took over a draft that may have been sent; it is never sent again");
                self.cannot_tell(&stored, epoch).await;
            }
            TakenOver::NotDue | TakenOver::NotFound => {}
        }
        Ok(())
    }

    /// Without a probe nobody can tell: a person is told so at once (promise 5).
    async fn cannot_tell(&self, stored: &Stored, epoch: u64) {
        let Ok(opened) = verify::open(stored, &self.parts.keys) else {
            // No outcome can be bound to a record that does not open. It stays as it is, told to
            // every reader, and is looked at again when the lease is over: the record may be put
            // right, or the key that was taken away be given back.
            self.parts.observer.integrity_failed();
            tracing::error!(draft = %stored.row.id, "a draft that may have been sent does not verify");
            return;
        };
        let text = "the process that was sending stopped before it saw an answer";
        let evidence = Evidence::new(self.now_of(&stored.row.id), "take_over", text, None);
        self.parts.observer.released(&stored.row.tool, "unknown", Duration::ZERO);
        self.settle(&opened, Outcome::unknown(epoch, evidence)).await;
    }

    pub(super) async fn resolve_draft(
        &self,
        stored: Stored,
        opened: &Opened,
        by: Decider,
        verdict: Verdict,
        evidence: String,
    ) -> Result<Answer, Problem> {
        let row = &stored.row;
        let (status, summary) = match verdict {
            Verdict::Succeeded => (ReceiptStatus::Succeeded, format!("{} found out that it was carried out.", by.id)),
            Verdict::Failed => (ReceiptStatus::Failed, format!("{} found out that it was not carried out.", by.id)),
            Verdict::Unverifiable => return Err(invalid("/outcome", "must be succeeded or failed")),
        };
        if evidence.trim().is_empty() {
            return Err(invalid("/evidence", "must say what was found"));
        }
        if row.state.status() != Status::Unverifiable {
            return Err(self.decided_problem(&stored));
        }
        let now = self.now_of(&row.id);
        let receipt =
            Receipt { status, summary, judged: Judged::Person, recovered: true, ..receipt_frame(row, opened, now) };
        let outcome = Outcome {
            epoch: row.epoch,
            verdict,
            failure: (verdict == Verdict::Failed).then_some(Failure::Resolved),
            receipt: Some(receipt),
            response: None,
            evidence: Evidence::new(now, "person", &evidence, None),
        };
        let settle = self.prove(opened, outcome, Some(&by)).map_err(|_| self.integrity_failed(&stored))?;
        let settled = ask(|| self.parts.store.resolve(settle.clone(), &by)).await;
        let settled = settled.map_err(|error| self.uncertain("resolve", &error))?;
        match settled {
            Settled::Done(now) => {
                self.parts.observer.draft(&now.row.tool, now.row.state.status());
                Ok(Answer::json(200, &Self::full(&now, Some(opened))))
            }
            Settled::Superseded(now) => {
                self.open(&now)?;
                Err(self.decided_problem(&now))
            }
            Settled::NotFound => Err(not_found(&row.id)),
        }
    }

    /// The same content and effect key again, pending: for a draft that was provably not sent.
    pub(super) async fn draft_again(&self, stored: Stored, opened: Opened) -> Result<Answer, Problem> {
        // What the store says of it was verified: a forged failure is not offered again.
        if !offers_again(&stored.row) {
            return Err(self.not_again(&stored));
        }
        let mut now = self.now_of(&stored.row.id);
        for _ in 0..=CORRECTIONS_MAX {
            match self.ask_again(&stored, &opened, now).await? {
                Ok(Held::Clock(store_says)) => now = store_says,
                answer => return self.answer_again(&stored, answer),
            }
        }
        Err(self.too_slow())
    }

    async fn ask_again(
        &self,
        stored: &Stored,
        opened: &Opened,
        now: Timestamp,
    ) -> Result<Result<Held, Ended>, Problem> {
        let (row, old) = (&stored.row, &opened.draft);
        let draft = Draft {
            id: DraftId::new(row.id.partition(), now, &*self.parts.chance),
            created_at: now,
            expires_at: now + old.expires_at.since(old.created_at),
            ..old.clone()
        };
        let meets = Meets {
            join_key: row.join_key,
            caller_key: row.caller_key,
            replay_window_ms: row.replay_window_ms,
            refusal_memory_ms: row.refusal_memory_ms,
        };
        let hold = self.seal_hold(&draft, &opened.body, meets)?;
        let answer = ask(|| self.parts.store.again(&row.id, hold.clone())).await;
        answer.map_err(|error| self.uncertain("again", &error))
    }

    fn answer_again(&self, stored: &Stored, held: Result<Held, Ended>) -> Result<Answer, Problem> {
        match held {
            Ok(Held::New(new)) => {
                self.parts.observer.draft(&new.row.tool, Status::Pending);
                let opened = self.open(&new)?;
                Ok(Answer::json(201, &Self::full(&new, Some(&opened))))
            }
            // An equal call is open by now: that draft answers.
            Ok(Held::Joined(live)) => {
                let opened = self.open(&live)?;
                Ok(Answer::json(200, &Self::full(&live, Some(&opened))))
            }
            Ok(Held::RejectedBefore(refused)) => {
                self.open(&refused)?;
                Err(self.decided_problem(&refused))
            }
            Ok(Held::TooManyPending | Held::RateLimited) => Err(Problem::new(
                Code::TooManyPending,
                "This owner has too many calls that wait for a decision. Decide some first.",
            )),
            Ok(Held::KeyReused(_) | Held::Clock(_)) => Err(self.hold_unavailable()),
            Err(Ended::NotFound) => Err(not_found(&stored.row.id)),
            Err(_) => Err(self.not_again(stored)),
        }
    }

    fn not_again(&self, stored: &Stored) -> Problem {
        let mut problem = self.decided_problem(stored);
        problem.detail = "Only a draft that was provably not sent can be offered again, and only once.".to_owned();
        problem
    }
}

/// One damaged draft does not stop a sweep: it is logged, and the sweep goes on.
fn readable<T>(id: &DraftId, answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(StoreError::Corrupt(why)) => {
            tracing::error!(draft = %id, why, "a draft is unreadable; the sweep goes on without it");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn invalid(pointer: &str, reason: &str) -> Problem {
    let mut problem = Problem::new(Code::ArgsInvalid, "The request does not fit.");
    problem.errors.push(FieldError { pointer: pointer.to_owned(), reason: reason.to_owned() });
    problem
}
