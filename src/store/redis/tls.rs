//! The files of a server behind TLS: whom to trust, and who the guard is.
//!
//! Owns reading them once, at the start. Must never let a file that cannot be read pass as "none": the
//! connection would then trust others than those who were named.

use std::path::{Path, PathBuf};

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::OpenError;

/// Files in PEM that a connection to a `rediss://` server uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates to trust in place of the system's.
    pub ca: Option<PathBuf>,
    /// The guard's own, where the server asks for one (`tls-auth-clients yes`, a server's default).
    pub client: Option<ClientFiles>,
}

/// A certificate with what it was signed by, and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// The chain, the guard's certificate first.
    pub cert: PathBuf,
    /// PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

impl TlsFiles {
    /// What is in the files; nothing where none is named.
    pub(super) fn read(&self) -> Result<Option<TlsCertificates>, OpenError> {
        if *self == Self::default() {
            return Ok(None);
        }
        let root_cert = self.ca.as_deref().map(certificates).transpose()?;
        let client_tls = match &self.client {
            None => None,
            Some(files) => {
                let (client_cert, client_key) = (certificates(&files.cert)?, bytes(&files.key)?);
                PrivateKeyDer::from_pem_slice(&client_key).map_err(|_| {
                    wrong(&files.key, "it has no private key that can be read; one with a passphrase cannot")
                })?;
                Some(ClientTlsConfig { client_cert, client_key })
            }
        };
        Ok(Some(TlsCertificates { client_tls, root_cert }))
    }
}

/// The bytes of a file with at least one certificate, and with none that cannot be read.
fn certificates(path: &Path) -> Result<Vec<u8>, OpenError> {
    let pem = bytes(path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(pem),
        Ok(_) => Err(wrong(path, "it has no certificate")),
        Err(error) => Err(wrong(path, &error.to_string())),
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(|error| wrong(path, &error.to_string()))
}

fn wrong(path: &Path, why: &str) -> OpenError {
    OpenError::Tls(format!("{}: {why}", path.display()))
}
