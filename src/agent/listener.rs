//! The agent's listener: accepts connections, keeps their time, and hands judged requests to
//! pingora.
//!
//! Owns the bounds of connections and heads, and the stop. pingora's own accept loop is not used:
//! the framing stands between the socket and its parser.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pingora::apps::{HttpPersistentSettings, HttpServerApp as _, HttpServerOptions};
use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::v1::Connector;
use pingora::protocols::Shutdown as _;
use pingora::protocols::http::ServerSession;
use pingora::proxy::{HttpProxy, http_proxy};
use pingora::server::configuration::ServerConf;
use pingora::time::fast_timeout::set_fast_timeout_to_tokio_threshold;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use crate::base::chance::{Chance, OsChance};
use crate::base::code::Code;
use crate::base::refusal::Refusal;
use crate::call::framing::FramingLimits;
use crate::draft::record::Effect;
use crate::guard::Guard;
use crate::upstream::address::AddressRules;

use super::credential::{Door, ForeignTokens};
use super::held::HeldBytes;
use super::identity::IdentityRules;
use super::lanes::Lanes;
use super::observe::{AgentObserver, Observed, Unobserved, Verdict};
use super::proxy::AgentProxy;
use super::resolve::ADDRESSES_TRIED_MAX;
use super::respond;
use super::trust::SystemTrust;
use super::wire::{Arrival, StrictStream, WRITE_MAX};

/// The bounds of the agent's listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLimits {
    /// Most connections at one time; one more is turned away.
    pub connections_max: usize,
    /// Most bytes of all bodies of writes in memory.
    pub held_bytes_max: usize,
    /// How long a whole head may take from its first byte.
    pub head: Duration,
    /// How long a whole body of a write may take.
    pub body: Duration,
    /// How long a connection may be silent between two requests.
    pub idle: Duration,
    /// How long requests in flight may take after the stop.
    pub grace: Duration,
    /// Longest body of a write, in bytes, where the policy does not say.
    pub body_bytes_max: usize,
    /// The bounds of a head.
    pub framing: FramingLimits,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            connections_max: 1000,
            held_bytes_max: 256 << 20,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            body_bytes_max: 1 << 20,
            framing: FramingLimits::default(),
        }
    }
}

/// What the agent's listener is made with.
#[derive(Clone)]
pub struct AgentConfig {
    /// Agents, and the sources of identity.
    pub identity: IdentityRules,
    /// Digests of the control listener's tokens, the generated one's too: refused here.
    pub foreign: ForeignTokens,
    /// The judge of upstream addresses, the same as the releases'. Whoever binds the listeners names
    /// all of them there.
    pub addresses: Arc<AddressRules>,
    /// The bounds.
    pub limits: AgentLimits,
    /// Who counts.
    pub observer: Arc<dyn AgentObserver>,
    /// Chance, for request ids.
    pub chance: Arc<dyn Chance>,
}

impl AgentConfig {
    /// Everyone on the listener is `local`; nobody counts.
    #[must_use]
    pub fn local() -> Self {
        Self {
            identity: IdentityRules::local(),
            foreign: ForeignTokens::default(),
            addresses: Arc::new(AddressRules::new()),
            limits: AgentLimits::default(),
            observer: Arc::new(Unobserved),
            chance: Arc::new(OsChance),
        }
    }
}

