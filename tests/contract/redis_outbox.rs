//! Entries that somebody wrote into an outbox on Redis: each is read past alone, and none moves a
//! reader to where it was not.

use std::sync::Arc;
use std::time::Duration;

use countersign::base::digest::Digest;
use countersign::base::time::ManualClock;
use countersign::store::conformance::Harness;
use countersign::store::contract::{Store as _, StoreError};
use countersign::store::cursor::Cursor;
use countersign::store::row::Event;

use crate::redis::Redis;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_event_is_read_past_alone() {
    let clock = Arc::new(ManualClock::new(crate::START));
    let server = Redis::start(&["--appendonly", "yes"]);
    let store = Arc::new(crate::redis_store(&server, clock.clone()).await);
    let h = Harness::new(store.clone(), clock, Box::new(()));
    let other = h.held(&h.call("elsewhere").from("default", "ben", "agent")).await;
    let before = h.held(&h.call("before")).await;
    let partition = before.row.id.partition().as_char();
    let away = other.row.id.partition().as_char();
    assert_ne!(partition, away);
    let outbox = format!("cs:{{{partition}}}:ev");
    let entry = server.command(&["XRANGE", &outbox, "1", "1"]);
    let fields = entry.list()[0].list()[1].texts();
    // A copy that names a draft of another partition, one with half a number, one of garbage.
    let foreign = fields.iter().map(|field| field.replace(&before.row.id.to_string(), &other.row.id.to_string()));
    let add = |id: &str, fields: Vec<String>| {
        server.command(&[vec!["XADD".to_owned(), outbox.clone(), id.to_owned()], fields].concat());
    };
    add("2-0", foreign.collect());
    add("2-7", fields.clone());
    add("3-0", vec!["kind".to_owned(), "x".to_owned()]);
    add("4-0", fields);
    let behind = |cursor| h.events_after(cursor, 1);
    let read = tokio::time::timeout(Duration::from_secs(20), behind(Cursor::default())).await.expect("it ends");
    let own: Vec<(char, u64)> = read.iter().map(|event| (event.draft_id.partition().as_char(), event.seq)).collect();
    assert_eq!(own.iter().filter(|(of, _)| *of == partition).map(|(_, seq)| *seq).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(own.iter().filter(|(of, _)| *of == away).map(|(_, seq)| *seq).collect::<Vec<_>>(), [1]);
    // Behind garbage alone there is nothing, and the reader stands behind it.
    add("5-0", vec!["kind".to_owned(), "x".to_owned()]);
    let end = store.events(&Cursor::default(), 1_000).await.expect("reads").next();
    let page = store.events(&end, 1).await.expect("reads");
    assert!(page.events.is_empty() && page.from != end, "{page:?}");
    // The next step of an honest guard writes its event behind all of that.
    h.claimed(&before).await;
    let page = store.events(&end, 1_000).await.expect("reads");
    let kinds: Vec<(&str, u64)> = page.events.iter().map(|event| (event.kind.as_str(), event.seq)).collect();
    assert_eq!(kinds, [("draft.confirmed", 6)]);
    // A key that is not what it should be stops a step before its first write.
    server.command(&["DEL", &outbox]);
    server.command(&["SET", &outbox, "x"]);
    let refused = store.hold(h.hold_of(&h.call("behind"))).await;
    assert!(refused.is_err(), "{refused:?}");
    let held = server.command(&["KEYS", &format!("cs:{{{partition}}}:d:*")]).texts();
    assert_eq!(held, [format!("cs:{{{partition}}}:d:{}", before.row.id)]);
}

/// A stream whose last number is ahead of what stands in it, as it is after somebody has added an entry and taken it out
/// again: every step goes on behind that number. One whose last number cannot be counted takes no step, and none is
/// half written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_was_ahead_is_gone_on_behind() {
    let clock = Arc::new(ManualClock::new(crate::START));
    let server = Redis::start(&["--appendonly", "yes"]);
    let store = Arc::new(crate::redis_store(&server, clock.clone()).await);
    let h = Harness::new(store.clone(), clock, Box::new(()));
    let draft = h.held(&h.call("a")).await;
    let key = |name: &str| format!("cs:{{{}}}:{name}", draft.row.id.partition().as_char());
    let poison = |id: &str| {
        server.command(&["XADD", &key("ev"), id, "a", "b"]);
        server.command(&["XDEL", &key("ev"), id]);
    };
    poison("500-3");
    let other = h.held(&h.call("b")).await;
    h.claimed(&draft).await;
    let seqs = |events: Vec<Event>| events.iter().map(|event| event.seq).collect::<Vec<_>>();
    assert_eq!(seqs(h.events().await), [1, 501, 502]);
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed"]);

    poison("9007199254740993-0");
    let everything = || {
        let mut keys = server.command(&["KEYS", "*"]).texts();
        keys.sort();
        keys.iter().map(|key| format!("{:?}", server.command(&["DUMP", key]))).collect::<Vec<_>>()
    };
    let before = everything();
    let refused = h.store().hold(h.hold_of(&h.call("c"))).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains(&key("ev"))), "{refused:?}");
    let refused = h.store().decide(h.yes(&other, "ada")).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains(&key("ev"))), "{refused:?}");
    let refused = h.store().withdraw(&other.row.id, h.step(), "agent", Digest::of(b"mac")).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(everything() == before, "a refused step has written");
}
