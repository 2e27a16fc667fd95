//! What this node knows of the store's time: the server's, counted on by this node's clock of suspended
//! time, and by how much a partition is ahead of it.
//!
//! Owns the sum that `lua/lib/begin.lua` makes of the same two numbers. Must never let the wall clock of
//! this node count.

use std::sync::{Arc, Mutex, PoisonError};

use crate::base::id::Partition;
use crate::base::time::{BootTime, Clock, Timestamp};
use crate::store::clock::TRUST;

/// The times of all partitions, as far as this node was told.
pub(super) struct Times {
    clock: Arc<dyn Clock>,
    /// Whether this node's time is every step's, which only the contract's suite does.
    pub(super) handed: bool,
    known: Mutex<Known>,
}

struct Known {
    /// The server's time when it was last told, and this node's clock of suspended time then.
    server: (Timestamp, BootTime),
    partitions: [Option<Seen>; Partition::COUNT],
}

/// What a partition's `meta` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// The highest time that a step has seen.
    pub(super) clock: Timestamp,
    /// The server's time then.
    pub(super) raw: Timestamp,
}

impl Times {
    pub(super) fn new(clock: Arc<dyn Clock>, handed: bool) -> Self {
        let server = (clock.now(), clock.boot());
        Self { clock, handed, known: Mutex::new(Known { server, partitions: [None; Partition::COUNT] }) }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server said what time it is when it was asked, or a little later: an answer that lay still sets no
    /// time back.
    pub(super) fn server_is_at(&self, now: Timestamp, asked: BootTime) {
        self.known().server = (now, asked);
    }

    /// A partition says what its steps have seen.
    pub(super) fn partition_has_seen(&self, partition: Partition, seen: Seen) {
        self.known().partitions[partition.index()] = Some(seen);
    }

    /// The server's time.
    pub(super) fn server(&self) -> Timestamp {
        if self.handed {
            return self.clock.now();
        }
        let (then, boot) = self.known().server;
        then + self.clock.boot().since(boot)
    }

    /// The time of a partition's next step.
    pub(super) fn of(&self, partition: Partition) -> Timestamp {
        let server = self.server();
        let seen = self.known().partitions[partition.index()];
        seen.filter(|_| !self.handed).map_or(server, |seen| seen.at(server))
    }
}

impl Seen {
    /// The partition's time at a time of the server: it never goes back, and runs at half speed until
    /// the server has caught up. What is more than a day ahead was written by a wrong clock.
    fn at(self, server: Timestamp) -> Timestamp {
        if self.clock <= server || self.clock > server + TRUST {
            return server;
        }
        self.clock + server.since(self.raw) / 2
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_partition_that_is_ahead_goes_on_at_half_speed_until_the_server_has_caught_up() {
        let seen = Seen { clock: at(10_000), raw: at(4_000) };
        for (server, partition) in [
            (3_000, 10_000), // set back once more
            (4_000, 10_000),
            (6_000, 11_000),
            (9_999, 12_999),
            (10_000, 10_000), // and what steps have written meanwhile is told by the next read
        ] {
            assert_eq!(seen.at(at(server)), at(partition), "{server}");
        }
        let wild = Seen { clock: at(4_000) + TRUST + Duration::from_millis(1), raw: at(4_000) };
        assert_eq!(wild.at(at(4_000)), at(4_000));
    }
}
