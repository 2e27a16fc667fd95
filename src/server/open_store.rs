//! The store that the configuration names: opened, asked whether it takes writes and whether its
//! drafts were made with these keys; closed at the end.

use std::sync::Arc;

use crate::ops::config::{Config, StorePlace};
use crate::ops::keys_file::Keys;
use crate::store::contract::{Store, StoreError};
use crate::store::redis::{RedisOptions, RedisStore};
use crate::store::sqlite::{SqliteOptions, SqliteStore};

use super::{Shared, StartError};

/// One of the stores.
pub(super) enum OpenStore {
    Sqlite(Arc<SqliteStore>),
    Redis(Arc<RedisStore>),
}

impl OpenStore {
    /// Opens the store, or says why nothing can be held in it.
    pub(super) async fn open(config: &Config, keys: &Keys, shared: &Shared) -> Result<Self, StartError> {
        let section = &config.store;
        let place = &section.place;
        let unusable = |why: String| StartError::Store { place: place.clone(), why };
        let observer = Arc::clone(&shared.metrics) as _;
        let clock = Arc::clone(&shared.clock);
        let opened = match place {
            StorePlace::Sqlite(path) => {
                let options = SqliteOptions { step_timeout: section.timeout, observer };
                let store = SqliteStore::open(path, clock, options).map_err(|error| unusable(error.to_string()))?;
                Self::Sqlite(Arc::new(store))
            }
            StorePlace::Redis(url) => {
                let options = RedisOptions {
                    step_timeout: section.timeout,
                    min_replica_acks: section.min_replica_acks,
                    assumed: section.assumed,
                    tls: section.tls.clone(),
                    observer,
                };
                let store = RedisStore::open(url.reveal(), clock, options).await;
                Self::Redis(Arc::new(store.map_err(|error| unusable(error.to_string()))?))
            }
        };
        let store = opened.shared();
        let failed = |error: StoreError| unusable(error.to_string());
        match store.check().await {
            // Only replicas are missing, or the next question says the same: reads need not wait for them.
            Err(StoreError::Uncertain(why)) if matches!(place, StorePlace::Redis(_)) => {
                tracing::warn!(why, "the guard starts, and no hold can be taken until this is over");
            }
            checked => checked.map_err(failed)?,
        }
        if !store.same_keys(keys.keys.fingerprint()).await.map_err(failed)? {
            return Err(StartError::OtherKeys { store: place.clone(), keys: config.keys_file.clone() });
        }
        Ok(opened)
    }

    /// The store for those who use it.
    pub(super) fn shared(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
            Self::Redis(store) => Arc::clone(store) as _,
        }
    }

    /// Closes it. SQLite writes what still waits, which may take a moment and must not block a thread
    /// of the runtime.
    pub(super) async fn close(self) {
        let closed = tokio::task::spawn_blocking(move || {
            let last = match self {
                Self::Sqlite(store) => Arc::into_inner(store).is_some(),
                Self::Redis(store) => Arc::into_inner(store).is_some(),
            };
            if !last {
                tracing::warn!("the store is still in use; it closes with the process");
            }
        });
        let _ = closed.await;
    }
}
