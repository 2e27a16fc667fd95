//! What only a file can get wrong: restarts, second openers, full disks, altered rows, and whether
//! the writer really groups.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod altered;
mod no_room;
mod opening;
mod writing;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::time::Duration;

use rusqlite::ffi;

use super::*;
use crate::base::time::ManualClock;
use crate::draft::state::{State, Verdict};
use crate::store::conformance::Harness;

const START: i64 = 1_700_000_000_000;

/// Notes what it is told.
#[derive(Default)]
struct Notes {
    commits: Mutex<Vec<usize>>,
    errors: Mutex<Vec<(&'static str, &'static str)>>,
}

impl StoreObserver for Notes {
    fn step(&self, name: &'static str, _: Duration, error: Option<&'static str>) {
        self.errors.lock().unwrap().extend(error.map(|error| (name, error)));
    }

    fn commit(&self, steps: usize, _: Duration) {
        self.commits.lock().unwrap().push(steps);
    }
}

/// A file that is opened and closed again and again.
struct File {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    notes: Arc<Notes>,
}

impl File {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(START)));
        Self { folder: tempfile::tempdir().unwrap(), clock, notes: Arc::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn options(&self) -> SqliteOptions {
        // Long enough for a busy machine; what must time out says so itself.
        SqliteOptions { step_timeout: Duration::from_secs(60), observer: self.notes.clone() }
    }

    fn open(&self) -> (Arc<SqliteStore>, Harness) {
        self.open_with(self.options())
    }

    fn open_with(&self, options: SqliteOptions) -> (Arc<SqliteStore>, Harness) {
        let store = Arc::new(SqliteStore::open(&self.path(), self.clock.clone(), options).expect("opens"));
        let harness = Harness::new(store.clone(), self.clock.clone(), Box::new(()));
        (store, harness)
    }

    /// Alters the closed file as somebody with write access could.
    fn alter(&self, sql: &str) {
        rusqlite::Connection::open(self.path()).unwrap().execute_batch(sql).expect("alters");
    }
}

const CHILD: &str = "COUNTERSIGN_STORE_TEST_CHILD";

/// Runs one test of this binary in a process of its own, in which a file that grows beyond its
/// limit is an error and not a signal.
fn child(test: &str, path: &Path) -> std::process::ExitStatus {
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, path)
        .status()
        .unwrap()
}
