//! The folder of a journal: its lock, the node's name, its segments.
//!
//! Owns everything on disk but the content of lines. Must never delete a segment that still counts.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::base::chance::Chance;
use crate::base::id::NodeId;

/// How many former processes are remembered as dead.
const FORMER_PROCESSES_MAX: u64 = 64;

const NAME_FILE: &str = "node.json";
const LOCK_FILE: &str = "lock";

/// A journal that cannot be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the journal in {} is in use by another guard: stop that one, or give this one a folder of its own; \
         a journal belongs to one process", folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The file system refused.
    #[error("the journal cannot be opened: {doing} {} failed: {error}", path.display())]
    Io {
        /// What was done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// A file is not as it was written.
    #[error(
        "the journal file {} is damaged at byte {at}, before its end, so it is not the trace of a crash. The journal \
         is what knows which drafts were sent: do not delete it. First keep a copy of its folder and of the store. Then \
         repair the disk or put the undamaged file back. Only if it cannot be had, and only with the store that this \
         guard used last, never with one from a backup, move the folder away and start with an empty one: outcomes that \
         only the journal had are lost, drafts that were being sent have to be resolved by a person, and a store \
         that is put back later may offer for confirmation what was sent already", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The byte offset.
        at: usize,
    },
    /// A file is whole, but in a form that is not known.
    #[error(
        "the journal file {} was written by another version (at byte {at}): start that version. With an empty \
         folder in its place nobody knows any more which drafts were sent", path.display()
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// The byte offset.
        at: usize,
    },
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    move |error| OpenError::Io { doing, path: path.to_path_buf(), error }
}

/// Who this process is, and which processes were before it.
#[derive(Debug, Clone)]
pub(super) struct Processes {
    pub(super) this: NodeId,
    /// Known to be dead: they had the lock that this process holds.
    pub(super) former: Vec<NodeId>,
}

#[derive(Serialize, Deserialize)]
struct Name {
    /// Random, made once.
    node: String,
    /// How many processes have opened the folder.
    processes: u64,
}

/// A locked folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Released when it is closed, at the latest when the process dies.
    _lock: File,
}

impl Folder {
    /// Makes the folder where it is missing, for its owner only, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, OpenError> {
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("making the folder", path))?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                sync_folder(parent).map_err(failed("syncing the folder", parent))?;
            }
        }
        let file = path.join(LOCK_FILE);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&file);
        let lock = lock.map_err(failed("opening", &file))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_path_buf(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { folder: path.to_path_buf() }),
            Err(TryLockError::Error(error)) => Err(failed("locking", &file)(error)),
        }
    }

    /// Counts this process, and names it `NODE.COUNT`.
    pub(super) fn name_process(&self, chance: &dyn Chance) -> Result<Processes, OpenError> {
        let file = self.path.join(NAME_FILE);
        let mut name = match std::fs::read(&file) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|_| OpenError::Damaged { path: file.clone(), at: 0 })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Name { node: HEXLOWER.encode(&chance.bytes16()), processes: 0 }
            }
            Err(error) => return Err(failed("reading", &file)(error)),
        };
        name.processes += 1;
        let id = |count: u64| {
            NodeId::new(format!("{}.{count}", name.node)).map_err(|_| OpenError::Damaged { path: file.clone(), at: 0 })
        };
        let first = name.processes.saturating_sub(FORMER_PROCESSES_MAX).max(1);
        let former = (first..name.processes).map(id).collect::<Result<_, _>>()?;
        let this = id(name.processes)?;
        let json = serde_json::to_vec(&name).map_err(|error| failed("writing", &file)(error.into()))?;
        self.replace(NAME_FILE, &json).map_err(failed("writing", &file))?;
        Ok(Processes { this, former })
    }

    /// The numbers of the segments, in order; leftovers of an interrupted write are removed.
    pub(super) fn segments(&self) -> Result<Vec<u64>, OpenError> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed("listing", &self.path))? {
            let name = entry.map_err(failed("listing", &self.path))?.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(".new") {
                let leftover = self.path.join(name);
                std::fs::remove_file(&leftover).map_err(failed("removing", &leftover))?;
            } else if let Some(number) = name.strip_suffix(".log").and_then(|stem| stem.parse().ok()) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(super) fn segment(&self, number: u64) -> PathBuf {
        self.path.join(segment_name(number))
    }

    /// The bytes of a segment.
    pub(super) fn read(&self, number: u64) -> Result<Vec<u8>, OpenError> {
        let path = self.segment(number);
        std::fs::read(&path).map_err(failed("reading", &path))
    }

    /// Cuts a torn end off.
    pub(super) fn cut(&self, number: u64, good_bytes: usize) -> Result<(), OpenError> {
        let path = self.segment(number);
        let cut = || {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(good_bytes as u64)?;
            file.sync_all()
        };
        cut().map_err(failed("cutting the torn end of", &path))
    }

    /// A new, empty segment to append to.
    pub(super) fn new_segment(&self, number: u64) -> io::Result<File> {
        OpenOptions::new().append(true).create_new(true).mode(0o600).open(self.segment(number))
    }

    /// Writes a whole segment, so that after a crash it is there whole or not at all; gives it
    /// open to append to.
    pub(super) fn write_segment(&self, number: u64, bytes: &[u8]) -> io::Result<File> {
        self.replace(&segment_name(number), bytes)?;
        OpenOptions::new().append(true).open(self.segment(number))
    }

    pub(super) fn remove_segment(&self, number: u64) -> io::Result<()> {
        std::fs::remove_file(self.segment(number))
    }

    /// Makes new and removed names durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        sync_folder(&self.path)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let write = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&new, self.path.join(name))
        };
        write().inspect_err(|_| {
            // What could not be written whole is of no use, and takes room on a full disk.
            let _ = std::fs::remove_file(&new);
        })?;
        self.sync()
    }
}

fn segment_name(number: u64) -> String {
    format!("{number:010}.log")
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
