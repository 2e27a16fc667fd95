//! A server behind TLS: with a private authority, with certificates that it asks for, and with an
//! end that is not the one that was named.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use super::DURABLE;
use crate::support::{Redis, Setup, Upstream};

/// Files in PEM of one authority.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// `NAME.pem` and `NAME.key` for a host.
    fn issue(&self, name: &str, host: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, host);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert, private) = (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")));
        std::fs::write(&cert, certificate.pem()).unwrap();
        std::fs::write(&private, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&private, Permissions::from_mode(0o600)).unwrap();
        (cert, private)
    }

    /// A server with a certificate of this authority for `host`, and where it takes connections with TLS.
    fn server(&self, host: &str, clients: &str) -> (Redis, u16) {
        let (cert, key) = self.issue("server", host);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (port_text, ca) = (port.to_string(), self.ca());
        let text = |path: &Path| path.display().to_string();
        let (cert, key, ca) = (text(&cert), text(&key), text(&ca));
        let mut options = DURABLE.to_vec();
        options.extend(["--tls-port", &port_text, "--tls-cert-file", &cert, "--tls-key-file", &key]);
        options.extend(["--tls-ca-cert-file", &ca, "--tls-auth-clients", clients]);
        let server = Redis::start_on_tcp(&options);
        server.command(&["ACL", "SETUSER", "guard", "on", ">secret", "~cs:*", "&cs:*", "+@all"]);
        (server, port)
    }
}

fn over_tls(upstream: &Upstream, port: u16, tls: &str) -> Setup {
    Setup::over(upstream)
        .section("store", &format!("{{url: \"rediss://guard:secret@127.0.0.1:{port}\", timeout: 5s, {tls}}}"))
}

#[test]
fn a_private_authority_is_named_and_no_other_is_believed() {
    let (own, other, upstream) = (Authority::new(), Authority::new(), Upstream::start());
    let (_redis, port) = own.server("127.0.0.1", "no");
    let guard = over_tls(&upstream, port, &format!("tls: {{ca: \"{}\"}}", own.ca().display())).start();
    let draft = guard.agent().hold_task("over tls");
    guard.approver().confirm(&draft).must_be(200);
    assert_eq!(upstream.effects("/tasks"), 1);

    let ended = over_tls(&upstream, port, &format!("tls: {{ca: \"{}\"}}", other.ca().display())).start_in_vain();
    assert!(ended.error().contains("certificate"), "{}", ended.said());
    let ended = over_tls(&upstream, port, "").start_in_vain();
    assert!(ended.error().contains("certificate"), "the system does not know it: {}", ended.said());
    let all = own.ca().display().to_string();
    let by_system = over_tls(&upstream, port, "").env("SSL_CERT_FILE", &all).with_keys_of(&guard).start();
    by_system.agent().hold_task("by the system");
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let (own, upstream) = (Authority::new(), Upstream::start());
    let (_redis, port) = own.server("cache.example", "no");
    let ended = over_tls(&upstream, port, &format!("tls: {{ca: \"{}\"}}", own.ca().display())).start_in_vain();
    assert!(ended.error().contains("certificate"), "{}", ended.said());
}

#[test]
fn the_guard_shows_its_own_certificate_where_one_is_asked_for() {
    let (own, upstream) = (Authority::new(), Upstream::start());
    let (_redis, port) = own.server("127.0.0.1", "yes");
    let (cert, key) = own.issue("guard", "guard.example");
    let with = |files: &str| over_tls(&upstream, port, &format!("tls: {{ca: \"{}\"{files}}}", own.ca().display()));
    let guard = with(&format!(", cert: \"{}\", key: \"{}\"", cert.display(), key.display())).start();
    let draft = guard.agent().hold_task("over tls");
    guard.approver().confirm(&draft).must_be(200);
    assert_eq!(upstream.effects("/tasks"), 1);

    with("").start_in_vain();
    let swapped = with(&format!(", cert: \"{}\", key: \"{}\"", cert.display(), cert.display())).start_in_vain();
    assert!(swapped.error().contains("it has no private key"), "{}", swapped.said());
    let missing = with(&format!(", cert: \"{}.gone\", key: \"{}\"", cert.display(), key.display())).start_in_vain();
    assert!(missing.error().contains("`store.tls`") && missing.error().contains(".gone"), "{}", missing.said());
    let (_, other) = own.issue("other", "guard.example");
    let not_its_own = with(&format!(", cert: \"{}\", key: \"{}\"", cert.display(), other.display())).start_in_vain();
    assert!(not_its_own.error().contains("it is not the key of"), "{}", not_its_own.said());
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let open = with(&format!(", cert: \"{}\", key: \"{}\"", cert.display(), key.display())).start_in_vain();
    assert!(open.error().contains("everybody on this machine"), "{}", open.said());
    let text = own.file("text.pem");
    std::fs::write(&text, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let ended = over_tls(&upstream, port, &format!("tls: {{ca: \"{}\"}}", text.display())).start_in_vain();
    assert!(ended.error().contains("text.pem: a certificate cannot be read"), "{}", ended.said());
}
