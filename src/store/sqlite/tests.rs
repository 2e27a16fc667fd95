//! What only a file can get wrong: restarts, second openers, full disks, altered rows, and whether
//! the writer really groups.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::time::Duration;

use rusqlite::ffi;

use super::writer::certainly_not_written;
use super::*;
use crate::base::time::ManualClock;
use crate::draft::state::{State, Verdict};
use crate::store::conformance::Harness;

const START: i64 = 1_700_000_000_000;

/// Notes what it is told.
#[derive(Default)]
struct Notes {
    commits: Mutex<Vec<usize>>,
    errors: Mutex<Vec<(&'static str, &'static str)>>,
}

impl StoreObserver for Notes {
    fn step(&self, name: &'static str, _: Duration, error: Option<&'static str>) {
        self.errors.lock().unwrap().extend(error.map(|error| (name, error)));
    }

    fn commit(&self, steps: usize, _: Duration) {
        self.commits.lock().unwrap().push(steps);
    }
}

/// A file that is opened and closed again and again.
struct File {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    notes: Arc<Notes>,
}

impl File {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(START)));
        Self { folder: tempfile::tempdir().unwrap(), clock, notes: Arc::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn options(&self) -> SqliteOptions {
        // Long enough for a busy machine; what must time out says so itself.
        SqliteOptions { step_timeout: Duration::from_secs(60), observer: self.notes.clone() }
    }

    fn open(&self) -> (Arc<SqliteStore>, Harness) {
        self.open_with(self.options())
    }

    fn open_with(&self, options: SqliteOptions) -> (Arc<SqliteStore>, Harness) {
        let store = Arc::new(SqliteStore::open(&self.path(), self.clock.clone(), options).expect("opens"));
        let harness = Harness::new(store.clone(), self.clock.clone(), Box::new(()));
        (store, harness)
    }

    /// Alters the closed file as somebody with write access could.
    fn alter(&self, sql: &str) {
        rusqlite::Connection::open(self.path()).unwrap().execute_batch(sql).expect("alters");
    }
}

#[tokio::test]
async fn p8_what_was_answered_is_there_after_a_restart() {
    let file = File::new();
    let (_, h) = file.open();
    let pending = h.held(&h.call("p").key("k")).await;
    let done = h.succeeded(&h.call("d")).await;
    let unknown = h.unverifiable(&h.call("u")).await;
    assert_eq!(h.store().same_keys(&Digest::of(b"keys")).await, Ok(true));
    let events = h.events().await;
    drop(h);
    let (_, h) = file.open();
    for draft in [&pending, &done, &unknown] {
        assert_eq!(h.get(&draft.row.id).await, *draft);
    }
    assert_eq!(h.events().await, events);
    assert_eq!(h.store().same_keys(&Digest::of(b"others")).await, Ok(false));
    assert_eq!(h.joined(&h.call("p").key("k")).await.row.id, pending.row.id);
    let (claim, _) = h.claim(&pending).await;
    assert_eq!(claim.epoch(), 1);
    assert_eq!(h.events().await.last().unwrap().seq, events.last().unwrap().seq + 1, "numbers go on");
}

#[tokio::test]
async fn time_does_not_go_backwards_over_a_restart() {
    let file = File::new();
    let (_, h) = file.open();
    let draft = h.held(&h.call("a")).await;
    h.advance(Duration::from_secs(900)).await;
    h.store().check().await.unwrap();
    drop(h);
    file.clock.shift_wall(-3_600_000);
    let (_, h) = file.open();
    assert_eq!(h.store().now().as_millis(), START + 900_000);
    assert!(matches!(h.store().decide(h.yes(&draft, "ada")).await, Ok(Decided::NotPending(_))), "still over");
}

