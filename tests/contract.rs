//! The written contract of a store, held against Redis, SQLite and the in-memory twins.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use countersign::base::time::{ManualClock, Timestamp};
use countersign::store::conformance::Harness;
use countersign::store::redis::{RedisOptions, RedisStore};
use countersign::store::sqlite::{SqliteOptions, SqliteStore};
use countersign::store::twin::Twin;

use crate::redis::Redis;

/// Where the handed clock starts.
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn twin() -> Harness {
    let clock = Arc::new(ManualClock::new(START));
    Harness::new(Arc::new(Twin::new(clock.clone())), clock, Box::new(()))
}

fn twin_in_partitions() -> Harness {
    let clock = Arc::new(ManualClock::new(START));
    Harness::new(Arc::new(Twin::in_partitions(clock.clone())), clock, Box::new(()))
}

fn sqlite() -> Harness {
    let clock = Arc::new(ManualClock::new(START));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path, clock.clone(), SqliteOptions::default()).expect("opens");
    Harness::new(Arc::new(store), clock, Box::new(folder))
}

fn on_redis_server() -> Harness {
    let clock = Arc::new(ManualClock::new(START));
    let server = Redis::start(&["--appendonly", "yes"]);
    let opening = redis_store(&server, clock.clone());
    let store = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(opening));
    Harness::new(Arc::new(store), clock, Box::new(server))
}

/// A store on this server that is handed the time.
async fn redis_store(server: &Redis, clock: Arc<ManualClock>) -> RedisStore {
    let options = RedisOptions { step_timeout: Duration::from_secs(10), ..RedisOptions::default() };
    RedisStore::with_handed_clock(&server.url(), clock, options).await.expect("opens")
}

countersign::conformance!(on_the_twin, crate::twin);
countersign::conformance!(on_the_twin_in_partitions, crate::twin_in_partitions);
countersign::conformance!(on_redis, crate::on_redis_server);
countersign::conformance!(on_sqlite, crate::sqlite);

#[path = "contract/differential.rs"]
mod differential;
#[path = "contract/redis_outbox.rs"]
mod redis_outbox;

#[path = "support/redis.rs"]
mod redis;
#[path = "contract/redis_altered.rs"]
mod redis_altered;
#[path = "contract/redis_bench.rs"]
mod redis_bench;
#[path = "contract/redis_child.rs"]
mod redis_child;
#[path = "contract/redis_clock.rs"]
mod redis_clock;
#[path = "contract/redis_cluster.rs"]
mod redis_cluster;
#[path = "contract/redis_faults.rs"]
mod redis_faults;
#[path = "contract/redis_indices.rs"]
mod redis_indices;
#[path = "contract/redis_replicas.rs"]
mod redis_replicas;
#[path = "contract/redis_words.rs"]
mod redis_words;
