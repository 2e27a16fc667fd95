//! The one thread that owns the connection. Takes the steps that wait, runs each inside a
//! savepoint of one transaction, commits once, and only then answers all of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, ffi};
use tokio::sync::{broadcast, mpsc};

use super::file::DbFile;
use super::rows::{SqlRows, breaks};
use super::tally::Tally;
use super::work::{Access, Job, Work};
use crate::base::id::DraftId;
use crate::base::time::Clock;
use crate::store::clock::StoreClock;
use crate::store::contract::StoreError;
use crate::store::observer::StoreObserver;

/// How many waiting steps one commit takes at most.
const GROUP_STEPS_MAX: usize = 256;

pub(super) struct Writer {
    file: DbFile,
    open: Option<Open>,
    /// A sync failed: what is in the log may not be on the disk. Nothing is written before a
    /// checkpoint has carried all of it into the file and synced that.
    unsynced: bool,
    clock: Arc<StoreClock>,
    node_clock: Arc<dyn Clock>,
    hints: broadcast::Sender<DraftId>,
    observer: Arc<dyn StoreObserver>,
}

/// The open file, and how many drafts stand in each status as of the last commit.
pub(super) struct Open {
    pub(super) connection: Connection,
    pub(super) tally: Tally,
}

/// Steps that have run, with whether each succeeded.
type Done = Vec<Box<dyn Work>>;

/// Why a whole group failed, and the steps that wait for an answer.
struct GroupFailed {
    error: StoreError,
    waiting: Done,
}

impl Writer {
    pub(super) fn new(
        file: DbFile,
        open: Open,
        clock: Arc<StoreClock>,
        node_clock: Arc<dyn Clock>,
        hints: broadcast::Sender<DraftId>,
        observer: Arc<dyn StoreObserver>,
    ) -> Self {
        Self { file, open: Some(open), unsynced: false, clock, node_clock, hints, observer }
    }

    /// Serves until every sender is gone.
    pub(super) fn run(mut self, mut waiting: mpsc::Receiver<Job>) {
        while let Some(first) = waiting.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP_STEPS_MAX
                && let Ok(next) = waiting.try_recv()
            {
                group.push(next);
            }
            // A panic must not end the thread: the transaction goes with its connection, the
            // callers of this group learn that they have no answer, the next group starts anew.
            if catch_unwind(AssertUnwindSafe(|| self.serve(group))).is_err() {
                tracing::error!("a store step panicked; the file is opened again");
                self.open = None;
            }
        }
    }

    /// Reads first: nobody waits for them to see the group's writes, and they need no sync.
    fn serve(&mut self, group: Vec<Job>) {
        let (reads, writes): (Vec<Job>, Vec<Job>) = group.into_iter().partition(|job| job.access == Access::Read);
        for job in reads {
            if job.ticket.begin() {
                self.read(job.work);
            }
        }
        if !writes.is_empty() {
            self.write(writes);
        }
    }

    fn read(&mut self, mut work: Box<dyn Work>) {
        let now = self.clock.now();
        let failure = match self.open() {
            Err(error) => Some(error),
            Ok(open) => {
                let mut rows = SqlRows::new(&open.connection, now, open.tally);
                work.run(&mut rows);
                if rows.broken {
                    self.open = None;
                }
                None
            }
        };
        work.answer(failure);
    }

    fn write(&mut self, jobs: Vec<Job>) {
        let began = self.node_clock.boot();
        match self.commit_group(jobs) {
            Ok((done, told)) => {
                let steps = done.len();
                for draft in told {
                    // No receiver is no fault: a hint is only a hint.
                    let _unheard = self.hints.send(draft);
                }
                self.observer.commit(steps, self.node_clock.boot().since(began));
                for work in done {
                    work.answer(None);
                }
            }
            Err(GroupFailed { error, waiting }) => {
                for work in waiting {
                    work.answer(Some(error.clone()));
                }
            }
        }
    }

    fn commit_group(&mut self, jobs: Vec<Job>) -> Result<(Done, Vec<DraftId>), GroupFailed> {
        let clock = self.clock.clone();
        let ready = self.ready_to_write();
        let open = match ready {
            Ok(open) => open,
            Err(error) => return Err(GroupFailed { error, waiting: begin_all(jobs) }),
        };
        let connection = &open.connection;
        let result = run_group(connection, &clock, open.tally, jobs);
        let Group { done, rows_told, wrote, tally, mut broken, ended } = result;
        let outcome = match ended {
            Some(error) => Err(error),
            None => commit(connection, &clock, wrote, &mut broken),
        };
        if outcome.is_err() && !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
            broken = true;
        }
        if outcome.is_ok() {
            open.tally = tally;
        }
        if broken {
            // The file is opened again by whoever comes next; recovery then decides what a commit
            // without an answer has left.
            self.open = None;
            self.unsynced = true;
        }
        match outcome {
            Ok(()) => Ok((done, rows_told)),
            Err(error) => Err(GroupFailed { error, waiting: done }),
        }
    }

    fn open(&mut self) -> Result<&mut Open, StoreError> {
        if self.open.is_none() {
            let connection = self.file.reopen().map_err(StoreError::Unavailable)?;
            let tally = Tally::of(&connection).map_err(|error| StoreError::Unavailable(error.to_string()))?;
            self.open = Some(Open { connection, tally });
            tracing::info!("the store's file was opened again");
        }
        self.open.as_mut().ok_or_else(|| StoreError::Unavailable("the file is closed".to_owned()))
    }

    fn ready_to_write(&mut self) -> Result<&mut Open, StoreError> {
        self.file.in_place().map_err(StoreError::Unavailable)?;
        self.open()?;
        if self.unsynced {
            let connection = &self.open()?.connection;
            let busy: rusqlite::Result<i64> =
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            match busy {
                Ok(0) => self.unsynced = false,
                Ok(_) => return Err(StoreError::Unavailable("the log cannot be carried into the file".to_owned())),
                Err(error) => {
                    self.open = None;
                    return Err(StoreError::Unavailable(format!("the log cannot be carried into the file: {error}")));
                }
            }
        }
        self.open()
    }
}

