//! Floor 5: puts a guard together, starts it in order and stops it in order.
//!
//! Owns the order: keys, policies, journal, store, listeners, guard, sweeper, control, agent; and
//! back: no more calls, releases in flight end, the store is closed. Must never carry a default
//! of its own: everything comes from the configuration.

mod error;
mod open_store;
mod signals;
mod tasks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;

use crate::agent::credential::ForeignTokens;
use crate::agent::identity::IdentityRules;
use crate::agent::{AgentConfig, AgentLimits, AgentListener};
use crate::base::chance::{Chance, OsChance};
use crate::base::id::{Principal, Tenant};
use crate::base::secret::Secret;
use crate::base::time::{Clock, SystemClock};
use crate::control::credentials::{ApproverEntry, Credentials};
use crate::control::facade::Agents;
use crate::control::{ControlParts, ControlState, Scrape};
use crate::guard::pause::Pause;
use crate::guard::settings::Settings;
use crate::guard::who::Rights;
use crate::guard::{Guard, Parts};
use crate::ops::config::{Approvers, Config, StorePlace};
use crate::ops::keys_file::{self, Keys};
use crate::ops::metrics::Metrics;
use crate::ops::reload::{self, Policies, Source, Watch};
use crate::store::journal::FileJournal;
use crate::upstream::address::AddressRules;
use crate::upstream::http::HttpUpstream;

pub use error::StartError;
use open_store::OpenStore;
pub use signals::Signals;
use tasks::Tasks;

/// The name of the generated approver.
const LOCAL: &str = "local";
/// How long releases in flight may take at the end.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);
/// How long one that began during the drain may take on top.
const LAST_DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// What is to run.
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// Where the policies come from.
    pub policies: Source,
    /// Where tests stop it.
    pub pause: Arc<dyn Pause>,
}

/// A guard that runs.
pub struct Running {
    agent: SocketAddr,
    control: SocketAddr,
    console_link: Option<Secret>,
    guard: Arc<Guard>,
    store: OpenStore,
    tasks: Tasks,
}

impl Running {
    /// Where agents connect.
    #[must_use]
    pub fn agent_url(&self) -> String {
        format!("http://{}", self.agent)
    }

    /// Where approvers connect.
    #[must_use]
    pub fn control_url(&self) -> String {
        format!("http://{}", self.control)
    }

    /// The one-time link of the generated approver.
    #[must_use]
    pub fn console_link(&self) -> Option<&str> {
        self.console_link.as_ref().map(Secret::reveal)
    }

    /// Returns when a listener has ended by itself: the guard is of no use any more.
    pub async fn broken(&self) {
        self.tasks.broken().await;
    }

    /// Takes no more calls, lets releases in flight end, and closes the store.
    pub async fn stop(self) {
        let Self { guard, store, mut tasks, .. } = self;
        // The sweeper first: it must not take over a draft whose release nobody would wait for.
        tasks.stop_background().await;
        tokio::join!(tasks.stop_shells(), guard.drain(DRAIN_PATIENCE));
        // A confirm that was being answered may have begun one more release.
        guard.drain(LAST_DRAIN_PATIENCE).await;
        drop(guard);
        store.close().await;
        tracing::info!("stopped");
    }
}

/// What every part shares.
struct Shared {
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    metrics: Arc<Metrics>,
}

