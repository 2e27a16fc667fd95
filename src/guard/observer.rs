//! What the guard tells whoever counts. Metrics, logs and tests implement it; it must not block.

use std::time::Duration;

use crate::base::id::ToolName;
use crate::draft::state::Status;

/// Called where things happen; every method has an empty default.
pub trait Observer: Send + Sync {
    /// A draft reached `status` (`held` counts as `pending`).
    fn draft(&self, _tool: &ToolName, _status: Status) {}
    /// A decision was recorded `took` after the hold.
    fn decided(&self, _tool: &ToolName, _took: Duration) {}
    /// A draft was rejected by `person` or `guard`.
    fn rejected(&self, _tool: &ToolName, _by: &'static str) {}
    /// A confirm met a draft that was decided already: `replayed`, `decided`, `expired`, `hash`.
    fn confirm_conflict(&self, _kind: &'static str) {}
    /// A release ended: `succeeded`, `failed`, `not_sent`, `unknown`; `took` from claim to settle.
    fn released(&self, _tool: &ToolName, _outcome: &'static str, _took: Duration) {}
    /// A second send of one confirmation was prevented at the last defence (must stay 0).
    fn duplicate_release(&self) {}
    /// A write was refused because the store, the policy or the keys were not there.
    fn failed_closed(&self) {}
    /// A stored draft did not verify.
    fn integrity_failed(&self) {}
    /// A draft was taken over from a process that is gone.
    fn taken_over(&self) {}
    /// An answer came after its attempt was given up.
    fn late_answer(&self) {}
    /// A refused attempt to decide, with its code: for the log and the ledger.
    fn refused_attempt(&self, _code: crate::base::code::Code, _who: &str) {}
}

/// Counts nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Unobserved;

impl Observer for Unobserved {}
