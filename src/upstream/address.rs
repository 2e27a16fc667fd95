//! Which addresses the guard may connect to, and how a host name becomes addresses.
//!
//! Owns the list of the guard's own listeners. The address that is judged is the address that is
//! connected: a name is resolved once, and whatever spelling or record it came from, only a
//! judged [`SocketAddr`] reaches `connect`. Must never open a connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arc_swap::ArcSwap;
use async_trait::async_trait;

/// How a host name becomes addresses. A seam, so that tests need no name server.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// All addresses of `host`, in the order in which they are tried.
    ///
    /// # Errors
    ///
    /// Whatever the resolver says; the text is for the log and the evidence.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The operating system's resolver.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// Why an address is never reachable through the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedAddress {
    /// One of the guard's own listeners.
    OwnListener,
    /// Link-local: `169.254.0.0/16`, `fe80::/10`.
    LinkLocal,
    /// A cloud's metadata service outside the link-local ranges.
    Metadata,
    /// Unspecified, multicast or broadcast: nothing that a connection can be opened to.
    NotAHost,
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnListener => "it is one of the guard's own listeners",
            Self::LinkLocal => "it is link-local",
            Self::Metadata => "it is a cloud's metadata service",
            Self::NotAHost => "it is not the address of a host",
        })
    }
}

/// The judge of addresses. Loopback and private addresses are legal upstreams; what is refused
/// is listed in [`RefusedAddress`].
#[derive(Debug, Default)]
pub struct AddressRules {
    own: ArcSwap<Vec<SocketAddr>>,
}

impl AddressRules {
    /// Rules without own listeners yet: see [`Self::set_own_listeners`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the guard's own listeners, once they are bound and their ports are known. A wildcard
    /// address stands for every address of this machine.
    pub fn set_own_listeners(&self, listeners: Vec<SocketAddr>) {
        let plain = listeners.into_iter().map(|at| SocketAddr::new(canonical(at.ip()), at.port())).collect();
        self.own.store(std::sync::Arc::new(plain));
    }

    /// Judges an address, and gives it in its one spelling: the address to connect to.
    ///
    /// # Errors
    ///
    /// [`RefusedAddress`]; nothing may be connected.
    pub fn judge(&self, at: SocketAddr) -> Result<SocketAddr, RefusedAddress> {
        let ip = canonical(at.ip());
        judge_ip(ip)?;
        let own = self.own.load();
        let ours = own.iter().any(|listener| {
            listener.port() == at.port()
                && (listener.ip() == ip || (listener.ip().is_unspecified() && ip.is_loopback()))
        });
        if ours {
            return Err(RefusedAddress::OwnListener);
        }
        // An IPv6 address keeps its scope; an embedded IPv4 address has none.
        Ok(if ip == at.ip() { at } else { SocketAddr::new(ip, at.port()) })
    }

    /// Judges an open connection: a wildcard listener is also reached through every other address
    /// of this machine, and then both ends of the connection have the same address.
    ///
    /// # Errors
    ///
    /// [`RefusedAddress::OwnListener`]; the connection must be dropped unused.
    pub fn judge_connected(&self, local: SocketAddr, peer: SocketAddr) -> Result<(), RefusedAddress> {
        let same_machine = canonical(local.ip()) == canonical(peer.ip());
        let own = self.own.load();
        if same_machine && own.iter().any(|at| at.ip().is_unspecified() && at.port() == peer.port()) {
            return Err(RefusedAddress::OwnListener);
        }
        Ok(())
    }
}

fn judge_ip(ip: IpAddr) -> Result<(), RefusedAddress> {
    match ip {
        IpAddr::V4(v4) => judge_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => judge_v4(v4),
            None => judge_v6(v6),
        },
    }
}

fn judge_v4(ip: Ipv4Addr) -> Result<(), RefusedAddress> {
    // Alibaba Cloud, Azure's wire server, Oracle Cloud (classic).
    const METADATA: [[u8; 4]; 3] = [[100, 100, 100, 200], [168, 63, 129, 16], [192, 0, 0, 192]];
    if ip.is_link_local() {
        return Err(RefusedAddress::LinkLocal);
    }
    if METADATA.contains(&ip.octets()) {
        return Err(RefusedAddress::Metadata);
    }
    // 0.0.0.0/8 is "this host": Linux connects 0.0.0.0 to loopback, so it is an alias that
    // would slip past the list of own listeners.
    if ip.octets()[0] == 0 || ip.is_multicast() || ip.is_broadcast() {
        return Err(RefusedAddress::NotAHost);
    }
    Ok(())
}

