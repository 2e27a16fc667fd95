//! What the embedded store costs: holds against bare durable commits on the same file system, and
//! whole cycles. `cargo bench --bench store` prints a table of medians and ratios first, then
//! criterion's own report of single steps.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use countersign::base::digest::Digest;
use countersign::base::time::SystemClock;
use countersign::draft::state::Verdict;
use countersign::store::conformance::{Dial, Harness};
use countersign::store::contract::{Held, Hold};
use countersign::store::observer::StoreObserver;
use countersign::store::sqlite::{SqliteOptions, SqliteStore};
use criterion::{Criterion, criterion_group};
use tokio::runtime::Runtime;

/// The program's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A real clock that nobody can turn.
struct NoDial;

#[async_trait::async_trait]
impl Dial for NoDial {
    async fn advance(&self, _: Duration) {}
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// How many commits there were, and how many steps they made durable.
#[derive(Default)]
struct Commits {
    commits: AtomicUsize,
    steps: AtomicUsize,
}

impl StoreObserver for Commits {
    fn step(&self, _name: &'static str, _took: Duration, _error: Option<&'static str>) {}

    fn commit(&self, steps: usize, _took: Duration) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.steps.fetch_add(steps, Ordering::Relaxed);
    }
}

impl Commits {
    /// Steps of one commit, on average.
    fn group(&self) -> f64 {
        self.steps.load(Ordering::Relaxed) as f64 / self.commits.load(Ordering::Relaxed).max(1) as f64
    }
}

fn harness() -> Harness {
    watched(Arc::new(Commits::default()))
}

fn watched(observer: Arc<Commits>) -> Harness {
    let folder = tempfile::tempdir_in(".").unwrap();
    let options = SqliteOptions { step_timeout: Duration::from_secs(60), observer };
    let store = SqliteStore::open(&folder.path().join("store.db"), Arc::new(SystemClock), options).unwrap();
    Harness::new(Arc::new(store), Arc::new(NoDial), Box::new(folder))
}

/// A hold with a sealed draft of about 1 KiB of body.
fn hold(h: &Harness, n: usize) -> Hold {
    let mut hold = h.hold_of(&h.call(&format!("bench {n}")));
    // Every draft is another owner's, as the bounds of one owner demand.
    hold.owner_hash = Digest::of(&n.to_be_bytes());
    hold.sealed = vec![0x5a; 2_560];
    hold
}

/// Commits per second of one insert each, with the same pragmas, for `span`.
fn bare(folder: &Path, span: Duration) -> f64 {
    let connection = rusqlite::Connection::open(folder.join("bare.db")).unwrap();
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    connection
        .execute_batch("PRAGMA synchronous = FULL; CREATE TABLE rows (n INTEGER PRIMARY KEY, bytes BLOB NOT NULL)")
        .unwrap();
    let bytes = vec![0x5a_u8; 2_560];
    let began = Instant::now();
    let mut commits = 0_u32;
    while began.elapsed() < span {
        connection.execute("INSERT INTO rows (bytes) VALUES (?1)", [&bytes]).unwrap();
        commits += 1;
    }
    f64::from(commits) / began.elapsed().as_secs_f64()
}

/// Drafts per second that a bare connection makes durable, `group` to a commit, for `span`: the
/// rows of one stored hold copied under other keys, in the store's own tables, without its steps.
fn bare_rows(runtime: &Runtime, group: usize, span: Duration) -> f64 {
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path, Arc::new(SystemClock), SqliteOptions::default()).unwrap();
    let h = Harness::new(Arc::new(store), Arc::new(NoDial), Box::new(()));
    drop(runtime.block_on(h.store().hold(hold(&h, 0))).unwrap());
    drop(h);
    let connection = rusqlite::Connection::open(&path).unwrap();
    for pragma in ["locking_mode = EXCLUSIVE", "journal_mode = WAL", "wal_autocheckpoint = 4096"] {
        connection.query_row(&format!("PRAGMA {pragma}"), [], |_| Ok(())).unwrap();
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -2048").unwrap();
    connection.set_prepared_statement_cache_capacity(16);
    let statements = [
        "INSERT INTO drafts SELECT ?1, printf('%026d', ?1), status, tenant, randomblob(32), initiator, tool, risk,
         randomblob(32), randomblob(32), caller_key, created_at + ?1, expires_at + ?1, lease_until, ended_at, control
         FROM drafts WHERE n = 1",
        "INSERT INTO sealed SELECT ?1, bytes FROM sealed WHERE n = 1",
        "INSERT INTO events SELECT ?1, at, body FROM events WHERE seq = 1",
    ];
    let began = Instant::now();
    let mut n = 1_i64;
    while began.elapsed() < span {
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        for _ in 0..group {
            n += 1;
            for sql in statements {
                assert_eq!(connection.prepare_cached(sql).unwrap().execute([n]).unwrap(), 1);
            }
        }
        connection.execute_batch("COMMIT").unwrap();
    }
    (n - 1) as f64 / began.elapsed().as_secs_f64()
}

