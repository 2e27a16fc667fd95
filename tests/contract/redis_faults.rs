//! What a Redis server can do to a store: forget its scripts, stand still, fill up, turn into something that
//! forgets. Nothing is done twice, nothing that was answered is lost where the set-up promises it, and everything heals
//! without a new store.

use std::sync::Arc;
use std::time::Duration;

use countersign::base::digest::Digest;
use countersign::base::time::SystemClock;
use countersign::draft::state::Verdict;
use countersign::store::contract::{Decided, Held, Mark, StoreError};
use countersign::store::redis::{Assumed, OpenError, RedisOptions, RedisStore};

use crate::redis::Redis;
use crate::redis_bench::{Bench, LONG, SHORT, again, bench, durable};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_decision_whose_answer_was_lost_is_asked_again_and_counts_once() {
    let server = durable();
    let Bench { h, told } = bench(&server.url(), 0, SHORT).await;
    let draft = h.held(&h.call("a")).await;
    let yes = h.yes(&draft, "ada");
    server.pause();
    // The command lies in the server's socket: it runs when the server wakes.
    let lost = h.store().decide(yes.clone()).await;
    assert!(matches!(lost, Err(StoreError::Uncertain(_))), "{lost:?}");
    assert_eq!(told.last(), Some("timeout"));
    server.resume();
    let decided = again(|| h.store().decide(yes.clone())).await;
    assert!(matches!(decided, Decided::Claimed(..)), "{decided:?}");
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed"]);
    let other = h.store().decide(h.yes(&draft, "eve")).await;
    assert!(matches!(other, Ok(Decided::NotPending(_))), "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_whose_answer_was_lost_is_one_draft() {
    let server = durable();
    let Bench { h, .. } = bench(&server.url(), 0, SHORT).await;
    h.held(&h.call("warm")).await;
    let hold = h.hold_of(&h.call("a"));
    server.pause();
    assert!(matches!(h.store().hold(hold.clone()).await, Err(StoreError::Uncertain(_))));
    server.resume();
    let held = again(|| h.store().hold(hold.clone())).await;
    assert!(matches!(&held, Held::New(stored) if stored.row.id == hold.id), "{held:?}");
    assert_eq!(h.kinds(&hold.id).await, ["held"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_server_that_is_killed_and_comes_back_has_what_it_answered() {
    let mut server = durable();
    let Bench { h, told } = bench(&server.url(), 0, LONG).await;
    let pending = h.held(&h.call("pending")).await;
    let sending = h.sending(&h.held(&h.call("sending")).await).await;
    server.kill();
    let away = h.store().hold(h.hold_of(&h.call("b"))).await;
    assert!(away.is_err(), "{away:?}");
    assert_eq!(told.last(), Some("disconnected"));
    server.restart();
    assert_eq!(again(|| h.store().get(&pending.row.id)).await.map(|stored| stored.row), Some(pending.row.clone()));
    let marked = again(|| h.store().mark_sending(&sending.row.id, 1, h.step(), Duration::from_secs(1))).await;
    assert_eq!(marked, Mark::Superseded, "what was marked stays marked");
    h.settle(&sending, Verdict::Succeeded, None).await;
    h.claimed(&pending).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_takes_ends_and_nothing_new() {
    let server = durable();
    let Bench { h, told } = bench(&server.url(), 0, LONG).await;
    let sending = h.sending(&h.held(&h.call("sending")).await).await;
    let pending = h.held(&h.call("pending")).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let full = h.store().hold(h.hold_of(&h.call("b"))).await;
    assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");
    assert_eq!(told.last(), Some("oom"));
    assert!(matches!(h.store().decide(h.yes(&pending, "ada")).await, Err(StoreError::Unavailable(_))));
    h.settle(&sending, Verdict::Succeeded, None).await;
    let person = h.person("ada");
    h.store().reject(h.no(&pending, person)).await.expect("a no is taken");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    h.held(&h.call("b")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_made_a_replica_is_read_and_not_written() {
    let (server, other) = (durable(), durable());
    let Bench { h, told } = bench(&server.url(), 0, LONG).await;
    let draft = h.held(&h.call("a")).await;
    server.command(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
    server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let refused = h.store().decide(h.yes(&draft, "ada")).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(told.last(), Some("readonly"));
    server.command(&["REPLICAOF", "NO", "ONE"]);
    again(|| h.store().check()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_is_no_store() {
    let opened = async |server: &Redis, assumed: Assumed| {
        let options = RedisOptions { assumed, ..RedisOptions::default() };
        RedisStore::open(&server.url(), Arc::new(SystemClock), options).await.map(drop)
    };
    let nothing = Assumed::default();
    let server = Redis::start(&["--maxmemory-policy", "allkeys-lru"]);
    let Err(OpenError::Unfit(faults)) = opened(&server, nothing).await else { panic!("it is not fit") };
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].contains("allkeys-lru") && faults[1].contains("append-only"), "{faults:?}");
    // Vouching does not help where the server itself says otherwise.
    let all = Assumed { noeviction: true, durable: true };
    assert!(matches!(opened(&server, all).await, Err(OpenError::Unfit(_))));
    let mute = Redis::start(&["--appendonly", "yes"]);
    mute.command(&["ACL", "SETUSER", "default", "-config"]);
    let Err(OpenError::Unfit(faults)) = opened(&mute, nothing).await else { panic!("it does not say") };
    assert!(faults.iter().all(|fault| fault.contains("store.assume")), "{faults:?}");
    opened(&mute, all).await.expect("vouched for");
    let gone = format!("redis://127.0.0.1:{}", free_port());
    let options = RedisOptions { step_timeout: SHORT, ..RedisOptions::default() };
    let nobody = RedisStore::open(&gone, Arc::new(SystemClock), options).await;
    assert!(matches!(nobody, Err(OpenError::Unreachable(_))), "{nobody:?}");
}

/// A port on which nobody listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The files of deploy/ are enough for a guard, and the server's own user is shut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deployments_server_and_its_user_are_enough() {
    let lines =
        |text: &'static str| text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    // Where it listens and keeps things is the test's own.
    let own = ["bind", "protected-mode", "dir", "aclfile"];
    let mut options = Vec::new();
    for line in lines(include_str!("../../deploy/redis.conf")) {
        let (name, value) = line.split_once(' ').unwrap();
        if !own.contains(&name) {
            options.extend([format!("--{name}"), value.to_owned()]);
        }
    }
    let server = Redis::start_on_tcp(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let users = lines(include_str!("../../deploy/users.acl.example"));
    let guard = users.filter_map(|line| line.strip_prefix("user guard ")).next().unwrap();
    let mut words = vec!["ACL", "SETUSER", "guard"];
    words.extend(guard.split(' '));
    server.command(&words);
    let url = format!("redis://guard:PASSWORD@127.0.0.1:{}", server.port());
    let Bench { h, told } = bench(&url, 0, LONG).await;
    h.store().check().await.expect("takes writes");
    assert_eq!(h.store().same_keys(&Digest::of(b"one")).await, Ok(true));
    let mut hints = h.store().hints();
    let done = h.succeeded(&h.call("a")).await;
    let heard = async { while hints.recv().await.ok() != Some(done.row.id.clone()) {} };
    tokio::time::timeout(LONG, heard).await.expect("a hint");
    assert_eq!(h.kinds(&done.row.id).await.len(), 4);
    assert_eq!(h.store().counts().await.expect("counts").iter().map(|(_, count)| count).sum::<u64>(), 1);
    assert_eq!(told.last(), None);
    let wrong = format!("redis://guard:other@127.0.0.1:{}", server.port());
    let wrong = RedisStore::open(&wrong, Arc::new(SystemClock), RedisOptions::default()).await;
    let Err(OpenError::Unreachable(why)) = wrong else { panic!("{wrong:?}") };
    assert!(!why.contains("other@"), "{why}");
}

/// Sixty-four callers of a server that stands still are each answered within their own time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_costs_each_caller_its_own_patience() {
    let server = durable();
    let Bench { h, .. } = bench(&server.url(), 0, SHORT).await;
    let holds: Vec<_> = (0..64).map(|n| h.hold_of(&h.call(&n.to_string()))).collect();
    server.pause();
    for _ in 0..2 {
        let asked = tokio::time::Instant::now();
        let all = holds.iter().map(|hold| h.store().hold(hold.clone()));
        let answers = futures_util::future::join_all(all).await;
        assert!(answers.iter().all(Result::is_err));
        assert!(asked.elapsed() < 4 * SHORT, "{:?}", asked.elapsed());
    }
    server.resume();
    for hold in holds {
        let held = again(|| h.store().hold(hold.clone())).await;
        assert!(matches!(held, Held::New(_)), "{held:?}");
    }
}
