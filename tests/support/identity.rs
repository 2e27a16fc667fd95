//! Who asks, where a test or a bench judges calls by itself.
//!
//! Owns one caller of whom only the necessary is known. Must never stand for what a guard finds out
//! about a caller: it reads no request.

use countersign::draft::record::Identity;

/// `bot` for `u1` in session `s1`.
pub(crate) fn identity() -> Identity {
    let known = r#"{"tenant":"default","initiator":"bot","owner":"u1","session":"s1","deliver_token":false}"#;
    serde_json::from_str(known).unwrap_or_else(|error| panic!("{known}: {error}"))
}
