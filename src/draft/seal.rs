//! Seals a draft whole, record and body, so that the store holds opaque bytes only.
//!
//! Form: `1`, key id length, key id, 24-byte nonce, XChaCha20-Poly1305 over
//! `mac(32) ‖ record length(4, big endian) ‖ record JSON ‖ body`, with the draft's id as
//! associated data, so that a record moved under another id does not open.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::base::chance::Chance;
use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::base::secret::Key;

use super::keys::{KeySet, keyed};
use super::outcome::StoredResponse;
use super::record::Draft;

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;

/// The stored bytes do not verify: altered, truncated, moved to another id, or sealed with a key
/// that this guard does not have. Never says more, so that it is no oracle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored draft does not verify")]
pub struct IntegrityFailed;

/// A draft that was opened and verified, with its MAC and its body.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// The record.
    pub draft: Draft,
    /// The bytes that will be sent.
    pub body: Vec<u8>,
    /// HMAC over record and body; decisions are bound to it.
    pub mac: Digest,
    /// The id of the keys that it was sealed with.
    pub key_id: String,
}

/// Seals `draft` and `body` under the active keys.
///
/// # Errors
///
/// [`IntegrityFailed`] if the record cannot be written as JSON, which no record built by the
/// guard does.
pub fn seal(draft: &Draft, body: &[u8], keys: &KeySet, chance: &dyn Chance) -> Result<Vec<u8>, IntegrityFailed> {
    // Args and card say what the body says; the rest is short.
    let mut record = Vec::with_capacity(2048 + 3 * body.len());
    serde_json::to_writer(&mut record, draft).map_err(|_| IntegrityFailed)?;
    let length = u32::try_from(record.len()).map_err(|_| IntegrityFailed)?;
    let ring = keys.active();
    let mut content = Vec::with_capacity(4 + record.len() + body.len());
    content.extend_from_slice(&length.to_be_bytes());
    content.extend_from_slice(&record);
    content.extend_from_slice(body);
    let mut plain = keyed(&ring.mac, &content).as_bytes().to_vec();
    plain.extend_from_slice(&content);
    Ok(encrypt(&ring.seal, ring.id.as_str(), &plain, draft.id.as_str(), chance))
}

/// Opens and verifies what [`seal`] made.
///
/// # Errors
///
/// [`IntegrityFailed`] on any difference.
pub fn open(sealed: &[u8], id: &DraftId, keys: &KeySet) -> Result<Opened, IntegrityFailed> {
    let (key_id, plain) = decrypt(sealed, id.as_str(), keys)?;
    let ring = keys.ring(&key_id).ok_or(IntegrityFailed)?;
    let (mac, content) = plain.split_first_chunk::<32>().ok_or(IntegrityFailed)?;
    let mac = Digest::from_bytes(*mac);
    if keyed(&ring.mac, content) != mac {
        return Err(IntegrityFailed);
    }
    let (length, rest) = content.split_first_chunk::<4>().ok_or(IntegrityFailed)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| IntegrityFailed)?;
    if length > rest.len() {
        return Err(IntegrityFailed);
    }
    let (record, body) = rest.split_at(length);
    let draft: Draft = serde_json::from_slice(record).map_err(|_| IntegrityFailed)?;
    if draft.id != *id || draft.request.body.sha256 != Digest::of(body) {
        return Err(IntegrityFailed);
    }
    Ok(Opened { draft, body: body.to_vec(), mac, key_id })
}

/// Seals a stored response under the active keys.
///
/// # Errors
///
/// [`IntegrityFailed`] if the response cannot be written as JSON.
pub fn seal_response(
    response: &StoredResponse,
    id: &DraftId,
    keys: &KeySet,
    chance: &dyn Chance,
) -> Result<Vec<u8>, IntegrityFailed> {
    let plain = serde_json::to_vec(response).map_err(|_| IntegrityFailed)?;
    let ring = keys.active();
    Ok(encrypt(&ring.seal, ring.id.as_str(), &plain, &response_name(id), chance))
}

/// Opens what [`seal_response`] made.
///
/// # Errors
///
/// [`IntegrityFailed`] on any difference.
pub fn open_response(sealed: &[u8], id: &DraftId, keys: &KeySet) -> Result<StoredResponse, IntegrityFailed> {
    let (_, plain) = decrypt(sealed, &response_name(id), keys)?;
    serde_json::from_slice(&plain).map_err(|_| IntegrityFailed)
}

fn response_name(id: &DraftId) -> String {
    format!("{id} response")
}

