//! The keys by which drafts are found on Redis: what one way of writing a draft makes another takes away, a cut key
//! is not taken for a whole one, and a line that somebody else wrote is not believed.

use std::sync::Arc;
use std::time::Duration;

use countersign::base::digest::Digest;
use countersign::base::time::ManualClock;
use countersign::draft::outcome::Failure;
use countersign::draft::state::Verdict;
use countersign::store::conformance::Harness;
use countersign::store::contract::{Held, StoreError};
use countersign::store::row::Stored;

use crate::START;
use crate::redis::Redis;

async fn bench() -> (Redis, Harness) {
    let server = Redis::start(&["--appendonly", "yes"]);
    let clock = Arc::new(ManualClock::new(START));
    let store = crate::redis_store(&server, clock.clone()).await;
    (server, Harness::new(Arc::new(store), clock, Box::new(())))
}

/// A key of the draft's partition.
fn key(draft: &Stored, name: &str) -> String {
    format!("cs:{{{}}}:{name}", draft.row.id.partition().as_char())
}

/// All lines of the draft's partition, and those of its owner.
fn lines(server: &Redis, draft: &Stored) -> (Vec<String>, Vec<String>) {
    let own = key(draft, &format!("o:{}", draft.row.owner_hash));
    let all = |index: &str| server.command(&["ZRANGE", index, "0", "-1"]).texts();
    (all(&key(draft, "ix")), all(&own))
}

/// The first write of a draft and its changes spell its lines alike: nothing stays behind in any state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_draft_leaves_no_line_and_no_key() {
    let (server, h) = bench().await;
    let mut last = None;
    for way in ["settled", "withdrawn", "expired", "moved"] {
        let call = h.call(way).key("k");
        let draft = h.held(&call).await;
        let id = &draft.row.id;
        let (shared, own) = lines(&server, &draft);
        let kinds = |lines: &[String]| lines.iter().map(|line| line[..2].to_owned()).collect::<Vec<_>>();
        assert_eq!(
            (kinds(&shared), own.len()),
            (vec!["du".to_owned(), "st".to_owned()], 4),
            "{way}: {shared:?} {own:?}"
        );
        assert!(own.iter().all(|line| line.len() <= 64), "longer ones are kept in another way: {own:?}");
        match way {
            "settled" => {
                h.claimed(&draft).await;
                h.settle(&draft, Verdict::Failed, Some(Failure::NotSent)).await;
            }
            "withdrawn" => drop(h.store().withdraw(id, h.step(), "agent", Digest::of(b"mac")).await.unwrap()),
            _ => {
                h.advance(Duration::from_secs(3_600)).await;
                h.store().expire(id).await.unwrap();
            }
        }
        if way == "moved" {
            // The key goes over to a new draft of the same call.
            let Held::New(next) = h.ask(&call).await else { panic!("a new draft") };
            assert!(!lines(&server, &draft).1.iter().any(|line| line.starts_with('k') && line.ends_with(id.as_str())));
            h.store().withdraw(&next.row.id, h.step(), "agent", Digest::of(b"mac")).await.unwrap();
            h.advance(Duration::from_secs(1)).await;
            assert!(h.store().delete(&next.row.id, h.store().now()).await.unwrap());
        }
        h.advance(Duration::from_secs(1)).await;
        assert!(h.store().delete(id, h.store().now()).await.unwrap(), "{way}");
        assert_eq!(lines(&server, &draft), (Vec::new(), Vec::new()), "{way}");
        last = Some(draft);
    }
    let draft = last.expect("drafts");
    let mut left = server.command(&["KEYS", &key(&draft, "*").replace(['{', '}'], "?")]).texts();
    left.sort();
    assert_eq!(left, [key(&draft, "ev"), key(&draft, "meta")]);
}

/// A line has a part of a join key. A call whose key begins like another's is another call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_whose_keys_begin_alike_are_not_taken_for_each_other() {
    let (_server, h) = bench().await;
    let call = h.call("a");
    let first = h.held(&call).await;
    let mut alike = h.hold_of(&h.call("b"));
    let mut bytes = *first.row.join_key.as_bytes();
    bytes[31] ^= 1;
    alike.join_key = Digest::from_bytes(bytes);
    let Ok(Held::New(second)) = h.store().hold(alike.clone()).await else { panic!("another call") };
    let mut again = h.hold_of(&h.call("b"));
    again.join_key = alike.join_key;
    assert!(matches!(h.store().hold(again).await, Ok(Held::Joined(found)) if found.row.id == second.row.id));
    assert!(matches!(h.ask(&call).await, Held::Joined(found) if found.row.id == first.row.id));
}

/// A line with a score of its own can make the server find none of an owner's: nothing is made then, and what to do
/// is said. Other owners go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_with_a_score_stops_its_owner_alone() {
    let (server, h) = bench().await;
    let call = h.call("a");
    let draft = h.held(&call).await;
    let own = key(&draft, &format!("o:{}", draft.row.owner_hash));
    for score in ["1", "-1", "0.5", "inf"] {
        server.command(&["ZADD", &own, score, "a"]);
        for call in [&call, &h.call("b")] {
            let answer = h.store().hold(h.hold_of(call)).await;
            assert!(
                matches!(&answer, Err(StoreError::Unavailable(why)) if why.contains(&own) && why.contains("score")),
                "{score}: {answer:?}"
            );
        }
        h.held(&h.call(score).from("default", "ben", "agent")).await;
        // What is held can be decided.
        assert_eq!(h.get(&draft.row.id).await, draft);
        server.command(&["ZREM", &own, "a"]);
    }
    assert!(matches!(h.ask(&call).await, Held::Joined(found) if found.row.id == draft.row.id));
    // A line that names nothing, or another owner's draft, answers no call either.
    let other = h.held(&h.call("c").from("default", "ben", "agent")).await;
    for stray in ["dr_0_00000000000000000000000000", other.row.id.as_str()] {
        let line = format!("j{}a 0000000000000009 {stray}", &draft.row.join_key.to_hex()[..13]);
        server.command(&["ZADD", &own, "0", &line]);
        let answer = h.store().hold(h.hold_of(&call)).await;
        assert!(matches!(&answer, Err(StoreError::Corrupt(why)) if why.contains(&own)), "{stray}: {answer:?}");
        server.command(&["ZREM", &own, &line]);
    }
}
