//! A refusal on its way to the one who asked: a code, words, and where exactly the mistake is.

use serde::{Deserialize, Serialize};

use super::code::Code;

/// One mistake in the args: where and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// RFC 6901 JSON Pointer into the args; empty for the whole.
    pub pointer: String,
    /// What is wrong, in a sentence that never repeats a secret value.
    pub reason: String,
}

/// Why a call was not carried out. Nothing was sent and nothing is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Decides status, `executed` and `safe_to_retry` (the table in `guard::problem`).
    pub code: Code,
    /// The policy's own code for a preparation error (`TODO_TITLE_REQUIRED`); stands in the
    /// answer's `code` instead of `code`, with the status of `code`.
    pub policy_code: Option<String>,
    /// One sentence: what happened and what to do.
    pub detail: String,
    /// The policy's guidance text, for planned and forbidden capabilities.
    pub guidance: Option<String>,
    /// One entry per mistake.
    pub errors: Vec<FieldError>,
}

impl Refusal {
    /// A refusal with a sentence.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, policy_code: None, detail: detail.into(), guidance: None, errors: Vec::new() }
    }

    /// Adds the policy's guidance.
    #[must_use]
    pub fn with_guidance(mut self, guidance: impl Into<String>) -> Self {
        self.guidance = Some(guidance.into());
        self
    }

    /// Adds one mistake.
    #[must_use]
    pub fn with_error(mut self, pointer: impl Into<String>, reason: impl Into<String>) -> Self {
        self.errors.push(FieldError { pointer: pointer.into(), reason: reason.into() });
        self
    }
}
