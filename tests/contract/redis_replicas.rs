//! Replicas that are asked for and are away, lag, or take over: nothing is told to anybody that they do not have.

use std::time::Duration;

use countersign::base::chance::OsChance;
use countersign::base::digest::Digest;
use countersign::base::id::DraftId;
use countersign::draft::state::{State, Verdict};
use countersign::store::contract::{Decided, Filter, Mark, Settled, StoreError};

use crate::redis::{Redis, Sentinel};
use crate::redis_bench::{Bench, LONG, again, bench, durable};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replica_has_not_acknowledged_does_not_count_yet() {
    let primary = durable();
    let replica = Redis::replica_of(&primary, &[]);
    let Bench { h, told } = bench(&primary.url(), 1, Duration::from_secs(6)).await;
    let draft = h.held(&h.call("a")).await;
    let yes = h.yes(&draft, "ada");
    replica.pause();
    let alone = h.store().decide(yes.clone()).await;
    assert!(matches!(alone, Err(StoreError::Uncertain(_))), "{alone:?}");
    assert_eq!(told.last(), Some("unacknowledged"));
    // Nor is a draft told as missing by a server that may have been left behind.
    let missing = DraftId::new(draft.row.id.partition(), draft.row.created_at, &OsChance);
    let nobodys = h.store().by_token(draft.row.id.partition(), &Digest::of(b"nobody's")).await;
    for answer in [h.store().get(&missing).await, nobodys] {
        assert!(matches!(answer, Err(StoreError::Uncertain(_))), "{answer:?}");
    }
    replica.resume();
    assert_eq!(again(|| h.store().get(&missing)).await, None);
    let decided = again(|| h.store().decide(yes.clone())).await;
    assert!(matches!(decided, Decided::Claimed(..)), "{decided:?}");
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed"]);
}

/// A failover that leaves the old primary alive, with a replica that still follows it: where all replicas are asked for,
/// nothing counts there any more. Where fewer are, it would; the guard warns of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_primary_that_was_left_behind_counts_nothing() {
    let primary = durable();
    let [promoted, _faithful] = [(); 2].map(|()| Redis::replica_of(&primary, &["--appendonly", "yes"]));
    let Bench { h, .. } = bench(&primary.url(), 2, Duration::from_secs(6)).await;
    let draft = h.held(&h.call("a")).await;
    promoted.command(&["REPLICAOF", "NO", "ONE"]);
    let alone = h.store().decide(h.yes(&draft, "ada")).await;
    assert!(matches!(&alone, Err(StoreError::Uncertain(why)) if why.contains("1 of 2 replicas")), "{alone:?}");
    let told = h.store().get(&draft.row.id).await;
    assert!(matches!(told, Err(StoreError::Uncertain(_))), "{told:?}");
    // At the new one it waits still, and is decided once.
    let Bench { h: new, .. } = bench(&promoted.url(), 0, LONG).await;
    let decided = new.store().decide(new.yes(&draft, "ada")).await;
    assert!(matches!(decided, Ok(Decided::Claimed(..))), "{decided:?}");
}

/// A Sentinel that takes connections and says nothing, the first in the URL, holds nobody up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_hangs_costs_nobody_anything() {
    let primary = durable();
    let sentinel = Sentinel::watch(&primary, 1, 0);
    let hung = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hung = hung.local_addr().map(|address| (hung, address.port())).unwrap();
    let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/{}", hung.1, sentinel.own_port(), Sentinel::NAME);
    let Bench { h, told } = bench(&url, 0, Duration::from_secs(2)).await;
    for n in 0..20 {
        h.held(&h.call(&format!("call {n}"))).await;
        // Each of the following steps makes its connections anew.
        primary.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        let listed = h.store().check().await;
        assert!(listed.is_ok() || told.last() == Some("disconnected"), "{listed:?}");
        again(|| h.store().check()).await;
    }
}

