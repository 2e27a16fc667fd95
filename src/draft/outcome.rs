//! What became of a release: outcome, failure, evidence and the stored response.

use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::time::Timestamp;

/// Why a draft is `failed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Provably no byte of the request reached the upstream. `again` is offered.
    NotSent,
    /// The claim was older than `late_release` before it could be sent. `again` is offered.
    ReleaseTooLate,
    /// The upstream answered and refused.
    Refused,
    /// A person resolved it as not executed.
    Resolved,
    /// Its confirmation does not verify, so it was not sent: somebody wrote to the store. Not
    /// offered again: whoever wrote this may have hidden more.
    Integrity,
}

impl Failure {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::NotSent, Self::ReleaseTooLate, Self::Refused, Self::Resolved, Self::Integrity];

    /// Whether nothing was sent, provably.
    #[must_use]
    pub const fn not_sent(self) -> bool {
        match self {
            Self::NotSent | Self::ReleaseTooLate => true,
            Self::Refused | Self::Resolved | Self::Integrity => false,
        }
    }

    /// The word in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::ReleaseTooLate => "release_too_late",
            Self::Refused => "refused",
            Self::Resolved => "resolved",
            Self::Integrity => "integrity",
        }
    }
}

/// Most characters of a piece of evidence.
pub const EVIDENCE_TEXT_CHARS_MAX: usize = 500;

/// Most characters of a piece of evidence's source.
pub const EVIDENCE_SOURCE_CHARS_MAX: usize = 32;

/// One piece of evidence about an outcome; control data, never part of the draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// When it was seen, by the node's clock.
    pub at: Timestamp,
    /// `attempt`, `late_answer`, `take_over`, `person`.
    pub source: String,
    /// A sentence without args or credentials, at most [`EVIDENCE_TEXT_CHARS_MAX`] characters.
    pub text: String,
    /// The upstream's status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_status: Option<u16>,
}

impl Evidence {
    /// A piece of evidence with its texts cut at their bounds: an outcome's MAC covers it, so
    /// nothing below may cut it.
    #[must_use]
    pub fn new(at: Timestamp, source: &str, text: &str, upstream_status: Option<u16>) -> Self {
        Self {
            at,
            source: source.chars().take(EVIDENCE_SOURCE_CHARS_MAX).collect(),
            text: text.chars().take(EVIDENCE_TEXT_CHARS_MAX).collect(),
            upstream_status,
        }
    }

    /// Whether its texts keep their bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.source.chars().count() <= EVIDENCE_SOURCE_CHARS_MAX && self.text.chars().count() <= EVIDENCE_TEXT_CHARS_MAX
    }
}

/// The upstream's answer as it is kept and replayed: status, kept headers, bounded body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredResponse {
    /// The upstream's status.
    pub status: u16,
    /// The kept headers in order; never `Set-Cookie`.
    pub headers: Vec<(String, String)>,
    /// Up to `max_response` bytes.
    #[serde(with = "base64_bytes")]
    pub body: Vec<u8>,
    /// The whole body's length in bytes.
    pub length: u64,
    /// The whole body's SHA-256.
    pub digest: Digest,
    /// Whether `body` is shorter than `length`.
    pub truncated: bool,
}

mod base64_bytes {
    use data_encoding::BASE64;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        BASE64.decode(String::deserialize(from)?.as_bytes()).map_err(serde::de::Error::custom)
    }
}
