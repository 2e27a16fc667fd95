//! The guard's keys, derived from roots that are never in the store.
//!
//! Every purpose has a key of its own (HKDF-SHA-256 over a root). Roots rotate by key id; the
//! identity root, from which owner hashes, join keys and caller-key digests come, never rotates,
//! or a running guard would no longer recognise its own drafts.

use std::fmt;

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use sha2::Sha256;

use crate::base::chance::Chance;
use crate::base::digest::Digest;
use crate::base::secret::Key;

/// Names one root of a [`KeySet`]: 1 to 16 characters of `a-z`, `0-9`, `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// Checks the characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ((1..=16).contains(&text.len()) && text.chars().all(legal)).then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The keys derived from one root.
#[derive(Clone)]
pub(crate) struct Ring {
    pub(crate) id: KeyId,
    pub(crate) mac: Key,
    pub(crate) decision: Key,
    pub(crate) outcome: Key,
    pub(crate) seal: Key,
    pub(crate) token: Key,
    pub(crate) effect: Key,
}

/// All keys of a guard: one active ring for new drafts, older rings to read older drafts.
#[derive(Clone)]
pub struct KeySet {
    rings: Vec<Ring>,
    identity: Key,
    session: Key,
    fingerprint: Digest,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet({})", self.fingerprint)
    }
}

impl KeySet {
    /// Derives all keys. The first root is the active one.
    ///
    /// Returns `None` for an empty list of roots.
    #[must_use]
    pub fn derive(roots: &[(KeyId, Key)], identity: &Key) -> Option<Self> {
        let rings: Vec<Ring> = roots
            .iter()
            .map(|(id, root)| Ring {
                id: id.clone(),
                mac: expand(root, b"countersign draft mac v1"),
                decision: expand(root, b"countersign decision mac v1"),
                outcome: expand(root, b"countersign outcome mac v1"),
                seal: expand(root, b"countersign seal v1"),
                token: expand(root, b"countersign token v1"),
                effect: expand(root, b"countersign effect key v1"),
            })
            .collect();
        if rings.is_empty() {
            return None;
        }
        let identity_key = expand(identity, b"countersign identity v1");
        let fingerprint = keyed(&expand(identity, b"countersign fingerprint v1"), b"fingerprint");
        Some(Self { rings, session: expand(identity, b"countersign console v1"), identity: identity_key, fingerprint })
    }

    /// A set with random roots, for tests and for guards that live in memory.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn ephemeral(chance: &dyn Chance) -> Self {
        let id = KeyId::new("k1").expect("a legal key id");
        let root = Key::new(chance.bytes32());
        Self::derive(&[(id, root)], &Key::new(chance.bytes32())).expect("one root")
    }

    pub(crate) fn active(&self) -> &Ring {
        &self.rings[0]
    }

    pub(crate) fn ring(&self, id: &str) -> Option<&Ring> {
        self.rings.iter().find(|ring| ring.id.as_str() == id)
    }

    /// What a shared store keeps to tell whether two nodes have the same keys; reveals none.
    #[must_use]
    pub const fn fingerprint(&self) -> &Digest {
        &self.fingerprint
    }

    /// A keyed digest that never rotates, over `parts` in a self-delimiting form. Owner hashes,
    /// join keys and caller-key digests are made here; `purpose` keeps them apart.
    #[must_use]
    pub fn identity_digest(&self, purpose: &str, parts: &[&[u8]]) -> Digest {
        keyed(&self.identity, &delimited(purpose, parts))
    }

    /// A keyed digest for console cookies, CSRF tokens and sign-in codes.
    #[must_use]
    pub fn console_digest(&self, purpose: &str, parts: &[&[u8]]) -> Digest {
        keyed(&self.session, &delimited(purpose, parts))
    }
}

fn delimited(purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut input = purpose.as_bytes().to_vec();
    for part in parts {
        input.push(0);
        input.extend_from_slice(&(part.len() as u64).to_be_bytes());
        input.extend_from_slice(part);
    }
    input
}

#[allow(clippy::expect_used)]
fn expand(root: &Key, info: &[u8]) -> Key {
    let mut out = [0; 32];
    Hkdf::<Sha256>::new(None, root.reveal()).expand(info, &mut out).expect("32 bytes are a legal HKDF length");
    Key::new(out)
}

/// HMAC-SHA-256.
#[allow(clippy::expect_used)]
pub(crate) fn keyed(key: &Key, input: &[u8]) -> Digest {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.reveal()).expect("HMAC takes any key length");
    mac.update(input);
    Digest::from_bytes(mac.finalize().into_bytes().into())
}

/// HMAC-SHA-256 over a value's JSON text; struct fields keep their order, so it is stable.
pub(crate) fn keyed_json<T: Serialize>(key: &Key, value: &T) -> Result<Digest, serde_json::Error> {
    Ok(keyed(key, &serde_json::to_vec(value)?))
}