#[tokio::test]
async fn a_wild_clock_is_left_behind_by_a_restart() {
    let file = File::new();
    let year = Duration::from_secs(365 * 86_400);
    let (_, h) = file.open();
    h.advance(year).await;
    let draft = h.held(&h.call("a")).await;
    let rejected = h.rejected(&h.call("r"), h.person("bob")).await;
    let done = h.succeeded(&h.call("d")).await;
    let sending = h.sending(&h.held(&h.call("s")).await).await;
    drop(h);
    file.clock.shift_wall(-i64::try_from(year.as_millis()).unwrap());
    let (_, h) = file.open();
    assert_eq!(h.store().now().as_millis(), START);
    // Stamps from that time count as long past: nothing lives, is refused or is leased for a year.
    let due = h.store().due(Timestamp::from_millis(START), &[], 10).await.unwrap();
    assert_eq!((due.expired, due.orphaned), (vec![draft.row.id.clone()], vec![sending.row.id]));
    assert!(due.deletable.contains(&done.row.id));
    assert!(matches!(h.store().decide(h.yes(&draft, "ada")).await, Ok(Decided::NotPending(_))));
    let mut limited = h.call("r");
    (limited.limits.pending_max, limited.limits.holds_max) = (1, 1);
    assert_ne!(h.held(&limited).await.row.id, rejected.row.id);
}

#[test]
fn a_second_opener_is_refused_and_told_why() {
    let file = File::new();
    let (_store, _) = file.open();
    let refused = SqliteStore::open(&file.path(), file.clock.clone(), file.options()).err().expect("refused");
    assert!(matches!(refused, OpenError::Held(_)), "{refused:?}");
    assert!(refused.to_string().starts_with("another guard holds "), "{refused}");
    if std::env::var_os(CHILD).is_none() {
        // Another process is refused as well, and so is a plain reader.
        let status = child("store::sqlite::tests::a_second_process_is_refused", &file.path());
        assert!(status.success(), "{status}");
    }
}

/// Runs only as the child of [`a_second_opener_is_refused_and_told_why`].
#[test]
fn a_second_process_is_refused() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(START)));
    let refused = SqliteStore::open(Path::new(&path), clock, SqliteOptions::default()).err().expect("refused");
    assert!(matches!(refused, OpenError::Held(_)), "{refused:?}");
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.busy_timeout(Duration::ZERO).unwrap();
    assert!(reader.query_row("SELECT count(*) FROM drafts", [], |row| row.get::<_, i64>(0)).is_err());
}

const CHILD: &str = "COUNTERSIGN_STORE_TEST_CHILD";

/// Runs one test of this binary in a process of its own, in which a file that grows beyond its
/// limit is an error and not a signal.
fn child(test: &str, path: &Path) -> std::process::ExitStatus {
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, path)
        .status()
        .unwrap()
}

#[test]
fn files_that_are_no_store_are_left_alone() {
    let file = File::new();
    let open = |path: &Path| SqliteStore::open(path, file.clock.clone(), file.options()).err().expect("refused");
    let text = file.folder.path().join("notes.txt");
    std::fs::write(&text, "these are notes, long enough to be taken for a header of some kind of file, ".repeat(20))
        .unwrap();
    assert!(matches!(open(&text), OpenError::Foreign(_)));
    let other = file.folder.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE mine (a)").unwrap();
    assert!(matches!(open(&other), OpenError::Foreign(_)));
    drop(file.open());
    file.alter("PRAGMA user_version = 3");
    let newer = open(&file.path());
    assert!(matches!(newer, OpenError::Newer { found: 3, known: 2, .. }), "{newer:?}");
    file.alter("PRAGMA user_version = 1");
    let before = std::fs::read(file.path()).unwrap();
    let older = open(&file.path());
    assert!(matches!(older, OpenError::Older { found: 1, .. }), "{older:?}");
    assert!(older.to_string().contains("move it and the journal folder away"), "{older}");
    assert_eq!(std::fs::read(file.path()).unwrap(), before, "left as it is");
    let missing = open(&file.folder.path().join("no such folder/store.db"));
    assert!(missing.to_string().contains("the folder must exist"), "{missing}");
    assert!(matches!(open(file.folder.path()), OpenError::Io { .. } | OpenError::Sqlite { .. }), "a folder");
}

#[tokio::test]
async fn the_file_and_its_log_are_for_the_owner_only() {
    let file = File::new();
    let (_store, h) = file.open();
    h.held(&h.call("a")).await;
    for entry in std::fs::read_dir(file.folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
    }
}

