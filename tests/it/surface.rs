//! What operators and programs rely on: metrics, health, the description of the API, answers'
//! common headers.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::{Act, Guard, Request, Upstream, eventually};

/// The metrics of this stage, by the names that are written down.
const METRICS: [&str; 20] = [
    "countersign_requests_total",
    "countersign_request_seconds",
    "countersign_overhead_seconds",
    "countersign_drafts",
    "countersign_drafts_total",
    "countersign_decision_seconds",
    "countersign_expired_total",
    "countersign_rejected_total",
    "countersign_confirm_conflicts_total",
    "countersign_releases_total",
    "countersign_release_seconds",
    "countersign_unknown_total",
    "countersign_duplicate_release_total",
    "countersign_store_seconds",
    "countersign_store_errors_total",
    "countersign_fail_closed_total",
    "countersign_policy_info",
    "countersign_policy_reload_failures_total",
    "countersign_build_info",
    "countersign_probes_total",
];

/// Metrics of parts that come later; they may be absent.
const LATER: [&str; 1] = ["countersign_probes_total"];

#[test]
fn every_metric_is_there_once_its_moment_has_come() {
    let upstream = Upstream::start();
    upstream.on("/free/gone", Act::CloseAfterRead);
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    agent.get("/tasks").must_be(200);
    agent.post("/nowhere", &json!({})).must_be(403);
    let draft = agent.hold_task("counted");
    guard.approver().confirm_fully(&draft);
    guard.approver().confirm(&draft).must_be(200);
    let no = agent.hold_task("not counted as done");
    guard.approver().reject(&no, "no").must_be(200);
    let gone = agent.hold("/free/gone", &json!({}));
    guard.approver().confirm(&gone);
    agent.hold_task("open");

    // A call is counted when its answer has gone out, which may be after the agent has it.
    let metrics = eventually("the last call is counted", || {
        let metrics = guard.metrics();
        let held = metrics.sum("countersign_requests_total", &["effect=\"write\"", "verdict=\"hold\""]);
        (held >= 4.0).then_some(metrics)
    });
    let missing: Vec<&str> = METRICS.into_iter().filter(|name| !metrics.knows(name) && !LATER.contains(name)).collect();
    // A counter by label that nothing has touched may have no line yet.
    let untouched =
        ["countersign_expired_total", "countersign_store_errors_total", "countersign_policy_reload_failures_total"];
    let missing: Vec<&str> = missing.into_iter().filter(|name| !untouched.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}\n{}", metrics.text());
    let sum = |name: &str, labels: &[&str]| metrics.sum(name, labels);
    assert_eq!(
        sum("countersign_drafts_total", &["tool=\"add_task\"", "status=\"pending\""]),
        3.0,
        "{}",
        metrics.text()
    );
    assert_eq!(sum("countersign_drafts_total", &["tool=\"add_task\"", "status=\"succeeded\""]), 1.0);
    assert_eq!(sum("countersign_releases_total", &["tool=\"add_task\"", "outcome=\"succeeded\""]), 1.0);
    assert_eq!(sum("countersign_releases_total", &["outcome=\"unknown\""]), 1.0);
    assert_eq!(sum("countersign_unknown_total", &["tool=\"free\""]), 1.0);
    assert_eq!(sum("countersign_rejected_total", &["tool=\"add_task\"", "by=\"person\""]), 1.0);
    assert_eq!(sum("countersign_duplicate_release_total", &[]), 0.0);
    assert_eq!(sum("countersign_confirm_conflicts_total", &["kind=\"replayed\""]), 1.0);
    assert_eq!(sum("countersign_requests_total", &["effect=\"read\"", "service=\"desk\"", "verdict=\"pass\""]), 1.0);
    assert_eq!(sum("countersign_requests_total", &["effect=\"write\"", "verdict=\"hold\""]), 4.0);
    assert_eq!(sum("countersign_requests_total", &["effect=\"write\"", "verdict=\"refuse\""]), 1.0);
    assert_eq!(sum("countersign_drafts", &["status=\"pending\""]), 1.0);
}

#[test]
fn unlabelled_counters_stand_there_from_the_start() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let metrics = guard.metrics();
    for name in [
        "countersign_duplicate_release_total",
        "countersign_fail_closed_total",
        "countersign_policy_reload_failures_total",
    ] {
        assert!(
            metrics.text().lines().any(|line| line.starts_with(&format!("{name} 0"))),
            "{name}: {}",
            metrics.text()
        );
    }
    assert_eq!(metrics.sum("countersign_build_info", &[]), 1.0);
    assert_eq!(metrics.sum("countersign_policy_info", &[]), 1.0);
}

