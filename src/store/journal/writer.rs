//! The one thread that writes a journal.
//!
//! Owns the open segment and its length. Callers that wait at the same time share one line and
//! one sync. Must never answer before the line is on disk, and must never write past a failure:
//! a line that may be half there is cut off, or its segment is left for good.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use crate::base::id::{DraftId, NodeId, StepId};
use crate::base::time::{Clock, Timestamp};

use super::folder::Folder;
use super::line::{self, Kept, Record};
use super::state::State;
use super::{JournalError, Logged};

/// The most records of one commit.
const BATCH_MAX: usize = 256;
/// A commit takes no more records once it has this many bytes.
const BATCH_BYTES: u64 = 4 << 20;
/// Below this a journal is not worth rewriting.
const REWRITE_BYTES_MIN: u64 = 64 * 1024;

type Reply<T> = oneshot::Sender<Result<T, JournalError>>;

/// What the thread is asked for.
pub(super) enum Command {
    Attempt { id: DraftId, epoch: u64, attempt: u32, at: Timestamp, reply: Reply<Logged> },
    Keep { kept: Box<Kept>, reply: Reply<()> },
    Taken { id: DraftId, step: StepId, reply: Reply<()> },
    Trim { before: Timestamp, reply: Reply<()> },
}

/// Who waits for a record.
enum Waiter {
    Attempt(Reply<Logged>),
    Other(Reply<()>),
}

impl Waiter {
    /// A caller that has gone away needs no answer; what it asked for holds all the same.
    fn answer(self, result: Result<(), JournalError>) {
        match self {
            Self::Attempt(reply) => drop(reply.send(result.map(|()| Logged::New))),
            Self::Other(reply) => drop(reply.send(result)),
        }
    }
}

/// How bytes reach the disk; a seam, so that a test can have a full or failing one.
pub(super) trait Disk: Send {
    fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self, file: &File) -> io::Result<()>;
}

/// The real one.
pub(super) struct PlainDisk;

impl Disk for PlainDisk {
    fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

struct Segment {
    file: File,
    number: u64,
    bytes: u64,
    /// Whether its name is durable.
    named: bool,
}

/// What the thread works with.
pub(super) struct Writer {
    pub(super) folder: Folder,
    pub(super) node: NodeId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) disk: Box<dyn Disk>,
    pub(super) state: Arc<Mutex<State>>,
    /// Closed segments that still count.
    closed: Vec<u64>,
    open: Option<Segment>,
    next: u64,
    /// Of all segments.
    bytes: u64,
    bytes_max: u64,
}

/// A commit in the making.
#[derive(Default)]
struct Batch {
    records: Vec<(Record, String, Waiter)>,
    bytes: u64,
    attempts: HashMap<DraftId, u32>,
    kept: HashSet<(DraftId, StepId)>,
    taken: HashSet<(DraftId, StepId)>,
    rewritten: bool,
}

impl Writer {
    pub(super) fn new(
        folder: Folder,
        node: NodeId,
        clock: Arc<dyn Clock>,
        disk: Box<dyn Disk>,
        found: Found,
        bytes_max: u64,
    ) -> Self {
        let next = found.segments.last().map_or(1, |last| last + 1);
        let state = Arc::new(Mutex::new(found.state));
        Self {
            folder,
            node,
            clock,
            disk,
            state,
            closed: found.segments,
            open: None,
            next,
            bytes: found.bytes,
            bytes_max,
        }
    }

