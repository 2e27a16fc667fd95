//! Time only ever ends a draft: after `expires_at` nobody can confirm or reject it, whether the
//! sweeper, a late caller or a restarted guard comes first.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Draft, Guard, Upstream, past, until};

/// The shortest time to live that a policy may give.
const TTL: Duration = Duration::from_secs(10);

fn over() -> Instant {
    Instant::now() + TTL + Duration::from_millis(100)
}

/// How many drafts the outbox says have expired.
fn expiries(guard: &Guard) -> usize {
    let (mut found, mut after) = (0, "0".to_owned());
    loop {
        let page = guard.approver().get(&format!("/v1/events?after={after}")).must_be(200).json();
        let events = page["events"].as_array().unwrap_or_else(|| panic!("no events: {page}"));
        if events.is_empty() {
            return found;
        }
        found += events.iter().filter(|event| event["kind"] == "draft.expired").count();
        after = page["next"].as_str().map_or_else(|| page["next"].to_string(), str::to_owned);
    }
}

#[test]
fn confirm_reject_and_agent_are_told_410_and_nothing_is_sent() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let [to_confirm, to_reject, to_collect] = ["a", "b", "c"].map(|n| agent.hold("/brief", &json!({ "n": n })));
    let created = guard.draft(&to_confirm.id);
    past(over());

    let problem = guard.approver().confirm(&to_confirm).must_refuse(410, "DRAFT_EXPIRED");
    assert_eq!(problem["executed"], false, "{problem}");
    assert_eq!(problem["recreate"], true, "{problem}");
    assert_eq!(problem["expired_at"], created["expires_at"], "{problem}");
    guard.approver().reject(&to_reject, "late").must_refuse(410, "DRAFT_EXPIRED");
    let told = agent.result(&to_collect).must_refuse(410, "DRAFT_EXPIRED");
    assert_eq!(told["recreate"], true, "{told}");
    for draft in [&to_confirm, &to_reject, &to_collect] {
        assert_eq!(guard.draft_when(&draft.id, "expired")["status"], "expired");
        guard.approver().confirm(draft).must_refuse(410, "DRAFT_EXPIRED");
    }
    assert_eq!(guard.metrics().sum("countersign_expired_total", &["tool=\"brief\""]), 3.0);
    assert_eq!(expiries(&guard), 3, "one event for each, whoever came first");
    let anew = agent.hold("/brief", &json!({"n": "a"}));
    assert_ne!(anew.id, to_confirm.id, "an expired draft does not answer the next call");
    guard.approver().confirm_fully(&anew);
    assert_eq!(upstream.effects("/brief"), 1);
}

#[test]
fn a_draft_expires_although_nobody_comes() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/brief", &json!({}));
    past(over());
    until("the sweeper has written it", || {
        guard.metrics().sum("countersign_expired_total", &["tool=\"brief\""]) >= 1.0
    });
    let listed = guard.approver().list("status=expired");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["draft_id"], draft.id.as_str());
    assert_eq!(expiries(&guard), 1);
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_draft_whose_time_ended_while_the_guard_was_down_is_expired_for_the_first_caller() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let first = guard.agent().hold("/brief", &json!({"n": 1}));
    let second = guard.agent().hold("/brief", &json!({"n": 2}));
    guard.crash();
    past(over());
    guard.start_again();
    guard.approver().confirm(&first).must_refuse(410, "DRAFT_EXPIRED");
    guard.approver().reject(&second, "late").must_refuse(410, "DRAFT_EXPIRED");
    for draft in [&first, &second] {
        guard.draft_when(&draft.id, "expired");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn at_the_very_edge_each_draft_is_either_released_or_expired() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let drafts: Vec<Draft> = (0..48).map(|n| agent.hold("/brief", &json!({ "n": n }))).collect();
    let end = |draft: &Draft| {
        let end = guard.draft(&draft.id)["expires_at"].as_str().map(str::to_owned).expect("a time");
        let end: jiff::Timestamp = end.parse().expect("a time");
        let left = u64::try_from(end.as_millisecond() - jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        Instant::now() + Duration::from_millis(left)
    };
    let ends: Vec<Instant> = drafts.iter().map(end).collect();
    let confirmed = thread::scope(|scope| {
        let calls: Vec<_> = drafts
            .iter()
            .zip(&ends)
            .enumerate()
            .map(|(n, (draft, end))| {
                let approver = guard.approver();
                // From 120 ms before the end of each to 120 ms after it.
                let at = *end - Duration::from_millis(120) + Duration::from_millis(5) * u32::try_from(n).unwrap_or(0);
                scope.spawn(move || {
                    past(at);
                    approver.confirm(draft).status
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().expect("a caller")).collect::<Vec<u16>>()
    });
    let mut released = 0;
    for (draft, status) in drafts.iter().zip(confirmed) {
        let end = guard.draft(&draft.id)["status"].as_str().map(str::to_owned).expect("a status");
        match (status, end.as_str()) {
            (200, "succeeded") => released += 1,
            (410, "expired") => {}
            other => panic!("told and stored differ: {other:?}"),
        }
    }
    assert_eq!(upstream.effects("/brief"), released);
    assert_eq!(expiries(&guard), drafts.len() - released, "one event for each that was not released");
    assert!(released < drafts.len(), "the last of them came after their end");
}