#[test]
fn health_readiness_and_metrics_need_no_credential_and_tell_nothing_of_drafts() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("private matter");
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        let answer = guard.control_get(path).must_be(200);
        assert!(!answer.text().contains("private matter") && !answer.text().contains(&draft.id), "{path}");
    }
    for path in ["/v1/drafts", "/v1/policies", "/v1/capabilities"] {
        let answer = guard.control_get(path);
        assert!(answer.header("WWW-Authenticate").is_some(), "{path}: {:?}", answer.headers);
        answer.must_refuse(401, "CREDENTIAL_UNKNOWN");
    }
    for (method, path) in
        [("POST", "/healthz"), ("DELETE", "/v1/drafts"), ("PUT", "/v1/policies"), ("POST", "/metrics")]
    {
        let answer = guard.approver().send(Request::new(method, path));
        assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text());
    }
    let nowhere = guard.approver().get("/v1/nowhere");
    assert_eq!(nowhere.status, 404, "{}", nowhere.text());
}

#[test]
fn the_description_of_the_api_names_every_call_and_nothing_else_answers() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let described = guard.control_get("/openapi.json").must_be(200).json();
    assert!(described["openapi"].as_str().is_some_and(|version| version.starts_with("3.")), "{described}");
    let paths: BTreeSet<&str> = described["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
    for path in [
        "/v1/drafts",
        "/v1/drafts/{id}",
        "/v1/drafts/{id}/confirm",
        "/v1/drafts/{id}/reject",
        "/v1/drafts/{id}/resolve",
        "/v1/drafts/{id}/again",
        "/v1/confirmations",
        "/v1/rejections",
        "/v1/capabilities",
        "/v1/policies",
        "/v1/policies/reload",
        "/v1/sign-in-links",
        "/healthz",
        "/readyz",
        "/metrics",
    ] {
        assert!(paths.contains(path), "{path} is not described: {paths:?}");
    }
    for (path, calls) in described["paths"].as_object().expect("paths") {
        if !calls.as_object().is_some_and(|calls| calls.contains_key("get")) {
            continue;
        }
        let concrete = path.replace("{id}", "dr_0_01JDZZZZZZZZZZZZZZZZZZZZZZ");
        let answer = guard.approver().get(&concrete);
        assert_ne!(answer.status, 405, "{path} is described and refused");
        assert!(answer.status < 500, "{path}: {}", answer.text());
    }
}

#[test]
fn every_answer_of_the_control_listener_forbids_storing_framing_and_sniffing() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("headers");
    let alice = guard.approver();
    let answers = [
        alice.get("/v1/drafts"),
        alice.show(&draft.id),
        alice.confirm(&draft),
        alice.get("/v1/nowhere"),
        guard.control_get("/v1/drafts"),
        guard.control_get("/"),
        guard.control_get("/metrics"),
    ];
    for answer in answers {
        assert_eq!(answer.header("Cache-Control"), Some("no-store"), "{:?}", answer.headers);
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"), "{:?}", answer.headers);
        let policy = answer.header("Content-Security-Policy").unwrap_or_default();
        assert!(policy.contains("frame-ancestors 'none'"), "{:?}", answer.headers);
        assert_eq!(answer.header("Access-Control-Allow-Origin"), None, "{:?}", answer.headers);
    }
}

#[test]
fn answers_of_the_guards_own_tell_clients_not_to_retry() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    for answer in [
        agent.post("/tasks", &json!({"title": "held"})),
        agent.post("/tasks", &json!({})),
        agent.post("/nowhere", &json!({})),
        agent.post("/archive", &json!({})),
        agent.without("Countersign-Agent").get("/tasks"),
        agent.with("X-HTTP-Method-Override", "PUT").get("/tasks"),
    ] {
        assert_eq!(answer.header("x-should-retry"), Some("false"), "{} {:?}", answer.status, answer.headers);
        assert_eq!(answer.header("Retry-After"), None, "{:?}", answer.headers);
        if answer.status >= 400 {
            let problem = answer.json();
            for member in ["type", "title", "detail", "code", "executed", "upstream_called", "safe_to_retry"] {
                assert!(problem.get(member).is_some(), "{member}: {problem}");
            }
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{problem}");
        }
    }
}
