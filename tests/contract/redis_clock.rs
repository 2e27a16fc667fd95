//! Clocks on Redis: a node's that is wrong, a server's that is set back, a partition's that is ahead.

use std::sync::Arc;
use std::time::Duration;

use countersign::base::time::{Clock, ManualClock, SystemClock};
use countersign::store::conformance::Harness;
use countersign::store::contract::Held;
use countersign::store::redis::{RedisOptions, RedisStore};

use crate::START;
use crate::redis_bench::{Bench, LONG, bench, durable};

/// A guard whose clock is an hour off judges by the server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nodes_clock_does_not_matter() {
    let server = durable();
    let wall = SystemClock.now();
    for off_ms in [-3_600_000, 3_600_000] {
        let clock = Arc::new(ManualClock::new(wall));
        clock.shift_wall(off_ms);
        let store = RedisStore::open(&server.url(), clock.clone(), RedisOptions::default()).await.expect("opens");
        let h = Harness::new(Arc::new(store), clock, Box::new(()));
        let draft = h.held(&h.call(&off_ms.to_string())).await;
        assert!(draft.row.created_at.since(wall) < Duration::from_secs(120) && draft.row.created_at >= wall);
        h.claimed(&draft).await;
    }
}

/// A server whose clock is set back by an hour: nothing goes backwards, and a lease still ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_servers_clock_that_goes_back_stops_nothing() {
    let server = durable();
    let clock = Arc::new(ManualClock::new(START));
    let store = crate::redis_store(&server, clock.clone()).await;
    let h = Harness::new(Arc::new(store), clock.clone(), Box::new(()));
    let draft = h.sending(&h.held(&h.call("a")).await).await;
    clock.shift_wall(-3_600_000);
    let nodes = [countersign::base::id::NodeId::new("n2").unwrap()];
    let take = async || h.store().take_over(&draft.row.id, h.step(), &nodes[0], Duration::from_secs(30), &[]).await;
    for _ in 0..59 {
        clock.advance(Duration::from_secs(1));
        h.store().note_seen(&draft.row.id).await.expect("answers");
        let kinds = h.events().await;
        assert!(kinds.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }
    let early = take().await;
    assert!(matches!(early, Ok(countersign::store::contract::TakenOver::NotDue)), "{early:?}");
    clock.advance(Duration::from_secs(10));
    let late = take().await;
    assert!(matches!(late, Ok(countersign::store::contract::TakenOver::Verifying { .. })), "{late:?}");
}

/// A partition whose clock is an hour ahead says so to its own holds and moves nobody else's time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_partitions_clock_is_its_own() {
    let server = durable();
    let Bench { h, .. } = bench(&server.url(), 0, LONG).await;
    let ahead = h.call("a").from("default", "ben", "agent");
    let digit = h.hold_of(&ahead).id.partition().as_char();
    let hour = SystemClock.now() + Duration::from_secs(3_600);
    let now = SystemClock.now().as_millis();
    server.command(&["SET", &format!("cs:{{{digit}}}:meta"), &format!("{} {now} 0 0 0 0", hour.as_millis())]);
    let told = h.store().hold(h.hold_of(&ahead)).await;
    assert!(matches!(told, Ok(Held::Clock(now)) if now >= hour), "{told:?}");
    assert!(h.store().now().since(SystemClock.now()) < Duration::from_secs(60), "{:?}", h.store().now());
}