/// The agent's listener, bound and not yet serving.
pub struct AgentListener {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What every connection needs.
struct Shared {
    proxy: Arc<HttpProxy<AgentProxy>>,
    limits: AgentLimits,
    observer: Arc<dyn AgentObserver>,
}

impl AgentListener {
    /// Binds `address`; port 0 takes a free one, see [`Self::local_addr`].
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn bind(guard: Arc<Guard>, config: AgentConfig, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let system = SystemTrust::load();
        let system_is_broken = system.in_place_of_broken.is_some();
        let conf = ServerConf {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            max_retries: ADDRESSES_TRIED_MAX,
            // An empty bundle: each upstream then brings the authorities that could be read.
            ca_file: system_is_broken.then(|| "/dev/null".to_owned()),
            ..ServerConf::default()
        };
        let proxy = AgentProxy {
            identity_headers: config.identity.headers(),
            door: Door::new(&config.identity, config.foreign),
            rules: config.identity,
            lanes: Lanes::new(guard.policies(), system),
            addresses: config.addresses,
            held: HeldBytes::new(config.limits.held_bytes_max),
            body_deadline: config.limits.body,
            body_bytes_max: config.limits.body_bytes_max,
            observer: Arc::clone(&config.observer),
            chance: config.chance,
            guard,
            connector: Connector::new(Some(ConnectorOptions::from_server_conf(&conf))),
        };
        let mut proxy = http_proxy(&Arc::new(conf), proxy);
        // pingora's own timers are kept until they would have fired: with a timeout on each read of
        // an upstream that is a tree of thousands. The runtime's timers end with what they guard.
        set_fast_timeout_to_tokio_threshold(Some(Duration::ZERO));
        // CONNECT reaches the filter, which refuses it with a problem document.
        let mut options = HttpServerOptions::default();
        options.allow_connect_method_proxying = true;
        proxy.server_options = Some(options);
        let shared = Arc::new(Shared { proxy: Arc::new(proxy), limits: config.limits, observer: config.observer });
        Ok(Self { listener, address, shared })
    }

    /// The address that was bound.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` turns true or its sender is gone, then lets requests in flight end for
    /// at most `limits.grace`, and returns.
    pub async fn serve(self, stop: watch::Receiver<bool>) {
        let Self { listener, shared, .. } = self;
        let room = Arc::new(Semaphore::new(shared.limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let mut connections = JoinSet::new();
        let mut stopping = stop.clone();
        let mut stopped = pin!(async move { stopping.wait_for(|stop| *stop).await.is_ok() });
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut stopped => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    note_panic(ended);
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => match Arc::clone(&room).try_acquire_owned() {
                    Ok(permit) => {
                        connections.spawn(converse(Arc::clone(&shared), stream, stop.clone(), permit));
                    }
                    Err(_) => turn_away(&shared, stream),
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of descriptors: the error would come again at once.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        shared.proxy.http_cleanup().await;
        let ended = async {
            while let Some(ended) = connections.join_next().await {
                note_panic(ended)
            }
        };
        if tokio::time::timeout(shared.limits.grace, ended).await.is_err() {
            tracing::warn!(open = connections.len(), "requests were still in flight at the end of the grace period");
        }
    }
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("a request panicked; its connection is closed, and nothing of it was sent twice");
    }
}

/// Answers a connection for which there is no room, without waiting for anything.
fn turn_away(shared: &Shared, stream: TcpStream) {
    shared.observer.connection_refused();
    let refused = Refusal::new(Code::RateLimited, "Too many connections are open. Nothing was executed; try again.");
    let answer = respond::last_bytes(&respond::refusal(refused));
    if let Ok(mut stream) = stream.into_std() {
        // A fresh socket has room for it; a client that is gone does not matter.
        let _ = io::Write::write_all(&mut stream, &answer);
    }
}

/// The requests of one connection, one after the other.
async fn converse(
    shared: Arc<Shared>,
    stream: TcpStream,
    watching: watch::Receiver<bool>,
    _room: OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone before it began");
        return;
    }
    let limits = &shared.limits;
    let (mut waking, seen) = (watching.clone(), watching.clone());
    let woken_by = pin!(async move { waking.wait_for(|stop| *stop).await.is_ok() });
    let mut stop = Stop { woken_by, polled: false, seen };
    let mut stream = Box::new(StrictStream::new(stream, limits.framing));
    let mut patience = Patience::new(limits);
    let mut settings: Option<HttpPersistentSettings> = None;
    loop {
        let refusal = match next_head(&mut stream, &mut patience, &mut stop).await {
            Some(Arrival::Head) => None,
            Some(Arrival::Refused(refusal)) => Some(refusal),
            Some(Arrival::Truncated) => Some(Refusal::new(
                Code::RequestAmbiguous,
                "The connection ended inside the head of a request. Nothing was executed.",
            )),
            Some(Arrival::Closed) | None => return,
        };
        if let Some(refusal) = refusal {
            refuse(&shared, &mut stream, refusal).await;
            return;
        }
        let mut session = ServerSession::new_http1(stream);
        session.set_read_timeout(Some(limits.body));
        session.set_total_drain_timeout(Some(limits.body));
        match settings.take() {
            Some(settings) => settings.apply_to_session(&mut session),
            None => session.set_keepalive(Some(limits.idle.as_secs().max(1))),
        }
        let Some(reused) = shared.proxy.process_new_http(session, &watching).await else {
            return;
        };
        let (reused, persistent) = reused.consume();
        let Ok(mut reused) = reused.into_any().downcast::<StrictStream<TcpStream>>() else {
            return;
        };
        if !reused.next_request() {
            reused.shutdown().await;
            return;
        }
        stream = reused;
        settings = persistent;
        patience.rest();
    }
}

/// Refuses what never reached pingora, and closes.
async fn refuse(shared: &Shared, stream: &mut StrictStream<TcpStream>, refusal: Refusal) {
    let began = std::time::Instant::now();
    let answer = respond::last_bytes(&respond::refusal(refusal));
    let overhead = began.elapsed();
    shared.observer.request(&Observed {
        service: None,
        effect: Effect::Read,
        verdict: Verdict::Refuse,
        took: overhead,
        overhead,
    });
    // A client that does not read its refusal is not waited for.
    let _ = tokio::time::timeout(WRITE_MAX, stream.close_with(&answer)).await;
}

/// The time that a connection has until its next head is there. One timer for all requests: it is
/// not set anew for each, only when it fires while requests are coming, or must fire sooner.
struct Patience {
    head: Duration,
    idle: Duration,
    in_head: bool,
    /// Whether no request was there yet: then the timer is that of the first head.
    fresh: bool,
    /// Whether a request ended since the timer was set.
    busy: bool,
    /// For a new connection the first head must be whole when it fires.
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    fn new(limits: &AgentLimits) -> Self {
        let timer = Box::pin(tokio::time::sleep(limits.head));
        Self { head: limits.head, idle: limits.idle, in_head: false, fresh: true, busy: false, timer }
    }

