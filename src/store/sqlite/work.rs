//! A waiting step: what it does, where its answer goes, and whether it was begun.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::oneshot;

use super::rows::SqlRows;
use crate::store::contract::StoreError;

/// Whether a step changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Runs outside a transaction and is answered at once.
    Read,
    /// Runs inside the group's transaction and is answered after its commit.
    Write,
}

impl Access {
    /// What a step that was begun and never answered means: a read changed nothing, a write may
    /// have.
    pub(super) fn unanswered(self, why: &str) -> StoreError {
        match self {
            Self::Read => StoreError::Unavailable(why.to_owned()),
            Self::Write => StoreError::Uncertain(why.to_owned()),
        }
    }
}

/// Decides between the writer, which begins a step, and the caller, which gives up waiting:
/// exactly one of them wins.
#[derive(Debug, Default)]
pub(super) struct Ticket(AtomicU8);

const QUEUED: u8 = 0;
const BEGUN: u8 = 1;
const CANCELLED: u8 = 2;

impl Ticket {
    /// The writer begins; `false` if the caller has given up.
    pub(super) fn begin(&self) -> bool {
        self.0.compare_exchange(QUEUED, BEGUN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The caller gives up; `false` if the writer has begun.
    pub(super) fn cancel(&self) -> bool {
        self.0.compare_exchange(QUEUED, CANCELLED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// One waiting step.
pub(super) struct Job {
    pub(super) access: Access,
    pub(super) ticket: std::sync::Arc<Ticket>,
    pub(super) work: Box<dyn Work>,
}

/// A step without its type.
pub(super) trait Work: Send {
    /// Runs the step once and keeps its answer; says whether it succeeded.
    fn run(&mut self, rows: &mut SqlRows<'_>) -> bool;

    /// Sends the kept answer, or `failure` in its place.
    fn answer(self: Box<Self>, failure: Option<StoreError>);
}

/// A step with its type.
pub(super) struct Step<T, F> {
    run: Option<F>,
    answer: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Step<T, F> {
    pub(super) const fn new(run: F, reply: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self { run: Some(run), answer: None, reply }
    }
}

impl<T, F> Work for Step<T, F>
where
    T: Send,
    F: FnOnce(&mut SqlRows<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, rows: &mut SqlRows<'_>) -> bool {
        let Some(run) = self.run.take() else { return false };
        let answer = run(rows);
        let succeeded = answer.is_ok();
        self.answer = Some(answer);
        succeeded
    }

    fn answer(self: Box<Self>, failure: Option<StoreError>) {
        let answer = match (failure, self.answer) {
            (Some(failure), _) => Err(failure),
            (None, Some(answer)) => answer,
            (None, None) => Err(StoreError::Unavailable("the step was not run".to_owned())),
        };
        // A caller that has gone away asks again with the same step id.
        let _gone = self.reply.send(answer);
    }
}
