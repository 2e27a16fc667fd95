//! What the control listener is made of.
//!
//! Owns the parts that are handed in, and what lives between requests: console sessions, sign-in
//! codes, the bound on live streams. Must never hold a credential in clear.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore, watch};

use crate::base::chance::Chance;
use crate::base::id::Principal;
use crate::base::secret::Secret;
use crate::base::time::{BootTime, Clock, Timestamp};
use crate::draft::keys::KeySet;
use crate::guard::observer::Observer;
use crate::policy::diagnostic::Diagnostic;

use super::console::pages::Pages;
use super::console::session::{Sessions, SignInCodes};
use super::credentials::Credentials;
use super::desk::Desk;
use super::facade::{Agents, Tasks};
use super::origin::{BadPublicUrl, PublicUrl};

/// How many live event streams may be open at one time.
pub const STREAMS_MAX: usize = 64;

/// How long an answer of the readiness check is given again before the store is asked anew. The
/// check writes to the store and needs no credential.
const READY_FOR: Duration = Duration::from_secs(1);

/// What is known about the policy files in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyReport {
    /// The version in force.
    pub version: String,
    /// When it was taken.
    pub loaded_at: Timestamp,
    /// The files it was read from.
    pub files: Vec<String>,
    /// Why the last attempt to take newer files failed; `None` if it did not.
    pub last_error: Option<String>,
}

/// Gives the text of `/metrics`; asks the store for its counts, within a bound of its own.
pub type Scrape = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

/// Whoever loads the policy files.
pub trait PolicyStatus: Send + Sync {
    /// What is in force.
    fn report(&self) -> PolicyReport;

    /// Reads the files again and takes them if all of them are right; may block on the disk.
    ///
    /// # Errors
    ///
    /// [`NotTaken`] with every mistake. The last good set stays in force.
    fn reload(&self) -> Result<PolicyReport, NotTaken>;
}

/// Why newer policy files were not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// They could not be read: a sentence, and perhaps a hint.
    Unreadable(String),
    /// They have mistakes: all of them, with the warnings, in the order in which they are told.
    Mistakes(Vec<Diagnostic>),
}

/// Why no sign-in link was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLink {
    /// Nobody has that name.
    Unknown,
    /// Too many links of others are open.
    TooMany,
}

/// The parts, as the wiring hands them in.
pub struct ControlParts {
    /// The guard: `Arc::new(guard)` with `guard: Arc<Guard>`.
    pub desk: Arc<dyn Desk>,
    /// The same guard, for `/api/tasks`.
    pub tasks: Arc<dyn Tasks>,
    /// Agents, as `/api/tasks` knows them.
    pub agents: Agents,
    /// Who is known; a reload swaps it.
    pub credentials: Arc<ArcSwap<Credentials>>,
    /// The keys, for sessions and owner hashes.
    pub keys: KeySet,
    /// The text of `/metrics`.
    pub metrics: Scrape,
    /// Whoever loads the policy files.
    pub policy_status: Arc<dyn PolicyStatus>,
    /// Who counts.
    pub observer: Arc<dyn Observer>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Arc<dyn Chance>,
    /// Where people reach the console (`control.public_url`).
    pub public_url: String,
}

/// The parts, and what lives between requests.
pub struct ControlState {
    pub(super) desk: Arc<dyn Desk>,
    pub(super) tasks: Arc<dyn Tasks>,
    pub(super) agents: Agents,
    pub(super) credentials: Arc<ArcSwap<Credentials>>,
    pub(super) keys: KeySet,
    pub(super) metrics: Scrape,
    pub(super) policy_status: Arc<dyn PolicyStatus>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) chance: Arc<dyn Chance>,
    pub(super) public: PublicUrl,
    pub(super) sessions: Sessions,
    pub(super) codes: SignInCodes,
    pub(super) pages: Pages,
    pub(super) streams: Arc<Semaphore>,
    pub(super) stopping: watch::Sender<bool>,
    readiness: Mutex<Option<(BootTime, Result<(), String>)>>,
}

impl ControlState {
    /// Puts the parts together.
    ///
    /// # Errors
    ///
    /// [`BadPublicUrl`] if `public_url` is not `http(s)://host[:port]`.
    pub fn new(parts: ControlParts) -> Result<Arc<Self>, BadPublicUrl> {
        let public = PublicUrl::parse(&parts.public_url)?;
        Ok(Arc::new(Self {
            public,
            desk: parts.desk,
            tasks: parts.tasks,
            agents: parts.agents,
            credentials: parts.credentials,
            keys: parts.keys,
            metrics: parts.metrics,
            policy_status: parts.policy_status,
            observer: parts.observer,
            clock: parts.clock,
            chance: parts.chance,
            sessions: Sessions::default(),
            codes: SignInCodes::default(),
            pages: Pages::new(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            stopping: watch::Sender::new(false),
            readiness: Mutex::new(None),
        }))
    }

    /// Makes a one-time link that signs `approver` in: two minutes, one use. The code stands in
    /// the fragment, which browsers keep to themselves; it is the one secret in a URL, and
    /// whoever prints it decides who reads it.
    ///
    /// # Errors
    ///
    /// See [`NoLink`].
    pub fn new_sign_in_link(&self, approver: &Principal) -> Result<Secret, NoLink> {
        let known = self.credentials.load();
        let entry = known.approvers.iter().find(|entry| entry.name == *approver).ok_or(NoLink::Unknown)?;
        let code = self.codes.issue(&self.keys, self.chance.as_ref(), self.clock.boot(), entry);
        let code = code.ok_or(NoLink::TooMany)?;
        Ok(Secret::new(format!("{}/#code={}", self.public.as_str(), code.reveal())))
    }

    /// Signs everyone called `approver` out of the console.
    pub fn revoke_sessions(&self, approver: &Principal) {
        self.sessions.revoke_all(approver);
    }

    /// Ends live streams; [`super::listener::serve`] calls it when it stops.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Whether the guard takes holds, asked of the store at most once a second.
    pub(super) async fn ready(&self) -> Result<(), String> {
        let mut last = self.readiness.lock().await;
        let now = self.clock.boot();
        if let Some((at, answer)) = last.as_ref()
            && now.since(*at) < READY_FOR
        {
            return answer.clone();
        }
        let answer = self.desk.ready().await;
        // From when it was answered: whoever waited meanwhile is given it, too.
        *last = Some((self.clock.boot(), answer.clone()));
        answer
    }
}
