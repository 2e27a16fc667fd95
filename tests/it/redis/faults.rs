//! A server that is slow, full, forgetful of scripts or no primary any more: writes are refused with a
//! cause that the metric tells, reads pass, and it heals without a restart.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use super::{Pair, alone, at_once, brisk, ended, must_be_true, start_confirming};
use crate::support::{Act, Answer, Approver, Draft, Gate, Guard, Redis, Upstream, eventually, until};

/// Answers soon, so that a server that stands still is noticed soon.
const IMPATIENT: &str = "lease: 3s, timeout: 500ms";

fn told_of(guard: &Guard, kind: &str) -> f64 {
    guard.metrics().sum("countersign_store_errors_total", &[&format!("kind=\"{kind}\"")])
}

/// Writes are refused, each in its own words, and reads are not.
#[track_caller]
fn writes_are_refused(guard: &Guard, waiting: &Draft) {
    let answer = guard.agent().post("/tasks", &json!({"title": "not now"}));
    assert_eq!(answer.header("Retry-After"), Some("5"));
    let problem = answer.must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    assert_eq!((&problem["executed"], &problem["safe_to_retry"]), (&json!(false), &json!(true)), "{problem}");
    let problem = guard.approver().confirm(waiting).must_refuse(503, "DECISION_UNCERTAIN");
    assert_eq!(problem["executed"], "unknown", "{problem}");
    guard.agent().get("/tasks").must_be(200);
    until("readiness tells it", || guard.control_get("/readyz").status == 503);
    guard.control_get("/healthz").must_be(200);
}

/// Without a restart it holds and sends again, and what was refused meanwhile was not sent.
#[track_caller]
fn it_heals(guard: &mut Guard, upstream: &Upstream, waiting: &Draft) {
    until("the guard is ready again", || guard.control_get("/readyz").status == 200);
    let told = eventually("the same confirm ends", || {
        let answer = guard.approver().confirm(waiting);
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(told["status"], "succeeded", "{told}");
    let anew = guard.agent().hold_task("not now");
    guard.approver().confirm_fully(&anew);
    assert_eq!(upstream.effects("/tasks"), 2);
    guard.must_be_alive();
}

#[test]
fn scripts_that_are_flushed_under_load_are_loaded_again() {
    let pair = Pair::start();
    let over = AtomicBool::new(false);
    let flushed = thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            let mut connection = pair.redis.connect();
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                connection.ask(&["SCRIPT", "FLUSH"]).expect("flushed");
                count += 1;
            }
            count
        });
        at_once(8, |worker| {
            let guard = if worker % 2 == 0 { &pair.one } else { &pair.two };
            for n in 0..10 {
                let draft = guard.agent().hold_task(&format!("{worker} {n}"));
                guard.approver().confirm_fully(&draft);
            }
        });
        over.store(true, Ordering::Relaxed);
        flusher.join().expect("the flusher")
    });
    assert!(flushed > 20, "{flushed} times");
    assert_eq!(pair.upstream.effects("/tasks"), 80);
    for guard in [&pair.one, &pair.two] {
        assert_eq!(guard.metrics().sum("countersign_store_errors_total", &[]), 0.0, "{}", guard.metrics().text());
    }
}

#[test]
fn a_server_that_stands_still_is_told_by_timeout() {
    let (mut guard, redis, upstream) = alone(IMPATIENT, brisk);
    let waiting = guard.agent().hold_task("held before");
    redis.pause();
    writes_are_refused(&guard, &waiting);
    assert!(told_of(&guard, "timeout") >= 1.0, "{}", guard.metrics().text());
    assert_eq!(upstream.all_effects(), 0);
    redis.resume();
    it_heals(&mut guard, &upstream, &waiting);
    assert_eq!(guard.approver().list("").len(), 2, "what was sent while it stood still made no second draft");
}

#[test]
fn p4_a_mark_that_is_not_answered_sends_nothing() {
    let (guard, redis, upstream) = alone(IMPATIENT, |setup| brisk(setup).stopping_at("after_claim"));
    let draft = guard.agent().hold_task("marked, but who knows");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    redis.pause();
    guard.go_on();
    until("the mark was asked for in vain", || told_of(&guard, "timeout") >= 1.0);
    until("the outcome waits", || guard.printed().contains("it is kept in the journal"));
    assert_eq!(upstream.heads(), 0);
    redis.resume();
    let end = ended(&guard, &draft);
    must_be_true(&end, upstream.effects("/tasks"));
    assert_eq!((&end["status"], upstream.heads()), (&json!("failed"), 0), "{end}");
}