/// Stops the writer inside a step, so that everything asked for meanwhile waits; says when it
/// is inside.
async fn stopped(store: &Arc<SqliteStore>) -> (std_mpsc::Sender<()>, tokio::task::JoinHandle<Result<(), StoreError>>) {
    let (go, wait) = std_mpsc::channel::<()>();
    let (inside, is_inside) = oneshot::channel();
    let store = store.clone();
    let blocked = tokio::spawn(async move {
        store
            .write("stop", move |_| {
                inside.send(()).unwrap();
                wait.recv().unwrap();
                Ok(())
            })
            .await
    });
    is_inside.await.unwrap();
    (go, blocked)
}

/// Waits until `n` steps are queued.
async fn queued(store: &SqliteStore, n: usize) {
    let jobs = store.jobs.as_ref().unwrap();
    while jobs.max_capacity() - jobs.capacity() < n {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn waiting_steps_share_one_commit() {
    let file = File::new();
    let (store, h) = file.open();
    let (go, blocked) = stopped(&store).await;
    let holds: Vec<_> = (0..64)
        .map(|n| {
            let (store, ask) = (h.shared(), h.hold_of(&h.call(&format!("{n}"))));
            tokio::spawn(async move { store.hold(ask).await })
        })
        .collect();
    queued(&store, 64).await;
    go.send(()).unwrap();
    blocked.await.unwrap().unwrap();
    for hold in holds {
        assert!(matches!(hold.await.unwrap(), Ok(Held::New(_))));
    }
    assert_eq!(*file.notes.commits.lock().unwrap(), [1, 64]);
}

#[tokio::test]
async fn one_step_that_fails_takes_no_other_with_it() {
    let file = File::new();
    let (store, h) = file.open();
    let before = h.held(&h.call("before")).await;
    let (go, blocked) = stopped(&store).await;
    let id = before.row.id.clone();
    let failing = tokio::spawn({
        let (store, id) = (store.clone(), id.clone());
        async move {
            store
                .write("fails", move |rows| {
                    rows.remove(&id)?;
                    Err::<(), _>(StoreError::Corrupt("after a write".to_owned()))
                })
                .await
        }
    });
    queued(&store, 1).await;
    let (holder, ask) = (h.shared(), h.hold_of(&h.call("other")));
    let holding = tokio::spawn(async move { holder.hold(ask).await });
    queued(&store, 2).await;
    go.send(()).unwrap();
    blocked.await.unwrap().unwrap();
    assert!(matches!(failing.await.unwrap(), Err(StoreError::Corrupt(_))));
    assert!(matches!(holding.await.unwrap(), Ok(Held::New(_))));
    assert_eq!(h.get(&id).await, before, "what it wrote is undone");
    assert_eq!(file.notes.commits.lock().unwrap().last(), Some(&2), "one commit for both");
}

#[tokio::test]
async fn a_step_that_waits_too_long_is_not_run_and_one_that_may_have_run_is_uncertain() {
    let file = File::new();
    let (store, h) = file.open_with(SqliteOptions { step_timeout: Duration::from_millis(500), ..file.options() });
    let (go, blocked) = stopped(&store).await;
    let waited = h.store().hold(h.hold_of(&h.call("a"))).await;
    assert!(matches!(waited, Err(StoreError::Unavailable(_))), "{waited:?}");
    assert!(matches!(h.store().counts().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(blocked.await.unwrap(), Err(StoreError::Uncertain(_))));
    go.send(()).unwrap();
    // The writer is free again when a new store can take the lock after it.
    drop((store, h));
    let (_, h) = file.open();
    assert!(h.events().await.is_empty(), "the hold was cancelled, not late");
    let mut errors = file.notes.errors.lock().unwrap().clone();
    errors.sort_unstable();
    assert_eq!(errors, [("counts", "unavailable"), ("hold", "unavailable"), ("stop", "uncertain")]);
}

#[tokio::test]
async fn counts_are_carried_along_and_never_counted_while_steps_wait() {
    let file = File::new();
    let (store, h) = file.open();
    let pending = h.held(&h.call("p")).await;
    h.claimed(&h.held(&h.call("c")).await).await;
    h.succeeded(&h.call("s")).await;
    h.unverifiable(&h.call("u")).await;
    h.rejected(&h.call("r"), h.person("bob")).await;
    let gone = h.rejected(&h.call("g"), h.person("bob")).await;
    h.advance(Duration::from_secs(1)).await;
    assert_eq!(h.store().delete(&gone.row.id, h.store().now()).await, Ok(true));
    let id = pending.row.id.clone();
    let undone = store
        .write("undone", move |rows| {
            rows.remove(&id)?;
            Err::<(), _>(StoreError::Corrupt("after a write".to_owned()))
        })
        .await;
    assert!(undone.is_err());
    // What a full count finds, which only an opener and a repaired connection make.
    let counted = store.read("full", |rows| Ok(Tally::of(rows.connection).unwrap().counts())).await;
    let carried = h.store().counts().await;
    assert_eq!(carried, counted);
    let of = |wanted: Status| carried.as_ref().unwrap().iter().find(|(status, _)| *status == wanted).unwrap().1;
    assert_eq!((of(Status::Pending), of(Status::Running), of(Status::Rejected)), (1, 1, 1));
    // The answer to a scrape needs no table at all: it costs the same with any number of drafts.
    store.write("drop", |rows| rows.run("ALTER TABLE drafts RENAME TO hidden", []).map(drop)).await.unwrap();
    assert_eq!(h.store().counts().await, carried);
    store.write("back", |rows| rows.run("ALTER TABLE hidden RENAME TO drafts", []).map(drop)).await.unwrap();
    drop((store, h));
    let (_, h) = file.open();
    assert_eq!(h.store().counts().await, carried, "after a restart");
}

#[tokio::test]
async fn counts_stay_right_when_a_group_fails_and_the_file_is_opened_again() {
    let file = File::new();
    let (store, h) = file.open();
    let draft = h.held(&h.call("a")).await;
    let id = draft.row.id.clone();
    let panicked = store
        .write("panics", move |rows| -> Result<(), StoreError> {
            rows.remove(&id)?;
            panic!("a fault inside a step");
        })
        .await;
    assert!(panicked.is_err());
    assert_eq!(h.store().counts().await.unwrap()[0], (Status::Pending, 1));
    h.held(&h.call("b")).await;
    assert_eq!(h.store().counts().await.unwrap()[0], (Status::Pending, 2));
}

#[tokio::test]
async fn a_page_is_found_without_sorting_the_table() {
    let file = File::new();
    let (store, _h) = file.open();
    let some = Filter { risk: Some(crate::draft::record::Risk::High), limit: 50, ..Filter::default() };
    let ended = vec![Status::Succeeded, Status::Failed, Status::Rejected];
    for filter in
        [some.clone(), Filter { statuses: vec![Status::Pending], ..some.clone() }, Filter { statuses: ended, ..some }]
    {
        let plans = store
            .read("plan", move |rows| {
                let plan = |(sql, values): (String, Vec<rusqlite::types::Value>)| {
                    let mut plan = rows.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                    let steps =
                        plan.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
                    steps.map(|step| step.unwrap()).collect::<Vec<_>>().join("\n")
                };
                Ok(queries::walks(&filter).into_iter().map(plan).collect::<Vec<_>>())
            })
            .await
            .unwrap();
        for plan in plans {
            assert!(plan.contains(" USING INDEX ") && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}

#[tokio::test]
async fn a_panic_costs_one_group_and_not_the_store() {
    let file = File::new();
    let (store, h) = file.open();
    let draft = h.held(&h.call("a")).await;
    let id = draft.row.id.clone();
    let panicked = store
        .write("panics", move |rows| -> Result<(), StoreError> {
            rows.remove(&id)?;
            panic!("a fault inside a step");
        })
        .await;
    assert!(matches!(panicked, Err(StoreError::Uncertain(_))), "{panicked:?}");
    assert_eq!(h.get(&draft.row.id).await, draft);
    h.held(&h.call("b")).await;
}

#[tokio::test]
async fn p7_a_full_disk_refuses_and_heals() {
    let file = File::new();
    let (store, h) = file.open();
    let draft = h.held(&h.call("a")).await;
    let limit = |pages: &'static str| {
        let store = store.clone();
        async move {
            let sql = format!("PRAGMA max_page_count = {pages}");
            store
                .read("limit", move |rows| Ok(rows.connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()))
                .await
        }
    };
    limit("1").await.unwrap(); // SQLite takes the present size instead
    let mut large = h.hold_of(&h.call("large"));
    large.sealed = vec![7; 1_000_000];
    let refused = h.store().hold(large.clone()).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("full")), "{refused:?}");
    assert_eq!(h.get(&draft.row.id).await, draft, "reads go on");
    assert_eq!(h.events().await.len(), 1);
    limit("1000000").await.unwrap();
    assert!(matches!(h.store().hold(large).await, Ok(Held::New(_))), "the next step tries again");
    assert_eq!(*file.notes.errors.lock().unwrap(), [("hold", "unavailable")]);
}

#[test]
fn p7_a_write_that_fails_at_the_commit_refuses_and_heals() {
    let file = File::new();
    let status = child("store::sqlite::tests::a_limited_file", &file.path());
    assert!(status.success(), "{status}");
}

/// Runs only as the child of [`p7_a_write_that_fails_at_the_commit_refuses_and_heals`]: the
/// system refuses to let any file grow, so the write inside the commit fails.
#[test]
fn a_limited_file() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Some(path) = std::env::var_os(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(START)));
        let store = Arc::new(SqliteStore::open(Path::new(&path), clock.clone(), SqliteOptions::default()).unwrap());
        let h = Harness::new(store, clock, Box::new(()));
        let draft = h.held(&h.call("a")).await;
        let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
        // Less than one page of the log or of the file.
        setrlimit(Resource::RLIMIT_FSIZE, 4_000, hard).unwrap();
        let ask = h.hold_of(&h.call("b"));
        for n in 0..3 {
            let refused = h.store().hold(ask.clone()).await;
            assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
            // After the first failure the file was opened again, and nothing new is written before
            // the log is carried into it.
            assert_eq!(n > 0, refused.unwrap_err().to_string().contains("the log cannot be carried"));
            assert!(matches!(h.store().check().await, Err(StoreError::Unavailable(_))));
            assert_eq!(h.get(&draft.row.id).await, draft, "reads go on");
        }
        let refused = h.store().decide(h.yes(&draft, "ada")).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
        h.store().check().await.expect("heals without a restart");
        assert!(matches!(h.store().hold(ask).await, Ok(Held::New(_))));
        assert_eq!(h.get(&draft.row.id).await, draft, "the refused confirm left nothing");
        let (claim, _) = h.claim(&draft).await;
        assert_eq!(claim.epoch(), 1);
        assert_eq!(h.events().await.len(), 3);
    });
}

