//! A partition whose time is ahead of the server's, as it is after the server's clock was set back or a
//! failover led to a server that is behind: what is decided there verifies, for everybody.

use serde_json::json;

use super::Pair;
use crate::support::{Draft, Redis};

/// Leaves what a server that was set back by so many milliseconds would have left in each partition.
fn set_back_by(redis: &Redis, ms: u64) {
    let time = redis.command(&["TIME"]).texts();
    let now = time[0].parse::<u64>().unwrap() * 1_000 + time[1].parse::<u64>().unwrap() / 1_000;
    for partition in "0123456789abcdef".chars() {
        let meta = format!("cs:{{{partition}}}:meta");
        let numbers = redis.command(&["GET", &meta]).text();
        let rest = numbers.splitn(3, ' ').nth(2).unwrap_or("0 0 0 0");
        redis.command(&["SET", &meta, &format!("{} {now} {rest}", now + ms)]);
    }
}

#[test]
fn what_is_decided_after_the_servers_clock_was_set_back_verifies() {
    let pair = Pair::start();
    // Longer than any slack, shorter than the drafts live.
    set_back_by(&pair.redis, 600_000);
    let rejected = pair.one.agent().hold_task("no");
    pair.two.approver().reject(&rejected, "not this one").must_be(200);
    for guard in [&pair.one, &pair.two] {
        assert_eq!(guard.draft(&rejected.id)["status"], "rejected");
    }
    pair.one.agent().post("/tasks", &json!({"title": "no"})).must_be(403);

    let confirmed = pair.one.agent().hold_task("yes");
    pair.two.approver().confirm(&confirmed).must_be(200);
    assert_eq!(pair.upstream.effects("/tasks"), 1);
    assert_eq!(pair.one.draft(&confirmed.id)["status"], "succeeded");
}

#[test]
fn a_draft_that_the_store_expired_is_told_so_by_a_guard_whose_server_is_behind() {
    let pair = Pair::start();
    let draft: Draft = pair.one.agent().hold_task("late");
    // By now the draft is over for the store, and by the server's own time it is not.
    set_back_by(&pair.redis, 3_600_000);
    let problem = pair.two.approver().confirm(&draft).must_be(410);
    assert_eq!(problem.json()["code"], "DRAFT_EXPIRED", "{}", problem.json());
    assert_eq!(pair.one.draft(&draft.id)["status"], "expired");
    assert_eq!(pair.upstream.effects("/tasks"), 0);
}
