//! What the agent's shell tells whoever counts. Metrics implement it; it must not block.

use std::time::Duration;

use crate::base::id::ServiceName;
use crate::draft::record::Effect;

/// What became of a request on the agent's listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// A read that was streamed through, or an answer from `/.countersign/`.
    Pass,
    /// A write that was held, or answered from an earlier draft.
    Hold,
    /// Refused by the guard; nothing is held and nothing was sent.
    Refuse,
    /// The store, the upstream or the client failed.
    Error,
}

impl Verdict {
    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Hold => "hold",
            Self::Refuse => "refuse",
            Self::Error => "error",
        }
    }
}

/// One request, after it ended.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The service; `None` where none was found, and for `/.countersign/`.
    pub service: Option<&'a ServiceName>,
    /// Read or write, as far as it was known: what ended before counts as a read.
    pub effect: Effect,
    /// What became of it.
    pub verdict: Verdict,
    /// From the last byte of the head to the last byte of the answer.
    pub took: Duration,
    /// The part of `took` that was spent inside the guard: without waiting for the client's body,
    /// for name resolution and for the upstream.
    pub overhead: Duration,
}

/// Called once for every request that had a complete head, and for every refused head.
pub trait AgentObserver: Send + Sync {
    /// A request ended.
    fn request(&self, _seen: &Observed<'_>) {}
    /// A connection was turned away because too many are open.
    fn connection_refused(&self) {}
}

/// Counts nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Unobserved;

impl AgentObserver for Unobserved {}
