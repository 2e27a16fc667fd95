//! The bounds that the guard works under.

use std::time::Duration;

use crate::store::contract::OwnerLimits;

/// From countersign.yaml, with every default filled in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where people reach the console, without a trailing slash: `confirm_url` begins with it.
    pub public_url: String,
    /// How long after the mark was asked for the first byte may leave; at most a third of `lease`.
    pub send_window: Duration,
    /// How long a release waits for a connection, all of it before the mark.
    pub connect_patience: Duration,
    /// How long a confirm waits for the outcome before it answers 202.
    pub confirm_wait: Duration,
    /// How long a process may work on a claimed draft without renewing.
    pub lease: Duration,
    /// How long ended drafts are kept.
    pub retention: Duration,
    /// Longest response body that is kept, in bytes.
    pub response_bytes_max: usize,
    /// The bounds of one owner.
    pub owner_limits: OwnerLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            public_url: "http://127.0.0.1:7071".to_owned(),
            send_window: Duration::from_secs(2),
            connect_patience: Duration::from_secs(30),
            confirm_wait: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(7 * 24 * 3600),
            response_bytes_max: 1 << 20,
            owner_limits: OwnerLimits { pending_max: 20, holds_max: 60, window: Duration::from_secs(60) },
        }
    }
}
