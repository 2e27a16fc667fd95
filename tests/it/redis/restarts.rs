//! The server ends and comes back, with its data and without: no second effect, nothing lost that was
//! acknowledged, and no guard has to be started anew.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use super::{Pair, SHORT_LEASE, alone, answer_of, brisk, ended, must_be_true, start_confirming, wiped};
use crate::support::{Cutter, Draft, Guard, Redis, Request, Setup, Upstream, try_exchange, until};

fn errors(guard: &Guard) -> f64 {
    guard.metrics().sum("countersign_store_errors_total", &[])
}

fn until_ready(guard: &Guard) {
    until("the guard is ready again", || guard.control_get("/readyz").status == 200);
}

#[test]
fn p7_with_the_server_gone_writes_are_refused_reads_pass_and_it_heals() {
    let (mut guard, mut redis, upstream) = alone("", |setup| setup);
    let (agent, approver) = (guard.agent(), guard.approver());
    let drafts: Vec<Draft> = (0..5).map(|n| agent.hold_task(&format!("held {n}"))).collect();
    redis.kill();
    let answer = agent.post("/tasks", &json!({"title": "no store"}));
    assert_eq!(answer.header("x-should-retry"), None, "a client may try this one again");
    let problem = answer.must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    assert_eq!((&problem["executed"], &problem["safe_to_retry"]), (&json!(false), &json!(true)), "{problem}");
    approver.confirm(&drafts[0]).must_refuse(503, "DECISION_UNCERTAIN");
    approver.reject(&drafts[1], "no").must_refuse(503, "DECISION_UNCERTAIN");
    agent.get("/tasks").must_be(200);
    until("readiness tells it", || guard.control_get("/readyz").status == 503);
    guard.control_get("/healthz").must_be(200);
    let lost = guard.metrics().sum("countersign_store_errors_total", &["kind=\"disconnected\""]);
    assert!(lost >= 1.0, "{}", guard.metrics().text());
    assert_eq!(upstream.all_effects(), 0);

    redis.restart();
    until_ready(&guard);
    assert_eq!(approver.list("status=pending").len(), 5, "what was acknowledged is there");
    for draft in &drafts {
        approver.confirm_fully(draft);
        assert_eq!(approver.confirm(draft).must_be(200).json()["replayed"], true);
    }
    assert_eq!(upstream.effects("/tasks"), 5);
    guard.must_be_alive();
}

#[test]
fn nothing_that_was_acknowledged_under_load_is_lost_with_the_process() {
    // A hint that is lost with the server costs a waiter its patience, so it has little.
    let hasty = "{listen: 127.0.0.1:0, send_window: 1s, confirm_wait: 1s}";
    let mut pair = Pair::with(SHORT_LEASE, |setup| setup.section("guard", hasty));
    let (held, confirmed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let over = AtomicBool::new(false);
    let (one, two, redis) = (&pair.one, &pair.two, &mut pair.redis);
    let load = |worker: usize| {
        let guard = if worker.is_multiple_of(2) { one } else { two };
        for n in 0.. {
            let body = json!({ "title": format!("{worker} {n}") });
            let request = guard.agent().dress(Request::post("/tasks").json(&body));
            let Ok(Some(answer)) = try_exchange(guard.agent_address(), &request) else { continue };
            if answer.status == 202 {
                let draft = Draft::from(&answer);
                held.lock().unwrap().push(draft.clone());
                let answer = (n % 2 == 0).then(|| guard.approver().confirm(&draft));
                if let Some(told) = answer.filter(|answer| answer.status == 200) {
                    confirmed.lock().unwrap().push((draft, told.json()));
                }
            }
            if over.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for worker in 0..4 {
            let load = &load;
            scope.spawn(move || load(worker));
        }
        for round in 1..=2 {
            until("there is some load", || held.lock().unwrap().len() > round * 40);
            redis.restart();
        }
        until("it goes on", || confirmed.lock().unwrap().len() > 60);
        over.store(true, Ordering::Relaxed);
    });
    let (held, confirmed) = (held.into_inner().unwrap(), confirmed.into_inner().unwrap());
    until_ready(&pair.two);
    for draft in &held {
        pair.two.approver().show(&draft.id).must_be(200);
    }
    for (draft, told) in &confirmed {
        let shown = pair.two.draft(&draft.id);
        assert_eq!((&shown["status"], &shown["receipt"]), (&told["status"], &told["receipt"]), "it was told so");
    }
    let mut bodies: Vec<_> = pair.upstream.seen().into_iter().map(|seen| seen.body).collect();
    let sent = bodies.len();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), sent, "no call was sent twice");
    let carried_out = confirmed.iter().filter(|(_, told)| told["status"] == "succeeded").count();
    assert!(carried_out > 20 && sent >= carried_out, "{sent} of {carried_out}");
}

