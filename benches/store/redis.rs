//! Holds, joined re-sends and cycles on a Redis server, beside bare EVALSHAs of a script that does
//! nothing but keep the same bytes; and what a hold costs beside 100,000 pending drafts.

use std::sync::Arc;
use std::time::Duration;

use countersign::base::time::SystemClock;
use countersign::store::conformance::Harness;
use countersign::store::contract::Held;
use countersign::store::redis::{RedisOptions, RedisStore};
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use crate::server::Redis;
use crate::{NoDial, cycle, hold, median, rate, runtime};

/// The least that keeps a hold's bytes: one hash, under a key that is not used again.
const KEEP: &str = "#!lua\nredis.call('HSET', KEYS[1], 'fixed', ARGV[1], 'sealed', ARGV[2])\nreturn 'made'";

/// What a hold writes (the draft, its lines in two indices, its token, its event, the numbers, the hint), with
/// nothing looked at or decided; in all sixteen partitions, as holds are.
const WRITE: &str = "#!lua
local id, digest = ARGV[3], ARGV[4]
local partition = string.sub(KEYS[1], 1, 7)
redis.call('ZADD', partition .. 'ix', '0', 'st pending ' .. id, '0', 'due 0001700000000000 ' .. id)
redis.call('ZADD', partition .. 'o:' .. digest, '0', 'own 0001700000000000 ' .. id,
    '0', 'j0123456789abca 0000000000000001 ' .. id, '0', 'open 0001700000000000 ' .. id)
redis.call('HSET', KEYS[1], 'fixed', ARGV[1], 'state', 'pending', 'epoch', '0', 'attempts', '0', 'sessions', 's1',
    'n', '1', 'sealed', ARGV[2])
redis.call('XADD', partition .. 'ev', '*', 'e', '1700000000000\\ndraft.held\\n' .. id .. '\\ndefault\\n' .. digest ..
    '\\nsend\\npending\\n0\\n' .. digest)
redis.call('MSET', partition .. 'meta', '1700000000000 1700000000000 1 1 1700000000000 1700000000000',
    partition .. 't:' .. digest, id)
redis.call('PUBLISH', 'cs:hints', id)
return 'made'";

fn server() -> Redis {
    Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"])
}

pub(crate) fn harness(runtime: &Runtime) -> Arc<Harness> {
    let server = server();
    let options = RedisOptions { step_timeout: Duration::from_secs(60), ..RedisOptions::default() };
    let store = runtime.block_on(RedisStore::open(&server.url(), Arc::new(SystemClock), options)).unwrap();
    Arc::new(Harness::new(Arc::new(store), Arc::new(NoDial), Box::new(server)))
}

