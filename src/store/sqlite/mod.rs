//! The embedded store: one SQLite file, one writer thread, many waiting steps in one commit.
//!
//! The file is locked for one connection, so reads wait for the same thread as writes: none of
//! them may look at more than a page of drafts, and counts are carried along, not counted.
//!
//! Owns the file, its lock and its writer. Must never keep rows in memory, answer a step before
//! its commit is durable, or go on writing to a file that is no longer where it was opened.

mod file;
mod queries;
mod rows;
mod tally;
#[cfg(test)]
mod tests;
mod work;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Partition, StepId};
use crate::base::time::{Clock, Timestamp};
use crate::draft::decision::Decider;
use crate::draft::state::Status;

pub use self::file::OpenError;
use self::rows::SqlRows;
use self::tally::Tally;
use self::work::{Access, Job, Step, Ticket};
use self::writer::{Open, Writer};
use super::clock::{Start, StoreClock};
use super::contract::{
    Decide, Decided, Due, Ended, Filter, HINTS_MAX, Held, Hold, Mark, Reject, Renewed, Settle, Settled, Store,
    StoreError, TakenOver,
};
use super::cursor::{Cursor, Page};
use super::observer::{StoreObserver, Unwatched};
use super::row::Stored;
use super::rows::{Rows as _, stored};
use super::steps::{care, decide, hold, release, settle};

/// How many steps may wait for the writer; more wait outside, inside their own timeout.
const QUEUE_STEPS_MAX: usize = 1_024;

/// How an [`SqliteStore`] is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// How long a step may take from the call to the answer.
    pub step_timeout: Duration,
    /// Who is told of every step.
    pub observer: Arc<dyn StoreObserver>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { step_timeout: Duration::from_secs(2), observer: Arc::new(Unwatched) }
    }
}

/// The embedded store. Dropping it lets the writer finish what waits, then closes the file.
pub struct SqliteStore {
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    clock: Arc<StoreClock>,
    node_clock: Arc<dyn Clock>,
    hints: broadcast::Sender<DraftId>,
    options: SqliteOptions,
}

impl SqliteStore {
    /// Opens or creates the file at `path` (mode 0600) and takes its lock for the life of the
    /// store.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says why and what to do: another guard holds the file, it belongs to a newer
    /// version or another program, or it cannot be read or written.
    pub fn open(path: &Path, clock: Arc<dyn Clock>, options: SqliteOptions) -> Result<Self, OpenError> {
        let (file, connection) = file::open(path)?;
        let (store_clock, start) = StoreClock::new(clock.clone(), file::seen(&connection));
        match start {
            Start::Wall => {}
            Start::Held => {
                tracing::warn!("the clock is behind the store's last commit; the store's clock goes on from there")
            }
            Start::Distrusted => {
                tracing::error!("the store's last commit is more than a day ahead of the clock; it is not believed")
            }
        }
        let store_clock = Arc::new(store_clock);
        let (hints, _) = broadcast::channel(HINTS_MAX);
        let (jobs, waiting) = mpsc::channel(QUEUE_STEPS_MAX);
        let tally = Tally::of(&connection).map_err(|error| OpenError::Sqlite { path: path.to_owned(), error })?;
        let open = Open { connection, tally };
        let writer =
            Writer::new(file, open, store_clock.clone(), clock.clone(), hints.clone(), options.observer.clone());
        let thread = std::thread::Builder::new()
            .name("countersign-store".to_owned())
            .spawn(move || writer.run(waiting))
            .map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        Ok(Self { jobs: Some(jobs), writer: Some(thread), clock: store_clock, node_clock: clock, hints, options })
    }

    async fn write<T, F>(&self, name: &'static str, run: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut SqlRows<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.submit(name, Access::Write, run).await
    }

    async fn read<T, F>(&self, name: &'static str, run: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut SqlRows<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.submit(name, Access::Read, run).await
    }

