//! What the lines of a journal add up to: the attempts that were begun, and the outcomes that
//! wait. Pure.

use std::collections::{BTreeMap, HashMap};

use crate::base::id::{DraftId, StepId};
use crate::base::time::Timestamp;
use crate::store::contract::Settle;

use super::line::{Kept, Record};

/// The highest attempt of a draft.
#[derive(Debug, Clone)]
struct Noted {
    epoch: u64,
    attempt: u32,
    at: Timestamp,
    bytes: u64,
}

#[derive(Debug, Clone)]
struct Waiting {
    kept: Kept,
    bytes: u64,
}

/// The index of a journal, in memory.
#[derive(Debug, Default)]
pub(super) struct State {
    attempts: HashMap<DraftId, Noted>,
    /// By their places, oldest first.
    waiting: BTreeMap<u64, Waiting>,
    places: HashMap<(DraftId, StepId), u64>,
    next: u64,
    live_bytes: u64,
}

impl State {
    /// How many bytes the records take that still count.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Whether any attempt of this draft was begun. A draft is sent once: whatever number the store
    /// gives the next attempt, one that is noted here is not sent again (promise 3).
    pub(super) fn has_attempt(&self, id: &DraftId) -> bool {
        self.attempts.contains_key(id)
    }

    /// Whether this very outcome waits.
    pub(super) fn has_kept(&self, id: &DraftId, step: StepId) -> bool {
        self.places.contains_key(&(id.clone(), step))
    }

    /// The outcomes that wait, oldest first.
    pub(super) fn waiting(&self) -> Vec<Settle> {
        self.waiting.values().filter_map(|waiting| waiting.kept.settle()).collect()
    }

    /// Takes a record that is on disk in `bytes` bytes.
    pub(super) fn apply(&mut self, record: Record, bytes: u64) {
        match record {
            Record::Begin { afresh, .. } => {
                if afresh {
                    *self = Self::default();
                }
            }
            Record::Attempt { id, epoch, attempt, at } => {
                // The highest attempt with the latest time: whatever order the lines come in, an
                // attempt is not forgotten before its own time.
                let mut noted = Noted { epoch, attempt, at, bytes };
                if let Some(old) = self.attempts.remove(&id) {
                    self.live_bytes -= old.bytes;
                    let latest = old.at.max(at);
                    if old.attempt >= attempt {
                        noted = old;
                    }
                    noted.at = latest;
                }
                self.live_bytes += noted.bytes;
                self.attempts.insert(id, noted);
            }
            Record::Keep(kept) => {
                if !self.has_kept(kept.id(), kept.step()) {
                    self.places.insert((kept.id().clone(), kept.step()), self.next);
                    self.waiting.insert(self.next, Waiting { kept: *kept, bytes });
                    self.next += 1;
                    self.live_bytes += bytes;
                }
            }
            Record::Taken { id, step } => {
                let gone = self.places.remove(&(id, step)).and_then(|place| self.waiting.remove(&place));
                self.live_bytes -= gone.map_or(0, |gone| gone.bytes);
            }
        }
    }

    /// Forgets attempts older than `before`.
    pub(super) fn trim(&mut self, before: Timestamp) {
        let live_bytes = &mut self.live_bytes;
        self.attempts.retain(|_, noted| {
            let keep = noted.at >= before;
            if !keep {
                *live_bytes -= noted.bytes;
            }
            keep
        });
    }

    /// Everything that counts, as records that give the same state again.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let attempts = self.attempts.iter().map(|(id, noted)| Record::Attempt {
            id: id.clone(),
            epoch: noted.epoch,
            attempt: noted.attempt,
            at: noted.at,
        });
        let kept = self.waiting.values().map(|waiting| Record::Keep(Box::new(waiting.kept.clone())));
        attempts.chain(kept)
    }
}