/// Operations per second of `concurrency` tasks, each of which does the next when its last is
/// answered.
fn rate<F, Fut>(runtime: &Runtime, concurrency: usize, span: Duration, one: F) -> f64
where
    F: Fn(usize) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = ()> + Send,
{
    runtime.block_on(async {
        let began = Instant::now();
        let tasks: Vec<_> = (0..concurrency)
            .map(|task| {
                let one = one.clone();
                tokio::spawn(async move {
                    let mut done = 0_u32;
                    while began.elapsed() < span {
                        one(task * 1_000_000 + done as usize).await;
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        let mut done = 0;
        for task in tasks {
            done += task.await.unwrap();
        }
        f64::from(done) / began.elapsed().as_secs_f64()
    })
}

async fn cycle(h: &Harness, n: usize) {
    let Ok(Held::New(draft)) = h.store().hold(hold(h, n)).await else { unreachable!("a new draft") };
    h.sending(&draft).await;
    h.settle(&draft, Verdict::Succeeded, None).await;
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Alternates the yardstick and the store three times and prints medians.
fn table() {
    let span = Duration::from_secs(1);
    let runtime = runtime();
    let concurrencies = [1, 16, 64];
    let (mut yardstick, mut holds, mut cycles) = (Vec::new(), vec![Vec::new(); 3], vec![Vec::new(); 3]);
    let (mut groups, mut of_group) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
    for _ in 0..3 {
        let folder = tempfile::tempdir_in(".").unwrap();
        yardstick.push(bare(folder.path(), span));
        for (at, concurrency) in concurrencies.into_iter().enumerate() {
            let commits = Arc::new(Commits::default());
            let h = Arc::new(watched(commits.clone()));
            let holder = h.clone();
            holds[at].push(rate(&runtime, concurrency, span, move |n| {
                let h = holder.clone();
                async move { drop(h.store().hold(hold(&h, n)).await.unwrap()) }
            }));
            groups[at].push(commits.group());
            let group = commits.group().round().max(1.0) as usize;
            of_group[at].push(bare_rows(&runtime, group, span));
            let h = Arc::new(harness());
            cycles[at].push(rate(&runtime, concurrency, span, move |n| {
                let h = h.clone();
                async move { cycle(&h, n).await }
            }));
        }
    }
    let yardstick = median(yardstick);
    println!("{:<44}{:>10}{:>12}", "", "per second", "of a commit");
    println!("{:<44}{yardstick:>10.0}{:>12.2}", "bare durable commits, one insert each", 1.0);
    for (at, concurrency) in concurrencies.into_iter().enumerate() {
        let (group, bare, held) = (median(groups[at].clone()), median(of_group[at].clone()), median(holds[at].clone()));
        println!("{:<44}{group:>10.1}", format!("holds of one commit, {concurrency} at a time"));
        println!(
            "{:<44}{bare:>10.0}{:>12.2}   holds of that: {:.2}",
            "bare durable commits of as many drafts",
            bare / yardstick,
            held / bare
        );
    }
    for (name, rates) in [("holds", holds), ("cycles (hold, decide, mark, settle)", cycles)] {
        for (concurrency, rates) in concurrencies.into_iter().zip(rates) {
            let rate = median(rates);
            println!("{:<44}{rate:>10.0}{:>12.2}", format!("{name}, {concurrency} at a time"), rate / yardstick);
        }
    }
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What 10,000 pending drafts cost in memory: the store keeps no rows there.
fn memory() {
    let runtime = runtime();
    let h = harness();
    let before = resident_kib();
    runtime.block_on(async {
        for round in 0..100 {
            let batch: Vec<_> = (0..100)
                .map(|n| {
                    let (store, ask) = (h.shared(), hold(&h, round * 100 + n));
                    tokio::spawn(async move { store.hold(ask).await })
                })
                .collect();
            for one in batch {
                drop(one.await.unwrap().unwrap());
            }
        }
    });
    let after = resident_kib();
    println!("resident with 10,000 pending drafts: {after} KiB ({before} KiB before)");
}

fn steps(criterion: &mut Criterion) {
    let runtime = runtime();
    let h = harness();
    let draft = runtime.block_on(async { h.held(&h.call("read")).await });
    let mut group = criterion.benchmark_group("store");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    group.bench_function("get", |bench| bench.iter(|| runtime.block_on(h.get(&draft.row.id))));
    let mut n = 0;
    group.bench_function("hold", |bench| {
        bench.iter(|| {
            n += 1;
            runtime.block_on(h.store().hold(hold(&h, n))).unwrap()
        });
    });
    group.bench_function("join", |bench| bench.iter(|| runtime.block_on(h.joined(&h.call("read")))));
    group.finish();
}

criterion_group!(benches, steps);

fn main() {
    // Under `cargo test --benches` only the criterion part runs, once.
    if std::env::args().any(|arg| arg == "--bench") {
        memory();
        table();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