/// Starts a guard. It is ready when this returns.
///
/// # Errors
///
/// [`StartError`]: the first thing that is not to be had, and what to do.
pub async fn start(plan: Plan) -> Result<Running, StartError> {
    let Plan { config, policies, pause } = plan;
    let shared = Shared { clock: Arc::new(SystemClock), chance: Arc::new(OsChance), metrics: Metrics::new() };

    let keys = open_keys(&config, &shared)?;
    let roles = reload::roles_of(config.identity.as_ref());
    let policies = Policies::open(policies, roles, Arc::clone(&shared.metrics), Arc::clone(&shared.clock))?;
    let journal = open_journal(&config, &shared)?;
    let store = OpenStore::open(&config, &keys, &shared).await?;
    let opened = Opened { keys, policies, store };

    let control_socket = listen(config.control.listen, "--control", "control.listen").await?;
    let control = local(&control_socket)?;
    let public_url = config.control.public_url.clone().unwrap_or_else(|| format!("http://{control}"));
    let addresses = Arc::new(AddressRules::new());
    let guard = opened.guard(journal, pause, &shared, &addresses, settings(&config, &public_url));
    let credentials = credentials(&config, &opened.keys);
    let foreign = foreign_tokens(&credentials);
    let agents = Agents::new(identity(&config), Arc::clone(&foreign), config.guard.body_bytes_max);
    let agent_shell = bind_agent(&config, &guard, foreign, &addresses, &shared).await?;
    let agent = agent_shell.local_addr();
    // Nothing is served yet, so no address was judged without knowing both listeners.
    addresses.set_own_listeners(vec![agent, control]);

    let state = opened.control(&guard, (credentials, agents), public_url, &shared)?;
    let console_link = match config.approvers {
        Approvers::Generated => state.new_sign_in_link(&principal()).ok(),
        Approvers::Declared(_) => None,
    };
    let tasks = serve(&guard, &opened.policies, (control_socket, state), agent_shell)?;
    tracing::info!(%agent, %control, version = env!("CARGO_PKG_VERSION"), "ready");
    Ok(Running { agent, control, console_link, guard, store: opened.store, tasks })
}

/// What was opened and has to be right before anything listens.
struct Opened {
    keys: Keys,
    policies: Arc<Policies>,
    store: OpenStore,
}

impl Opened {
    fn guard(
        &self,
        journal: FileJournal,
        pause: Arc<dyn Pause>,
        shared: &Shared,
        addresses: &Arc<AddressRules>,
        settings: Settings,
    ) -> Arc<Guard> {
        Guard::new(Parts {
            store: self.store.shared(),
            upstream: Arc::new(HttpUpstream::new(Arc::clone(&shared.clock), Arc::clone(addresses))),
            journal: Arc::new(journal),
            keys: self.keys.keys.clone(),
            policies: self.policies.in_force(),
            clock: Arc::clone(&shared.clock),
            chance: Arc::clone(&shared.chance),
            observer: Arc::clone(&shared.metrics) as _,
            pause,
            settings,
        })
    }

    fn control(
        &self,
        guard: &Arc<Guard>,
        (credentials, agents): (Credentials, Agents),
        public_url: String,
        shared: &Shared,
    ) -> Result<Arc<ControlState>, StartError> {
        let parts = ControlParts {
            desk: Arc::new(Arc::clone(guard)),
            tasks: Arc::new(Arc::clone(guard)),
            agents,
            credentials: Arc::new(ArcSwap::from_pointee(credentials)),
            keys: self.keys.keys.clone(),
            metrics: scraper(&shared.metrics, &self.store),
            policy_status: Arc::clone(&self.policies) as _,
            observer: Arc::clone(&shared.metrics) as _,
            clock: Arc::clone(&shared.clock),
            chance: Arc::clone(&shared.chance),
            public_url,
        };
        ControlState::new(parts).map_err(|error| StartError::PublicUrl(error.to_string()))
    }
}

async fn bind_agent(
    config: &Config,
    guard: &Arc<Guard>,
    foreign: ForeignTokens,
    addresses: &Arc<AddressRules>,
    shared: &Shared,
) -> Result<AgentListener, StartError> {
    let agent_config = agent_config(config, foreign, addresses, shared);
    let address = config.guard.listen;
    AgentListener::bind(Arc::clone(guard), agent_config, address).await.map_err(|source| StartError::Listen {
        address,
        flag: "--listen",
        key: "guard.listen",
        source,
    })
}

/// Begins everything that runs: sweeper, watch, both listeners.
fn serve(
    guard: &Arc<Guard>,
    policies: &Arc<Policies>,
    (control_socket, state): (TcpListener, Arc<ControlState>),
    agent_shell: AgentListener,
) -> Result<Tasks, StartError> {
    let mut tasks = Tasks::new();
    tasks.background(Arc::clone(guard).sweep_forever());
    let watch = Watch::start(Arc::clone(policies));
    tasks.watch(watch.map_err(|error| StartError::Shell(format!("the policy folder cannot be watched: {error}")))?);
    tasks.reload_on_hangup(Arc::clone(policies)).map_err(|error| StartError::Shell(error.to_string()))?;
    tasks.serve_control(control_socket, state);
    tasks.serve_agent(agent_shell);
    Ok(tasks)
}

