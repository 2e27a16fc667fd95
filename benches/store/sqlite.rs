//! Holds and cycles on SQLite, beside bare durable commits on the same file system.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use countersign::base::time::SystemClock;
use countersign::store::conformance::Harness;
use countersign::store::observer::StoreObserver;
use countersign::store::sqlite::{SqliteOptions, SqliteStore};
use tokio::runtime::Runtime;

use crate::{NoDial, cycle, harness, hold, median, rate, runtime};

/// How many commits there were, and how many steps they made durable.
#[derive(Default)]
pub(crate) struct Commits {
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

pub(crate) fn watched(observer: Arc<Commits>) -> Harness {
    let folder = tempfile::tempdir_in(".").unwrap();
    let options = SqliteOptions { step_timeout: Duration::from_secs(60), observer };
    let store = SqliteStore::open(&folder.path().join("store.db"), Arc::new(SystemClock), options).unwrap();
    Harness::new(Arc::new(store), Arc::new(NoDial), Box::new(folder))
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

/// Alternates the yardstick and the store three times and prints medians.
pub(crate) fn table() {
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
