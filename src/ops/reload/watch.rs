//! Watches the policy folder and reloads after a change.
//!
//! The folder is watched, not its files: editors and mounted configuration replace files and
//! links as a whole. After every change the watch is laid anew, because the folder itself may
//! have been replaced.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::control::PolicyStatus as _;

use super::Policies;

/// A change is taken once nothing has changed for this long.
const QUIET: Duration = Duration::from_millis(150);
/// A folder that never stops changing is read all the same after this long.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// How often a folder that cannot be watched is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// A running watch; dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    task: JoinHandle<()>,
}

impl Watch {
    /// Watches the folder of `policies`; `None` where there is no folder.
    ///
    /// # Errors
    ///
    /// The system has no watches left to give.
    pub fn start(policies: Arc<Policies>) -> notify::Result<Option<Self>> {
        let Some(folder) = policies.folder().cloned() else { return Ok(None) };
        let (tell, changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading makes events of its own, which must not start another reading. A full
            // channel means that a change is waiting to be taken already.
            if !matches!(&event, Ok(event) if matches!(event.kind, EventKind::Access(_))) {
                let _ = tell.try_send(());
            }
        })?;
        let mut places = Places { watcher, folder, laid: Vec::new() };
        if let Err(error) = places.lay() {
            tracing::warn!(%error, "the policy folder cannot be watched; trying again");
        }
        Ok(Some(Self { task: tokio::spawn(run(places, changes, policies)) }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Places {
    watcher: RecommendedWatcher,
    folder: PathBuf,
    laid: Vec<PathBuf>,
}

impl Places {
    /// Watches the folder, and where the folder is a link also the folder that holds the link.
    fn lay(&mut self) -> notify::Result<()> {
        for old in self.laid.drain(..) {
            // It may be gone, and its watch with it.
            let _ = self.watcher.unwatch(&old);
        }
        let mut wanted = vec![self.folder.clone()];
        if self.folder.is_symlink()
            && let Some(parent) = self.folder.parent()
        {
            wanted.push(if parent.as_os_str().is_empty() { Path::new(".").to_owned() } else { parent.to_owned() });
        }
        for place in wanted {
            self.watcher.watch(&place, RecursiveMode::NonRecursive)?;
            self.laid.push(place);
        }
        Ok(())
    }
}

async fn run(mut places: Places, mut changes: mpsc::Receiver<()>, policies: Arc<Policies>) {
    loop {
        if places.laid.is_empty() {
            // Not watched: look again after a while, and read what may have come meanwhile.
            tokio::time::sleep(RETRY).await;
        } else {
            if changes.recv().await.is_none() {
                return;
            }
            settle(&mut changes).await;
        }
        // Laid anew before reading, so that a change during the reading is seen.
        let was_laid = !places.laid.is_empty();
        match places.lay() {
            Ok(()) => {}
            Err(error) if was_laid => tracing::warn!(%error, "the policy folder cannot be watched; trying again"),
            Err(_) => continue,
        }
        let policies = Arc::clone(&policies);
        // The result is kept in the report and has been logged.
        let _ = tokio::task::spawn_blocking(move || policies.reload()).await;
    }
}

/// Waits until the changes have stopped.
async fn settle(changes: &mut mpsc::Receiver<()>) {
    let stopped = async { while let Ok(Some(())) = tokio::time::timeout(QUIET, changes.recv()).await {} };
    let _ = tokio::time::timeout(QUIET_MAX, stopped).await;
}
