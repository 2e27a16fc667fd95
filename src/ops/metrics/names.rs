//! Which names of tools and services may stand in a label: those of the policy files, at most
//! [`NAMES_MAX`] of each ever, and `other` for everything else.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use crate::base::id::{ServiceName, ToolName};
use crate::draft::record::Effect;
use crate::policy::model::PolicySet;

/// How many tools, and how many services, may have labels of their own in one process. Reloads
/// only ever add: a name that was taken out of the policies keeps its series.
pub(super) const NAMES_MAX: usize = 1_000;

/// The label of a name that no policy declares, or that came too late.
pub(super) const OTHER: &str = "other";

/// The label of a request that belongs to no service.
pub(super) const NONE: &str = "none";

const EFFECTS: [&str; 2] = ["read", "write"];
const VERDICTS: [&str; 4] = ["pass", "hold", "refuse", "error"];

/// The series of one service, looked up once: they are counted on every read.
pub(super) struct Cells {
    requests: [[IntCounter; 4]; 2],
    seconds: [Histogram; 2],
}

impl Cells {
    pub(super) fn requests(&self, effect: Effect, verdict: &str) -> &IntCounter {
        let at = VERDICTS.iter().position(|known| *known == verdict).unwrap_or(VERDICTS.len() - 1);
        &self.requests[index(effect)][at]
    }

    pub(super) fn seconds(&self, effect: Effect) -> &Histogram {
        &self.seconds[index(effect)]
    }
}

const fn index(effect: Effect) -> usize {
    match effect {
        Effect::Read => 0,
        Effect::Write => 1,
    }
}

/// The names that are known.
pub(super) struct Names {
    requests: IntCounterVec,
    seconds: HistogramVec,
    tools: ArcSwap<HashSet<String>>,
    services: ArcSwap<HashMap<String, Arc<Cells>>>,
    other: Arc<Cells>,
    none: Arc<Cells>,
    learning: Mutex<()>,
}

impl Names {
    pub(super) fn new(requests: IntCounterVec, seconds: HistogramVec) -> Self {
        let other = Arc::new(cells(&requests, &seconds, OTHER));
        let none = Arc::new(cells(&requests, &seconds, NONE));
        Self {
            requests,
            seconds,
            tools: ArcSwap::default(),
            services: ArcSwap::default(),
            other,
            none,
            learning: Mutex::default(),
        }
    }

    pub(super) fn learn(&self, set: &PolicySet) {
        let _one_at_a_time = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        let mut services = HashMap::clone(&self.services.load());
        let mut tools = HashSet::clone(&self.tools.load());
        for service in &set.services {
            let name = service.name.as_str();
            if services.len() < NAMES_MAX && !services.contains_key(name) {
                services.insert(name.to_owned(), Arc::new(cells(&self.requests, &self.seconds, name)));
            }
            for tool in &service.tools {
                if tools.len() < NAMES_MAX {
                    tools.insert(tool.name.as_str().to_owned());
                }
            }
        }
        self.services.store(Arc::new(services));
        self.tools.store(Arc::new(tools));
    }

    /// What stands in `{tool}`.
    pub(super) fn tool<'a>(&self, name: &'a ToolName) -> &'a str {
        if self.tools.load().contains(name.as_str()) { name.as_str() } else { OTHER }
    }

    pub(super) fn service(&self, name: Option<&ServiceName>) -> Arc<Cells> {
        match name {
            None => Arc::clone(&self.none),
            Some(name) => Arc::clone(self.services.load().get(name.as_str()).unwrap_or(&self.other)),
        }
    }
}

fn cells(requests: &IntCounterVec, seconds: &HistogramVec, service: &str) -> Cells {
    Cells {
        requests: EFFECTS.map(|effect| VERDICTS.map(|verdict| requests.with_label_values(&[service, effect, verdict]))),
        seconds: EFFECTS.map(|effect| seconds.with_label_values(&[service, effect])),
    }
}