/// No room for anything that asks for it.
fn fill(redis: &Redis) {
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
}

#[test]
fn with_a_full_server_nothing_new_is_held_and_what_runs_still_ends() {
    let (mut guard, redis, upstream) = alone("", |setup| setup);
    let gate = Gate::default();
    let answer = Act::Answer(Answer::json(201, r#"{"id":"r-1","made":true}"#));
    upstream.on("/free/slow", Act::After(gate.clone(), Box::new(answer)));
    let (agent, approver) = (guard.agent(), guard.approver());
    let running = agent.hold("/free/slow", &json!({}));
    let [waiting, unwanted, withdrawn] = ["wait", "no", "mine"].map(|title| agent.hold_task(title));
    let mut wire = start_confirming(&guard, &running);
    until("the origin has the call", || gate.arrivals() == 1);

    fill(&redis);
    writes_are_refused(&guard, &waiting);
    assert!(told_of(&guard, "oom") >= 1.0, "{}", guard.metrics().text());
    gate.open();
    let told = super::answer_of(&mut wire).must_be(200).json();
    assert_eq!((&told["status"], &told["replayed"]), (&json!("succeeded"), &json!(false)), "{told}");
    agent.result(&running).must_be(201);
    approver.reject(&unwanted, "not this one").must_be(200);
    agent.withdraw(&withdrawn).must_be(200);
    assert_eq!(guard.draft(&waiting.id)["status"], "pending");
    assert_eq!((upstream.effects("/free/slow"), upstream.effects("/tasks")), (1, 0));

    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    it_heals(&mut guard, &upstream, &waiting);
    approver.confirm(&unwanted).must_refuse(409, "DRAFT_ALREADY_DECIDED");
}

#[test]
fn p4_a_mark_that_a_full_server_refuses_sends_nothing_and_ends_there() {
    let (guard, redis, upstream) = alone("", |setup| setup.stopping_at("after_claim"));
    let draft = guard.agent().hold_task("claimed, then no room");
    let mut wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    fill(&redis);
    guard.go_on();
    let told = super::answer_of(&mut wire).must_be(200).json();
    assert_eq!((&told["status"], &told["failure"]), (&json!("failed"), &json!("not_sent")), "{told}");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_server_that_became_a_replica_is_told_by_readonly() {
    let (mut guard, redis, upstream) = alone("", |setup| setup);
    let waiting = guard.agent().hold_task("held before");
    // A primary that is not there: the data stay.
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = nobody.local_addr().expect("an address").port().to_string();
    drop(nobody);
    redis.command(&["REPLICAOF", "127.0.0.1", &port]);
    writes_are_refused(&guard, &waiting);
    assert!(told_of(&guard, "readonly") >= 1.0, "{}", guard.metrics().text());
    assert_eq!(guard.draft(&waiting.id)["status"], "pending", "it can be read");
    assert_eq!(upstream.all_effects(), 0);
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    it_heals(&mut guard, &upstream, &waiting);
}

#[test]
fn a_script_that_blocks_the_server_is_told_and_passes() {
    let (mut guard, redis, upstream) = alone(IMPATIENT, brisk);
    let waiting = guard.agent().hold_task("held before");
    redis.command(&["CONFIG", "SET", "busy-reply-threshold", "50"]);
    let mut connection = redis.connect();
    connection.send(&["EVAL", "while true do end", "0"]).expect("sent");
    until("the server is busy", || redis.ask(&["PING"]).text().starts_with("BUSY"));
    let request = guard.approver().dress(Approver::confirm_request(&waiting));
    let answer = crate::support::exchange(guard.control_address(), &request);
    answer.must_refuse(503, "DECISION_UNCERTAIN");
    guard.agent().post("/tasks", &json!({"title": "not now"})).must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    assert!(told_of(&guard, "busy") >= 1.0, "{}", guard.metrics().text());
    assert_eq!(redis.ask(&["SCRIPT", "KILL"]).text(), "OK");
    it_heals(&mut guard, &upstream, &waiting);
}
