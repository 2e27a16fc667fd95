//! Guards on a Redis server. The server is a real child, the guards are real processes, and what
//! counts is what the origin counted.

mod clock;
mod deployment;
mod faults;
mod fitness;
mod killed;
mod nodes;
mod replicas;
mod restarts;
mod tampering;
mod tasks;
mod tls;
mod written;

use std::sync::Barrier;
use std::thread;

use serde_json::Value;

use crate::support::{Approver, Draft, Guard, Redis, Response, Setup, Upstream, Wire, eventually};

/// What the documented set-up of one server asks for, in its strictest form.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Leases that a test can outlast. The send window is at most a third of the lease.
const SHORT_LEASE: &str = "lease: 3s";

/// Two guards on one server, with one keys file and a journal each.
struct Pair {
    one: Guard,
    two: Guard,
    redis: Redis,
    upstream: Upstream,
}

impl Pair {
    #[track_caller]
    fn start() -> Self {
        Self::with("", |setup| setup)
    }

    /// With further keys of the section `store`, and with `change` to the configuration of both.
    #[track_caller]
    fn with(store: &str, change: impl Fn(Setup) -> Setup) -> Self {
        Self::build(store, &change, &change)
    }

    /// The first guard stops at `point`; leases are short.
    #[track_caller]
    fn stopping_at(point: &str) -> Self {
        Self::build(SHORT_LEASE, &|setup| brisk(setup).stopping_at(point), &brisk)
    }

    #[track_caller]
    fn build(store: &str, first: &dyn Fn(Setup) -> Setup, second: &dyn Fn(Setup) -> Setup) -> Self {
        let (redis, upstream) = (Redis::start_on_tcp(&DURABLE), Upstream::start());
        let one = first(Setup::over(&upstream).on_redis(&redis, store)).start();
        let two = second(Setup::over(&upstream).on_redis(&redis, store).with_keys_of(&one)).start();
        Self { one, two, redis, upstream }
    }
}

/// A send window that fits a short lease.
fn brisk(setup: Setup) -> Setup {
    setup.section("guard", "{listen: 127.0.0.1:0, send_window: 1s}")
}

/// One guard on a durable server, with further keys of the section `store`.
#[track_caller]
fn alone(store: &str, change: impl Fn(Setup) -> Setup) -> (Guard, Redis, Upstream) {
    let (redis, upstream) = (Redis::start_on_tcp(&DURABLE), Upstream::start());
    let guard = change(Setup::over(&upstream).on_redis(&redis, store)).start();
    (guard, redis, upstream)
}

/// Calls `call` with 0, 1, 2, … from as many threads at the same time.
fn at_once<T: Send>(count: usize, call: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(count);
    let (call, barrier) = (&call, &barrier);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..count)
            .map(|n| {
                scope.spawn(move || {
                    barrier.wait();
                    call(n)
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller")).collect()
    })
}

/// Sends the confirm and leaves its connection open, unanswered.
#[track_caller]
fn start_confirming(guard: &Guard, draft: &Draft) -> Wire {
    let request = guard.approver().dress(Approver::confirm_request(draft));
    let mut wire = Wire::open(guard.control_address());
    wire.send(&request.to_bytes("control")).expect("sent");
    wire
}

/// Reads the answer to a confirm that was left open.
#[track_caller]
fn answer_of(wire: &mut Wire) -> Response {
    wire.response("POST").expect("no broken connection").expect("an answer")
}

/// Waits until the draft has ended, as this guard shows it, and gives it.
#[track_caller]
fn ended(guard: &Guard, draft: &Draft) -> Value {
    eventually("the draft has ended", || {
        guard.let_go();
        let shown = guard.approver().show(&draft.id);
        let shown: Value = (shown.status == 200).then(|| shown.json())?;
        let open = matches!(shown["status"].as_str(), Some("pending" | "running" | "verifying"));
        (!open).then_some(shown)
    })
}

/// The end must be true: measured against what the origin counted.
#[track_caller]
fn must_be_true(end: &Value, effects: usize) {
    match end["status"].as_str().unwrap_or_default() {
        "succeeded" => assert_eq!(effects, 1, "{end}"),
        "failed" => assert_eq!(effects, 0, "{end}"),
        "unverifiable" => assert!(effects <= 1, "{end}"),
        _ => panic!("no end: {end}"),
    }
}

/// The key of the server under which the draft's hash stands.
fn key_of(draft: &Draft) -> String {
    in_partition(draft, &format!("d:{}", draft.id))
}

/// A key of the draft's partition.
fn in_partition(draft: &Draft, name: &str) -> String {
    let partition = draft.id.split('_').nth(1).unwrap_or_default();
    format!("cs:{{{partition}}}:{name}")
}

/// The index of the draft's owner.
#[track_caller]
fn owners_index(redis: &Redis, draft: &Draft) -> String {
    let fixed = field(redis, draft, "fixed");
    in_partition(draft, &format!("o:{}", fixed.split('\n').nth(1).expect("an owner")))
}

/// The lines by which a draft is found and that begin with `stem`, in its partition's index and its owner's.
#[track_caller]
fn found_by(redis: &Redis, draft: &Draft, stem: &str) -> Vec<String> {
    let lines = |index: &str| redis.command(&["ZRANGE", index, "0", "-1"]).texts();
    let all = lines(&in_partition(draft, "ix")).into_iter().chain(lines(&owners_index(redis, draft)));
    all.filter(|line| line.starts_with(stem) && line.ends_with(&draft.id)).collect()
}

/// The index in which a line stands.
fn index_of(redis: &Redis, draft: &Draft, line: &str) -> String {
    let shared = ["st ", "due ", "lease ", "node ", "ended "].iter().any(|kind| line.starts_with(kind));
    if shared { in_partition(draft, "ix") } else { owners_index(redis, draft) }
}

/// Adds a line to the index where it belongs.
#[track_caller]
fn lead(redis: &Redis, draft: &Draft, line: &str) {
    redis.command(&["ZADD", &index_of(redis, draft, line), "0", line]);
}

/// Takes a line out of it.
#[track_caller]
fn lead_no_more(redis: &Redis, draft: &Draft, line: &str) {
    redis.command(&["ZREM", &index_of(redis, draft, line), line]);
}

/// The one line that begins with `stem` and by which `from` is found leads to `to` from now on.
#[track_caller]
fn mislead(redis: &Redis, stem: &str, from: &Draft, to: &Draft) {
    let lines = found_by(redis, from, stem);
    assert_eq!(lines.len(), 1, "{stem}: {lines:?}");
    lead_no_more(redis, from, &lines[0]);
    lead(redis, from, &lines[0].replace(&from.id, &to.id));
}

/// A field of the draft's hash, as text; empty where there is none.
#[track_caller]
fn field(redis: &Redis, draft: &Draft, name: &str) -> String {
    redis.command(&["HGET", &key_of(draft), name]).text()
}

/// The server ends, loses everything that it kept, and comes back.
#[track_caller]
fn wiped(redis: &mut Redis) {
    redis.stop();
    std::fs::remove_dir_all(redis.folder().join("appendonlydir")).expect("an append-only file");
    redis.restart();
}