/// EVALSHAs a second of one of these with as many bytes as a hold, on one connection as the store has it, while one
/// other listens for hints as a guard does.
fn bare(runtime: &Runtime, script: &'static str, concurrency: usize, span: Duration) -> f64 {
    let server = server();
    let client = redis::Client::open(server.url()).unwrap();
    let script = redis::Script::new(script);
    let (connection, listener) = runtime.block_on(async {
        let mut connection: MultiplexedConnection = client.get_multiplexed_async_connection().await.unwrap();
        let _sha: String = script.prepare_invoke().load_async(&mut connection).await.unwrap();
        // A hint that nobody listens to is none: a guard does.
        let mut hints = client.get_async_pubsub().await.unwrap();
        hints.subscribe("cs:hints").await.unwrap();
        (connection, tokio::spawn(hints.into_on_message().for_each(|_| std::future::ready(()))))
    });
    let sha = Arc::new(script.get_hash().to_owned());
    // As long as the fixed part of a hold with its other arguments.
    let (fixed, sealed) = (vec![b'f'; 560], vec![0x5a_u8; 2_560]);
    let rate = rate(runtime, concurrency, span, move |n| {
        let (mut connection, sha, fixed, sealed) = (connection.clone(), sha.clone(), fixed.clone(), sealed.clone());
        async move {
            let mut ask = redis::cmd("EVALSHA");
            let hash = format!("{:064x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            ask.arg(sha.as_str()).arg(1).arg(format!("cs:{{{:x}}}:{n}", n % 16)).arg(fixed).arg(sealed);
            ask.arg(format!("dr_0_{n:026}")).arg(hash);
            let _made: String = ask.query_async(&mut connection).await.unwrap();
        }
    });
    listener.abort();
    rate
}

/// Alternates the yardstick and the store three times and prints medians.
pub(crate) fn table() {
    let span = Duration::from_secs(1);
    let runtime = runtime();
    println!("{:<44}{:>10}{:>12}{:>14}", "", "per second", "of keeping", "of its writes");
    for concurrency in [1, 16, 64] {
        let (mut keeping, mut writing) = (Vec::new(), Vec::new());
        let (mut holds, mut joins, mut cycles) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            keeping.push(bare(&runtime, KEEP, concurrency, span));
            writing.push(bare(&runtime, WRITE, concurrency, span));
            let h = harness(&runtime);
            let holder = h.clone();
            holds.push(rate(&runtime, concurrency, span, move |n| {
                let h = holder.clone();
                async move { drop(h.store().hold(hold(&h, n)).await.unwrap()) }
            }));
            let joiner = h.clone();
            drop(runtime.block_on(h.store().hold(hold(&h, usize::MAX))).unwrap());
            joins.push(rate(&runtime, concurrency, span, move |_| {
                let h = joiner.clone();
                async move {
                    let joined = h.store().hold(hold(&h, usize::MAX)).await.unwrap();
                    assert!(matches!(joined, Held::Joined(_)));
                }
            }));
            drop(h);
            let h = harness(&runtime);
            cycles.push(rate(&runtime, concurrency, span, move |n| {
                let h = h.clone();
                async move { cycle(&h, n).await }
            }));
        }
        let (keeping, writing) = (median(keeping), median(writing));
        let line = |name: &str, rate: f64| {
            let name = format!("{name}, {concurrency} at a time");
            println!("{name:<44}{rate:>10.0}{:>12.2}{:>14.2}", rate / keeping, rate / writing);
        };
        line("bare EVALSHA that keeps the bytes", keeping);
        line("bare EVALSHA of a hold's writes", writing);
        line("holds", median(holds));
        line("joined re-sends", median(joins));
        line("cycles (hold, decide, mark, settle)", median(cycles));
    }
    crowd(&runtime, span);
}

/// A hold beside 100 pending drafts and beside 100,000, alternated on two servers.
fn crowd(runtime: &Runtime, span: Duration) {
    let few = harness(runtime);
    let many = harness(runtime);
    let fill = |h: &Arc<Harness>, count: usize| {
        let h = h.clone();
        runtime.block_on(async move {
            for round in 0..count.div_ceil(100) {
                let batch: Vec<_> = (0..100)
                    .map(|n| {
                        let (store, ask) = (h.shared(), hold(&h, 1_000_000_000 + round * 100 + n));
                        tokio::spawn(async move { store.hold(ask).await })
                    })
                    .collect();
                for one in batch {
                    drop(one.await.unwrap().unwrap());
                }
            }
        });
    };
    fill(&few, 100);
    fill(&many, 100_000);
    println!("resident with 100,000 pending drafts on Redis: {} KiB", crate::resident_kib());
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..5 {
        for (h, rates) in [&few, &many].into_iter().zip(&mut rates) {
            let h = h.clone();
            rates.push(rate(runtime, 1, span / 4, move |n| {
                let h = h.clone();
                async move { drop(h.store().hold(hold(&h, 2_000_000_000 + round * 10_000_000 + n)).await.unwrap()) }
            }));
        }
    }
    let [few, many] = rates.map(median);
    println!("a hold beside 100,000 pending drafts costs {:.2} of one beside 100", few / many);
}
