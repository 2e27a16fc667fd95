//! The writer: what shares a commit, what fails alone, what is counted along the way.

use super::*;

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

/// Runs a step that removes a draft and panics: its caller has no answer, and nothing of it stays.
async fn panicking(store: &SqliteStore, id: &DraftId) {
    let id = id.clone();
    let panicked = store
        .write("panics", move |rows| -> Result<(), StoreError> {
            rows.remove(&id)?;
            panic!("a fault inside a step");
        })
        .await;
    assert!(matches!(panicked, Err(StoreError::Uncertain(_))), "{panicked:?}");
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
    panicking(&store, &draft.row.id).await;
    assert_eq!(h.store().counts().await.unwrap()[0], (Status::Pending, 1));
    h.held(&h.call("b")).await;
    assert_eq!(h.store().counts().await.unwrap()[0], (Status::Pending, 2));
}

#[tokio::test]
async fn a_panic_costs_one_group_and_not_the_store() {
    let file = File::new();
    let (store, h) = file.open();
    let draft = h.held(&h.call("a")).await;
    panicking(&store, &draft.row.id).await;
    assert_eq!(h.get(&draft.row.id).await, draft);
    h.held(&h.call("b")).await;
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

#[test]
fn a_statement_with_a_bound_limit_is_planned_once() {
    let file = File::new();
    let (_held, connection) = file::open(&file.path()).unwrap();
    let sql = "SELECT count(*) FROM (SELECT 1 FROM drafts WHERE status = 'pending' AND owner = ?1 LIMIT ?2)";
    let mut statement = connection.prepare(sql).unwrap();
    for limit in [1, 2, 3] {
        statement.query_row((b"owner".as_slice(), limit), |row| row.get::<_, i64>(0)).unwrap();
    }
    assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0);
}
