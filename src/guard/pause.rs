//! Named points at which a test stops the guard. A release build has none that stops.

use async_trait::async_trait;

/// The points, in the order of a held call's life.
pub const POINTS: [&str; 5] = [
    "after_hold_before_answer",
    "after_claim",
    "after_mark_before_deadline_check",
    "after_send_before_settle",
    "after_settle_before_answer",
];

/// Called at every point.
#[async_trait]
pub trait Pause: Send + Sync {
    /// Returns when the guard may go on.
    async fn at(&self, point: &'static str);
}

/// Never stops.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoPause;

#[async_trait]
impl Pause for NoPause {
    async fn at(&self, _point: &'static str) {}
}