    /// Works until every sender is gone.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(first) = commands.blocking_recv() {
            let mut batch = Batch::default();
            let mut next = Some(first);
            while let Some(command) = next {
                if let Command::Trim { before, reply } = command {
                    self.commit(std::mem::take(&mut batch));
                    let _ = reply.send(self.trim(before));
                } else {
                    self.admit(command, &mut batch);
                }
                let full = batch.records.len() >= BATCH_MAX || batch.bytes >= BATCH_BYTES;
                next = if full { None } else { commands.try_recv().ok() };
            }
            self.commit(batch);
        }
    }

    pub(super) fn segments(&self) -> usize {
        self.closed.len() + usize::from(self.open.is_some())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers what needs no line, and puts the rest into the batch.
    fn admit(&mut self, command: Command, batch: &mut Batch) {
        // A quarter is kept for outcomes: whatever was sent must be able to say how it ended.
        let for_attempts = self.bytes_max - self.bytes_max / 4;
        let (record, waiter, bytes_max) = match command {
            Command::Attempt { id, epoch, attempt, at, reply } => {
                if batch.attempts.contains_key(&id) || self.state().has_attempt(&id) {
                    drop(reply.send(Ok(Logged::Already)));
                    return;
                }
                (Record::Attempt { id, epoch, attempt, at }, Waiter::Attempt(reply), for_attempts)
            }
            Command::Keep { kept, reply } => {
                // One that is taken earlier in this batch waits anew.
                let taken_here = batch.taken.contains(&(kept.id().clone(), kept.step()));
                if !taken_here && self.state().has_kept(kept.id(), kept.step()) {
                    drop(reply.send(Ok(())));
                    return;
                }
                (Record::Keep(kept), Waiter::Other(reply), self.bytes_max)
            }
            Command::Taken { id, step, reply } => {
                if !batch.kept.contains(&(id.clone(), step)) && !self.state().has_kept(&id, step) {
                    drop(reply.send(Ok(())));
                    return;
                }
                // Never refused: it makes room, and there is at most one per outcome.
                (Record::Taken { id, step }, Waiter::Other(reply), u64::MAX)
            }
            Command::Trim { .. } => return,
        };
        match line::encode(&record) {
            Err(error) => waiter.answer(Err(JournalError(error.to_string()))),
            Ok(json) => match self.reserve(json.len() as u64 + 1, bytes_max, batch) {
                Err(error) => waiter.answer(Err(error)),
                Ok(()) => batch.push(record, json, waiter),
            },
        }
    }

    /// Makes sure that a record fits below `bytes_max`; rewrites the journal once per batch
    /// where that makes room.
    fn reserve(&mut self, record_bytes: u64, bytes_max: u64, batch: &mut Batch) -> Result<(), JournalError> {
        let more = batch.bytes + record_bytes + 2 * line::LINE_BYTES;
        if self.bytes.saturating_add(more) <= bytes_max {
            return Ok(());
        }
        let live = self.state().live_bytes();
        let dead = self.bytes.saturating_sub(live);
        // Each rewrite must win enough that a full journal is not rewritten for every line.
        if !batch.rewritten && live + more <= bytes_max && dead >= self.bytes_max / 16 {
            batch.rewritten = true;
            self.rewrite().map_err(|error| JournalError(format!("it is full and could not be rewritten: {error}")))?;
        }
        if self.bytes.saturating_add(more) <= bytes_max {
            return Ok(());
        }
        Err(JournalError(format!(
            "it is full ({} of {} bytes, of which {live} are needed): settle what waits, or allow it more",
            self.bytes, self.bytes_max
        )))
    }

    /// Writes a batch and answers everybody in it.
    fn commit(&mut self, batch: Batch) {
        if batch.records.is_empty() {
            return;
        }
        let bytes = line::join(batch.records.iter().map(|(_, json, _)| json.as_str()));
        let written = self.append(&bytes);
        if let Err(error) = &written {
            tracing::error!(%error, records = batch.records.len(), "the journal could not be written");
        }
        let result = written.map_err(|error| JournalError(error.to_string()));
        for (record, json, waiter) in batch.records {
            if result.is_ok() {
                self.state().apply(record, json.len() as u64 + 1);
            }
            waiter.answer(result.clone());
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut segment = match self.open.take() {
            Some(segment) => segment,
            None => self.begin()?,
        };
        if let Err(error) = self.disk.append(&mut segment.file, bytes) {
            // A disk that is full took a part of the line: cut it off and go on with the segment
            // when there is room. Where that fails the segment is left, its end torn.
            self.leave(segment, true);
            return Err(error);
        }
        // After a failed sync nobody knows what is on disk, and another sync may say "all well".
        if let Err(error) = self.disk.sync(&segment.file) {
            self.leave(segment, false);
            return Err(error);
        }
        if !segment.named {
            if let Err(error) = self.folder.sync() {
                self.leave(segment, false);
                return Err(error);
            }
            segment.named = true;
        }
        segment.bytes += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        self.open = Some(segment);
        Ok(())
    }

    /// Cuts a segment back to its good lines, and goes on with it or not.
    fn leave(&mut self, segment: Segment, go_on: bool) {
        let cut = segment.file.set_len(segment.bytes).is_ok();
        if cut && go_on {
            self.open = Some(segment);
        } else {
            self.closed.push(segment.number);
        }
    }

    /// A new segment with its first line, not yet synced.
    fn begin(&mut self) -> io::Result<Segment> {
        let bytes = self.begin_line(false)?;
        let number = self.next;
        let mut file = self.folder.new_segment(number)?;
        self.next += 1;
        if let Err(error) = self.disk.append(&mut file, &bytes) {
            let _ = self.folder.remove_segment(number);
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        Ok(Segment { file, number, bytes: bytes.len() as u64, named: false })
    }

    fn begin_line(&self, afresh: bool) -> io::Result<Vec<u8>> {
        let (node, at) = (self.node.as_str().to_owned(), self.clock.now());
        let begin = line::encode(&Record::Begin { version: line::VERSION, node, at, afresh })?;
        Ok(line::join([begin.as_str()]))
    }

    fn trim(&mut self, before: Timestamp) -> Result<(), JournalError> {
        self.state().trim(before);
        let live = self.state().live_bytes();
        if self.bytes > REWRITE_BYTES_MIN && self.bytes.saturating_sub(live) > live {
            self.rewrite().map_err(|error| JournalError(format!("it could not be rewritten: {error}")))?;
        }
        Ok(())
    }

    /// Writes everything that counts into one new segment, and removes the others.
    pub(super) fn rewrite(&mut self) -> io::Result<()> {
        let mut bytes = self.begin_line(true)?;
        let records = self.state().records().map(|record| line::encode(&record)).collect::<Result<Vec<_>, _>>()?;
        for chunk in records.chunks(BATCH_MAX) {
            bytes.extend_from_slice(&line::join(chunk.iter().map(String::as_str)));
        }
        let number = self.next;
        self.next += 1;
        // If the new segment may be there after a failure, an older one must not be appended to:
        // what begins afresh makes everything before it void.
        self.closed.extend(self.open.take().map(|segment| segment.number));
        let file = match self.folder.write_segment(number, &bytes) {
            Ok(file) => file,
            Err(error) => {
                let _ = self.folder.remove_segment(number);
                return Err(error);
            }
        };
        for old in self.closed.drain(..) {
            // One that stays is void from now on, and is removed at the next start.
            if let Err(error) = self.folder.remove_segment(old) {
                tracing::warn!(%error, segment = old, "an old journal segment could not be removed");
            }
        }
        self.bytes = bytes.len() as u64;
        self.open = Some(Segment { file, number, bytes: self.bytes, named: true });
        Ok(())
    }
}

impl Batch {
    fn push(&mut self, record: Record, json: String, waiter: Waiter) {
        match &record {
            Record::Attempt { id, attempt, .. } => {
                self.attempts.insert(id.clone(), *attempt);
            }
            Record::Keep(kept) => {
                self.kept.insert((kept.id().clone(), kept.step()));
            }
            Record::Taken { id, step } => {
                self.taken.insert((id.clone(), *step));
            }
            Record::Begin { .. } => {}
        }
        self.bytes += json.len() as u64 + 1;
        self.records.push((record, json, waiter));
    }
}

/// What was in the folder.
#[derive(Default)]
pub(super) struct Found {
    pub(super) state: State,
    pub(super) segments: Vec<u64>,
    pub(super) bytes: u64,
}
