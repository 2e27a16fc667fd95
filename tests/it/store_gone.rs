//! With the store gone writes are refused and reads pass; it heals without a restart.

use serde_json::json;

use crate::support::{Approver, Draft, Guard, Setup, Upstream, Wire, eventually, until};

#[test]
fn p7_with_a_full_disk_writes_are_refused_in_two_languages_reads_pass_and_it_heals() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let agent = guard.agent();
    let draft = agent.hold_task("held before the disk was full");
    let errors_before = guard.metrics().sum("countersign_store_errors_total", &[]);

    guard.fill_disk();
    let answer = agent.post("/tasks", &json!({"title": "no room"}));
    assert_eq!(answer.header("x-should-retry"), None, "a client may try this one again");
    let problem = answer.must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    assert_eq!((&problem["executed"], &problem["safe_to_retry"]), (&json!(false), &json!(true)), "{problem}");
    let words = problem.to_string();
    assert!(words.contains("安全确认服务暂不可用，请稍后重试。"), "{words}");
    assert!(words.contains("The confirmation service is unavailable"), "{words}");
    agent.get("/tasks").must_be(200);
    let uncertain = guard.approver().confirm(&draft).must_refuse(503, "DECISION_UNCERTAIN");
    assert_eq!(uncertain["executed"], "unknown", "{uncertain}");
    let refused = guard.approver().reject(&draft, "no").must_refuse(503, "DECISION_UNCERTAIN");
    assert_eq!(refused["executed"], "unknown", "{refused}");
    assert_eq!(upstream.all_effects(), 0);

    let metrics = guard.metrics();
    assert!(metrics.sum("countersign_fail_closed_total", &[]) >= 1.0, "{}", metrics.text());
    assert!(metrics.sum("countersign_store_errors_total", &[]) > errors_before, "{}", metrics.text());
    until("readiness tells it", || guard.control_get("/readyz").status == 503);
    let reason = guard.control_get("/readyz").json()["reason"].to_string();
    assert!(reason.contains("The store takes no writes") && !reason.contains("countersign.db"), "{reason}");
    guard.control_get("/healthz").must_be(200);

    guard.free_disk();
    until("readiness tells it", || guard.control_get("/readyz").status == 200);
    let anew = eventually("writes are held again", || {
        let answer = agent.post("/tasks", &json!({"title": "room again"}));
        (answer.status == 202).then(|| Draft::from(&answer))
    });
    guard.approver().confirm_fully(&anew);
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.effects("/tasks"), 2);
    guard.must_be_alive();
}

#[test]
fn p4_a_mark_that_cannot_be_written_means_that_nothing_is_sent() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream)
        .section("guard", "{listen: 127.0.0.1:0, send_window: 1s}")
        .section("store", "{url: \"sqlite:countersign.db\", lease: 3s}")
        .stopping_at("after_claim")
        .start();
    let draft = guard.agent().hold_task("claimed, then no room");
    let errors_before = guard.metrics().sum("countersign_store_errors_total", &[]);
    let request = guard.approver().dress(Approver::confirm_request(&draft));
    let mut wire = Wire::open(guard.control_address());
    wire.send(&request.to_bytes("control")).expect("sent");
    guard.wait_at_point();
    guard.fill_disk();
    guard.go_on();
    until("the mark was tried in vain", || guard.metrics().sum("countersign_store_errors_total", &[]) > errors_before);
    assert_eq!(upstream.heads(), 0);
    guard.free_disk();
    let end = eventually("the draft has ended", || {
        guard.let_go();
        let shown = guard.draft(&draft.id);
        matches!(shown["status"].as_str(), Some("succeeded" | "failed" | "unverifiable")).then_some(shown)
    });
    let effects = upstream.effects("/tasks");
    assert_eq!(effects, usize::from(end["status"] == "succeeded"), "{end}");
}

/// A guard that has the upstream's answer while its store, but not its journal, takes no more.
fn answered_with_the_store_gone() -> (Upstream, Guard, Draft, Wire) {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream).stopping_at("after_send_before_settle").start();
    // The store's log must be longer than the limit, the journal shorter.
    for n in 0..40 {
        guard.agent().hold_task(&format!("filler {n}"));
    }
    let log = std::fs::metadata(guard.folder().join("countersign.db-wal")).expect("a write-ahead log").len();
    assert!(log > 128 * 1024, "{log} bytes of write-ahead log");
    let draft = guard.agent().hold_task("sent, then no room");
    let request = guard.approver().dress(Approver::confirm_request(&draft));
    let mut wire = Wire::open(guard.control_address());
    wire.send(&request.to_bytes("control")).expect("sent");
    guard.wait_at_point();
    assert_eq!(upstream.effects("/tasks"), 1);
    guard.limit_file_size(64 * 1024);
    let errors_before = guard.metrics().sum("countersign_store_errors_total", &[]);
    guard.go_on();
    until("the settle was tried in vain", || {
        guard.metrics().sum("countersign_store_errors_total", &[]) > errors_before
    });
    (upstream, guard, draft, wire)
}

#[test]
fn an_answer_that_the_store_cannot_take_is_settled_when_it_is_back() {
    let (upstream, guard, draft, mut wire) = answered_with_the_store_gone();
    if let Ok(Some(answer)) = wire.response("POST") {
        assert!(
            answer.status != 200 || answer.json()["receipt"].is_null(),
            "p6: no receipt, no success: {}",
            answer.text()
        );
    }
    guard.free_disk();
    guard.draft_when(&draft.id, "succeeded");
    guard.agent().result(&draft).must_be(201);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn an_answer_that_the_store_cannot_take_survives_a_crash() {
    let (upstream, mut guard, draft, _wire) = answered_with_the_store_gone();
    guard.crash_and_restart();
    guard.draft_when(&draft.id, "succeeded");
    guard.agent().result(&draft).must_be(201);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_guard_whose_store_cannot_be_opened_does_not_start() {
    let upstream = Upstream::start();
    for url in
        ["sqlite:no/such/folder/countersign.db", "sqlite:/proc/countersign.db", "sqlite:policies/", "mysql://db", ""]
    {
        let ended = Setup::over(&upstream).section("store", &format!("{{url: \"{url}\"}}")).start_in_vain();
        assert!(!ended.status.success(), "{url}: {}", ended.said());
        assert!(!ended.stdout.contains("\"ready\":true"), "{url}");
        assert!(!ended.error().is_empty(), "{url}: it says why");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_store_file_that_is_no_store_is_refused_at_start() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    guard.stop();
    for file in ["countersign.db-wal", "countersign.db-shm"] {
        let _ = std::fs::remove_file(guard.folder().join(file));
    }
    std::fs::write(guard.store_file(), vec![0x5a_u8; 8192]).expect("overwritten");
    let mut command = std::process::Command::new(crate::support::guard::BINARY);
    command
        .args(["run", "--json", "--config"])
        .arg(guard.folder().join("countersign.yaml"))
        .env("DESK_URL", upstream.url());
    let ended = crate::support::guard::run_to_end(command);
    assert!(!ended.status.success(), "{}", ended.said());
    assert!(!ended.stdout.contains("\"ready\":true"), "{}", ended.stdout);
}
