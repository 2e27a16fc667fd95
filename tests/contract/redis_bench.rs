//! A store on a real server by the server's own clock, for the tests of what can happen to it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::base::time::{ManualClock, SystemClock};
use countersign::store::conformance::Harness;
use countersign::store::contract::StoreError;
use countersign::store::observer::StoreObserver;
use countersign::store::redis::{RedisOptions, RedisStore};

use crate::START;
use crate::redis::Redis;

/// What the metric would be told.
#[derive(Default)]
pub(crate) struct Told(Mutex<Vec<&'static str>>);

impl StoreObserver for Told {
    fn step(&self, _: &'static str, _: Duration, error: Option<&'static str>) {
        self.0.lock().unwrap().extend(error);
    }
}

impl Told {
    pub(crate) fn last(&self) -> Option<&'static str> {
        self.0.lock().unwrap().last().copied()
    }
}

pub(crate) struct Bench {
    pub(crate) h: Harness,
    pub(crate) told: Arc<Told>,
}

/// A store on `url` by the server's own clock, which gives up an answer after `patience`.
pub(crate) async fn bench(url: &str, acks: u32, patience: Duration) -> Bench {
    let told = Arc::new(Told::default());
    let options = RedisOptions {
        step_timeout: patience,
        min_replica_acks: acks,
        observer: told.clone(),
        ..RedisOptions::default()
    };
    let store = RedisStore::open(url, Arc::new(SystemClock), options).await.expect("opens");
    let clock = Arc::new(ManualClock::new(START));
    Bench { h: Harness::new(Arc::new(store), clock, Box::new(())), told }
}

pub(crate) const SHORT: Duration = Duration::from_millis(300);
pub(crate) const LONG: Duration = Duration::from_secs(10);

pub(crate) fn durable() -> Redis {
    Redis::start_on_tcp(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Asks until the answer is one, as the guard does: a store that heals needs no new one.
pub(crate) async fn again<T, Fut: Future<Output = Result<T, StoreError>>>(mut ask: impl FnMut() -> Fut) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if tokio::time::Instant::now() > deadline => panic!("still {error}"),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}