#[test]
fn only_a_failed_write_is_certain_at_a_commit() {
    let failed = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
    for code in [ffi::SQLITE_FULL, ffi::SQLITE_BUSY, ffi::SQLITE_IOERR_WRITE] {
        assert!(certainly_not_written(&failed(code)), "{code}");
    }
    for code in [
        ffi::SQLITE_IOERR,
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_DIR_FSYNC,
        ffi::SQLITE_NOMEM,
        ffi::SQLITE_CORRUPT,
    ] {
        assert!(!certainly_not_written(&failed(code)), "{code}");
    }
}

#[tokio::test]
async fn p7_a_file_that_was_moved_away_takes_no_more_drafts() {
    let file = File::new();
    let (_store, h) = file.open();
    let draft = h.held(&h.call("a")).await;
    let away = file.folder.path().join("away.db");
    std::fs::rename(file.path(), &away).unwrap();
    let refused = h.store().hold(h.hold_of(&h.call("b"))).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("is gone")), "{refused:?}");
    assert!(h.store().check().await.is_err());
    std::fs::write(file.path(), "another file").unwrap();
    let refused = h.store().hold(h.hold_of(&h.call("b"))).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("not the file")), "{refused:?}");
    std::fs::rename(&away, file.path()).unwrap();
    h.held(&h.call("b")).await;
    assert_eq!(h.get(&draft.row.id).await, draft);
}

