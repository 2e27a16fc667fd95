//! What is counted: every metric of this version, in the Prometheus text format.
//!
//! Owns the registry, the names and the labels. Labels are bounded: names of tools and services
//! only as the policy files declare them, everything else from fixed lists. Must never carry an
//! id, an owner, an arg or anything else that an agent wrote.

mod names;
mod observe;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::draft::state::Status;
use crate::policy::model::PolicySet;
use crate::store::contract::Store;

use names::Names;

/// How long a scrape waits for the store's counts.
const COUNTS_PATIENCE: Duration = Duration::from_millis(500);

/// Fractions of a second, for work that a machine does.
const QUICK: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
/// Millionths of a second, for the guard's own part of a request.
const OWN: [f64; 10] = [0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.05, 0.5];
/// Seconds to days, for what a person does.
const SLOW: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0];

/// Every metric.
pub struct Metrics {
    registry: Registry,
    names: Names,
    overhead_seconds: Histogram,
    connections_refused_total: IntCounter,
    drafts: IntGaugeVec,
    drafts_total: IntCounterVec,
    decision_seconds: HistogramVec,
    expired_total: IntCounterVec,
    rejected_total: IntCounterVec,
    confirm_conflicts_total: IntCounterVec,
    refused_attempts_total: IntCounterVec,
    releases_total: IntCounterVec,
    release_seconds: HistogramVec,
    unknown_total: IntCounterVec,
    duplicate_release_total: IntCounter,
    integrity_failures_total: IntCounter,
    take_overs_total: IntCounter,
    late_answers_total: IntCounter,
    fail_closed_total: IntCounter,
    store_seconds: HistogramVec,
    store_errors_total: IntCounterVec,
    store_commits_total: IntCounter,
    store_commit_steps_total: IntCounter,
    store_up: prometheus::IntGauge,
    policy_info: IntGaugeVec,
    policy_reload_failures_total: IntCounter,
    version: Mutex<String>,
}

/// Makes metrics and remembers them in one registry.
struct Maker {
    registry: Registry,
}

/// The names are fixed in this file and differ, so making and registering them cannot fail; a
/// test makes them all.
#[allow(clippy::expect_used)]
impl Maker {
    fn add<C: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("a legal metric");
        self.registry.register(Box::new(collector.clone())).expect("a metric of its own");
        collector
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
    }
}

