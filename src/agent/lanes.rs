//! What is needed to reach each service's upstream, worked out once per policy set.
//!
//! Owns the way of a read: the peer with every timeout set, certificates verified and a resolved
//! address, and the request head as the upstream gets it. Must never send anything by itself, and
//! never see a write.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy, PeerOptions};

use crate::base::cookie;
use crate::policy::model::{PolicySet, Service};

use super::resolve::Resolver;
use super::trust::{self, SystemTrust};

/// How long an upgraded connection may be silent.
pub(super) const UPGRADED_IDLE: Duration = Duration::from_secs(3600);
/// Where no peer stays: every one gets a judged address.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// How long a pooled connection to an upstream is kept.
pub(super) const POOLED_IDLE: Duration = Duration::from_secs(60);

/// The way to one service's upstream.
pub(super) struct Lane {
    /// What its name resolves to.
    pub(super) resolver: Resolver,
    /// Why no read can be sent, if so; for the log.
    pub(super) broken: Option<String>,
    /// A credential that the guard injects.
    pub(super) credential: Option<(HeaderName, HeaderValue)>,
    host: HeaderValue,
    base_path: String,
    /// The peer, complete but for its address.
    peer: HttpPeer,
    /// The peer of the last plain read.
    last: ArcSwapOption<HttpPeer>,
}

/// What the upstream gets in place of what the agent sent.
#[derive(Debug, Default)]
pub(super) struct Dress {
    /// Path and query to send; `None` as they came.
    pub(super) target: Option<Vec<u8>>,
    /// The cookies that are left without the console's; `None` where it is not among them.
    pub(super) cookies: Option<Vec<HeaderValue>>,
    /// Headers that are never forwarded.
    pub(super) drop: Vec<HeaderName>,
    /// Headers that policy adds, over whatever the agent sent under their names.
    pub(super) inject: Vec<(HeaderName, HeaderValue)>,
}

impl Lane {
    fn new(service: &Service, system: &SystemTrust) -> Self {
        let upstream = &service.upstream;
        let mut broken = None;
        let mut options = PeerOptions::new();
        options.connection_timeout = Some(upstream.timeouts.connect);
        options.total_connection_timeout = Some(upstream.timeouts.connect);
        options.read_timeout = Some(upstream.timeouts.read);
        options.write_timeout = Some(upstream.timeouts.read);
        options.idle_timeout = Some(POOLED_IDLE);
        options.http_upstream_request_policy = HttpUpstreamRequestPolicy::deny_upgrades();
        if upstream.tls {
            match trust_of(service, system) {
                Ok(ca) => options.ca = ca,
                Err(why) => broken = Some(why),
            }
        }
        let authority = authority(&upstream.host, upstream.port, upstream.tls);
        let host = HeaderValue::try_from(authority).unwrap_or_else(|_| {
            broken = Some("the upstream's host is not a legal Host header".to_owned());
            HeaderValue::from_static("")
        });
        let credential = upstream.credential.as_ref().and_then(|credential| {
            match HeaderValue::try_from(credential.value.reveal()) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    Some((credential.header.clone(), value))
                }
                Err(_) => {
                    broken = Some("the upstream's credential is not a legal header value".to_owned());
                    None
                }
            }
        });
        // Certificates are verified against the name of the policy, which is never empty with TLS:
        // an empty one would switch verification off.
        let sni = if upstream.tls { upstream.host.clone() } else { String::new() };
        let mut peer = HttpPeer::new(NOWHERE, upstream.tls, sni);
        peer.group_key = group_key(service, options.ca.as_ref());
        peer.options = options;
        Self {
            resolver: Resolver::new(&upstream.host, upstream.port),
            broken,
            credential,
            host,
            base_path: upstream.base_path.clone(),
            peer,
            last: ArcSwapOption::empty(),
        }
    }

    /// The peer at `address`, which was judged.
    pub(super) fn peer(&self, address: SocketAddr, upgrade: bool) -> Box<HttpPeer> {
        let mut peer = Box::new(self.peer.clone());
        peer._address = address.into();
        if upgrade {
            peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::standard();
            peer.options.read_timeout = Some(UPGRADED_IDLE);
            peer.options.write_timeout = Some(UPGRADED_IDLE);
        }
        peer
    }

    /// [`Self::peer`] for a plain read; the last one is kept, since most reads go to one address.
    pub(super) fn plain_peer(&self, address: SocketAddr) -> Arc<HttpPeer> {
        let last = self.last.load();
        match last.as_ref().filter(|last| last._address.as_inet() == Some(&address)) {
            Some(peer) => Arc::clone(peer),
            None => {
                let peer = Arc::new(*self.peer(address, false));
                self.last.store(Some(Arc::clone(&peer)));
                peer
            }
        }
    }

    /// Path and query as the upstream gets them; `None` where they go as they came.
    pub(super) fn target(&self, path: &str, query: Option<&str>, origin_form: bool) -> Option<Vec<u8>> {
        if origin_form && self.base_path.is_empty() || path == "*" {
            return None;
        }
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        Some(format!("{}{path}{query}", self.base_path).into_bytes())
    }

    /// Rewrites the head of a read for the upstream.
    ///
    /// # Errors
    ///
    /// A header or target that pingora does not take; nothing was sent.
    pub(super) fn dress(&self, request: &mut RequestHeader, dress: &Dress) -> pingora::Result<()> {
        for name in &dress.drop {
            request.remove_header(name);
        }
        if let Some(cookies) = &dress.cookies {
            request.remove_header(&COOKIE);
            for value in cookies {
                request.append_header(COOKIE, value.clone())?;
            }
        }
        for (name, value) in &dress.inject {
            request.insert_header(name.clone(), value.clone())?;
        }
        if let Some((name, value)) = &self.credential {
            request.insert_header(name.clone(), value.clone())?;
        }
        if let Some(target) = &dress.target {
            request.set_raw_path(target)?;
        }
        request.insert_header(HOST, self.host.clone())
    }
}

