//! What a Redis server can do to a store: forget its scripts, stand still, fill up, lose its
//! primary, turn into something that forgets. Nothing is done twice, nothing that was answered is
//! lost where the set-up promises it, and everything heals without a new store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::base::digest::Digest;
use countersign::base::id::Partition;
use countersign::base::time::{Clock, ManualClock, SystemClock};
use countersign::draft::state::{State, Status, Verdict};
use countersign::store::conformance::Harness;
use countersign::store::contract::{Decided, Filter, Held, Mark, Settled, StoreError};
use countersign::store::observer::StoreObserver;
use countersign::store::redis::{Assumed, OpenError, RedisOptions, RedisStore};
use countersign::store::row::Stored;

use crate::START;
use crate::redis::{Redis, Sentinel};

/// What the metric would be told.
#[derive(Default)]
struct Told(Mutex<Vec<&'static str>>);

impl StoreObserver for Told {
    fn step(&self, _: &'static str, _: Duration, error: Option<&'static str>) {
        self.0.lock().unwrap().extend(error);
    }
}

impl Told {
    fn last(&self) -> Option<&'static str> {
        self.0.lock().unwrap().last().copied()
    }
}

struct Bench {
    h: Harness,
    told: Arc<Told>,
}

/// A store on `url` by the server's own clock, which gives up an answer after `patience`.
async fn bench(url: &str, acks: u32, patience: Duration) -> Bench {
    let told = Arc::new(Told::default());
    let options = RedisOptions {
        step_timeout: patience,
        min_replica_acks: acks,
        observer: told.clone(),
        ..RedisOptions::default()
    };
    let store = RedisStore::open(url, Arc::new(SystemClock), options).await.expect("opens");
    let clock = Arc::new(ManualClock::new(START));
    Bench { h: Harness::new(Arc::new(store), clock, Box::new(())), told }
}

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);

fn durable() -> Redis {
    Redis::start_on_tcp(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Asks until the answer is one, as the guard does: a store that heals needs no new one.
pub(crate) async fn again<T, Fut: Future<Output = Result<T, StoreError>>>(mut ask: impl FnMut() -> Fut) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if tokio::time::Instant::now() > deadline => panic!("still {error}"),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

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
    replica.resume();
    let decided = again(|| h.store().decide(yes.clone())).await;
    assert!(matches!(decided, Decided::Claimed(..)), "{decided:?}");
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed"]);
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

/// Altered by somebody who can write to the server: the draft is unreadable, and nothing of it is
/// decided; others are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_altered_is_corrupt_and_alone() {
    let server = durable();
    let Bench { h, .. } = bench(&server.url(), 0, LONG).await;
    for (field, value) in [
        ("state", "succeeded"),
        ("state", "done"),
        ("epoch", "1"),
        ("epoch", "99999999999999999999"),
        ("fixed", "x"),
        ("votes", "{}"),
        ("voters", "ada"),
        ("evidence", "x"),
        ("m:decide", "x"),
        ("kept", "1"),
        ("n", "-1"),
        ("r_reason", "no"),
    ] {
        let draft = h.held(&h.call(&format!("{field} {value}"))).await;
        let other = h.held(&h.call(&format!("beside {field} {value}"))).await;
        let id = draft.row.id.as_str();
        let key = format!("cs:{{{}}}:d:{id}", draft.row.id.partition().as_char());
        server.command(&["HSET", &key, field, value]);
        let read = h.store().get(&draft.row.id).await;
        assert!(matches!(read, Err(StoreError::Corrupt(_))), "{field} {value}: {read:?}");
        let listed = h.store().list(&countersign::store::contract::Filter { limit: 200, ..Default::default() }).await;
        let listed = listed.expect("the others are served");
        assert!(listed.iter().any(|stored| stored.row.id == other.row.id));
        assert!(listed.iter().all(|stored| stored.row.id != draft.row.id), "{field} {value}");
    }
    let counts = h.store().counts().await.expect("answers");
    assert_eq!(counts[0].0, Status::Pending);
    assert_eq!(h.store().by_token(Partition::of(&Digest::of(b"o")), &Digest::of(b"nobody's")).await, Ok(None));
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

/// Lines of drafts that are not there do not hide the draft that is due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweep_finds_what_is_due_behind_damaged_lines() {
    let server = durable();
    let clock = Arc::new(ManualClock::new(START));
    let store = crate::redis_store(&server, clock.clone()).await;
    let h = Harness::new(Arc::new(store), clock, Box::new(()));
    let draft = h.held(&h.call("a")).await;
    let digit = draft.row.id.partition().as_char();
    let index = format!("cs:{{{digit}}}:ix");
    let stray: Vec<String> =
        (0..1_200).flat_map(|n| ["0".to_owned(), format!("due {n:016} dr_{digit}_{n:026}")]).collect();
    server.command(&[vec!["ZADD".to_owned(), index], stray].concat());
    h.advance(Duration::from_secs(3_600)).await;
    let due = h.store().due(START, &[], 1_000).await.expect("answers");
    assert_eq!(due.expired, [draft.row.id]);
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

/// Whoever writes over the counters of a partition stops that one, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_that_somebody_wrote_over_stop_their_partition_alone_until_they_are_put_right() {
    let server = durable();
    let Bench { h, told } = bench(&server.url(), 0, LONG).await;
    let draft = h.held(&h.call("a")).await;
    let elsewhere = ["ben", "eve", "kim", "zoe"].map(|owner| h.call("b").from("default", owner, "agent"));
    let elsewhere = elsewhere.into_iter().find(|call| h.hold_of(call).id.partition() != draft.row.id.partition());
    let elsewhere = elsewhere.expect("an owner of another partition");
    let meta = format!("cs:{{{}}}:meta", draft.row.id.partition().as_char());
    let good = server.command(&["GET", &meta]).text();
    for field in 0..6 {
        // The last stands for a key of another kind.
        for wrong in ["", "x", "nan", "inf", "-1", "0.5", "1e300", "0x10", "9007199254740991", "1 1", "hash"] {
            let mut numbers: Vec<&str> = good.split(' ').collect();
            numbers[field] = wrong;
            let shown = numbers.join(" ");
            server.command(&["DEL", &meta]);
            match wrong {
                "hash" => server.command(&["HSET", &meta, "clock", "1"]),
                _ => server.command(&["SET", &meta, &shown]),
            };
            let answer = h.store().hold(h.hold_of(&h.call("b"))).await;
            let refused = matches!(&answer, Err(StoreError::Unavailable(why)) if why.contains("put right"));
            assert!(refused && told.last() == Some("damaged"), "{field} {shown}: {answer:?}");
            assert_eq!(h.get(&draft.row.id).await, draft, "{field} {shown}");
        }
        assert!(matches!(h.ask(&elsewhere).await, Held::New(_) | Held::Joined(_)), "{field}");
        let listed = h.store().list(&Filter { limit: 10, ..Filter::default() }).await.expect("the others are listed");
        let here = |stored: &Stored| stored.row.id.partition() == draft.row.id.partition();
        assert!(listed.iter().any(|stored| !here(stored)), "{field}");
        h.store().due(START, &[], 10).await.expect("the others are swept");
        server.command(&["DEL", &meta]);
        server.command(&["SET", &meta, &good]);
    }
    h.held(&h.call("b")).await;
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
