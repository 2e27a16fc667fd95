//! Makes bearer tokens. Never stores, sends or logs one.

use data_encoding::BASE64URL_NOPAD;

use crate::base::chance::Chance;
use crate::base::secret::Secret;

/// Every token that the guard makes begins with this, so that secret scanners can find one that
/// leaked into a repository or a log.
pub const PREFIX: &str = "csk_";

/// A new token: the prefix and 256 random bits in base64url, 47 characters.
#[must_use]
pub fn new_token(chance: &dyn Chance) -> Secret {
    Secret::new(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&chance.bytes32())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::chance::SeededChance;

    #[test]
    fn tokens_have_256_bits_and_differ() {
        let chance = SeededChance::new(3);
        let (one, two) = (new_token(&chance), new_token(&chance));
        assert_eq!(one.reveal().len(), 47);
        assert!(one.reveal().starts_with("csk_"));
        assert_ne!(one, two);
    }
}