/// The `Cookie` lines without the console's pair, if it is among them (promise 10).
pub(super) fn without_console(headers: &HeaderMap) -> Option<Vec<HeaderValue>> {
    let lines = || headers.get_all(COOKIE).iter();
    let has = |line: &HeaderValue| line.as_bytes().split(|byte| *byte == b';').any(cookie::names_console);
    if !lines().any(has) {
        return None;
    }
    let kept = lines().filter_map(|line| cookie::without_console(line.as_bytes()));
    Some(kept.filter_map(|line| HeaderValue::from_bytes(&line).ok()).collect())
}

/// `Host` for an upstream: with the port where it is not the scheme's default.
fn authority(host: &str, port: u16, tls: bool) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == if tls { 443 } else { 80 } { host } else { format!("{host}:{port}") }
}

fn trust_of(service: &Service, system: &SystemTrust) -> Result<Option<Arc<CaType>>, String> {
    match &service.upstream.ca_file {
        Some(path) => trust::read_file(path).map(Some),
        None => Ok(system.in_place_of_broken.clone()),
    }
}

/// Connections are pooled per service and set of trusted roots: pingora's own key has neither.
fn group_key(service: &Service, ca: Option<&Arc<CaType>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    service.name.as_str().hash(&mut hasher);
    for root in ca.into_iter().flat_map(|ca| ca.iter()) {
        root.borrow_raw_cert().hash(&mut hasher);
    }
    hasher.finish()
}

/// The lanes of one policy set, in the order of its services.
pub(super) struct Table {
    /// The set.
    pub(super) set: Arc<PolicySet>,
    lanes: Vec<Lane>,
}

impl Table {
    fn new(set: Arc<PolicySet>, system: &SystemTrust) -> Self {
        let lanes: Vec<Lane> = set.services.iter().map(|service| Lane::new(service, system)).collect();
        for (service, lane) in set.services.iter().zip(&lanes) {
            if let Some(why) = &lane.broken {
                tracing::error!(service = service.name.as_str(), why, "reads of this service cannot be sent");
            }
        }
        Self { set, lanes }
    }

    /// The service and its lane.
    pub(super) fn get(&self, index: usize) -> Option<(&Service, &Lane)> {
        self.set.services.get(index).zip(self.lanes.get(index))
    }

    /// Where `service`, one of this set's, stands.
    pub(super) fn index_of(&self, service: &Service) -> Option<usize> {
        self.set.services.iter().position(|known| std::ptr::eq(known, service))
    }
}

/// The lanes of the policy set in force.
pub(super) struct Lanes {
    current: ArcSwap<Table>,
    system: SystemTrust,
}

impl Lanes {
    /// Works out the lanes of `set`.
    pub(super) fn new(set: Arc<PolicySet>, system: SystemTrust) -> Self {
        let table = Table::new(set, &system);
        Self { current: ArcSwap::from_pointee(table), system }
    }

    /// The lanes of `set`, worked out anew when it is not the one of before.
    pub(super) fn of(&self, set: Arc<PolicySet>) -> Arc<Table> {
        let current = self.current.load_full();
        if Arc::ptr_eq(&current.set, &set) {
            return current;
        }
        let table = Arc::new(Table::new(set, &self.system));
        self.current.store(Arc::clone(&table));
        table
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_plain_reads_peer_is_kept_for_its_address_only() {
        let set = PolicySet::open("notes", "http://notes.test").unwrap();
        let lane = Lane::new(&set.services[0], &SystemTrust::load());
        let (one, two) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
        let first = lane.plain_peer(one);
        assert!(Arc::ptr_eq(&first, &lane.plain_peer(one)));
        let second = lane.plain_peer(two);
        let addresses = (first._address.as_inet().copied(), second._address.as_inet().copied());
        assert_eq!(addresses, (Some(one), Some(two)));
    }

    #[test]
    fn host_names_the_port_only_where_it_is_unusual() {
        assert_eq!(authority("a.test", 80, false), "a.test");
        assert_eq!(authority("a.test", 443, true), "a.test");
        assert_eq!(authority("a.test", 443, false), "a.test:443");
        assert_eq!(authority("::1", 8080, false), "[::1]:8080");
    }
}