impl Metrics {
    /// All of them, at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let make = Maker { registry: Registry::new() };
        let build = make.gauges("countersign_build_info", "The running version.", &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let requests = make.counters(
            "countersign_requests_total",
            "Requests on the agent's listener by what became of them.",
            &["service", "effect", "verdict"],
        );
        let request_seconds = make.histograms(
            "countersign_request_seconds",
            "From the end of a request's head to the end of its answer.",
            &["service", "effect"],
            &QUICK,
        );
        let metrics = Self {
            overhead_seconds: make.histogram(
                "countersign_overhead_seconds",
                "Time of a request inside the guard, without waiting for client or upstream.",
                &OWN,
            ),
            connections_refused_total: make.counter(
                "countersign_connections_refused_total",
                "Connections turned away because too many were open.",
            ),
            drafts: make.gauges("countersign_drafts", "Drafts in the store by status.", &["status"]),
            drafts_total: make.counters(
                "countersign_drafts_total",
                "Drafts that reached a status on this node.",
                &["tool", "status"],
            ),
            decision_seconds: make.histograms(
                "countersign_decision_seconds",
                "From the hold to the decision of a person.",
                &["tool"],
                &SLOW,
            ),
            expired_total: make.counters("countersign_expired_total", "Drafts that ended undecided.", &["tool"]),
            rejected_total: make.counters(
                "countersign_rejected_total",
                "Drafts rejected by a person or by the guard.",
                &["tool", "by"],
            ),
            confirm_conflicts_total: make.counters(
                "countersign_confirm_conflicts_total",
                "Confirms that met a draft that was decided, expired or different.",
                &["kind"],
            ),
            refused_attempts_total: make.counters(
                "countersign_refused_attempts_total",
                "Attempts to read or decide a draft that were refused, by problem code.",
                &["code"],
            ),
            releases_total: make.counters("countersign_releases_total", "Releases by outcome.", &["tool", "outcome"]),
            release_seconds: make.histograms(
                "countersign_release_seconds",
                "From the claim to the outcome.",
                &["tool"],
                &QUICK,
            ),
            unknown_total: make.counters(
                "countersign_unknown_total",
                "Releases whose outcome was not known at first.",
                &["tool"],
            ),
            duplicate_release_total: make.counter(
                "countersign_duplicate_release_total",
                "Second sends of one confirmation, stopped at the last defence; must stay 0.",
            ),
            integrity_failures_total: make
                .counter("countersign_integrity_failures_total", "Stored drafts that did not verify; must stay 0."),
            take_overs_total: make
                .counter("countersign_take_overs_total", "Drafts taken over from a process that is gone."),
            late_answers_total: make
                .counter("countersign_late_answers_total", "Answers of an upstream after the attempt was given up."),
            fail_closed_total: make.counter(
                "countersign_fail_closed_total",
                "Writes refused because the store, the policy or the keys were not there.",
            ),
            store_seconds: make.histograms("countersign_store_seconds", "Steps of the store.", &["step"], &QUICK),
            store_errors_total: make.counters(
                "countersign_store_errors_total",
                "Steps that the store could not answer, by kind.",
                &["kind"],
            ),
            store_commits_total: make.counter("countersign_store_commits_total", "Durable commits."),
            store_commit_steps_total: make.counter(
                "countersign_store_commit_steps_total",
                "Steps made durable; divided by the commits it is the size of a group.",
            ),
            store_up: make
                .add(prometheus::IntGauge::new("countersign_store_up", "Whether the store answered the last count.")),
            policy_info: make.gauges("countersign_policy_info", "The policy version in force.", &["version"]),
            policy_reload_failures_total: make.counter(
                "countersign_policy_reload_failures_total",
                "Reloads that kept the last good policies because the new ones have mistakes.",
            ),
            names: Names::new(requests, request_seconds),
            version: Mutex::default(),
            registry: make.registry,
        };
        for kind in ["unavailable", "uncertain", "corrupt"] {
            metrics.store_errors_total.with_label_values(&[kind]).inc_by(0);
        }
        for kind in ["replayed", "decided", "expired", "hash"] {
            metrics.confirm_conflicts_total.with_label_values(&[kind]).inc_by(0);
        }
        Arc::new(metrics)
    }

    /// Takes the names of a set that comes into force; only these ever stand in a label.
    pub fn policy_in_force(&self, set: &PolicySet) {
        self.names.learn(set);
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if *version != set.version {
            let _ = self.policy_info.remove_label_values(&[version.as_str()]);
            version.clone_from(&set.version);
        }
        self.policy_info.with_label_values(&[version.as_str()]).set(1);
    }

    /// A reload kept the last good set.
    pub fn policy_reload_failed(&self) {
        self.policy_reload_failures_total.inc();
    }

    /// The text of a scrape, with the store's counts as they are now. While the store does not
    /// answer, the counts are left out: an old number would look like a new one.
    pub async fn scrape(&self, store: &dyn Store) -> String {
        match tokio::time::timeout(COUNTS_PATIENCE, store.counts()).await {
            Ok(Ok(counts)) => self.counted(&counts),
            Ok(Err(_)) | Err(_) => {
                self.drafts.reset();
                self.store_up.set(0);
            }
        }
        self.text()
    }

    fn counted(&self, counts: &[(Status, u64)]) {
        self.store_up.set(1);
        for status in Status::ALL {
            let count = counts.iter().find(|(counted, _)| *counted == status).map_or(0, |(_, count)| *count);
            let gauge = self.drafts.with_label_values(&[status.as_str()]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    fn text(&self) -> String {
        let mut out = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            tracing::error!(%error, "metrics cannot be written");
        }
        String::from_utf8(out).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
