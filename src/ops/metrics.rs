//! What is counted: every metric of this version, in the Prometheus text format.
//!
//! Owns the registry, the names and the labels. Labels are bounded: names of tools and services
//! only as the policy files declare them, everything else from fixed lists. Must never carry an
//! id, an owner, an arg or anything else that an agent wrote.

mod names;
mod observe;
mod series;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{Encoder as _, Registry, TextEncoder};

use crate::draft::state::Status;
use crate::policy::model::PolicySet;
use crate::store::contract::Store;

use names::Names;
use series::{Drafts, Listener, Maker, PolicySeries, Releases, StoreSeries};

/// How long a scrape waits for the store's counts.
const COUNTS_PATIENCE: Duration = Duration::from_millis(500);

/// Every metric.
pub struct Metrics {
    registry: Registry,
    names: Names,
    listener: Listener,
    drafts: Drafts,
    releases: Releases,
    store: StoreSeries,
    policy: PolicySeries,
    version: Mutex<String>,
}

impl Metrics {
    /// All of them, at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let make = Maker::new();
        series::build(&make);
        let (requests, request_seconds) = series::requests(&make);
        Arc::new(Self {
            names: Names::new(requests, request_seconds),
            listener: Listener::new(&make),
            drafts: Drafts::new(&make),
            releases: Releases::new(&make),
            store: StoreSeries::new(&make),
            policy: PolicySeries::new(&make),
            version: Mutex::default(),
            registry: make.into_registry(),
        })
    }

    /// Takes the names of a set that comes into force; only these ever stand in a label.
    pub fn policy_in_force(&self, set: &PolicySet) {
        self.names.learn(set);
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if *version != set.version {
            let _ = self.policy.info.remove_label_values(&[version.as_str()]);
            version.clone_from(&set.version);
        }
        self.policy.info.with_label_values(&[version.as_str()]).set(1);
    }

    /// A reload kept the last good set.
    pub fn policy_reload_failed(&self) {
        self.policy.reload_failures_total.inc();
    }

    /// The text of a scrape, with the store's counts as they are now. While the store does not
    /// answer, the counts are left out: an old number would look like a new one.
    pub async fn scrape(&self, store: &dyn Store) -> String {
        match tokio::time::timeout(COUNTS_PATIENCE, store.counts()).await {
            Ok(Ok(counts)) => self.counted(&counts),
            Ok(Err(_)) | Err(_) => {
                self.drafts.standing.reset();
                self.store.up.set(0);
            }
        }
        self.text()
    }

    fn counted(&self, counts: &[(Status, u64)]) {
        self.store.up.set(1);
        for status in Status::ALL {
            let count = counts.iter().find(|(counted, _)| *counted == status).map_or(0, |(_, count)| *count);
            let gauge = self.drafts.standing.with_label_values(&[status.as_str()]);
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