/// The configuration's agents and sources of identity; without them everyone is `local`.
fn identity(config: &Config) -> IdentityRules {
    config.identity.clone().unwrap_or_else(IdentityRules::local)
}

fn agent_config(
    config: &Config,
    foreign: ForeignTokens,
    addresses: &Arc<AddressRules>,
    shared: &Shared,
) -> AgentConfig {
    AgentConfig {
        identity: identity(config),
        foreign,
        addresses: Arc::clone(addresses),
        limits: AgentLimits {
            connections_max: config.limits.connections_per_agent,
            held_bytes_max: config.limits.held_bytes_total,
            head: config.limits.head,
            body: config.limits.body,
            body_bytes_max: config.guard.body_bytes_max,
            ..AgentLimits::default()
        },
        observer: Arc::clone(&shared.metrics) as _,
        chance: Arc::clone(&shared.chance),
    }
}

fn open_keys(config: &Config, shared: &Shared) -> Result<Keys, StartError> {
    let keys = &config.keys_file;
    // Other nodes of a shared store may begin where this one has no keys yet; the store then tells.
    if let StorePlace::Sqlite(store) = &config.store.place
        && store.exists()
        && keys.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    {
        return Err(StartError::KeysMissing { store: store.clone(), keys: keys.clone() });
    }
    Ok(keys_file::open_or_make(keys, shared.chance.as_ref())?)
}

fn open_journal(config: &Config, shared: &Shared) -> Result<FileJournal, StartError> {
    let section = &config.journal;
    FileJournal::open(&section.path, section.bytes_max, Arc::clone(&shared.clock), shared.chance.as_ref())
        .map_err(|error| StartError::Journal { path: section.path.clone(), why: error.to_string() })
}

async fn listen(address: SocketAddr, flag: &'static str, key: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, flag, key, source })
}

fn local(socket: &TcpListener) -> Result<SocketAddr, StartError> {
    socket.local_addr().map_err(|error| StartError::Shell(format!("a listener has no address: {error}")))
}

fn settings(config: &Config, public_url: &str) -> Settings {
    Settings {
        public_url: public_url.to_owned(),
        send_window: config.guard.send_window,
        connect_patience: config.guard.connect_patience,
        confirm_wait: config.guard.confirm_wait,
        lease: config.store.lease,
        retention: config.limits.retention,
        response_bytes_max: config.guard.response_bytes_max,
        owner_limits: config.limits.owner,
    }
}

#[allow(clippy::expect_used)]
fn principal() -> Principal {
    Principal::new(LOCAL).expect("a short word is a legal name")
}

fn credentials(config: &Config, keys: &Keys) -> Credentials {
    let approvers = match &config.approvers {
        Approvers::Declared(list) => list.clone(),
        Approvers::Generated => vec![local_approver(keys)],
    };
    let agents = config.identity.iter().flat_map(|rules| &rules.agents);
    Credentials { approvers, apps: config.apps.clone(), agent_tokens: agents.map(|agent| agent.token_sha256).collect() }
}

#[allow(clippy::expect_used)]
fn local_approver(keys: &Keys) -> ApproverEntry {
    ApproverEntry {
        name: principal(),
        token_sha256: keys.local_token.digest(),
        roles: Vec::new(),
        tenant: Tenant::new("default").expect("a short word is a legal name"),
        rights: Some(Rights::all()),
    }
}

/// Every token that must never work on the agent's listener (promise 1).
fn foreign_tokens(credentials: &Credentials) -> ForeignTokens {
    let approvers = credentials.approvers.iter().map(|approver| approver.token_sha256);
    let apps = credentials.apps.iter().map(|app| app.token_sha256);
    Arc::new(ArcSwap::from_pointee(approvers.chain(apps).collect()))
}

/// The text of `/metrics`. Holds the store only for the time of a scrape, so that it can close.
fn scraper(metrics: &Arc<Metrics>, store: &OpenStore) -> Scrape {
    let (metrics, store) = (Arc::clone(metrics), Arc::downgrade(&store.shared()));
    Arc::new(move || {
        let (metrics, store) = (Arc::clone(&metrics), store.upgrade());
        Box::pin(async move {
            match store {
                Some(store) => metrics.scrape(store.as_ref()).await,
                None => String::new(),
            }
        })
    })
}
