//! What the guard asks of an upstream, and the type that answers "could it have been sent?".

use async_trait::async_trait;
use bytes::Bytes;

use crate::base::digest::Digest;
use crate::draft::outcome::StoredResponse;
use crate::policy::model::Service;
use crate::store::rights::SendPermit;

/// The request of a release, complete: built from the opened draft alone, with credentials and
/// the effect key resolved. `Debug` is not derived: it holds secrets.
#[derive(Clone)]
pub struct Outgoing {
    /// The method.
    pub method: String,
    /// Absolute target as bound by the args hash.
    pub target: String,
    /// All headers to send but `Host`, `Content-Length` and hop-by-hop ones, in order.
    pub headers: Vec<(String, String)>,
    /// The body; `Content-Length` is always sent for methods with a body, never chunked.
    pub body: Bytes,
    /// Longest response body that is kept, in bytes; the digest and the length cover the whole.
    pub response_bytes_max: usize,
}

impl Outgoing {
    /// SHA-256 over method, target and body digest: the receipt's `sent_digest`. Credentials and
    /// injected headers are not part of it, so that it can be recomputed from the draft.
    #[must_use]
    pub fn sent_digest(&self) -> Digest {
        let body = Digest::of(&self.body);
        Digest::of(format!("{}\n{}\n{}\n", self.method, self.target, body).as_bytes())
    }
}

/// What became of one attempt. Never a bool, never an error kind guessed later.
#[derive(Debug, Clone, PartialEq)]
pub enum Attempt {
    /// Provably no byte of the request left: the permit's deadline had passed, or the socket
    /// refused before the first write.
    NotSent {
        /// Why, for the log and the evidence.
        why: String,
    },
    /// The upstream answered completely.
    Answered(Response),
    /// A byte may have left and no complete answer came back.
    Unknown {
        /// What was seen (`reset before the response head`), without data.
        why: String,
        /// The status, where a head came but the body did not come whole.
        status: Option<u16>,
    },
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// What is kept: kept headers only, never `Set-Cookie`.
    pub stored: StoredResponse,
    /// Whether a body of a JSON type parses; `None` if the type is not JSON, the body is coded
    /// in a way that is not read, or it was truncated.
    pub json: Option<Result<serde_json::Value, ()>>,
}

/// Nothing was sent: no address, refused, TLS failed, patience over. All of it before the mark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the upstream was not reached: {why}")]
pub struct NotReached {
    /// Why, for the log and the evidence.
    pub why: String,
}

/// A connection that was opened for one exchange.
#[async_trait]
pub trait Exchange: Send {
    /// Checks the permit immediately before the first byte, writes the request once, reads the
    /// answer until `timeouts.total` after the first byte, closes. Never retries, never follows
    /// a redirect, never sends a byte after the permit's deadline unless the first byte was
    /// before it.
    async fn send(self: Box<Self>, permit: SendPermit, outgoing: Outgoing) -> Attempt;
}

/// The upstreams, as the guard sees them.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// Opens a fresh connection to the service's declared authority (TCP and TLS, no request
    /// byte, no early data), trying again within `patience` while it is refused.
    ///
    /// # Errors
    ///
    /// [`NotReached`]; nothing was sent.
    async fn connect(&self, service: &Service, patience: std::time::Duration) -> Result<Box<dyn Exchange>, NotReached>;
}
