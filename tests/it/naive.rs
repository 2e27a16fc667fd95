//! Why the claim is one atomic step: the interleaving that a get followed by a delete allows is
//! shown on a naive twin, and shown to be impossible through the real guard.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use crate::support::{Guard, Upstream};

/// A store that reads a draft, then deletes it: two steps.
#[derive(Debug, Default)]
struct Naive {
    drafts: Mutex<HashMap<&'static str, &'static str>>,
}

impl Naive {
    fn get(&self, id: &str) -> Option<&'static str> {
        self.drafts.lock().unwrap().get(id).copied()
    }

    fn delete(&self, id: &str) {
        self.drafts.lock().unwrap().remove(id);
    }
}

#[test]
fn get_then_delete_lets_two_confirms_through() {
    let store = Arc::new(Naive::default());
    store.drafts.lock().unwrap().insert("d", "pay 70");
    let effects = Arc::new(Mutex::new(Vec::new()));
    let both_have_read = Arc::new(Barrier::new(2));
    let confirms: Vec<_> = (0..2)
        .map(|_| {
            let (store, effects, both_have_read) =
                (Arc::clone(&store), Arc::clone(&effects), Arc::clone(&both_have_read));
            thread::spawn(move || {
                let draft = store.get("d");
                both_have_read.wait();
                if let Some(draft) = draft {
                    store.delete("d");
                    effects.lock().unwrap().push(draft);
                }
            })
        })
        .collect();
    for confirm in confirms {
        confirm.join().expect("a confirm");
    }
    assert_eq!(*effects.lock().unwrap(), ["pay 70", "pay 70"], "one confirmation too many gets through");
}

#[test]
fn the_same_interleaving_through_the_guard_has_one_effect() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for n in 0..20 {
        let draft = guard.agent().hold_task(&format!("interleaved {n}"));
        let both_have_read = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let approver = guard.approver();
                    let read = approver.show(&draft.id).must_be(200).json();
                    assert_eq!(read["status"], "pending", "both read it before either decides");
                    both_have_read.wait();
                    approver.confirm(&draft).must_be(200);
                });
            }
        });
        assert_eq!(upstream.effects("/tasks"), n + 1);
    }
}
