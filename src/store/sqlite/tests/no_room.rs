//! A disk without room, a write that fails, a file that was moved away: refused, and healed.

use super::writer::certainly_not_written;
use super::*;

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
    let status = child("store::sqlite::tests::no_room::a_limited_file", &file.path());
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
