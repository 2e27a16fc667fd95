//! Opening a file: restarts, clocks, second openers, and files that are no store.

use super::*;

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
        let status = child("store::sqlite::tests::opening::a_second_process_is_refused", &file.path());
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

/// Only a power cut would show what `synchronous` does, so its value is read.
#[tokio::test]
async fn a_commit_is_on_the_disk_before_it_is_answered_and_the_log_is_nobody_elses() {
    let file = File::new();
    let (store, _h) = file.open();
    let settings = store.read("settings", |rows| {
        let number =
            |name: &str| rows.connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap();
        let word = |name: &str| {
            rows.connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, String>(0)).unwrap()
        };
        Ok((number("synchronous"), word("journal_mode"), word("locking_mode"), number("trusted_schema")))
    });
    let full = 2;
    assert_eq!(settings.await, Ok((full, "wal".to_owned(), "exclusive".to_owned(), 0)));
}
