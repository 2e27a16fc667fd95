//! The only place of the suite that waits: on a condition, with a deadline.

use std::time::{Duration, Instant};

/// Long enough for a slow, busy machine; a green run never waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks again and again until there is an answer; fails with `what` when the deadline is over.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    match within(PATIENCE, ask) {
        Some(found) => found,
        None => panic!("waited {PATIENCE:?} in vain: {what}"),
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    eventually(what, || condition().then_some(()));
}

/// Waits until the wall clock is past `end`: for leases and times to live that only time ends.
pub(crate) fn past(end: Instant) {
    let patience = end.saturating_duration_since(Instant::now()) + PATIENCE;
    within(patience, || (Instant::now() > end).then_some(()));
}

/// Asks until there is an answer or the time is over.
pub(crate) fn within<T>(patience: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = ask() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
