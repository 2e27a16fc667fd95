//! The only reader of time. Everything else is handed a [`Clock`].

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A wall-clock instant in milliseconds since the Unix epoch, UTC. On the wire it is RFC 3339
/// with milliseconds and `Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(millis(by)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "invalid-time({})", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    /// Reads RFC 3339; anything else is an error, so that an unreadable expiry fails closed.
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let at: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(at.as_millisecond()))
    }
}

/// An instant of the node's monotonic clock that goes on while the machine or the process is
/// suspended (`CLOCK_BOOTTIME`), in nanoseconds since an arbitrary start. Send permits are
/// measured on it, so a process that was stopped and woken sees its deadline as passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(u64);

impl BootTime {
    /// From nanoseconds since the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Both clocks of a node.
pub trait Clock: Send + Sync {
    /// Wall-clock time. A store that has a clock of its own is asked instead where it matters.
    fn now(&self) -> Timestamp;
    /// The monotonic clock that counts suspended time.
    fn boot(&self) -> BootTime;
}

/// The operating system's clocks.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(since.map_or(0, millis))
    }

    fn boot(&self) -> BootTime {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let secs = u64::try_from(at.tv_sec).unwrap_or(0);
        BootTime(secs.saturating_mul(1_000_000_000).saturating_add(u64::try_from(at.tv_nsec).unwrap_or(0)))
    }
}

/// A clock that moves only when told to, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    boot_ns: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self { wall_ms: AtomicI64::new(start.0), boot_ns: AtomicU64::new(1) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.wall_ms.fetch_add(millis(by), Ordering::SeqCst);
        self.boot_ns.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Moves the wall clock alone, as an operator or NTP may.
    pub fn shift_wall(&self, by_ms: i64) {
        self.wall_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall_ms.load(Ordering::SeqCst))
    }

    fn boot(&self) -> BootTime {
        BootTime(self.boot_ns.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;

    #[test]
    fn wire_form_has_milliseconds_and_goes_round() {
        let at = Timestamp::from_millis(1_700_000_000_120);
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.120Z");
        let json = serde_json::to_string(&at).expect("serialises");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).expect("parses"), at);
    }

    #[test]
    fn unreadable_times_are_errors() {
        for bad in ["\"\"", "\"not-a-time\"", "\"9999-99-99\"", "1e30", "-1", "null"] {
            assert!(serde_json::from_str::<Timestamp>(bad).is_err(), "{bad}");
        }
    }
}
