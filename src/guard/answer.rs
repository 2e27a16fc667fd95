//! An HTTP answer of the guard's own, before any shell writes it.

use bytes::Bytes;
use serde::Serialize;

/// Status, headers and body. Shells add framing and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers without `Content-Length`, names in canonical case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// A JSON answer with `Cache-Control: no-store`.
    #[must_use]
    pub fn json<T: Serialize>(status: u16, body: &T) -> Self {
        Self::typed(status, "application/json", body)
    }

    /// A JSON answer of another media type.
    #[must_use]
    pub fn typed<T: Serialize>(status: u16, media_type: &str, body: &T) -> Self {
        // Views are plain data with string keys; serialising them cannot fail. An empty object
        // is the closed answer should one ever stop being that.
        let body = serde_json::to_vec(body).unwrap_or_else(|_| b"{}".to_vec());
        let headers = vec![
            ("Content-Type".to_owned(), media_type.to_owned()),
            ("Cache-Control".to_owned(), "no-store".to_owned()),
        ];
        Self { status, headers, body: body.into() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}
