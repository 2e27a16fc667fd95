//! Nothing is lost and nothing is sent twice, wherever the guard is killed, stopped or frozen.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Act, Agent, Answer, Approver, Draft, Gate, Guard, Request, Setup, Upstream, Wire, eventually, past, until,
};

/// The store's lease in the tests that outlast it.
const LEASE: Duration = Duration::from_secs(3);

fn with_short_lease(upstream: &Upstream) -> Setup {
    Setup::over(upstream)
        .section("guard", "{listen: 127.0.0.1:0, send_window: 1s}")
        .section("store", "{url: \"sqlite:countersign.db\", lease: 3s}")
}

/// Sends the confirm and leaves its connection open, unanswered.
fn start_confirming(guard: &Guard, draft: &Draft) -> Wire {
    let request = guard.approver().dress(Approver::confirm_request(draft));
    let mut wire = Wire::open(guard.control_address());
    wire.send(&request.to_bytes("control")).expect("sent");
    wire
}

fn start_holding(guard: &Guard, agent: &Agent) -> Wire {
    let request = agent.dress(Request::post("/tasks").json(&json!({"title": "survivor"})));
    let mut wire = Wire::open(guard.agent_address());
    wire.send(&request.to_bytes("desk")).expect("sent");
    wire
}

/// Waits until the draft is in an end state and gives it.
fn ended(guard: &Guard, draft: &Draft) -> Value {
    eventually("the draft has ended", || {
        guard.let_go();
        let shown = guard.draft(&draft.id);
        let open = matches!(shown["status"].as_str(), Some("pending" | "running" | "verifying"));
        (!open).then_some(shown)
    })
}

/// The end state must be true: measured against what the upstream counted.
#[track_caller]
fn must_be_true(end: &Value, effects: usize) {
    let executed = end["status"].as_str().unwrap_or_default();
    match executed {
        "succeeded" => assert_eq!(effects, 1, "{end}"),
        "failed" => assert_eq!(effects, 0, "{end}"),
        "unverifiable" => assert!(effects <= 1, "{end}"),
        _ => panic!("no end state: {end}"),
    }
}

#[test]
fn p8_drafts_survive_kill_nine_and_are_decided_through_their_old_ids() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let drafts: Vec<Draft> = (0..10).map(|n| guard.agent().hold_task(&format!("survivor {n}"))).collect();
    guard.crash_and_restart();
    for (n, draft) in drafts.iter().enumerate() {
        if n % 2 == 0 {
            guard.approver().confirm_fully(draft);
        } else {
            guard.approver().reject(draft, "not this one").must_be(200);
        }
    }
    assert_eq!(upstream.effects("/tasks"), 5);
    guard.crash_and_restart();
    for (n, draft) in drafts.iter().enumerate() {
        let result = guard.agent().result(draft);
        if n % 2 == 0 {
            result.must_be(201);
            assert_eq!(guard.approver().confirm(draft).must_be(200).json()["replayed"], true);
        } else {
            result.must_refuse(403, "DRAFT_REJECTED");
        }
    }
    assert_eq!(upstream.effects("/tasks"), 5);
}

