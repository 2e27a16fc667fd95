//! Which request headers carry a credential, by their names.
//!
//! Owns the rule that goes with the policy's own `credential_headers`: a header that is called like a
//! credential is sealed apart and never shown, whether the policy thought of it or not. Must
//! never look at a value.

use http::HeaderName;

/// What a name holds, without `-` and `_`, if it is called like a credential.
const WORDS: [&str; 12] = [
    "authorization",
    "credential",
    "cookie",
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "bearer",
    "jwt",
    "apikey",
    "privatekey",
];
/// What stands before `key` where the key is a credential and not a name of something.
const KEYS: [&str; 8] = ["access", "auth", "functions", "master", "secret", "service", "subscription", "signing"];

/// Whether a header of this name is taken for a credential.
pub(super) fn is_called_credential(name: &HeaderName) -> bool {
    let compact: String = name.as_str().chars().filter(|c| !matches!(c, '-' | '_')).collect();
    WORDS.iter().any(|word| compact.contains(word))
        || compact.ends_with("auth")
        || compact.strip_suffix("key").is_some_and(|before| KEYS.iter().any(|word| before.ends_with(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_known_by_their_names() {
        for name in [
            "authorization",
            "proxy-authorization",
            "x-forwarded-authorization",
            "cookie",
            "x-api-key",
            "api-key",
            "apikey",
            "x_api_key",
            "dd-api-key",
            "x-goog-api-key",
            "x-auth",
            "x-auth-key",
            "x-auth-token",
            "private-token",
            "x-access-token",
            "x-amz-security-token",
            "x-csrf-token",
            "x-client-secret",
            "x-password",
            "x-jwt-assertion",
            "ocp-apim-subscription-key",
            "x-functions-key",
            "x-service-credentials",
        ] {
            assert!(is_called_credential(&HeaderName::from_static(name)), "{name}");
        }
        for name in [
            "accept",
            "content-type",
            "if-match",
            "idempotency-key",
            "x-request-id",
            "x-user-id",
            "x-tenant",
            "x-partition-key",
            "x-author",
            "x-monkey",
            "user-agent",
            "x-keyboard",
        ] {
            assert!(!is_called_credential(&HeaderName::from_static(name)), "{name}");
        }
    }
}
