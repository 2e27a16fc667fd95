//! What somebody who can write to the server has altered is told and stops itself alone.

use std::sync::Arc;
use std::time::Duration;

use countersign::base::digest::Digest;
use countersign::base::id::Partition;
use countersign::base::time::ManualClock;
use countersign::draft::state::Status;
use countersign::store::conformance::Harness;
use countersign::store::contract::{Filter, Held, StoreError};
use countersign::store::row::Stored;

use crate::START;
use crate::redis_bench::{Bench, LONG, bench, durable};

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
    // Readiness does not hang on the first one either.
    server.command(&["SET", "cs:{0}:meta", "x"]);
    h.store().check().await.expect("the other fifteen take holds");
}

/// Drafts that stand under other keys would not be found by an equal call: nothing is written beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_version_of_the_guard_wrote_is_refused() {
    let server = durable();
    let own = Digest::of(b"keys");
    for other in [own.to_hex(), format!("1 {}", own.to_hex()), format!("3 {}", own.to_hex()), String::new()] {
        server.command(&["SET", "cs:{0}:keys", &other]);
        let Bench { h, .. } = bench(&server.url(), 0, LONG).await;
        let refused = h.store().same_keys(&own).await;
        assert!(
            matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("another version")),
            "{other}: {refused:?}"
        );
    }
    server.command(&["DEL", "cs:{0}:keys"]);
    let Bench { h, .. } = bench(&server.url(), 0, LONG).await;
    assert_eq!((h.store().same_keys(&own).await, h.store().same_keys(&own).await), (Ok(true), Ok(true)));
    assert_eq!(h.store().same_keys(&Digest::of(b"others")).await, Ok(false));
}