#[allow(clippy::expect_used)]
fn encrypt(key: &Key, key_id: &str, plain: &[u8], name: &str, chance: &dyn Chance) -> Vec<u8> {
    let mut nonce = [0; NONCE_BYTES];
    chance.fill(&mut nonce);
    let cipher = XChaCha20Poly1305::new(key.reveal().into());
    let payload = Payload { msg: plain, aad: name.as_bytes() };
    let sealed = cipher.encrypt(&XNonce::from(nonce), payload).expect("a draft is far below the cipher's limit");
    let mut out = Vec::with_capacity(2 + key_id.len() + NONCE_BYTES + sealed.len());
    out.push(VERSION);
    out.push(u8::try_from(key_id.len()).expect("key ids have at most 16 characters"));
    out.extend_from_slice(key_id.as_bytes());
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&sealed);
    out
}

fn decrypt(sealed: &[u8], name: &str, keys: &KeySet) -> Result<(String, Vec<u8>), IntegrityFailed> {
    let [VERSION, id_length, rest @ ..] = sealed else { return Err(IntegrityFailed) };
    let (key_id, rest) = rest.split_at_checked(usize::from(*id_length)).ok_or(IntegrityFailed)?;
    let key_id = std::str::from_utf8(key_id).map_err(|_| IntegrityFailed)?;
    let ring = keys.ring(key_id).ok_or(IntegrityFailed)?;
    let (nonce, cipher_text) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(IntegrityFailed)?;
    let payload = Payload { msg: cipher_text, aad: name.as_bytes() };
    let cipher = XChaCha20Poly1305::new(ring.seal.reveal().into());
    let plain = cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| IntegrityFailed)?;
    Ok((key_id.to_owned(), plain))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::base::chance::SeededChance;
    use crate::draft::record::sample;

    fn sealed() -> (KeySet, Draft, Vec<u8>) {
        let chance = SeededChance::new(7);
        let keys = KeySet::ephemeral(&chance);
        let draft = sample::draft(&keys, br#"{"title":"x"}"#);
        let sealed = seal(&draft, br#"{"title":"x"}"#, &keys, &chance).expect("seals");
        (keys, draft, sealed)
    }

    #[test]
    fn goes_round_and_hides_the_args() {
        let (keys, draft, sealed) = sealed();
        let opened = open(&sealed, &draft.id, &keys).expect("opens");
        assert_eq!(opened.draft, draft);
        assert_eq!(opened.body, br#"{"title":"x"}"#);
        let needle = b"title";
        assert!(!sealed.windows(needle.len()).any(|window| window == needle));
    }

    #[test]
    fn p2_every_altered_byte_is_found() {
        let (keys, draft, sealed) = sealed();
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert_eq!(open(&altered, &draft.id, &keys), Err(IntegrityFailed), "byte {at}");
        }
        for length in 0..sealed.len() {
            assert_eq!(open(&sealed[..length], &draft.id, &keys), Err(IntegrityFailed), "length {length}");
        }
    }

    #[test]
    fn p2_a_record_under_another_id_or_with_other_keys_does_not_open() {
        let (keys, draft, sealed) = sealed();
        let chance = SeededChance::new(8);
        let other = DraftId::new(draft.id.partition(), draft.created_at, &chance);
        assert_eq!(open(&sealed, &other, &keys), Err(IntegrityFailed));
        assert_eq!(open(&sealed, &draft.id, &KeySet::ephemeral(&chance)), Err(IntegrityFailed));
    }

    #[test]
    fn a_response_is_not_a_draft_and_belongs_to_one_draft() {
        let (keys, draft, sealed) = sealed();
        let chance = SeededChance::new(9);
        let response = StoredResponse {
            status: 201,
            headers: vec![("Location".to_owned(), "/todos/1".to_owned())],
            body: vec![0, 1, 2],
            length: 3,
            digest: Digest::of(&[0, 1, 2]),
            truncated: false,
        };
        let kept = seal_response(&response, &draft.id, &keys, &chance).expect("seals");
        assert_eq!(open_response(&kept, &draft.id, &keys), Ok(response));
        let other = DraftId::new(draft.id.partition(), draft.created_at, &chance);
        assert_eq!(open_response(&kept, &other, &keys), Err(IntegrityFailed));
        assert_eq!(open_response(&sealed, &draft.id, &keys), Err(IntegrityFailed));
        assert_eq!(open(&kept, &draft.id, &keys), Err(IntegrityFailed));
    }
}