/// Alters one row of three in each of these ways: that draft alone is unreadable.
#[tokio::test]
async fn an_unreadable_row_is_corrupt_alone() {
    let control =
        |value: &str| format!("UPDATE drafts SET control = json_set(control, '$.expires_at', {value}) WHERE n = 2");
    let mut ways: Vec<String> =
        ["''", "'not-a-time'", "'9999-99-99'", "1e30", "-1", "'-009999-01-01T00:00:00Z'", "null"].map(control).into();
    ways.extend(
        [
            "expires_at = -1",
            "expires_at = 9223372036854775807",
            "expires_at = expires_at + 86400000",
            "status = 'running'",
            "status = 'nonsense'",
            "owner = zeroblob(32)",
            "token = zeroblob(32)",
            "caller_key = zeroblob(3)",
            "lease_until = 5",
            "control = ''",
            "control = '{}'",
            "control = '[' || control || ']'",
            "control = json_set(control, '$.state', json('{\"status\":\"running\",\"phase\":\"claimed\"}')), status = 'running'",
            "control = json_set(control, '$.epoch', 1)",
            "control = json_set(control, '$.epoch', -1)",
            "control = json_remove(control, '$.expires_at')",
        ]
        .map(|set| format!("UPDATE drafts SET {set} WHERE n = 2")),
    );
    ways.push("DELETE FROM sealed WHERE n = 2".to_owned());
    for way in ways {
        let file = File::new();
        let (_, h) = file.open();
        let first = h.held(&h.call("1")).await;
        let second = h.held(&h.call("2")).await;
        let third = h.held(&h.call("3")).await;
        drop(h);
        file.alter(&way);
        let (_, h) = file.open();
        let id = &second.row.id;
        assert!(matches!(h.store().get(id).await, Err(StoreError::Corrupt(_))), "{way}");
        let yes = h.store().decide(h.yes(&second, "ada")).await;
        assert!(matches!(yes, Err(StoreError::Corrupt(_))), "{way}: {yes:?}");
        assert!(matches!(h.store().reject(h.no(&second, h.person("ada"))).await, Err(StoreError::Corrupt(_))), "{way}");
        assert!(h.store().hold(h.hold_of(&h.call("2"))).await.is_err(), "{way}: an equal call is not held beside it");
        let all = crate::store::contract::Filter { limit: 10, ..Default::default() };
        let listed: Vec<_> = h.store().list(&all).await.unwrap().into_iter().map(|stored| stored.row.id).collect();
        assert!(listed.contains(&first.row.id) && listed.contains(&third.row.id) && !listed.contains(id), "{way}");
        h.claimed(&first).await;
        h.advance(Duration::from_secs(900)).await;
        let due = h.store().due(h.store().now(), &[], 10).await.unwrap();
        assert!(due.expired.contains(&third.row.id) && !due.expired.contains(id), "{way}");
        assert!(matches!(h.store().expire(&third.row.id).await, Ok(Ended::Done(_))), "{way}");
        h.settle(&first, Verdict::Failed, Some(crate::draft::outcome::Failure::NotSent)).await;
        assert_eq!(h.get(&third.row.id).await.row.state, State::Expired);
    }
}

