//! What the stores cost: holds and whole cycles on SQLite against bare durable commits on the same
//! file system, and on Redis against bare EVALSHAs; and the stores side by side. `cargo bench --bench store` prints tables of
//! medians and ratios first, then criterion's own report of single steps on SQLite; with a word behind it (`-- redis`) the
//! table of memory, sqlite, redis or sides alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod redis;
#[path = "../../tests/support/redis.rs"]
mod server;
mod sides;
mod sqlite;

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::base::chance::OsChance;
use countersign::base::digest::Digest;
use countersign::base::id::{DraftId, Partition};
use countersign::draft::state::Verdict;
use countersign::store::conformance::{Dial, Harness};
use countersign::store::contract::{Held, Hold};
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

fn harness() -> Harness {
    sqlite::watched(Arc::new(sqlite::Commits::default()))
}

/// A hold with a sealed draft of about 1 KiB of body.
fn hold(h: &Harness, n: usize) -> Hold {
    let mut hold = h.hold_of(&h.call(&format!("bench {n}")));
    // Every draft is another owner's, as the bounds of one owner demand.
    hold.owner_hash = Digest::of(&n.to_be_bytes());
    hold.id = DraftId::new(Partition::of(&hold.owner_hash), hold.created_at, &OsChance);
    hold.token_digest = Digest::of(hold.id.as_str().as_bytes());
    hold.sealed = vec![0x5a; 2_560];
    hold
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
        let tables: [(&str, fn()); 4] =
            [("memory", memory), ("sqlite", sqlite::table), ("redis", redis::table), ("sides", sides::table)];
        let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
        for (_, table) in tables.iter().filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name)) {
            table();
        }
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
