//! Reads over TLS: verified always, by the authorities of the policy's file where it names one.

use std::path::PathBuf;

use super::*;
use crate::upstream::testing::tls_acceptor;

const CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/ca.pem");

/// A server for one connection; gives what it read after the handshake, if there was one.
async fn server(ip: &str) -> (SocketAddr, tokio::task::JoinHandle<Option<String>>) {
    let listener = tokio::net::TcpListener::bind((ip, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut tls = tls_acceptor().accept(tcp).await.ok()?;
        let mut bytes = vec![0; 4096];
        let read = tls.read(&mut bytes).await.unwrap();
        tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret").await.unwrap();
        tls.flush().await.unwrap();
        Some(String::from_utf8_lossy(&bytes[..read]).into_owned())
    });
    (address, served)
}

async fn read_through(host: &str, port: u16, ca_file: Option<&str>) -> Answered {
    let mut setup = Setup::open(&format!("https://{host}:{port}"));
    setup.service().upstream.ca_file = ca_file.map(PathBuf::from);
    let running = setup.run().await;
    Client::once(running.address, GET).await
}

#[tokio::test]
async fn a_read_over_tls_is_verified_by_the_services_own_authorities() {
    let (address, served) = server("127.0.0.1").await;
    let answer = read_through("127.0.0.1", address.port(), Some(CA)).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "secret"), "{answer:?}");
    let request = soon(served).await.unwrap().unwrap();
    assert!(request.starts_with("GET /todos?done=no HTTP/1.1\r\n"), "{request}");
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_gets_no_request() {
    // Signed by nobody who is trusted; signed, and for other names than this address.
    for (host, ca_file) in [("127.0.0.1", None), ("127.0.0.2", Some(CA))] {
        let (address, served) = server(host).await;
        let answer = read_through(host, address.port(), ca_file).await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "UPSTREAM_FAILED"), "{host}");
        assert_eq!(answer.json()["upstream_called"], false, "{host}");
        let read = soon(served).await.unwrap();
        assert!(read.is_none_or(|request| request.is_empty()), "{host}");
    }
}

#[tokio::test]
async fn an_unreadable_ca_file_refuses_reads_and_nothing_is_connected() {
    let (address, served) = server("127.0.0.1").await;
    let answer = read_through("127.0.0.1", address.port(), Some("/does/not/exist.pem")).await;
    assert_eq!((answer.status, answer.code().as_str()), (502, "UPSTREAM_FAILED"));
    assert!(!served.is_finished());
    served.abort();
}
