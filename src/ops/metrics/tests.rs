#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use super::names::{NAMES_MAX, OTHER};
use super::*;
use crate::agent::observe::{AgentObserver as _, Observed, Verdict};
use crate::base::code::Code;
use crate::base::id::{ServiceName, ToolName};
use crate::draft::record::Effect;
use crate::guard::observer::Observer as _;
use crate::store::observer::StoreObserver as _;

fn tool(name: &str) -> ToolName {
    ToolName::new(name).unwrap()
}

fn value(text: &str, series: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
}

#[test]
fn unlabelled_counters_exist_from_the_start() {
    let text = Metrics::new().text();
    for name in [
        "countersign_duplicate_release_total",
        "countersign_fail_closed_total",
        "countersign_policy_reload_failures_total",
        "countersign_integrity_failures_total",
        "countersign_take_overs_total",
        "countersign_late_answers_total",
        "countersign_connections_refused_total",
        "countersign_store_errors_total{kind=\"unavailable\"}",
        "countersign_confirm_conflicts_total{kind=\"hash\"}",
        "countersign_requests_total{effect=\"write\",service=\"none\",verdict=\"refuse\"}",
    ] {
        assert_eq!(value(&text, name).as_deref(), Some("0"), "{name}\n{text}");
    }
    let build = format!("countersign_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(value(&text, &build).as_deref(), Some("1"));
}

#[test]
fn a_name_that_no_policy_declares_makes_no_series() {
    let metrics = Metrics::new();
    for n in 0..10_000 {
        metrics.draft(&tool(&format!("made-up-{n}")), Status::Pending);
    }
    let service = ServiceName::new("made-up").unwrap();
    metrics.request(&Observed {
        service: Some(&service),
        effect: Effect::Read,
        verdict: Verdict::Pass,
        took: Duration::from_millis(1),
        overhead: Duration::from_micros(20),
    });
    let text = metrics.text();
    assert!(!text.contains("made-up"), "{text}");
    let drafts = format!("countersign_drafts_total{{status=\"pending\",tool=\"{OTHER}\"}}");
    assert_eq!(value(&text, &drafts).as_deref(), Some("10000"));
    let requests = format!("countersign_requests_total{{effect=\"read\",service=\"{OTHER}\",verdict=\"pass\"}}");
    assert_eq!(value(&text, &requests).as_deref(), Some("1"));
}

#[test]
fn what_the_guard_tells_is_counted_where_the_names_say() {
    let metrics = Metrics::new();
    let made_up = tool("x");
    metrics.draft(&made_up, Status::Expired);
    metrics.released(&made_up, "unknown", Duration::from_secs(1));
    metrics.rejected(&made_up, "person");
    metrics.confirm_conflict("decided");
    metrics.refused_attempt(Code::DraftNotYours, "somebody\nelse");
    metrics.duplicate_release();
    let text = metrics.text();
    for series in [
        "countersign_expired_total{tool=\"other\"}",
        "countersign_unknown_total{tool=\"other\"}",
        "countersign_releases_total{outcome=\"unknown\",tool=\"other\"}",
        "countersign_rejected_total{by=\"person\",tool=\"other\"}",
        "countersign_confirm_conflicts_total{kind=\"decided\"}",
        "countersign_refused_attempts_total{code=\"DRAFT_NOT_YOURS\"}",
        "countersign_duplicate_release_total",
        "countersign_release_seconds_count{tool=\"other\"}",
    ] {
        assert_eq!(value(&text, series).as_deref(), Some("1"), "{series}\n{text}");
    }
    assert!(!text.contains("somebody"));
}

#[test]
fn every_status_has_a_gauge_and_an_old_count_is_never_shown() {
    let metrics = Metrics::new();
    metrics.counted(&[(Status::Pending, 3)]);
    let text = metrics.text();
    assert_eq!(value(&text, "countersign_drafts{status=\"pending\"}").as_deref(), Some("3"));
    assert_eq!(value(&text, "countersign_drafts{status=\"unverifiable\"}").as_deref(), Some("0"));
    metrics.counted(&[(Status::Running, 1)]);
    assert_eq!(value(&metrics.text(), "countersign_drafts{status=\"pending\"}").as_deref(), Some("0"));
}

#[test]
fn names_are_legal_and_all_documented() {
    let metrics = Metrics::new();
    let made_up = tool("x");
    // A metric with labels is in the text only once something was counted.
    metrics.counted(&[]);
    metrics.draft(&made_up, Status::Expired);
    metrics.decided(&made_up, Duration::ZERO);
    metrics.rejected(&made_up, "guard");
    metrics.released(&made_up, "unknown", Duration::ZERO);
    metrics.refused_attempt(Code::DraftNotYours, "x");
    metrics.step("hold", Duration::ZERO, None);
    metrics.policy_in_force(&PolicySet { version: "v".to_owned(), services: Vec::new() });
    let text = metrics.text();
    let docs = include_str!("../../../docs/operators.md");
    let names: HashSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(names.len(), 27, "{names:?}");
    for name in names {
        assert!(name.starts_with("countersign_"), "{name}");
        assert!(docs.contains(&format!("`{name}`")), "{name} is not in docs/operators.md");
    }
    assert_eq!(NAMES_MAX, 1_000, "docs/operators.md tells the bound");
}