#[test]
fn killed_after_the_hold_and_before_its_answer() {
    let upstream = Upstream::start();
    let mut guard = Setup::over(&upstream).stopping_at("after_hold_before_answer").start();
    let agent = guard.agent();
    let mut wire = start_holding(&guard, &agent);
    guard.wait_at_point();
    guard.crash_and_restart();
    assert!(wire.closed_by_peer());
    assert_eq!(guard.approver().list("status=pending").len(), 1, "the hold was durable before it was answered");
    let draft = guard.agent().hold_task("survivor");
    assert_eq!(guard.approver().list("status=pending").len(), 1, "the repeated call joins it");
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn killed_between_the_claim_and_the_mark_it_is_sent_once_by_the_next_process() {
    let upstream = Upstream::start();
    let mut guard = Setup::over(&upstream).stopping_at("after_claim").start();
    let draft = guard.agent().hold_task("claimed");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    assert_eq!(upstream.heads(), 0);
    guard.crash_and_restart();
    let end = ended(&guard, &draft);
    must_be_true(&end, upstream.effects("/tasks"));
    assert_eq!(end["status"], "succeeded", "within `late_release` the confirmed call is carried out: {end}");
    assert_eq!(guard.approver().confirm(&draft).must_be(200).json()["replayed"], true);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn killed_between_the_mark_and_the_first_byte_it_is_never_sent() {
    let upstream = Upstream::start();
    let mut guard = Setup::over(&upstream).stopping_at("after_mark_before_deadline_check").start();
    let draft = guard.agent().hold_task("marked");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    guard.crash_and_restart();
    let end = ended(&guard, &draft);
    assert_eq!(end["status"], "unverifiable", "nobody saw whether a byte left: {end}");
    guard.approver().confirm(&draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    assert_eq!(upstream.effects("/tasks"), 0, "p4: a mark without bytes is never turned into bytes by somebody else");
}

#[test]
fn killed_after_the_answer_and_before_the_settle_it_is_not_sent_again() {
    let upstream = Upstream::start();
    let mut guard = Setup::over(&upstream).stopping_at("after_send_before_settle").start();
    let draft = guard.agent().hold_task("answered");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    assert_eq!(upstream.effects("/tasks"), 1);
    guard.crash_and_restart();
    let end = ended(&guard, &draft);
    assert_eq!(end["status"], "unverifiable", "the answer died with the process: {end}");
    guard.approver().confirm(&draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn killed_after_the_settle_and_before_the_answer_the_result_is_there() {
    let upstream = Upstream::start();
    let mut guard = Setup::over(&upstream).stopping_at("after_settle_before_answer").start();
    let draft = guard.agent().hold_task("settled");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    guard.crash_and_restart();
    assert_eq!(guard.draft(&draft.id)["status"], "succeeded");
    let again = guard.approver().confirm(&draft).must_be(200).json();
    assert_eq!((&again["status"], &again["replayed"]), (&json!("succeeded"), &json!(true)), "{again}");
    guard.agent().result(&draft).must_be(201);
    assert_eq!(upstream.effects("/tasks"), 1);
}

/// Freezes the guard at `point` for longer than its lease and wakes it there.
fn frozen_past_its_lease(point: &str) -> (Upstream, Guard, Draft) {
    let upstream = Upstream::start();
    let guard = with_short_lease(&upstream).stopping_at(point).start();
    let draft = guard.agent().hold_task("frozen");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    guard.freeze();
    guard.go_on();
    past(Instant::now() + LEASE + Duration::from_millis(500));
    guard.thaw();
    (upstream, guard, draft)
}

#[test]
fn p4_frozen_after_the_mark_for_longer_than_the_lease_it_does_not_send_when_it_wakes() {
    let (upstream, mut guard, draft) = frozen_past_its_lease("after_mark_before_deadline_check");
    let end = ended(&guard, &draft);
    assert_ne!(end["status"], "succeeded", "{end}");
    assert_eq!(upstream.heads(), 0, "the permit's deadline had passed");
    guard.must_be_alive();
    guard.stop();
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn frozen_after_the_claim_for_longer_than_the_lease_it_sends_at_most_once() {
    let (upstream, guard, draft) = frozen_past_its_lease("after_claim");
    let end = ended(&guard, &draft);
    must_be_true(&end, upstream.effects("/tasks"));
}

#[test]
fn frozen_after_the_send_for_longer_than_the_lease_the_answer_still_counts_once() {
    let (upstream, guard, draft) = frozen_past_its_lease("after_send_before_settle");
    let end = ended(&guard, &draft);
    assert_ne!(end["status"], "failed", "{end}");
    assert_eq!(upstream.effects("/tasks"), 1);
    must_be_true(&end, 1);
}

#[test]
fn frozen_after_the_settle_for_longer_than_the_lease_it_stays_settled() {
    let (upstream, guard, draft) = frozen_past_its_lease("after_settle_before_answer");
    assert_eq!(ended(&guard, &draft)["status"], "succeeded");
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_release_that_takes_longer_than_the_lease_keeps_it() {
    let upstream = Upstream::start();
    let gate = Gate::default();
    upstream.on("/free/long", Act::After(gate.clone(), Box::new(Act::Answer(Answer::json(201, "{}")))));
    let guard = with_short_lease(&upstream).start();
    let draft = guard.agent().hold("/free/long", &json!({}));
    let _wire = start_confirming(&guard, &draft);
    until("the origin has the call", || gate.arrivals() == 1);
    past(Instant::now() + LEASE + LEASE);
    assert_eq!(guard.draft(&draft.id)["status"], "running", "nobody takes a draft from a process that lives");
    gate.open();
    guard.draft_when(&draft.id, "succeeded");
    assert_eq!(upstream.effects("/free/long"), 1);
}

#[test]
fn a_permit_is_good_for_its_send_window_only() {
    let upstream = Upstream::start();
    let guard = with_short_lease(&upstream).stopping_at("after_mark_before_deadline_check").start();
    let draft = guard.agent().hold_task("too slow");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    past(Instant::now() + Duration::from_millis(1200));
    guard.go_on();
    let end = ended(&guard, &draft);
    assert_ne!(end["status"], "succeeded", "{end}");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_store_put_back_to_an_older_copy_does_not_send_what_the_journal_knows() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("sent before the restore");
    guard.stop();
    let files = ["countersign.db", "countersign.db-wal", "countersign.db-shm"];
    let kept: Vec<_> = files.iter().map(|file| std::fs::read(guard.folder().join(file)).ok()).collect();
    guard.start_again();
    guard.approver().confirm_fully(&draft);
    guard.stop();
    for (file, bytes) in files.iter().zip(&kept) {
        let path = guard.folder().join(file);
        match bytes {
            Some(bytes) => std::fs::write(path, bytes).expect("restored"),
            None => drop(std::fs::remove_file(path)),
        }
    }
    guard.start_again();
    assert_eq!(guard.draft(&draft.id)["status"], "pending", "the older copy says that it still waits");
    guard.approver().confirm(&draft);
    let end = ended(&guard, &draft);
    assert_eq!(end["status"], "unverifiable", "{end}");
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn sigterm_lets_a_release_end_and_ends_with_zero() {
    let upstream = Upstream::start();
    let gate = Gate::default();
    upstream.on("/free/slow", Act::After(gate.clone(), Box::new(Act::Answer(Answer::json(201, "{}")))));
    let mut guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/free/slow", &json!({}));
    let _wire = start_confirming(&guard, &draft);
    until("the origin has the call", || gate.arrivals() == 1);
    guard.ask_to_stop();
    gate.open();
    let status = eventually("the guard ends", || guard.exit_status());
    assert_eq!(status.code(), Some(0), "{}", guard.printed());
    guard.start_again();
    let end = ended(&guard, &draft);
    assert_eq!(end["status"], "succeeded", "{end}");
    assert_eq!(upstream.effects("/free/slow"), 1);
}

#[test]
fn sigterm_does_not_wait_for_ever_for_an_origin_that_never_answers() {
    let upstream = Upstream::start();
    let gate = Gate::default();
    upstream.on("/free/never", Act::After(gate.clone(), Box::new(Act::CloseAfterRead)));
    let mut guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/free/never", &json!({}));
    let _wire = start_confirming(&guard, &draft);
    until("the origin has the call", || gate.arrivals() == 1);
    guard.stop();
    guard.start_again();
    let end = ended(&guard, &draft);
    assert_eq!(end["status"], "unverifiable", "{end}");
    gate.open();
    assert_eq!(upstream.effects("/free/never"), 1);
}

#[test]
fn a_second_process_on_the_same_store_is_refused() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("mine alone");
    let config = guard.folder().join("countersign.yaml");
    let mut second = std::process::Command::new(crate::support::guard::BINARY);
    second.args(["run", "--json", "--config"]).arg(config).env("DESK_URL", upstream.url());
    let ended = crate::support::guard::run_to_end(second);
    assert!(!ended.status.success(), "{}", ended.said());
    assert!(!ended.stdout.contains("\"ready\":true"), "{}", ended.stdout);
    assert!(!ended.error().is_empty(), "it says why");
    guard.must_be_alive();
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.effects("/tasks"), 1);
}