/// One replica where two were asked for is as good as none, whoever asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_replicas_than_were_asked_for_do_not_count() {
    let primary = durable();
    let [one, other] = [(); 2].map(|()| Redis::replica_of(&primary, &[]));
    let Bench { h, told } = bench(&primary.url(), 2, Duration::from_secs(6)).await;
    let Bench { h: second, .. } = bench(&primary.url(), 2, Duration::from_secs(6)).await;
    let draft = h.held(&h.call("a")).await;
    let yes = h.yes(&draft, "ada");
    other.pause();
    let partly = h.store().decide(yes.clone()).await;
    assert!(matches!(&partly, Err(StoreError::Uncertain(why)) if why.contains("1 of 2 replicas")), "{partly:?}");
    assert_eq!(told.last(), Some("unacknowledged"));
    let key = format!("cs:{{{}}}:d:{}", draft.row.id.partition().as_char(), draft.row.id);
    assert_eq!(one.command(&["HGET", &key, "state"]).text(), "running/claimed", "one of them has it");
    let read = second.store().get(&draft.row.id).await;
    assert!(matches!(read, Err(StoreError::Uncertain(_))), "{read:?}");
    other.resume();
    let decided = again(|| h.store().decide(yes.clone())).await;
    assert!(matches!(decided, Decided::Claimed(..)), "{decided:?}");
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_failover_loses_nothing_that_was_acknowledged() {
    let mut primary = durable();
    let replica = Redis::replica_of(&primary, &["--appendonly", "yes"]);
    let sentinel = Sentinel::watch(&primary, 1, 1);
    let url = format!("redis+sentinel://127.0.0.1:{}/{}", sentinel.own_port(), Sentinel::NAME);
    let Bench { h, told } = bench(&url, 1, Duration::from_secs(6)).await;
    let draft = h.held(&h.call("a")).await;
    let sending = h.sending(&draft).await;
    primary.kill();
    sentinel.until_primary_is(replica.port());
    let found = again(|| h.store().get(&sending.row.id)).await.expect("it was acknowledged");
    assert_eq!(found.row.state, sending.row.state);
    // One replica less: nothing is acknowledged any more, and nothing counts.
    let again_marked = || h.store().mark_sending(&sending.row.id, 1, h.step(), Duration::from_secs(1));
    while told.last() != Some("unacknowledged") {
        let marked = again_marked().await;
        assert!(marked.is_err(), "no replica has acknowledged: {marked:?}");
    }
    let third = Redis::replica_of(&replica, &[]);
    assert_eq!(again(again_marked).await, Mark::Superseded, "what was marked stays marked");
    let end = h.end(&found, Verdict::Succeeded, None);
    let settled = again(|| h.store().settle(end.clone())).await;
    assert!(matches!(&settled, Settled::Done(stored) if stored.row.state == State::Succeeded), "{settled:?}");
    drop(third);
}

/// An end that no replica has is told to nobody, whoever asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_an_end_is_told_when_a_replica_has_it() {
    let primary = durable();
    let replica = Redis::replica_of(&primary, &[]);
    let Bench { h, .. } = bench(&primary.url(), 1, Duration::from_secs(6)).await;
    let Bench { h: other, told } = bench(&primary.url(), 1, Duration::from_secs(6)).await;
    let draft = h.held(&h.call("a")).await;
    let sending = h.sending(&draft).await;
    replica.pause();
    let end = h.end(&sending, Verdict::Succeeded, None);
    assert!(matches!(h.store().settle(end.clone()).await, Err(StoreError::Uncertain(_))));
    let read = other.store().get(&draft.row.id).await;
    assert!(matches!(read, Err(StoreError::Uncertain(_))), "{read:?}");
    assert_eq!(told.last(), Some("unacknowledged"));
    let joined = other.store().hold(other.hold_of(&other.call("a"))).await;
    assert!(matches!(joined, Err(StoreError::Uncertain(_))), "{joined:?}");
    replica.resume();
    assert!(matches!(again(|| h.store().settle(end.clone())).await, Settled::Done(_)));
    let read = again(|| other.store().get(&draft.row.id)).await.expect("it is there");
    assert_eq!(read.row.state, State::Succeeded);
}

/// A page that has left drafts out goes on behind them: nobody takes it for the last one, and none that
/// waits for a decision is passed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_goes_on_behind_what_it_leaves_out() {
    let server = durable();
    let Bench { h, .. } = bench(&server.url(), 0, LONG).await;
    let mut waiting = Vec::new();
    for n in 0..60 {
        let owner = ["ben", "eve", "kim", "zoe"][n % 4];
        let draft = h.held(&h.call(&format!("call {n}")).from("default", owner, "agent")).await;
        if n % 4 == 0 || n >= 30 && n % 3 != 0 {
            let key = format!("cs:{{{}}}:d:{}", draft.row.id.partition().as_char(), draft.row.id);
            server.command(&["HSET", &key, "epoch", "x"]);
        } else {
            waiting.push(draft.row.id);
        }
    }
    // Newest first; within a millisecond by the rest of the id.
    waiting.sort_by(|one, other| other.as_str()[5..].cmp(&one.as_str()[5..]));
    for limit in [1, 3, 7, 50] {
        let (mut paged, mut before) = (Vec::new(), None);
        loop {
            let page =
                h.store().list(&Filter { limit, before: before.clone(), ..Filter::default() }).await.expect("answers");
            before = page.last().map(|stored| stored.row.id.clone());
            let full = page.len() == limit;
            paged.extend(page.into_iter().map(|stored| stored.row.id));
            if !full {
                break;
            }
        }
        assert_eq!(paged, waiting, "{limit} to a page");
    }
}

/// When one kept connection is found dead the others are not tried one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_connections_cost_one_step_and_not_one_each() {
    let primary = durable();
    let _replica = Redis::replica_of(&primary, &[]);
    let Bench { h, .. } = bench(&primary.url(), 1, Duration::from_secs(6)).await;
    let several: Vec<_> = (0..6).map(|n| h.hold_of(&h.call(&n.to_string()))).collect();
    let held = futures_util::future::join_all(several.iter().map(|hold| h.store().hold(hold.clone()))).await;
    assert!(held.iter().all(Result::is_ok), "{held:?}");
    primary.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut failed = 0;
    for hold in several {
        failed += usize::from(h.store().hold(hold).await.is_err());
    }
    assert!(failed <= 1, "{failed} of six steps met a dead connection");
}
