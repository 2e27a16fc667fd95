//! What a configuration says, with every default filled in.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::agent::identity::IdentityRules;
use crate::base::secret::Secret;
use crate::control::credentials::{AppEntry, ApproverEntry};
use crate::ops::log::Format;
use crate::store::contract::OwnerLimits;
use crate::store::redis::{Assumed, TlsFiles};

/// A whole configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The agent's side.
    pub guard: GuardSection,
    /// The approver's side.
    pub control: ControlSection,
    /// The store.
    pub store: StoreSection,
    /// The folder of policy files.
    pub policies: PathBuf,
    /// The keys file.
    pub keys_file: PathBuf,
    /// `None` without an `identity:` section: everyone is `local`, on a loopback address only.
    pub identity: Option<IdentityRules>,
    /// Who may decide.
    pub approvers: Approvers,
    /// Backends that decide for their signed-in owners.
    pub apps: Vec<AppEntry>,
    /// This node's journal.
    pub journal: JournalSection,
    /// The bounds.
    pub limits: LimitsSection,
    /// How log lines look.
    pub log: Format,
}

/// `guard:`
#[derive(Debug, Clone)]
pub struct GuardSection {
    /// Where agents connect.
    pub listen: SocketAddr,
    /// Longest body of a write, in bytes; a policy may say less, or more for one service.
    pub body_bytes_max: usize,
    /// Longest response body that is kept, in bytes.
    pub response_bytes_max: usize,
    /// How long after the sending mark was asked for the first byte may leave.
    pub send_window: Duration,
    /// How long a release waits for a connection.
    pub connect_patience: Duration,
    /// How long a confirm waits for the outcome.
    pub confirm_wait: Duration,
}

/// `control:`
#[derive(Debug, Clone)]
pub struct ControlSection {
    /// Where approvers connect.
    pub listen: SocketAddr,
    /// Where people reach the console, without a trailing slash; `None` is the listener itself.
    pub public_url: Option<String>,
}

/// `store:`
#[derive(Debug, Clone)]
pub struct StoreSection {
    /// Where they are.
    pub place: StorePlace,
    /// How long a step may take.
    pub timeout: Duration,
    /// How long a process may work on a claimed draft without renewing.
    pub lease: Duration,
    /// Redis: how many replicas must have a step whose answer is acted on.
    pub min_replica_acks: u32,
    /// Redis: what the operator vouches for.
    pub assumed: Assumed,
    /// Redis: files for `rediss`.
    pub tls: TlsFiles,
}

/// Where drafts are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorePlace {
    /// One SQLite file.
    Sqlite(PathBuf),
    /// A Redis or Valkey server by its URL, in which a password may stand.
    Redis(Secret),
}

impl fmt::Display for StorePlace {
    /// For people: no user and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Redis(url) => {
                let url = url.reveal().split(['?', '#']).next().unwrap_or_default();
                let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let host = authority.rsplit('@').next().unwrap_or_default();
                write!(f, "{scheme}://{host}{path}")
            }
        }
    }
}

/// `approvers:`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approvers {
    /// The generated approver `local`; both listeners are on loopback addresses.
    Generated,
    /// The declared ones; at least one.
    Declared(Vec<ApproverEntry>),
}

/// `journal:`
#[derive(Debug, Clone)]
pub struct JournalSection {
    /// Its folder.
    pub path: PathBuf,
    /// Its size at most, in bytes.
    pub bytes_max: u64,
}

/// `limits:`
#[derive(Debug, Clone)]
pub struct LimitsSection {
    /// Of one owner.
    pub owner: OwnerLimits,
    /// How long ended drafts are kept.
    pub retention: Duration,
    /// Bodies of writes held in memory at one time, in bytes.
    pub held_bytes_total: usize,
    /// Connections of one agent at one time.
    pub connections_per_agent: usize,
    /// How long the head of a request may take.
    pub head: Duration,
    /// How long the body of a write may take.
    pub body: Duration,
}

impl Default for GuardSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            body_bytes_max: 1 << 20,
            response_bytes_max: 1 << 20,
            send_window: Duration::from_secs(2),
            connect_patience: Duration::from_secs(30),
            confirm_wait: Duration::from_secs(10),
        }
    }
}

impl Default for ControlSection {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 7071)), public_url: None }
    }
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            owner: OwnerLimits { pending_max: 20, holds_max: 60, window: Duration::from_secs(60) },
            retention: Duration::from_secs(7 * 24 * 3600),
            held_bytes_total: 256 << 20,
            connections_per_agent: 1000,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// A guard without a file, with its store, keys and journal in `folder`.
    #[must_use]
    pub fn in_folder(folder: &std::path::Path) -> Self {
        Self {
            guard: GuardSection::default(),
            control: ControlSection::default(),
            store: StoreSection::in_folder(folder),
            policies: folder.join("policies"),
            keys_file: folder.join("countersign.keys"),
            identity: None,
            approvers: Approvers::Generated,
            apps: Vec::new(),
            journal: JournalSection::in_folder(folder),
            limits: LimitsSection::default(),
            log: Format::default(),
        }
    }
}

impl StoreSection {
    /// `countersign.db` in `folder`, with default times.
    #[must_use]
    pub fn in_folder(folder: &std::path::Path) -> Self {
        Self {
            place: StorePlace::Sqlite(folder.join("countersign.db")),
            timeout: Duration::from_secs(2),
            lease: Duration::from_secs(30),
            min_replica_acks: 0,
            assumed: Assumed::default(),
            tls: TlsFiles::default(),
        }
    }
}

impl JournalSection {
    /// `journal/` in `folder`, at most 64 MiB.
    #[must_use]
    pub fn in_folder(folder: &std::path::Path) -> Self {
        Self { path: folder.join("journal"), bytes_max: 64 << 20 }
    }
}
