//! What an upstream's name resolves to.
//!
//! Owns a small cache of lookups, asked off the threads that serve requests. Must never judge an
//! address ([`crate::upstream::address`] does) and never hand a name on: only judged addresses are
//! connected.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use pingora::ErrorType;
use tokio::sync::Mutex;

/// How long a lookup is believed.
const FRESH_FOR: Duration = Duration::from_secs(30);
/// How long an old lookup is used while the resolver does not answer.
const STALE_FOR: Duration = Duration::from_secs(300);
/// How long a lookup may take.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// How many addresses of one name are kept.
const ADDRESSES_MAX: usize = 16;

/// How many addresses of one name are tried for one read; a connection that was refused sent
/// nothing.
pub(super) const ADDRESSES_TRIED_MAX: usize = 4;

/// The addresses of one name.
#[derive(Debug)]
pub(super) struct Addresses {
    all: Vec<SocketAddr>,
    /// Which one answered last.
    first: AtomicUsize,
    looked_up: Instant,
    literal: bool,
}

impl Addresses {
    fn new(all: Vec<SocketAddr>, literal: bool) -> Arc<Self> {
        Arc::new(Self { all, first: AtomicUsize::new(0), looked_up: Instant::now(), literal })
    }

    /// Where a new request begins.
    pub(super) fn first(&self) -> usize {
        self.first.load(Ordering::Relaxed)
    }

    /// The address for the `attempt`-th connection, counted from 0, of a request that began at
    /// `first`; `None` when every one was tried.
    pub(super) fn get(&self, first: usize, attempt: usize) -> Option<SocketAddr> {
        if attempt >= self.all.len() {
            return None;
        }
        self.all.get((first + attempt) % self.all.len()).copied()
    }

    /// Notes that this address refused the connection, so that the next request begins with the
    /// one after it.
    pub(super) fn skip(&self, first: usize, attempt: usize) {
        self.first.store((first + attempt + 1) % self.all.len().max(1), Ordering::Relaxed);
    }
}

/// The tries of one read at the addresses of one name.
#[derive(Debug, Default)]
pub(super) struct Tries {
    addresses: Option<Arc<Addresses>>,
    first: usize,
    before: usize,
}

impl Tries {
    /// Whether no address was tried yet.
    pub(super) const fn is_first(&self) -> bool {
        self.before == 0
    }

    /// Looks the name up, the first time. `false` if it does not resolve.
    pub(super) async fn begin(&mut self, resolver: &Resolver) -> bool {
        if self.addresses.is_none() {
            self.addresses = resolver.addresses().await;
            self.first = self.addresses.as_ref().map_or(0, |known| known.first());
        }
        self.addresses.is_some()
    }

    /// The address to try now.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.addresses.as_ref()?.get(self.first, self.before)
    }

    /// Leaves this address out.
    pub(super) const fn pass(&mut self) {
        self.before += 1;
    }

    /// Goes on to the next address, if there is one and `error` is a refused connection, which sent
    /// nothing.
    pub(super) fn goes_on(&mut self, error: &pingora::Error) -> bool {
        let refused = matches!(error.etype, ErrorType::ConnectRefused | ErrorType::ConnectNoRoute);
        let Some(addresses) = self.addresses.as_ref().filter(|_| refused) else {
            return false;
        };
        addresses.skip(self.first, self.before);
        self.before += 1;
        self.before < ADDRESSES_TRIED_MAX && addresses.get(self.first, self.before).is_some()
    }
}

/// One upstream's name and what it resolves to.
#[derive(Debug)]
pub(super) struct Resolver {
    host: String,
    port: u16,
    known: ArcSwapOption<Addresses>,
    asking: Mutex<()>,
}

impl Resolver {
    /// `host` is a name, or an address without brackets.
    pub(super) fn new(host: &str, port: u16) -> Self {
        let known = ArcSwapOption::empty();
        if let Ok(ip) = host.parse::<IpAddr>() {
            known.store(Some(Addresses::new(vec![SocketAddr::new(ip, port)], true)));
        }
        Self { host: host.to_owned(), port, known, asking: Mutex::new(()) }
    }

    /// The addresses, in order; `None` if the name does not resolve, or not in time. Asks at most
    /// once at a time.
    pub(super) async fn addresses(&self) -> Option<Arc<Addresses>> {
        if let Some(known) = self.usable(FRESH_FOR) {
            return Some(known);
        }
        let _one_at_a_time = self.asking.lock().await;
        if let Some(known) = self.usable(FRESH_FOR) {
            return Some(known);
        }
        let asked = tokio::time::timeout(LOOKUP_MAX, tokio::net::lookup_host((self.host.as_str(), self.port))).await;
        let found: Vec<SocketAddr> = match asked {
            Ok(Ok(found)) => found.take(ADDRESSES_MAX).collect(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        if found.is_empty() {
            return self.usable(STALE_FOR);
        }
        let known = Addresses::new(found, false);
        self.known.store(Some(Arc::clone(&known)));
        Some(known)
    }

    fn usable(&self, age_max: Duration) -> Option<Arc<Addresses>> {
        self.known.load_full().filter(|known| known.literal || known.looked_up.elapsed() < age_max)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn literals_need_no_lookup() {
        let fine = Resolver::new("::1", 9).addresses().await.unwrap();
        assert_eq!((fine.get(0, 0), fine.get(0, 1)), (Some("[::1]:9".parse().unwrap()), None));
    }

    #[tokio::test]
    async fn names_are_looked_up_and_remembered() {
        let resolver = Resolver::new("localhost", 9);
        let first = resolver.addresses().await.unwrap();
        assert!(first.get(0, 0).unwrap().ip().is_loopback());
        assert!(Arc::ptr_eq(&first, &resolver.addresses().await.unwrap()));
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_has_no_address() {
        assert!(Resolver::new("does-not-exist.invalid", 9).addresses().await.is_none());
    }

    #[test]
    fn an_address_that_refused_is_not_the_first_choice_of_the_next_request() {
        let (one, two) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
        let addresses = Addresses::new(vec![one, two], false);
        let order = |first| (addresses.get(first, 0), addresses.get(first, 1), addresses.get(first, 2));
        assert_eq!(order(addresses.first()), (Some(one), Some(two), None));
        addresses.skip(0, 0);
        assert_eq!(order(addresses.first()), (Some(two), Some(one), None));
    }

    #[test]
    fn only_a_refused_connection_goes_on_to_the_next_address() {
        let all: Vec<SocketAddr> = (1..=6).map(|n| SocketAddr::from(([10, 0, 0, n], 80))).collect();
        let error = |kind| pingora::Error::new(kind);
        let tries =
            |count: usize| Tries { addresses: Some(Addresses::new(all[..count].to_vec(), false)), first: 0, before: 0 };
        for sent in [ErrorType::ConnectTimedout, ErrorType::TLSHandshakeFailure, ErrorType::ReadTimedout] {
            let mut tries = tries(2);
            assert!(!tries.goes_on(&error(sent)));
            assert_eq!(tries.address(), Some(all[0]));
        }
        let mut two = tries(2);
        assert!(two.goes_on(&error(ErrorType::ConnectRefused)));
        assert_eq!(two.address(), Some(all[1]));
        assert!(!two.goes_on(&error(ErrorType::ConnectNoRoute)), "there is no third");
        let mut six = tries(6);
        let gone_on = std::iter::repeat_with(|| six.goes_on(&error(ErrorType::ConnectRefused))).take_while(|on| *on);
        assert_eq!(gone_on.count() + 1, ADDRESSES_TRIED_MAX);
    }
}
