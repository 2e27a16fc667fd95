#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::base::time::SystemClock;
use crate::upstream::contract::Attempt;
use crate::upstream::testing::{outgoing, permit_until, read_request, reset, serve_once, service, tls_acceptor};

const CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/ca.pem");

/// Gives its answers one after the other, the last one for ever.
struct Names(Mutex<VecDeque<io::Result<Vec<SocketAddr>>>>);

impl Names {
    fn boxed(answers: impl IntoIterator<Item = io::Result<Vec<SocketAddr>>>) -> Box<dyn Resolve> {
        Box::new(Self(Mutex::new(answers.into_iter().collect())))
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, _host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut answers = self.0.lock().unwrap();
        match answers.len() {
            0 => Err(io::ErrorKind::NotFound.into()),
            1 => match &answers[0] {
                Ok(found) => Ok(found.clone()),
                Err(error) => Err(error.kind().into()),
            },
            _ => answers.pop_front().unwrap(),
        }
    }
}

fn upstream(answers: impl IntoIterator<Item = io::Result<Vec<SocketAddr>>>) -> HttpUpstream {
    HttpUpstream::with_resolver(Arc::new(SystemClock), Arc::new(AddressRules::new()), Names::boxed(answers))
}

fn tls_service(host: &str, port: u16) -> Service {
    let mut service = service(host, port);
    service.upstream.tls = true;
    service.upstream.ca_file = Some(CA.into());
    service
}

/// An address where nothing listens.
async fn dead() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn why(upstream: &HttpUpstream, service: &Service, patience: Duration) -> String {
    match upstream.connect(service, patience).await {
        Ok(_) => panic!("no connection was expected"),
        Err(NotReached { why }) => why,
    }
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_until_patience_is_over() {
    let nobody = dead().await;
    let patience = Duration::from_secs(1);
    let said = why(&upstream([Ok(vec![nobody])]), &service("sample.test", nobody.port()), patience).await;
    assert!(said.contains("connection refused") && said.contains("tried"), "{said}");
    let said = why(&upstream([Ok(vec![nobody])]), &service("sample.test", nobody.port()), Duration::ZERO).await;
    assert!(!said.contains("tried"), "no patience is one try: {said}");
}

#[tokio::test]
async fn an_upstream_that_comes_up_within_patience_is_reached() {
    let (at, served) = serve_once(|_tcp| async {}).await;
    let answers = [Ok(vec![dead().await]), Err(io::ErrorKind::TimedOut.into()), Ok(Vec::new()), Ok(vec![at])];
    let reached = upstream(answers).connect(&service("sample.test", at.port()), Duration::from_secs(20)).await;
    assert!(reached.is_ok());
    served.await.unwrap();
}

#[tokio::test]
async fn all_addresses_are_tried_in_order() {
    let (at, served) = serve_once(|_tcp| async {}).await;
    let answers = [Ok(vec![dead().await, dead().await, at])];
    assert!(upstream(answers).connect(&service("sample.test", at.port()), Duration::ZERO).await.is_ok());
    served.await.unwrap();
}

#[tokio::test]
async fn names_that_are_no_names_are_not_tried_again() {
    let long = "a".repeat(300);
    for host in ["", "a b", "a..b", "a/b", "a:80", "user@host", "host\r\n", "[::1]", long.as_str()] {
        let said = why(&upstream([]), &service(host, 80), Duration::from_secs(600)).await;
        assert!(said.contains("is not a host name"), "{said}");
    }
    for host in ["localhost", "a.b.", "a_b.test", "127.0.0.1", "::1", "xn--bcher-kva.example"] {
        assert!(is_host(host), "{host}");
    }
}

#[tokio::test]
async fn a_name_that_leads_to_a_refused_address_is_not_tried_again() {
    for at in ["169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fe80::1]:80"] {
        let answers = [Ok(vec![at.parse().unwrap()])];
        let said = why(&upstream(answers), &service("metadata.test", 80), Duration::from_secs(600)).await;
        assert!(said.contains("is refused: it is link-local"), "{said}");
    }
}

#[tokio::test]
async fn a_refused_address_beside_a_good_one_is_left_out() {
    let (at, served) = serve_once(|_tcp| async {}).await;
    let answers = [Ok(vec!["169.254.169.254:80".parse().unwrap(), at])];
    assert!(upstream(answers).connect(&service("sample.test", at.port()), Duration::ZERO).await.is_ok());
    served.await.unwrap();
}

#[tokio::test]
async fn the_guards_own_listeners_are_refused_once_they_are_known() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let rules = Arc::new(AddressRules::new());
    let upstream = HttpUpstream::new(Arc::new(SystemClock), Arc::clone(&rules));
    let own = service("127.0.0.1", at.port());
    assert!(upstream.connect(&own, Duration::ZERO).await.is_ok());
    rules.set_own_listeners(vec![at]);
    let said = why(&upstream, &own, Duration::from_secs(600)).await;
    assert!(said.contains("own listeners"), "{said}");
    rules.set_own_listeners(vec![SocketAddr::new("0.0.0.0".parse().unwrap(), at.port())]);
    let said = why(&upstream, &own, Duration::from_secs(600)).await;
    assert!(said.contains("own listeners"), "{said}");
}

