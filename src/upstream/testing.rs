//! What the tests of this room share: services, requests, permits, and scripted TCP servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::base::time::{BootTime, Timestamp};
use crate::policy::model::{PolicySet, Service, Timeouts};
use crate::store::rights::SendPermit;

use super::contract::Outgoing;

pub(crate) fn permit_until(deadline: BootTime) -> SendPermit {
    let id = "dr_a_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    SendPermit::for_tests(id, 1, Timestamp::from_millis(0), deadline)
}

/// A service on plain HTTP, with generous time.
pub(crate) fn service(host: &str, port: u16) -> Service {
    let long = Duration::from_secs(20);
    let mut set = PolicySet::open("sample", "http://sample.test").unwrap();
    let mut service = set.services.remove(0);
    service.upstream.host = host.to_owned();
    service.upstream.port = port;
    service.upstream.timeouts = Timeouts { connect: long, read: long, total: long };
    service
}

pub(crate) fn outgoing(method: &str, target: &str, body: &str) -> Outgoing {
    Outgoing {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
        body: Bytes::copy_from_slice(body.as_bytes()),
        response_bytes_max: 1 << 20,
    }
}

/// A server that takes one connection and plays `script` on it; gives its address and what the
/// script returned.
pub(crate) async fn serve_once<T, F, Fut>(script: F) -> (SocketAddr, JoinHandle<T>)
where
    T: Send + 'static,
    F: FnOnce(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = T> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let script = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        drop(listener);
        // Else what a script writes last waits for an acknowledgement, and a reset discards it.
        tcp.set_nodelay(true).unwrap();
        script(tcp).await
    });
    (at, script)
}

/// Reads one request with `Content-Length`, head and body, as it came.
pub(crate) async fn read_request(from: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let mut piece = [0; 65_536];
        let read = from.read(&mut piece).await.unwrap();
        assert!(read > 0, "the request ended early: {text}");
        bytes.extend_from_slice(&piece[..read]);
    }
}

/// Everything until the connection ends, however it ends.
pub(crate) async fn read_to_end(from: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes).await;
    bytes
}

/// Closes with a reset.
pub(crate) fn reset(tcp: TcpStream) {
    tcp.set_zero_linger().unwrap();
    drop(tcp);
}

/// The TLS side of a server with the fixture's certificate.
pub(crate) fn tls_acceptor() -> tokio_rustls::TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(include_bytes!("../../tests/fixtures/tls/server.pem"));
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../../tests/fixtures/tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    tokio_rustls::TlsAcceptor::from(Arc::new(config))
}
