//! `/api/tasks` over two guards on one server: asked for at one, decided at the other, told the same by
//! both; and with the server gone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Pair, at_once};
use crate::support::{Answer, Request, Response, past};

#[track_caller]
fn create(pair: &Pair, amount: u64, more: &Value) -> String {
    let mut ask = json!({"task_type": "pay", "payload": {"to": "C10001", "amount": amount}});
    ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = pair.one.tasker().post("/api/tasks", &ask).must_be(202).json();
    made["task_id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_task_is_one_whichever_guard_is_asked() {
    let mut pair = Pair::start();
    pair.upstream.answers("/pay", Answer::json(201, r#"{"status":"sent","customer_id":"C10001"}"#));
    let result = json!({"status": "sent", "customer_id": "C10001"});
    let id = create(&pair, 70, &json!({"ttl_seconds": 300}));
    let keyed = |guard: &crate::support::Guard| -> Response {
        let ask = Request::post(&format!("/api/tasks/{id}/confirm")).header("Idempotency-Key", "decided once");
        guard.approver().send(ask)
    };
    let done = keyed(&pair.two).must_be(200).json();
    assert_eq!(done, json!({"task_id": id, "status": "EXECUTED", "result": result}));
    assert_eq!(keyed(&pair.one).must_be(200).json()["result"], result, "the same key is told the same");
    for guard in [&pair.one, &pair.two] {
        let late = guard.approver().send(Request::post(&format!("/api/tasks/{id}/confirm")));
        let late = late.must_refuse(409, "DRAFT_ALREADY_DECIDED");
        assert_eq!((&late["detail"], &late["result"]), (&json!("task status is EXECUTED, cannot confirm"), &result));
    }
    assert_eq!(pair.upstream.effects("/pay"), 1);

    let refused = create(&pair, 1, &json!({}));
    let no = pair.two.approver().post(&format!("/api/tasks/{refused}/reject"), &json!({"reason": "too much"}));
    assert_eq!(no.must_be(200).json(), json!({"task_id": refused, "status": "REJECTED"}));
    let shown = pair.one.approver().get(&format!("/api/tasks/{refused}")).must_be(200).json();
    assert_eq!((&shown["status"], &shown["failure_reason"]), (&json!("REJECTED"), &json!("too much")));

    let short = create(&pair, 2, &json!({"ttl_seconds": 1}));
    past(Instant::now() + Duration::from_millis(1_100));
    let over = pair.two.approver().send(Request::post(&format!("/api/tasks/{short}/confirm")));
    assert_eq!(over.must_refuse(410, "DRAFT_EXPIRED")["detail"], "task expired");
    let unknown = format!("/api/tasks/dr_{}_00000000000000000000000000", &id[3..4]);
    assert_eq!(pair.one.approver().get(&unknown).must_refuse(404, "DRAFT_NOT_FOUND")["detail"], "task not found");
    assert_eq!(pair.upstream.all_effects(), 1);

    let waiting = create(&pair, 3, &json!({}));
    pair.redis.stop();
    let ask = json!({"task_type": "pay", "payload": {"to": "C10001", "amount": 4}});
    let problem = pair.one.tasker().post("/api/tasks", &ask).must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    assert_eq!(problem["executed"], false, "{problem}");
    for verb in ["confirm", "reject"] {
        let answer = pair.two.approver().post(&format!("/api/tasks/{waiting}/{verb}"), &json!({"reason": "no"}));
        answer.must_refuse(503, "DECISION_UNCERTAIN");
    }
    assert_eq!(pair.upstream.all_effects(), 1);
}

/// A yes at one guard and a no at the other at the same moment: one of them counts, and both say which.
#[test]
fn p3_a_yes_and_a_no_over_two_guards_are_one_decision() {
    let pair = Pair::start();
    let mut confirmed = 0;
    for round in 0..12 {
        let draft = pair.one.agent().hold_task(&format!("round {round}"));
        let answers = at_once(2, |n| match (n + round) % 2 {
            0 => ("yes", pair.one.approver().confirm(&draft)),
            _ => ("no", pair.two.approver().reject(&draft, "no")),
        });
        let won: Vec<_> = answers.iter().filter(|(_, answer)| answer.status == 200).map(|(said, _)| *said).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        confirmed += usize::from(won == ["yes"]);
        let wanted = if won == ["yes"] { "succeeded" } else { "rejected" };
        pair.two.draft_when(&draft.id, wanted);
        assert_eq!(pair.upstream.effects("/tasks"), confirmed);
    }
}
