//! Who watches a store; feeds metrics.

use std::time::Duration;

/// Watches a store. Called often: must not block.
pub trait StoreObserver: Send + Sync {
    /// A step was answered: its name (the method of the contract), how long the caller waited,
    /// and, if it failed, the word for what failed: [`super::contract::StoreError::kind`], or one
    /// that tells more.
    fn step(&self, name: &'static str, took: Duration, error: Option<&'static str>);

    /// `steps` waiting steps were made durable by one commit.
    fn commit(&self, steps: usize, took: Duration) {
        let _ = (steps, took);
    }
}

/// Watches nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Unwatched;

impl StoreObserver for Unwatched {
    fn step(&self, _: &'static str, _: Duration, _: Option<&'static str>) {}
}
