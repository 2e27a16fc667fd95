//! The series by what they are about, each with its name and its help.
//!
//! Owns names, labels and buckets. Labels that are fixed words exist from the start where an alert
//! may ask for them.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Fractions of a second, for work that a machine does.
const QUICK: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
/// Millionths of a second, for the guard's own part of a request.
const OWN: [f64; 10] = [0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.05, 0.5];
/// Seconds to days, for what a person does.
const SLOW: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0];

/// Makes metrics and remembers them in one registry.
pub(super) struct Maker {
    registry: Registry,
}

/// The names are fixed in this file and differ, so making and registering them cannot fail; a
/// test makes them all.
#[allow(clippy::expect_used)]
impl Maker {
    pub(super) fn new() -> Self {
        Self { registry: Registry::new() }
    }

    pub(super) fn into_registry(self) -> Registry {
        self.registry
    }

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

/// The running version.
pub(super) fn build(make: &Maker) {
    let build = make.gauges("countersign_build_info", "The running version.", &["version"]);
    build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
}

/// Requests by what became of them, and how long they took.
pub(super) fn requests(make: &Maker) -> (IntCounterVec, HistogramVec) {
    let requests = make.counters(
        "countersign_requests_total",
        "Requests on the agent's listener by what became of them.",
        &["service", "effect", "verdict"],
    );
    let seconds = make.histograms(
        "countersign_request_seconds",
        "From the end of a request's head to the end of its answer.",
        &["service", "effect"],
        &QUICK,
    );
    (requests, seconds)
}

/// The agent's listener as a whole.
pub(super) struct Listener {
    pub(super) overhead_seconds: Histogram,
    pub(super) connections_refused_total: IntCounter,
}

impl Listener {
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            overhead_seconds: make.histogram(
                "countersign_overhead_seconds",
                "Time of a request inside the guard, without waiting for client or upstream.",
                &OWN,
            ),
            connections_refused_total: make.counter(
                "countersign_connections_refused_total",
                "Connections turned away because too many were open.",
            ),
        }
    }
}

/// Drafts, from the hold to the decision.
pub(super) struct Drafts {
    pub(super) standing: IntGaugeVec,
    pub(super) reached_total: IntCounterVec,
    pub(super) decision_seconds: HistogramVec,
    pub(super) expired_total: IntCounterVec,
    pub(super) rejected_total: IntCounterVec,
    pub(super) confirm_conflicts_total: IntCounterVec,
    pub(super) refused_attempts_total: IntCounterVec,
    pub(super) integrity_failures_total: IntCounter,
    pub(super) fail_closed_total: IntCounter,
}

impl Drafts {
    pub(super) fn new(make: &Maker) -> Self {
        let drafts = Self {
            standing: make.gauges("countersign_drafts", "Drafts in the store by status.", &["status"]),
            reached_total: make.counters(
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
            integrity_failures_total: make.counter(
                "countersign_integrity_failures_total",
                "Times that a stored draft did not verify; must stay 0.",
            ),
            fail_closed_total: make.counter(
                "countersign_fail_closed_total",
                "Writes refused because the store, the policy or the keys were not there.",
            ),
        };
        for kind in ["replayed", "decided", "expired", "hash"] {
            drafts.confirm_conflicts_total.with_label_values(&[kind]).inc_by(0);
        }
        drafts
    }
}

/// Releases, from the claim to the outcome.
pub(super) struct Releases {
    pub(super) ended_total: IntCounterVec,
    pub(super) seconds: HistogramVec,
    pub(super) unknown_total: IntCounterVec,
    pub(super) duplicate_total: IntCounter,
    pub(super) take_overs_total: IntCounter,
    pub(super) late_answers_total: IntCounter,
}

impl Releases {
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            ended_total: make.counters("countersign_releases_total", "Releases by outcome.", &["tool", "outcome"]),
            seconds: make.histograms(
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
            duplicate_total: make.counter(
                "countersign_duplicate_release_total",
                "Second sends of one confirmation, stopped at the last defence; must stay 0.",
            ),
            take_overs_total: make
                .counter("countersign_take_overs_total", "Drafts taken over from a process that is gone."),
            late_answers_total: make
                .counter("countersign_late_answers_total", "Answers of an upstream after the attempt was given up."),
        }
    }
}

/// The store.
pub(super) struct StoreSeries {
    pub(super) seconds: HistogramVec,
    pub(super) errors_total: IntCounterVec,
    pub(super) commits_total: IntCounter,
    pub(super) commit_steps_total: IntCounter,
    pub(super) up: IntGauge,
}

impl StoreSeries {
    pub(super) fn new(make: &Maker) -> Self {
        let store = Self {
            seconds: make.histograms("countersign_store_seconds", "Steps of the store.", &["step"], &QUICK),
            errors_total: make.counters(
                "countersign_store_errors_total",
                "Steps that the store could not answer, by kind.",
                &["kind"],
            ),
            commits_total: make.counter("countersign_store_commits_total", "Durable commits."),
            commit_steps_total: make.counter(
                "countersign_store_commit_steps_total",
                "Steps made durable; divided by the commits it is the size of a group.",
            ),
            up: make.add(IntGauge::new("countersign_store_up", "Whether the store answered the last count.")),
        };
        for kind in ["unavailable", "uncertain", "corrupt"] {
            store.errors_total.with_label_values(&[kind]).inc_by(0);
        }
        store
    }
}

/// The policies in force.
pub(super) struct PolicySeries {
    pub(super) info: IntGaugeVec,
    pub(super) reload_failures_total: IntCounter,
}

impl PolicySeries {
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            info: make.gauges("countersign_policy_info", "The policy version in force.", &["version"]),
            reload_failures_total: make.counter(
                "countersign_policy_reload_failures_total",
                "Reloads that kept the last good policies because the new ones have mistakes.",
            ),
        }
    }
}