#[tokio::test]
async fn unreadable_events_and_keys_do_not_stop_the_others() {
    let file = File::new();
    let (_, h) = file.open();
    for n in 0..3 {
        h.held(&h.call(&format!("{n}"))).await;
    }
    h.store().same_keys(&Digest::of(b"keys")).await.unwrap();
    drop(h);
    file.alter(
        "UPDATE events SET body = 'x' WHERE seq = 2; UPDATE meta SET value = 5 WHERE name = 'keys';
                UPDATE meta SET value = 'soon' WHERE name = 'clock'",
    );
    let (_, h) = file.open();
    assert_eq!(h.events().await.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(h.store().same_keys(&Digest::of(b"keys")).await, Ok(false), "keys that cannot be read are other keys");
}

#[test]
fn a_statement_with_a_bound_limit_is_planned_once() {
    let file = File::new();
    let (_held, connection) = super::file::open(&file.path()).unwrap();
    let sql = "SELECT count(*) FROM (SELECT 1 FROM drafts WHERE status = 'pending' AND owner = ?1 LIMIT ?2)";
    let mut statement = connection.prepare(sql).unwrap();
    for limit in [1, 2, 3] {
        statement.query_row((b"owner".as_slice(), limit), |row| row.get::<_, i64>(0)).unwrap();
    }
    assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0);
}
