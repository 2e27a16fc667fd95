//! The stores side by side: reads of a draft, holds, joined re-sends and whole cycles at the same
//! concurrency, alternated. The twin, which tests hold the others against, has no disk and no server, and looks
//! through all its drafts.

use std::sync::Arc;
use std::time::Duration;

use countersign::base::time::SystemClock;
use countersign::store::conformance::Harness;
use countersign::store::contract::Held;
use countersign::store::twin::Twin;
use tokio::runtime::Runtime;

use crate::{NoDial, cycle, hold, median, rate, runtime};

/// Long enough for a median, short enough that the twin does not look through millions.
const SPAN: Duration = Duration::from_millis(500);

fn twin(_: &Runtime) -> Arc<Harness> {
    Arc::new(Harness::new(Arc::new(Twin::new(Arc::new(SystemClock))), Arc::new(NoDial), Box::new(())))
}

fn sqlite(_: &Runtime) -> Arc<Harness> {
    Arc::new(crate::harness())
}

type Make = fn(&Runtime) -> Arc<Harness>;

/// Rates of one store: gets, holds, joins, cycles.
fn rates(runtime: &Runtime, make: Make, concurrency: usize) -> [f64; 4] {
    let h = make(runtime);
    let Ok(Held::New(draft)) = runtime.block_on(h.store().hold(hold(&h, usize::MAX))) else { unreachable!("new") };
    let (reader, joiner, holder, id) = (h.clone(), h.clone(), h.clone(), draft.row.id);
    let gets = rate(runtime, concurrency, SPAN, move |_| {
        let (h, id) = (reader.clone(), id.clone());
        async move { assert!(h.store().get(&id).await.unwrap().is_some()) }
    });
    let joins = rate(runtime, concurrency, SPAN, move |_| {
        let h = joiner.clone();
        async move { assert!(matches!(h.store().hold(hold(&h, usize::MAX)).await, Ok(Held::Joined(_)))) }
    });
    let holds = rate(runtime, concurrency, SPAN, move |n| {
        let h = holder.clone();
        async move { drop(h.store().hold(hold(&h, n)).await.unwrap()) }
    });
    drop(h);
    let h = make(runtime);
    let cycles = rate(runtime, concurrency, SPAN, move |n| {
        let h = h.clone();
        async move { cycle(&h, n).await }
    });
    [gets, holds, joins, cycles]
}

/// Alternates the stores three times and prints medians.
pub(crate) fn table() {
    let runtime = runtime();
    let stores: [(&str, Make); 3] = [("twin", twin), ("SQLite", sqlite), ("Redis", crate::redis::harness)];
    println!("{:<20}{:>12}{:>12}{:>12}{:>12}", "per second", "reads", "holds", "joins", "cycles");
    for concurrency in [1, 16, 64] {
        let mut all = [const { [const { Vec::new() }; 4] }; 3];
        for _ in 0..3 {
            for ((_, make), all) in stores.iter().zip(&mut all) {
                for (rate, all) in rates(&runtime, *make, concurrency).into_iter().zip(all) {
                    all.push(rate);
                }
            }
        }
        for ((name, _), all) in stores.iter().zip(all) {
            let [gets, holds, joins, cycles] = all.map(median);
            println!("{:<20}{gets:>12.0}{holds:>12.0}{joins:>12.0}{cycles:>12.0}", format!("{name}, {concurrency}"));
        }
    }
}
