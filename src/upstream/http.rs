//! The upstreams over HTTP/1.1: a fresh connection for every release.
//!
//! Owns resolving, connecting and TLS, and trying again while nothing was sent. Must never write
//! a byte of a request: that is the exchange's, behind the gate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;

use crate::base::time::Clock;
use crate::policy::model::{Service, Upstream as Authority};

use super::address::{AddressRules, Resolve, SystemResolver};
use super::contract::{Exchange, NotReached, Upstream};
use super::exchange::HttpExchange;
use super::gate::{Gate, Latch};
use super::request::Goal;
use super::tls::{TlsConfigs, server_name};
use super::wire::Wire;

/// The pause after the first connection that was not made; doubled up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Opens connections to upstreams.
pub struct HttpUpstream {
    clock: Arc<dyn Clock>,
    addresses: Arc<AddressRules>,
    resolver: Box<dyn Resolve>,
    tls: Arc<TlsConfigs>,
}

impl HttpUpstream {
    /// Upstreams through the operating system's resolver. The server tells `addresses` its own
    /// listeners once they are bound. Permits are measured on `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, addresses: Arc<AddressRules>) -> Self {
        Self::with_resolver(clock, addresses, Box::new(SystemResolver))
    }

    /// Upstreams through another resolver.
    #[must_use]
    pub fn with_resolver(clock: Arc<dyn Clock>, addresses: Arc<AddressRules>, resolver: Box<dyn Resolve>) -> Self {
        Self { clock, addresses, resolver, tls: Arc::default() }
    }

    /// One connection, within `bound`.
    async fn open(&self, to: &Authority, bound: Duration) -> Result<HttpExchange, Failed> {
        let until = Instant::now() + bound;
        let late = |doing: &str| Failed::Again(format!("{doing} took longer than {} ms", bound.as_millis()));
        let candidates = timeout_at(until, self.candidates(to)).await.map_err(|_| late("resolving the name"))??;
        let tcp = self.tcp(&candidates, until).await?;
        let latch = Latch::new(Arc::clone(&self.clock));
        let gate = Gate::new(tcp, Arc::clone(&latch));
        let wire = if to.tls {
            timeout_at(until, self.secured(to, gate, Arc::clone(&latch)))
                .await
                .map_err(|_| late("the TLS handshake"))??
        } else {
            Wire::plain(gate, Arc::clone(&latch))
        };
        let goal = Goal { tls: to.tls, host: to.host.clone(), port: to.port };
        Ok(HttpExchange { wire, latch, goal, timeouts: to.timeouts })
    }

    /// The addresses that may be connected, in the resolver's order.
    async fn candidates(&self, to: &Authority) -> Result<Vec<SocketAddr>, Failed> {
        if !is_host(&to.host) {
            return Err(Failed::ForGood(format!("{:?} is not a host name", to.host)));
        }
        let found = self.resolver.resolve(&to.host, to.port).await;
        let found = found.map_err(|error| Failed::Again(format!("the name cannot be resolved: {error}")))?;
        let mut refused = None;
        let mut candidates = Vec::new();
        for at in found {
            match self.addresses.judge(at) {
                Ok(at) => candidates.push(at),
                Err(why) => refused = Some((at, why)),
            }
        }
        match (candidates.is_empty(), refused) {
            (false, _) => Ok(candidates),
            (true, Some((at, why))) => Err(Failed::ForGood(format!("the address {} is refused: {why}", at.ip()))),
            (true, None) => Err(Failed::Again("the name has no address".to_owned())),
        }
    }

    /// The first address that accepts. Each one gets an equal share of the time that is left, so
    /// that a dead first address does not eat it all.
    async fn tcp(&self, candidates: &[SocketAddr], until: Instant) -> Result<TcpStream, Failed> {
        let mut failures = Vec::new();
        for (index, at) in candidates.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(candidates.len() - index).unwrap_or(u32::MAX);
            match timeout_at(Instant::now() + share, TcpStream::connect(at)).await {
                Ok(Ok(tcp)) => {
                    self.judge_connected(&tcp)?;
                    // Without it the end of a request may wait for an acknowledgement.
                    if tcp.set_nodelay(true).is_ok() {
                        return Ok(tcp);
                    }
                    failures.push(format!("{at}: closed at once"));
                }
                Ok(Err(error)) => failures.push(format!("{at}: {}", error.kind())),
                Err(_) => failures.push(format!("{at}: no answer in {} ms", share.as_millis())),
            }
        }
        failures.truncate(4);
        Err(Failed::Again(format!("no connection ({})", failures.join("; "))))
    }

    fn judge_connected(&self, tcp: &TcpStream) -> Result<(), Failed> {
        let ends = tcp.local_addr().and_then(|local| Ok((local, tcp.peer_addr()?)));
        let (local, peer) =
            ends.map_err(|error| Failed::Again(format!("the connection was lost at once: {}", error.kind())))?;
        self.addresses
            .judge_connected(local, peer)
            .map_err(|why| Failed::ForGood(format!("the address {} is refused: {why}", peer.ip())))
    }

    async fn secured(&self, to: &Authority, gate: Gate, latch: Arc<Latch>) -> Result<Wire, Failed> {
        let name = server_name(&to.host).map_err(Failed::ForGood)?;
        let config = self.tls.get(to.ca_file.as_deref()).await.map_err(Failed::ForGood)?;
        match TlsConnector::from(config).connect(name, gate).await {
            Ok(stream) => Ok(Wire::tls(stream, latch)),
            Err(error) => Err(tls_failed(&error)),
        }
    }
}

#[async_trait]
impl Upstream for HttpUpstream {
    async fn connect(&self, service: &Service, patience: Duration) -> Result<Box<dyn Exchange>, NotReached> {
        let to = &service.upstream;
        let began = Instant::now();
        let mut bound = to.timeouts.connect;
        let mut pause = PAUSE_FIRST;
        let mut tries = 1_u32;
        loop {
            let why = match self.open(to, bound).await {
                Ok(exchange) => return Ok(Box::new(exchange)),
                Err(Failed::ForGood(why)) => return Err(NotReached { why }),
                Err(Failed::Again(why)) => why,
            };
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                let why = if tries == 1 { why } else { format!("{why}; tried {tries} times") };
                return Err(NotReached { why });
            }
            sleep(pause.min(left)).await;
            pause = (pause * 2).min(PAUSE_MAX);
            bound = to.timeouts.connect.min(patience.saturating_sub(began.elapsed()).max(PAUSE_FIRST));
            tries += 1;
        }
    }
}

/// Why a connection was not made. Nothing was sent in either case.
#[derive(Debug)]
enum Failed {
    /// It may be otherwise in a moment.
    Again(String),
    /// It will not: a mistake in the policy or the certificate, or a refused address.
    ForGood(String),
}

/// Whether the text may be handed to a resolver: a name or an address, nothing else.
fn is_host(host: &str) -> bool {
    let v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let name = !host.is_empty()
        && host.len() <= 254
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        && host.strip_suffix('.').unwrap_or(host).split('.').all(|label| (1..=63).contains(&label.len()));
    v6 || name
}

/// A handshake that TLS itself ended (a certificate that does not verify, no common version) ends
/// the same way each time; one that the network ended may not.
fn tls_failed(error: &io::Error) -> Failed {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(tls) => {
            let mut why = format!("TLS failed: {tls}");
            if why.len() > 300 {
                let cut = (0..=300).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
                why.truncate(cut);
            }
            Failed::ForGood(why)
        }
        None => Failed::Again(format!("the TLS handshake broke off ({})", error.kind())),
    }
}

#[cfg(test)]
mod tests;
