//! SHA-256 digests as values that are told equal in constant time (order and hash, for maps, are not
//! constant in time) and print as lower-case hex.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Thirty-two bytes: a SHA-256 digest or an HMAC-SHA-256. Printed as 64 lower-case hex digits.
#[derive(Clone, Copy, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        // By words: byte by byte takes eight times as long, and every read compares a few.
        let ((words, _), (others, _)) = (self.0.as_chunks::<8>(), other.0.as_chunks::<8>());
        let equal = |(one, other): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*one).ct_eq(&u64::from_ne_bytes(*other));
        words.iter().zip(others).map(equal).fold(subtle::Choice::from(1), |all, one| all & one).into()
    }
}

impl std::hash::Hash for Digest {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Digest {
    /// SHA-256 of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest from its 32 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 lower-case hex digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// The text is not 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hex digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| NotADigest)?;
        Ok(Self(bytes.try_into().map_err(|_| NotADigest)?))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;

    #[test]
    fn one_bit_anywhere_makes_another_digest() {
        let one = Digest::of(b"one");
        assert_eq!(one, Digest::of(b"one"));
        for bit in 0..256 {
            let mut bytes = *one.as_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(one, Digest::from_bytes(bytes), "bit {bit}");
        }
    }

    #[test]
    fn hex_goes_round_and_refuses_other_spellings() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.to_hex().parse(), Ok(digest));
        assert_eq!(digest.to_hex().to_uppercase().parse::<Digest>(), Err(NotADigest));
        assert_eq!("e3".parse::<Digest>(), Err(NotADigest));
    }
}
