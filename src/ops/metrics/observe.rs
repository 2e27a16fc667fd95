//! Where the guard, the agent's shell and the store tell what happens.

use std::time::Duration;

use crate::agent::observe::{AgentObserver, Observed};
use crate::base::code::Code;
use crate::base::id::ToolName;
use crate::draft::state::Status;
use crate::guard::observer::Observer;
use crate::ops::log::Bounded;
use crate::store::observer::StoreObserver;

use super::Metrics;

impl Observer for Metrics {
    fn draft(&self, tool: &ToolName, status: Status) {
        let tool = self.names.tool(tool);
        self.drafts.reached_total.with_label_values(&[tool, status.as_str()]).inc();
        if status == Status::Expired {
            self.drafts.expired_total.with_label_values(&[tool]).inc();
        }
    }

    fn decided(&self, tool: &ToolName, took: Duration) {
        self.drafts.decision_seconds.with_label_values(&[self.names.tool(tool)]).observe(took.as_secs_f64());
    }

    fn rejected(&self, tool: &ToolName, by: &'static str) {
        self.drafts.rejected_total.with_label_values(&[self.names.tool(tool), by]).inc();
    }

    fn confirm_conflict(&self, kind: &'static str) {
        self.drafts.confirm_conflicts_total.with_label_values(&[kind]).inc();
    }

    fn released(&self, tool: &ToolName, outcome: &'static str, took: Duration) {
        let tool = self.names.tool(tool);
        self.releases.ended_total.with_label_values(&[tool, outcome]).inc();
        self.releases.seconds.with_label_values(&[tool]).observe(took.as_secs_f64());
        if outcome == "unknown" {
            self.releases.unknown_total.with_label_values(&[tool]).inc();
        }
    }

    fn duplicate_release(&self) {
        self.releases.duplicate_total.inc();
    }

    fn failed_closed(&self) {
        self.drafts.fail_closed_total.inc();
    }

    fn integrity_failed(&self) {
        self.drafts.integrity_failures_total.inc();
    }

    fn taken_over(&self) {
        self.releases.take_overs_total.inc();
    }

    fn late_answer(&self) {
        self.releases.late_answers_total.inc();
    }

    fn refused_attempt(&self, code: Code, who: &str) {
        self.drafts.refused_attempts_total.with_label_values(&[code.as_str()]).inc();
        tracing::warn!(code = code.as_str(), who = %Bounded(who), "attempt refused");
    }
}

impl AgentObserver for Metrics {
    fn request(&self, seen: &Observed<'_>) {
        let cells = self.names.service(seen.service);
        cells.requests(seen.effect, seen.verdict.as_str()).inc();
        cells.seconds(seen.effect).observe(seen.took.as_secs_f64());
        self.listener.overhead_seconds.observe(seen.overhead.as_secs_f64());
    }

    fn connection_refused(&self) {
        self.listener.connections_refused_total.inc();
    }
}

impl StoreObserver for Metrics {
    fn step(&self, name: &'static str, took: Duration, error: Option<&'static str>) {
        self.store.seconds.with_label_values(&[name]).observe(took.as_secs_f64());
        if let Some(kind) = error {
            self.store.errors_total.with_label_values(&[kind]).inc();
        }
    }

    fn commit(&self, steps: usize, _took: Duration) {
        self.store.commits_total.inc();
        self.store.commit_steps_total.inc_by(steps as u64);
    }
}