/// An address of this machine that is not the loopback. Nothing is sent to find it out.
fn outward_address() -> Option<std::net::IpAddr> {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    probe.connect("192.0.2.1:9").ok()?;
    let ip = probe.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[tokio::test]
async fn a_wildcard_listener_is_refused_by_this_machines_other_addresses_too() {
    // A machine without any other address has no such way in.
    let Some(outward) = outward_address() else { return };
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let rules = Arc::new(AddressRules::new());
    let upstream = HttpUpstream::new(Arc::new(SystemClock), Arc::clone(&rules));
    let own = service(&outward.to_string(), at.port());
    assert!(upstream.connect(&own, Duration::ZERO).await.is_ok());
    rules.set_own_listeners(vec![at]);
    let said = why(&upstream, &own, Duration::from_secs(600)).await;
    assert!(said.contains("own listeners"), "only the open connection shows it: {said}");
}

async fn over_tls(host: &str, to: SocketAddr) -> Attempt {
    let service = tls_service(host, to.port());
    let exchange = upstream([Ok(vec![to])]).connect(&service, Duration::ZERO).await.unwrap();
    let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let call = outgoing("POST", &format!("https://{bracketed}:{}/x", to.port()), "{}");
    exchange.send(permit_until(SystemClock.boot() + Duration::from_secs(20)), call).await
}

#[tokio::test]
async fn tls_names_and_addresses_are_verified_and_spoken_to_over_http_1() {
    for host in ["upstream.test", "127.0.0.1", "::1"] {
        let (at, served) = serve_once(|tcp| async move {
            let mut tls = tls_acceptor().accept(tcp).await.unwrap();
            let request = read_request(&mut tls).await;
            tls.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            tls.shutdown().await.unwrap();
            let session = tls.get_ref().1;
            (request, session.alpn_protocol().map(<[u8]>::to_vec), session.server_name().map(str::to_owned))
        })
        .await;
        let Attempt::Answered(response) = over_tls(host, at).await else { panic!("an answer was expected") };
        assert_eq!(response.stored.body, b"{}");
        let (request, alpn, sni) = served.await.unwrap();
        assert!(request.starts_with("POST /x HTTP/1.1\r\n"), "{request}");
        assert_eq!(alpn, Some(b"http/1.1".to_vec()));
        assert_eq!(sni, (host == "upstream.test").then(|| host.to_owned()));
    }
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_is_not_tried_again_and_nothing_is_sent() {
    let mut wrong_name = tls_service("other.test", 1);
    let mut system_roots = tls_service("upstream.test", 1);
    system_roots.upstream.ca_file = None;
    for service in [&mut wrong_name, &mut system_roots] {
        let (at, served) = serve_once(|tcp| async move { tls_acceptor().accept(tcp).await.is_err() }).await;
        service.upstream.port = at.port();
        let said = why(&upstream([Ok(vec![at])]), service, Duration::from_secs(600)).await;
        assert!(said.contains("TLS failed") || said.contains("no root certificates"), "{said}");
        assert!(served.await.unwrap_or(true));
    }
}

#[tokio::test]
async fn a_peer_that_does_not_speak_tls_is_not_tried_again() {
    let (at, served) = serve_once(|mut tcp| async move {
        let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        tcp
    })
    .await;
    let said = why(&upstream([Ok(vec![at])]), &tls_service("upstream.test", at.port()), Duration::from_secs(600)).await;
    assert!(said.contains("TLS failed"), "{said}");
    drop(served);
}

#[tokio::test]
async fn a_handshake_that_breaks_off_or_hangs_is_tried_again() {
    let (broken, first) = serve_once(|tcp| async move { reset(tcp) }).await;
    let (good, second) = serve_once(|tcp| async move { tls_acceptor().accept(tcp).await.is_ok() }).await;
    let upstream = upstream([Ok(vec![broken]), Ok(vec![good])]);
    assert!(upstream.connect(&tls_service("upstream.test", 443), Duration::from_secs(20)).await.is_ok());
    first.await.unwrap();
    assert!(second.await.unwrap());

    let (hanging, server) = serve_once(|tcp| async move { tcp }).await;
    let mut service = tls_service("upstream.test", 443);
    service.upstream.timeouts.connect = Duration::from_millis(50);
    let said = why(&self::upstream([Ok(vec![hanging])]), &service, Duration::ZERO).await;
    assert!(said.contains("took longer than 50 ms") || said.contains("no answer in"), "{said}");
    drop(server);
}

#[tokio::test]
async fn an_unreadable_ca_file_is_said_at_once() {
    let mut service = tls_service("upstream.test", 443);
    service.upstream.ca_file = Some("/does/not/exist.pem".into());
    let (at, _served) = serve_once(|tcp| async move { tcp }).await;
    let said = why(&upstream([Ok(vec![at])]), &service, Duration::from_secs(600)).await;
    assert!(said.contains("/does/not/exist.pem cannot be read"), "{said}");
}
