//! TLS towards upstreams: HTTP/1.1 only, verified always, no early data.
//!
//! Owns the client configurations, one per CA file and one for the system's roots, with their
//! session caches. Must never connect without verification: a server name is never empty.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// A configuration, and when its CA file was changed last and how long it was.
struct Known {
    stamp: Option<(SystemTime, u64)>,
    config: Arc<ClientConfig>,
}

/// The configurations in use.
#[derive(Default)]
pub(super) struct TlsConfigs {
    known: Mutex<HashMap<Option<PathBuf>, Known>>,
}

impl TlsConfigs {
    /// The configuration for a CA file, or for the system's roots. A changed CA file is read again.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do: the file cannot be read, or no root is left to trust.
    pub(super) async fn get(self: &Arc<Self>, ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
        let (this, ca_file) = (Arc::clone(self), ca_file.map(Path::to_path_buf));
        tokio::task::spawn_blocking(move || this.load(ca_file))
            .await
            .map_err(|_| "the root certificates could not be read: the reader stopped".to_owned())?
    }

    fn load(&self, ca_file: Option<PathBuf>) -> Result<Arc<ClientConfig>, String> {
        let stamp = ca_file.as_deref().map(stamp).transpose()?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&ca_file).and_then(|known| {
            let unchanged = known.stamp == stamp;
            unchanged.then(|| Arc::clone(&known.config))
        });
        if let Some(config) = known {
            return Ok(config);
        }
        let roots = match &ca_file {
            Some(file) => roots_of_file(file)?,
            None => roots_of_system()?,
        };
        let config = Arc::new(client_config(roots)?);
        let known = Known { stamp, config: Arc::clone(&config) };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(ca_file, known);
        Ok(config)
    }
}

fn stamp(file: &Path) -> Result<(SystemTime, u64), String> {
    let about =
        |error| format!("the CA file {} cannot be read: {error}; check the path and its permissions", file.display());
    let meta = std::fs::metadata(file).map_err(about)?;
    Ok((meta.modified().map_err(about)?, meta.len()))
}

fn roots_of_file(file: &Path) -> Result<RootCertStore, String> {
    let wrong =
        |why: String| format!("the CA file {} is not usable: {why}; it must hold PEM certificates", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

/// The system's roots. One that cannot be read is left out, so that a single odd certificate in
/// the system's store does not cut off every upstream.
fn roots_of_system() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, ignored) = roots.add_parsable_certificates(found.certs);
    if ignored > 0 || !found.errors.is_empty() {
        tracing::warn!(added, ignored, errors = found.errors.len(), "some system root certificates were left out");
    }
    if roots.is_empty() {
        return Err("the system has no root certificates: install ca-certificates, or name a ca_file".to_owned());
    }
    Ok(roots)
}

fn client_config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Early data is the one way in which a request could leave before the gate is armed.
    config.enable_early_data = false;
    Ok(config)
}

/// The name that the certificate must carry: a DNS name (sent as SNI) or an IP address.
///
/// # Errors
///
/// A sentence, if the host is neither.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(ServerName::from(ip.to_canonical()));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(name.to_owned())
        .map_err(|_| format!("{host:?} is not a host name that a certificate can carry"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_server_name_is_never_empty() {
        for bad in ["", ".", "a b", "-", "[::1]"] {
            assert!(server_name(bad).is_err(), "{bad:?}");
        }
        assert!(matches!(server_name("127.0.0.1").unwrap(), ServerName::IpAddress(_)));
        assert!(matches!(server_name("::1").unwrap(), ServerName::IpAddress(_)));
        assert_eq!(server_name("api.example.com.").unwrap(), server_name("api.example.com").unwrap());
    }

    #[tokio::test]
    async fn a_ca_file_is_read_once_and_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let configs = Arc::new(TlsConfigs::default());
        assert!(configs.get(Some(&file)).await.unwrap_err().contains("cannot be read"));
        std::fs::write(&file, "nothing").unwrap();
        assert!(configs.get(Some(&file)).await.unwrap_err().contains("holds no certificate"));
        let ca = include_str!("../../tests/fixtures/tls/ca.pem");
        std::fs::write(&file, ca).unwrap();
        let first = configs.get(Some(&file)).await.unwrap();
        assert!(Arc::ptr_eq(&first, &configs.get(Some(&file)).await.unwrap()));
        std::fs::write(&file, format!("{ca}\n")).unwrap();
        assert!(!Arc::ptr_eq(&first, &configs.get(Some(&file)).await.unwrap()));
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(configs.get(Some(&file)).await.unwrap_err().contains("is not usable"));
        assert!(!first.enable_early_data);
        assert_eq!(first.alpn_protocols, vec![b"http/1.1".to_vec()]);
    }
}