    /// A request is over: the time between two requests begins.
    fn rest(&mut self) {
        self.fresh = false;
        self.busy = true;
        if std::mem::take(&mut self.in_head) {
            self.timer.as_mut().reset(Instant::now() + self.idle);
        }
    }

    /// The first byte of a head is there.
    fn begin_head(&mut self) {
        if !self.in_head {
            self.in_head = true;
            self.busy = false;
            if !self.fresh {
                self.timer.as_mut().reset(Instant::now() + self.head);
            }
        }
    }

    /// Ready when the time is over. Between two requests that is after `idle` at the earliest and
    /// after twice of it at the latest.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if !std::mem::take(&mut self.busy) {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(Instant::now() + self.idle);
        }
    }
}

/// The stop, as one connection sees it.
struct Stop<F> {
    /// Wakes the connection, once it was polled.
    woken_by: F,
    polled: bool,
    seen: watch::Receiver<bool>,
}

impl<F: Future<Output = bool> + Unpin> Stop<F> {
    /// Whether to stop; the connection's task is woken when that changes.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if !std::mem::replace(&mut self.polled, true) && Pin::new(&mut self.woken_by).poll(cx).is_ready() {
            return true;
        }
        // The one value that is ever sent is the stop; an error is a sender that is gone.
        self.seen.has_changed().unwrap_or(true)
    }
}

/// Waits for the next head; `None` when the connection is to be closed without an answer.
async fn next_head(
    stream: &mut StrictStream<TcpStream>,
    patience: &mut Patience,
    stop: &mut Stop<impl Future<Output = bool> + Unpin>,
) -> Option<Arrival> {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(arrival) = stream.poll_head(cx) {
            return Poll::Ready(arrival.ok());
        }
        if stream.is_in_head() {
            patience.begin_head();
        } else if stop.poll(cx) {
            return Poll::Ready(None);
        }
        ready!(patience.poll(cx));
        Poll::Ready(stream.is_in_head().then(|| {
            Arrival::Refused(Refusal::new(
                Code::RequestTimeout,
                "The head of the request did not arrive whole in time. Nothing was executed; send it again.",
            ))
        }))
    })
    .await
}

#[cfg(test)]
mod tests;
