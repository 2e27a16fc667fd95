//! Why a guard did not start: what happened, and what to do next.
//!
//! Owns the words. Must never show what stands in a keys file.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::ops::config::StorePlace;
use crate::ops::keys_file::KeysError;
use crate::ops::reload::PoliciesError;

/// Why a guard did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No keys.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The keys file is gone and the store is not: new keys would not open it.
    #[error(
        "the store {store} is there, and the keys file {keys} that belongs to it is not\nhint: put the keys file back; to begin anew without the drafts of the store, move the store away"
    )]
    KeysMissing {
        /// The store's file.
        store: PathBuf,
        /// The keys file.
        keys: PathBuf,
    },
    /// No policies.
    #[error("the policies cannot be used\n{0}")]
    Policies(#[from] PoliciesError),
    /// No journal.
    #[error("the journal {path} cannot be used: {why}")]
    Journal {
        /// Its folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No store.
    #[error(
        "the store {place} cannot be used: {why}\nhint: nothing can be held without it, so the guard does not start"
    )]
    Store {
        /// Where it is.
        place: StorePlace,
        /// Why.
        why: String,
    },
    /// The store's drafts were made with other keys.
    #[error(
        "the store {store} was made with other keys than those in {keys}\nhint: put back the keys file that was used with it, or copy the one of the guard that used the store first; without it no draft in the store can be confirmed"
    )]
    OtherKeys {
        /// Where it is.
        store: StorePlace,
        /// The keys file.
        keys: PathBuf,
    },
    /// An address is not to be had.
    #[error(
        "{address} cannot be listened on: {source}\nhint: is another guard running? {flag}, or {key} in the configuration, names another address; port 0 takes a free one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Which flag of the command line names it.
        flag: &'static str,
        /// Which key of the configuration names it.
        key: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// `control.public_url` cannot be used.
    #[error("{0}")]
    PublicUrl(String),
    /// A shell did not start.
    #[error("{0}")]
    Shell(String),
}
