//! The clock of a store that lives in the guard's own process. Never goes backwards while the
//! process runs, and over restarts starts at the highest time that a commit has seen.
//!
//! Owns the rules of docs/lifecycle.md, "The store's clock". Must never read the operating
//! system's time itself: it is handed a [`Clock`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::base::time::{BootTime, Clock, Timestamp};

/// A stamp this far ahead of the store's clock can only come from a clock that was wrong: it
/// counts as long past, so that one wild jump neither keeps drafts alive nor calls refused.
pub(in crate::store) const TRUST: Duration = Duration::from_secs(24 * 60 * 60);

/// A forward step of the wall clock above this is believed only after [`STANDS`].
const JUMP: Duration = Duration::from_secs(60);

/// How long a large forward step must stand, by the clock that counts suspended time.
const STANDS: Duration = Duration::from_secs(60);

/// A clock that never goes backwards.
pub(in crate::store) struct StoreClock {
    clock: Arc<dyn Clock>,
    reading: Mutex<Reading>,
}

struct Reading {
    at_ns: i128,
    boot: BootTime,
    doubted_since: Option<BootTime>,
}

/// What the clock did with the time that the file knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Start {
    /// The wall clock is not behind.
    Wall,
    /// The wall clock is behind: the store's clock starts where it was and runs at half speed
    /// until the wall clock has caught up.
    Held,
    /// The wall clock is more than [`TRUST`] behind: the time in the file was wrong.
    Distrusted,
}

impl StoreClock {
    /// A clock for a store whose last commit was at `seen`.
    pub(in crate::store) fn new(clock: Arc<dyn Clock>, seen: Option<Timestamp>) -> (Self, Start) {
        let wall = clock.now();
        let (at, start) = match seen {
            Some(seen) if seen > wall + TRUST => (wall, Start::Distrusted),
            Some(seen) if seen > wall => (seen, Start::Held),
            _ => (wall, Start::Wall),
        };
        let reading = Reading { at_ns: nanos(at), boot: clock.boot(), doubted_since: None };
        (Self { clock, reading: Mutex::new(reading) }, start)
    }

    /// The store's time.
    pub(in crate::store) fn now(&self) -> Timestamp {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, boot) = (self.clock.now(), self.clock.boot());
        reading.step(nanos(wall), boot);
        Timestamp::from_millis(i64::try_from(reading.at_ns / 1_000_000).unwrap_or(i64::MAX))
    }
}

impl Reading {
    fn step(&mut self, wall_ns: i128, boot: BootTime) {
        let elapsed_ns = width(boot.since(self.boot));
        let steady_ns = self.at_ns + elapsed_ns;
        let leaps = wall_ns > steady_ns + width(JUMP);
        self.at_ns = if leaps {
            let since = *self.doubted_since.get_or_insert(boot);
            if boot.since(since) >= STANDS { wall_ns } else { steady_ns }
        } else if self.at_ns > wall_ns + width(TRUST) {
            // So far ahead that waiting for the wall clock is no way back; a restart is.
            steady_ns
        } else {
            wall_ns.max(self.at_ns + elapsed_ns / 2)
        };
        if !leaps || self.at_ns == wall_ns {
            self.doubted_since = None;
        }
        self.boot = self.boot.max(boot);
    }
}

fn nanos(at: Timestamp) -> i128 {
    i128::from(at.as_millis()) * 1_000_000
}

fn width(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::ManualClock;

    const START: i64 = 1_700_000_000_000;

    fn clock(seen: Option<i64>) -> (Arc<ManualClock>, StoreClock, Start) {
        let manual = Arc::new(ManualClock::new(Timestamp::from_millis(START)));
        let (clock, start) = StoreClock::new(manual.clone(), seen.map(Timestamp::from_millis));
        (manual, clock, start)
    }

    #[test]
    fn follows_the_wall_clock_and_small_steps_forward() {
        let (manual, clock, start) = clock(None);
        assert_eq!(start, Start::Wall);
        manual.advance(Duration::from_secs(5));
        assert_eq!(clock.now().as_millis(), START + 5_000);
        manual.shift_wall(30_000);
        assert_eq!(clock.now().as_millis(), START + 35_000);
    }

    #[test]
    fn a_step_back_never_shows_and_is_made_up_at_half_speed() {
        let (manual, clock, _) = clock(None);
        manual.shift_wall(-10_000);
        assert_eq!(clock.now().as_millis(), START);
        manual.advance(Duration::from_secs(4));
        assert_eq!(clock.now().as_millis(), START + 2_000);
        // Many short readings lose nothing to rounding.
        for _ in 0..16_000 {
            manual.advance(Duration::from_millis(1));
            clock.now();
        }
        assert_eq!(clock.now().as_millis(), START + 10_000);
        manual.advance(Duration::from_secs(3));
        assert_eq!(clock.now().as_millis(), START + 13_000, "caught up: full speed again");
    }

    #[test]
    fn a_wild_leap_is_believed_only_when_it_stands() {
        let (manual, clock, _) = clock(None);
        let leap = 70 * 365 * 24 * 3_600_000;
        manual.shift_wall(leap);
        assert_eq!(clock.now().as_millis(), START);
        manual.advance(Duration::from_secs(30));
        assert_eq!(clock.now().as_millis(), START + 30_000);
        manual.shift_wall(-leap);
        assert_eq!(clock.now().as_millis(), START + 30_000, "the leap left no trace");
        manual.shift_wall(3_600_000);
        clock.now();
        manual.advance(Duration::from_secs(60));
        assert_eq!(clock.now().as_millis(), START + 3_690_000, "an hour that stands is true");
    }

    #[test]
    fn a_restart_neither_turns_time_back_nor_keeps_a_wild_time() {
        let (manual, clock, start) = clock(Some(START + 3_600_000));
        assert_eq!(start, Start::Held);
        assert_eq!(clock.now().as_millis(), START + 3_600_000);
        manual.advance(Duration::from_secs(10));
        assert_eq!(clock.now().as_millis(), START + 3_605_000);

        let (_, clock, start) = self::clock(Some(START + 70 * 365 * 24 * 3_600_000));
        assert_eq!(start, Start::Distrusted);
        assert_eq!(clock.now().as_millis(), START);
    }
}