/// A group after its steps ran, before its commit.
struct Group {
    done: Done,
    rows_told: Vec<DraftId>,
    wrote: bool,
    /// As it will be if the group commits.
    tally: Tally,
    broken: bool,
    /// An error that took the whole transaction with it: nothing of it was written.
    ended: Option<StoreError>,
}

/// Callers that have not given up, to be told the same error.
fn begin_all(jobs: Vec<Job>) -> Done {
    jobs.into_iter().filter(|job| job.ticket.begin()).map(|job| job.work).collect()
}

fn run_group(connection: &Connection, clock: &StoreClock, tally: Tally, jobs: Vec<Job>) -> Group {
    let done = Vec::with_capacity(jobs.len());
    let mut group = Group { done, rows_told: Vec::new(), wrote: false, tally, broken: false, ended: None };
    if let Err(error) = quick(connection, "BEGIN IMMEDIATE") {
        group.fail(&error);
        group.done = begin_all(jobs);
        return group;
    }
    let mut jobs = jobs.into_iter();
    for job in jobs.by_ref() {
        if !job.ticket.begin() {
            continue;
        }
        group.run_step(connection, clock, job.work);
        if group.ended.is_some() {
            break;
        }
    }
    group.done.extend(begin_all(jobs.collect()));
    group
}

impl Group {
    fn run_step(&mut self, connection: &Connection, clock: &StoreClock, mut work: Box<dyn Work>) {
        if let Err(error) = quick(connection, "SAVEPOINT step") {
            self.fail(&error);
            self.done.push(work);
            return;
        }
        let mut rows = SqlRows::new(connection, clock.now(), self.tally);
        let succeeded = work.run(&mut rows);
        let (told, wrote, tally, broken) = (rows.told, rows.wrote, rows.tally, rows.broken);
        self.broken |= broken;
        self.done.push(work);
        if connection.is_autocommit() {
            // SQLite gave the whole transaction up (disk full, I/O error): no step of it holds.
            self.ended =
                Some(StoreError::Unavailable("the transaction was given up: the disk is full or failed".to_owned()));
            return;
        }
        if succeeded {
            self.rows_told.extend(told);
            self.wrote |= wrote;
            self.tally = tally;
        } else if let Err(error) = quick(connection, "ROLLBACK TO step") {
            self.fail(&error);
            return;
        }
        if let Err(error) = quick(connection, "RELEASE step") {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &rusqlite::Error) {
        self.broken |= breaks(error);
        self.ended = Some(StoreError::Unavailable(error.to_string()));
    }
}

fn commit(connection: &Connection, clock: &StoreClock, wrote: bool, broken: &mut bool) -> Result<(), StoreError> {
    if wrote {
        let seen = connection
            .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('clock', ?1)")
            .and_then(|mut statement| statement.execute([clock.now().as_millis()]));
        if let Err(error) = seen {
            *broken |= breaks(&error);
            return Err(StoreError::Unavailable(error.to_string()));
        }
    }
    quick(connection, "COMMIT").map_err(|error| {
        *broken |= breaks(&error);
        if certainly_not_written(&error) {
            StoreError::Unavailable(error.to_string())
        } else {
            *broken = true;
            StoreError::Uncertain(error.to_string())
        }
    })
}

/// Whether a failed commit left nothing behind. The frame that makes a transaction valid is the
/// last one written, so a write that failed wrote none; a sync that failed may come after it.
pub(super) fn certainly_not_written(error: &rusqlite::Error) -> bool {
    match error.sqlite_error() {
        Some(failure) => {
            matches!(failure.code, ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
                || failure.extended_code == ffi::SQLITE_IOERR_WRITE
        }
        None => false,
    }
}

fn quick(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}
