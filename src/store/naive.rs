//! What this store is not: get, check, delete, execute. Reproduces how two confirmations of one
//! draft both execute there, and shows that the atomic step has no such gap.

#![allow(clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

/// A store whose confirm is two commands: read the draft, then delete it.
#[derive(Default)]
struct Naive {
    drafts: BTreeMap<u32, &'static str>,
    executed: Vec<&'static str>,
}

/// One confirmation on its way through the naive store.
struct Confirm {
    draft: u32,
    read: Option<&'static str>,
}

impl Confirm {
    fn get(&mut self, store: &Naive) {
        self.read = store.drafts.get(&self.draft).copied();
    }

    fn delete(&self, store: &mut Naive) {
        store.drafts.remove(&self.draft);
    }

    fn execute(&self, store: &mut Naive) {
        store.executed.extend(self.read);
    }
}

#[test]
fn get_then_delete_executes_twice() {
    let mut store = Naive::default();
    store.drafts.insert(1, "send 100");
    let (mut a, mut b) = (Confirm { draft: 1, read: None }, Confirm { draft: 1, read: None });
    a.get(&store);
    b.get(&store);
    a.delete(&mut store);
    b.delete(&mut store);
    a.execute(&mut store);
    b.execute(&mut store);
    assert_eq!(store.executed, ["send 100", "send 100"], "the fault that the atomic step exists for");
}

/// The same interleaving against the twin and SQLite: both read and verify the draft, then both
/// confirm it. One has the claim, the other learns how it stands.
#[tokio::test]
async fn the_same_interleaving_gives_one_claim() {
    use super::conformance::Harness;
    use super::contract::Decided;

    for harness in [super::conformance::twin(), super::conformance::sqlite()] {
        let harness: Harness = harness;
        let draft = harness.held(&harness.call("naive")).await;
        let a = harness.store().get(&draft.row.id).await.expect("reads").expect("is there");
        let b = harness.store().get(&draft.row.id).await.expect("reads").expect("is there");
        let first = harness.store().decide(harness.yes(&a, "ada")).await.expect("answers");
        let second = harness.store().decide(harness.yes(&b, "bob")).await.expect("answers");
        assert!(matches!(first, Decided::Claimed(..)), "{first:?}");
        let Decided::NotPending(seen) = second else { panic!("{second:?}") };
        assert_eq!((seen.row.epoch, seen.row.votes.len()), (1, 1));
    }
}
