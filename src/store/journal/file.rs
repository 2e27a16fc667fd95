//! A node's send log in a folder of its own.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use crate::base::chance::Chance;
use crate::base::id::{DraftId, NodeId, StepId};
use crate::base::time::{Clock, Timestamp};
use crate::store::contract::Settle;

use super::folder::{Folder, OpenError, Processes};
use super::line::{Kept, Record};
use super::segment::{self, BadSegment};
use super::state::State;
use super::writer::{Command, Disk, Found, PlainDisk, Writer};
use super::{JournalError, Logged, SendLog};

/// How many callers may queue for the writer before they wait for a place.
const QUEUE: usize = 1024;
/// From this many segments on, opening rewrites them into one.
const SEGMENTS_MAX: usize = 16;

/// A journal on disk, written by a thread of its own. Dropping it ends the thread and gives the
/// folder free.
#[derive(Debug)]
pub struct FileJournal {
    processes: Processes,
    state: Arc<Mutex<State>>,
    commands: Option<mpsc::Sender<Command>>,
    writer: Option<JoinHandle<()>>,
}

impl FileJournal {
    /// Opens, or makes, the journal in `folder`. It takes at most `bytes_max` bytes: attempts are
    /// refused when three quarters are needed, outcomes when all are (promise 7), and while it is
    /// rewritten it takes up to twice as much. Blocks for reading.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: in use, unreadable, damaged, or of another version. Each says what to do.
    pub fn open(folder: &Path, bytes_max: u64, clock: Arc<dyn Clock>, chance: &dyn Chance) -> Result<Self, OpenError> {
        Self::open_on(Box::new(PlainDisk), folder, bytes_max, clock, chance)
    }

    pub(super) fn open_on(
        disk: Box<dyn Disk>,
        folder: &Path,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
        chance: &dyn Chance,
    ) -> Result<Self, OpenError> {
        let path = folder;
        let folder = Folder::lock(path)?;
        let found = read(&folder)?;
        let processes = folder.name_process(chance)?;
        let mut writer = Writer::new(folder, processes.this.clone(), clock, disk, found, bytes_max);
        if writer.segments() > SEGMENTS_MAX
            && let Err(error) = writer.rewrite()
        {
            tracing::warn!(%error, "the journal's segments could not be rewritten into one");
        }
        let state = Arc::clone(&writer.state);
        let (commands, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(move || writer.run(queue));
        let thread = thread.map_err(|error| OpenError::Io {
            doing: "starting the writer of",
            path: path.to_path_buf(),
            error,
        })?;
        Ok(Self { processes, state, commands: Some(commands), writer: Some(thread) })
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, JournalError>>) -> Command,
    ) -> Result<T, JournalError> {
        let gone = || JournalError("its writer has stopped".to_owned());
        let (reply, answer) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or_else(gone)?;
        commands.send(command(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(writer) = self.writer.take() {
            // Waits for the line in hand, so that the folder is free afterwards.
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl SendLog for FileJournal {
    fn node(&self) -> &NodeId {
        &self.processes.this
    }

    fn own_dead(&self) -> &[NodeId] {
        &self.processes.former
    }

    async fn attempt(&self, id: &DraftId, epoch: u64, attempt: u32, at: Timestamp) -> Result<Logged, JournalError> {
        let id = id.clone();
        self.ask(|reply| Command::Attempt { id, epoch, attempt, at, reply }).await
    }

    fn began(&self, id: &DraftId) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).has_attempt(id)
    }

    async fn keep(&self, outcome: &Settle) -> Result<(), JournalError> {
        let kept = Box::new(Kept::from(outcome));
        self.ask(|reply| Command::Keep { kept, reply }).await
    }

    async fn taken(&self, id: &DraftId, step: StepId) -> Result<(), JournalError> {
        let id = id.clone();
        self.ask(|reply| Command::Taken { id, step, reply }).await
    }

    async fn waiting(&self) -> Vec<Settle> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting()
    }

    async fn trim(&self, before: Timestamp) -> Result<(), JournalError> {
        self.ask(|reply| Command::Trim { before, reply }).await
    }
}

/// Reads every segment, cuts torn ends, and removes what a later segment has replaced. Changes
/// nothing before all of it was read.
fn read(folder: &Folder) -> Result<Found, OpenError> {
    let mut found = Found::default();
    let mut replaced = Vec::new();
    let mut torn = Vec::new();
    for number in folder.segments()? {
        let bytes = folder.read(number)?;
        let content = segment::read(&bytes).map_err(|bad| match bad {
            BadSegment::Damaged(at) => OpenError::Damaged { path: folder.segment(number), at },
            BadSegment::Unknown(at) => OpenError::OtherVersion { path: folder.segment(number), at },
        })?;
        if content.good_bytes < bytes.len() {
            torn.push((number, content.good_bytes));
        }
        if matches!(content.records.first(), Some((Record::Begin { afresh: true, .. }, _))) {
            replaced.append(&mut found.segments);
            found.bytes = 0;
        }
        for (record, bytes) in content.records {
            found.state.apply(record, bytes);
        }
        found.segments.push(number);
        found.bytes += content.good_bytes as u64;
    }
    for (number, good_bytes) in torn {
        tracing::warn!(segment = number, good_bytes, "the torn end of a journal segment was cut off");
        folder.cut(number, good_bytes)?;
    }
    for number in replaced {
        folder.remove_segment(number).map_err(|error| OpenError::Io {
            doing: "removing",
            path: folder.segment(number),
            error,
        })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