/// One guard with a short lease that stands at `point` of a release.
fn standing_at(point: &str) -> (Guard, Redis, Upstream, Draft) {
    let (guard, redis, upstream) = alone(SHORT_LEASE, |setup| brisk(setup).stopping_at(point));
    let draft = guard.agent().hold_task("with the server gone");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    (guard, redis, upstream, draft)
}

#[test]
fn killed_and_back_between_the_claim_and_the_mark_it_is_sent_once() {
    let (guard, mut redis, upstream, draft) = standing_at("after_claim");
    redis.restart();
    guard.go_on();
    assert_eq!(ended(&guard, &draft)["status"], "succeeded");
    assert_eq!(guard.approver().confirm(&draft).must_be(200).json()["replayed"], true);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn p4_gone_between_the_claim_and_the_mark_nothing_is_sent() {
    let (guard, mut redis, upstream, draft) = standing_at("after_claim");
    let before = errors(&guard);
    redis.kill();
    guard.go_on();
    until("the mark was tried in vain", || errors(&guard) > before);
    assert_eq!(upstream.heads(), 0);
    redis.restart();
    let end = ended(&guard, &draft);
    must_be_true(&end, upstream.effects("/tasks"));
    assert_eq!((&end["status"], &end["failure"]), (&json!("failed"), &json!("not_sent")), "{end}");
    let again = Draft::from(&guard.approver().again(&draft).must_be(201));
    let _wire = start_confirming(&guard, &again);
    assert_eq!(ended(&guard, &again)["status"], "succeeded");
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn gone_between_the_answer_and_the_settle_the_outcome_waits_in_the_journal() {
    let (guard, mut redis, upstream, draft) = standing_at("after_send_before_settle");
    redis.kill();
    guard.go_on();
    until("the journal has it", || guard.printed().contains("it is kept in the journal"));
    redis.restart();
    guard.draft_when(&draft.id, "succeeded");
    guard.agent().result(&draft).must_be(201);
    assert_eq!(upstream.effects("/tasks"), 1);
}

/// How long the guard's journal is.
fn journal_bytes(guard: &Guard) -> u64 {
    let files = std::fs::read_dir(guard.folder().join("journal")).expect("a journal");
    files.filter_map(|file| file.ok()?.metadata().ok()).map(|found| found.len()).sum()
}

#[test]
fn an_outcome_that_waits_in_the_journal_survives_the_guard_too() {
    let (mut guard, mut redis, upstream, draft) = standing_at("after_send_before_settle");
    // The log tells of it before it is written: only the journal itself says that it is there.
    let before = journal_bytes(&guard);
    redis.kill();
    guard.go_on();
    until("the journal has it", || journal_bytes(&guard) > before);
    guard.crash();
    redis.restart();
    guard.start_again();
    guard.draft_when(&draft.id, "succeeded");
    guard.agent().result(&draft).must_be(201);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_server_that_comes_back_empty_knows_no_draft_and_sends_none() {
    let (mut guard, mut redis, upstream) =
        alone("", |setup| setup.section("guard", "{listen: 127.0.0.1:0, confirm_wait: 2s}").stopping_at("after_claim"));
    let (agent, approver) = (guard.agent(), guard.approver());
    let [waiting, claimed] = ["waits", "is claimed"].map(|title| agent.hold_task(title));
    let mut wire = start_confirming(&guard, &claimed);
    guard.wait_at_point();
    wiped(&mut redis);
    guard.go_on();
    answer_of(&mut wire).must_refuse(404, "DRAFT_NOT_FOUND");
    for draft in [&waiting, &claimed] {
        approver.confirm(draft).must_refuse(404, "DRAFT_NOT_FOUND");
        agent.status(draft).must_refuse(404, "DRAFT_NOT_FOUND");
    }
    assert_eq!((approver.list("").len(), upstream.heads()), (0, 0));
    let anew = agent.hold_task("waits");
    assert_ne!(anew.id, waiting.id);
    let mut wire = start_confirming(&guard, &anew);
    guard.wait_at_point();
    guard.go_on();
    assert_eq!(answer_of(&mut wire).must_be(200).json()["status"], "succeeded");
    assert_eq!(upstream.effects("/tasks"), 1);
    guard.must_be_alive();
}

/// Each step of a call's life, by bytes that only its command holds.
const STEPS: [(&str, &str); 4] =
    [("hold", "add_task"), ("decide", "\"auth_method\""), ("mark", "\r\n937\r\n"), ("settle", "\"action_id\"")];

/// Once through every step: what is cut later is the step and not the news that a script is missing.
fn knows_its_scripts(guard: &Guard) {
    let draft = guard.agent().hold_task("once through");
    guard.approver().confirm_fully(&draft);
}

#[test]
fn p3_a_step_whose_answer_is_lost_is_asked_again_and_happens_once() {
    let (redis, upstream) = (Redis::start_on_tcp(&super::DURABLE), Upstream::start());
    let cutter = Cutter::before(&redis);
    let guard = Setup::over(&upstream)
        .section("store", &format!("{{url: \"{}\", lease: 3s}}", cutter.url()))
        .section("guard", "{listen: 127.0.0.1:0, send_window: 937ms}")
        .start();
    knows_its_scripts(&guard);
    for (place, (step, needle)) in STEPS.into_iter().enumerate() {
        cutter.cut_answers_to(needle, 1);
        let draft = guard.agent().hold_task(&format!("cut at {step}"));
        let answer = guard.approver().confirm(&draft).must_be(200).json();
        assert_eq!(cutter.cuts(), 1, "{step} was cut");
        assert_eq!(answer["status"], "succeeded", "{step}: {answer}");
        assert_eq!(upstream.effects("/tasks"), place + 2, "{step}");
        assert_eq!(guard.approver().list("status=succeeded").len(), place + 2, "{step}");
    }
}

#[test]
fn a_decision_whose_answers_are_all_lost_is_uncertain_and_ends_with_one_effect() {
    let (redis, upstream) = (Redis::start_on_tcp(&super::DURABLE), Upstream::start());
    let cutter = Cutter::before(&redis);
    let store = format!("{{url: \"{}\", lease: 3s}}", cutter.url());
    let guard = brisk(Setup::over(&upstream)).section("store", &store).start();
    knows_its_scripts(&guard);
    let draft = guard.agent().hold_task("uncertain");
    cutter.cut_answers_to("\"auth_method\"", 3);
    let problem = guard.approver().confirm(&draft).must_refuse(503, "DECISION_UNCERTAIN");
    assert_eq!(problem["executed"], "unknown", "{problem}");
    assert_eq!(cutter.cuts(), 3);
    // It was claimed, and nobody knows: the lease finds it.
    let answer = guard.approver().confirm(&draft).must_be(200).json();
    assert_eq!((&answer["status"], &answer["replayed"]), (&json!("succeeded"), &json!(true)), "{answer}");
    assert_eq!(upstream.effects("/tasks"), 2);
}