    async fn submit<T, F>(&self, name: &'static str, access: Access, run: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut SqlRows<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let asked = self.node_clock.boot();
        let (reply, answer) = oneshot::channel();
        let ticket = Arc::new(Ticket::default());
        let job = Job { access, ticket: ticket.clone(), work: Box::new(Step::new(run, reply)) };
        let answered = async {
            let jobs = self.jobs.as_ref().ok_or(())?;
            jobs.send(job).await.map_err(|_| ())?;
            answer.await.map_err(|_| ())
        };
        let result = match tokio::time::timeout(self.options.step_timeout, answered).await {
            Ok(Ok(result)) => result,
            // A ticket that can still be cancelled was never begun, and now never will be.
            Ok(Err(())) if ticket.cancel() => Err(StoreError::Unavailable("the writer is closed".to_owned())),
            Err(_) if ticket.cancel() => {
                let waited = self.options.step_timeout;
                Err(StoreError::Unavailable(format!("the step waited {waited:?} for the writer and was not begun")))
            }
            Ok(Err(())) => Err(access.unanswered("the writer stopped inside the step")),
            Err(_) => Err(access.unanswered("the step was begun and not answered in time")),
        };
        let took = self.node_clock.boot().since(asked);
        self.options.observer.step(name, took, result.as_ref().err().map(StoreError::kind));
        result
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the store's writer ended by a panic");
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn hold(&self, ask: Hold) -> Result<Held, StoreError> {
        self.write("hold", move |rows| hold::hold(rows, ask)).await
    }

    async fn decide(&self, ask: Decide) -> Result<Decided, StoreError> {
        self.write("decide", move |rows| decide::decide(rows, ask)).await
    }

    async fn reject(&self, ask: Reject) -> Result<Ended, StoreError> {
        self.write("reject", move |rows| decide::reject(rows, ask)).await
    }

    async fn withdraw(&self, id: &DraftId, step: StepId, by: &str, mac: Digest) -> Result<Ended, StoreError> {
        let (id, by) = (id.clone(), by.to_owned());
        self.write("withdraw", move |rows| decide::withdraw(rows, &id, step, &by, mac)).await
    }

    async fn expire(&self, id: &DraftId) -> Result<Ended, StoreError> {
        let id = id.clone();
        self.write("expire", move |rows| decide::expire(rows, &id)).await
    }

    async fn renew(&self, id: &DraftId, epoch: u64, step: StepId, lease: Duration) -> Result<Renewed, StoreError> {
        let id = id.clone();
        self.write("renew", move |rows| release::renew(rows, &id, epoch, step, lease)).await
    }

    async fn mark_sending(
        &self,
        id: &DraftId,
        epoch: u64,
        step: StepId,
        send_window: Duration,
    ) -> Result<Mark, StoreError> {
        let id = id.clone();
        self.write("mark_sending", move |rows| release::mark_sending(rows, &id, epoch, step, send_window)).await
    }

    async fn settle(&self, ask: Settle) -> Result<Settled, StoreError> {
        self.write("settle", move |rows| settle::settle(rows, ask)).await
    }

    async fn late_answer(&self, ask: Settle) -> Result<Settled, StoreError> {
        self.write("late_answer", move |rows| settle::late_answer(rows, ask)).await
    }

    async fn take_over(
        &self,
        id: &DraftId,
        step: StepId,
        node: &NodeId,
        lease: Duration,
        own_dead: &[NodeId],
    ) -> Result<TakenOver, StoreError> {
        let (id, node, own_dead) = (id.clone(), node.clone(), own_dead.to_vec());
        self.write("take_over", move |rows| release::take_over(rows, &id, step, &node, lease, &own_dead)).await
    }

    async fn resolve(&self, ask: Settle, by: &Decider) -> Result<Settled, StoreError> {
        let by = by.clone();
        self.write("resolve", move |rows| settle::resolve(rows, ask, &by)).await
    }

    async fn collect(&self, id: &DraftId) -> Result<(), StoreError> {
        let id = id.clone();
        self.write("collect", move |rows| care::collect(rows, &id)).await
    }

    async fn note_seen(&self, id: &DraftId) -> Result<(), StoreError> {
        let id = id.clone();
        self.write("note_seen", move |rows| care::note_seen(rows, &id)).await
    }

    async fn again(&self, old: &DraftId, ask: Hold) -> Result<Result<Held, Ended>, StoreError> {
        let old = old.clone();
        self.write("again", move |rows| hold::again(rows, &old, ask)).await
    }

    async fn delete(&self, id: &DraftId, ended_before: Timestamp) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write("delete", move |rows| care::delete(rows, &id, ended_before)).await
    }

    async fn get(&self, id: &DraftId) -> Result<Option<Stored>, StoreError> {
        let id = id.clone();
        self.read("get", move |rows| match rows.row(&id)? {
            Some(row) => Ok(Some(*stored(rows, row)?)),
            None => Ok(None),
        })
        .await
    }

    async fn by_token(&self, partition: Partition, token_digest: &Digest) -> Result<Option<Stored>, StoreError> {
        let digest = *token_digest;
        self.read("by_token", move |rows| match rows.by_token(&digest)?.filter(|row| row.id.partition() == partition) {
            Some(row) => Ok(Some(*stored(rows, row)?)),
            None => Ok(None),
        })
        .await
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Stored>, StoreError> {
        let filter = filter.clone();
        self.read("list", move |rows| queries::list(rows, &filter)).await
    }

    async fn due(&self, ended_before: Timestamp, own_dead: &[NodeId], limit: usize) -> Result<Due, StoreError> {
        let own_dead = own_dead.to_vec();
        self.read("due", move |rows| queries::due(rows, ended_before, &own_dead, limit)).await
    }

    async fn counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        self.read("counts", |rows| Ok(rows.tally.counts())).await
    }

    async fn events(&self, after: &Cursor, limit: usize) -> Result<Page, StoreError> {
        let after = after.one();
        let events = self.read("events", move |rows| queries::events(rows, after, limit)).await?;
        Ok(Page { from: Cursor::One(after), events })
    }

    fn hints(&self) -> broadcast::Receiver<DraftId> {
        self.hints.subscribe()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.write("check", queries::check).await
    }

    async fn same_keys(&self, fingerprint: &Digest) -> Result<bool, StoreError> {
        let fingerprint = *fingerprint;
        self.write("same_keys", move |rows| queries::same_keys(rows, &fingerprint)).await
    }
}
