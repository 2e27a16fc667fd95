//! Which certificate authorities an upstream's certificate is checked against.
//!
//! Owns the reading of CA files. pingora loads the system's authorities at start and panics on
//! one that it cannot read; here such a one is left out and named in the log.

use std::path::Path;
use std::sync::Arc;

use pingora::protocols::tls::CaType;
use pingora::utils::tls::{WrappedX509, parse_x509};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The system's authorities.
pub(super) struct SystemTrust {
    /// The readable ones, where some are not: pingora must then not load them by itself.
    pub(super) in_place_of_broken: Option<Arc<CaType>>,
}

impl SystemTrust {
    /// Reads the system's authorities.
    pub(super) fn load() -> Self {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a part of the system's certificate authorities cannot be read");
        }
        let mut store = RootCertStore::empty();
        let (_, refused) = store.add_parsable_certificates(found.certs.iter().cloned());
        if found.errors.is_empty() && refused == 0 && !found.certs.is_empty() {
            return Self { in_place_of_broken: None };
        }
        tracing::warn!(
            usable = found.certs.len() - refused,
            refused,
            "not all of the system's certificate authorities are usable; give upstreams with TLS a `ca` of their own, or \
             point SSL_CERT_FILE to a complete bundle"
        );
        Self { in_place_of_broken: Some(wrap(found.certs)) }
    }
}

/// The authorities of a PEM file.
///
/// # Errors
///
/// Why the file cannot be used, for the log.
pub(super) fn read_file(path: &Path) -> Result<Arc<CaType>, String> {
    let name = path.display();
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| format!("the CA file {name} cannot be read: {error}"))?;
    let count = found.len();
    let roots = wrap(found);
    if roots.is_empty() || roots.len() != count {
        return Err(format!("the CA file {name} has {} usable of {count} certificates", roots.len()));
    }
    Ok(roots)
}

/// Those that both pingora's parser and the verifier take.
fn wrap(found: Vec<CertificateDer<'static>>) -> Arc<CaType> {
    let usable = found.into_iter().filter_map(|certificate| {
        RootCertStore::empty().add(certificate.clone()).ok()?;
        // pingora's parser panics on what it cannot read.
        std::panic::catch_unwind(|| WrappedX509::new(certificate.to_vec(), parse_x509)).ok()
    });
    usable.collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_unusable_ca_file_is_an_error_and_never_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        assert!(read_file(&path).is_err());
        for text in ["", "not pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&path, text).unwrap();
            assert!(read_file(&path).is_err(), "{text}");
        }
    }
}