fn judge_v6(ip: Ipv6Addr) -> Result<(), RefusedAddress> {
    // EC2's and Google Cloud's metadata services.
    const METADATA: [Ipv6Addr; 2] =
        [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];
    if ip.is_unicast_link_local() {
        return Err(RefusedAddress::LinkLocal);
    }
    if METADATA.contains(&ip) {
        return Err(RefusedAddress::Metadata);
    }
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(RefusedAddress::NotAHost);
    }
    Ok(())
}

fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The IPv4 address inside an IPv6 one that is routed to it: IPv4-compatible (RFC 4291, 2.5.5.1),
/// NAT64 (RFC 6052, the well-known prefix) and 6to4 (RFC 3056). IPv4-mapped addresses have been
/// made plain before.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = ip.segments();
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0] if high != 0 => Some(from(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0] => Some(from(high, low)),
        [0x2002, ..] => Some(from(b, c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn link_local_and_metadata_are_refused_in_every_spelling() {
        let rules = AddressRules::new();
        for bad in [
            "169.254.169.254:80",
            "169.254.0.1:443",
            "[::ffff:169.254.169.254]:80",
            "[::ffff:a9fe:a9fe]:80",
            "[::169.254.169.254]:80",
            "[64:ff9b::169.254.169.254]:80",
            "[2002:a9fe:a9fe::1]:80",
            "[fe80::1]:80",
            "[fe80::1%2]:80",
            "[febf::1]:80",
            "[fd00:ec2::254]:80",
            "[fd20:ce::254]:80",
            "100.100.100.200:80",
            "[::ffff:100.100.100.200]:80",
            "168.63.129.16:80",
            "192.0.0.192:80",
            "0.0.0.0:80",
            "0.1.2.3:80",
            "[::]:80",
            "[::ffff:0.0.0.0]:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[ff02::1]:80",
        ] {
            assert!(rules.judge(at(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_private_networks_and_loopback_pass() {
        let rules = AddressRules::new();
        for good in
            ["127.0.0.1:80", "[::1]:80", "10.0.0.7:8080", "192.168.1.2:80", "93.184.216.34:443", "[2a00::1]:443"]
        {
            assert_eq!(rules.judge(at(good)), Ok(at(good)), "{good}");
        }
        assert_eq!(rules.judge(at("[::ffff:10.0.0.7]:80")), Ok(at("10.0.0.7:80")));
    }

    #[test]
    fn own_listeners_are_refused_by_address_wildcard_and_mapped_spelling() {
        let rules = AddressRules::new();
        assert!(rules.judge(at("127.0.0.1:7070")).is_ok(), "nothing is bound yet");
        rules.set_own_listeners(vec![at("127.0.0.1:7070"), at("[::]:7071"), at("[::ffff:10.0.0.1]:7072")]);
        for bad in [
            "127.0.0.1:7070",
            "[::ffff:127.0.0.1]:7070",
            "127.0.0.1:7071",
            "127.8.8.8:7071",
            "[::1]:7071",
            "[::ffff:127.0.0.1]:7071",
            "10.0.0.1:7072",
        ] {
            assert_eq!(rules.judge(at(bad)), Err(RefusedAddress::OwnListener), "{bad}");
        }
        assert!(rules.judge(at("127.0.0.1:7072")).is_ok());
        assert!(rules.judge(at("10.0.0.1:7070")).is_ok());
        let (here, peer) = (at("10.0.0.9:51000"), at("10.0.0.9:7071"));
        assert_eq!(rules.judge_connected(here, peer), Err(RefusedAddress::OwnListener));
        assert!(rules.judge_connected(here, at("10.0.0.8:7071")).is_ok());
        assert!(rules.judge_connected(here, at("10.0.0.9:7070")).is_ok());
    }
}
