//! How many bytes of writes are in memory, and the reading of one write's body within that bound.
//!
//! Owns the bounds on a body: its own, the whole time it may take, and the sum over all bodies.
//! Bytes count from when they are read until the hold is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pingora::ErrorType;
use pingora::proxy::Session;
use tokio::time::Instant;

use crate::base::code::Code;
use crate::base::refusal::Refusal;
use crate::call::head::Head;

use super::proxy::wire_of;

/// Capacity that is taken on a client's word alone.
const TRUSTED_LENGTH: usize = 64 * 1024;

/// The bytes of all bodies in memory.
#[derive(Debug)]
pub(super) struct HeldBytes {
    used: AtomicUsize,
    max: usize,
}

impl HeldBytes {
    /// At most `max` bytes.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    /// An empty share.
    pub(super) fn share(self: &Arc<Self>) -> Share {
        Share { of: Arc::clone(self), bytes: 0 }
    }
}

/// One body's part; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: Arc<HeldBytes>,
    bytes: usize,
}

impl Share {
    /// Takes `bytes` more, if there is room.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.of.max);
        let grown = self.of.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok();
        if grown {
            self.bytes += bytes;
        }
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A body that was read whole.
#[derive(Debug)]
pub(super) struct Body {
    /// Its bytes, without chunk framing.
    pub(super) bytes: Bytes,
    /// Its part of all bytes in memory; to be kept as long as the bytes are.
    pub(super) share: Share,
}

/// The declared length of the body; the framing has seen to it that it is one plain number.
fn declared_length(head: &Head<'_>) -> Option<usize> {
    let value = head.headers.get(http::header::CONTENT_LENGTH)?;
    // A length beyond the machine's words is beyond every bound as well.
    value.to_str().ok().map(|text| text.parse().unwrap_or(usize::MAX))
}

/// Reads the body of a write: at most `bytes_max` of it, whole within `deadline`.
///
/// # Errors
///
/// `BODY_TOO_LARGE`, at once where the declared length says so; `REQUEST_TIMEOUT`; `RATE_LIMITED`
/// where the sum of all bodies has no room; the framing's refusal; `REQUEST_AMBIGUOUS` where the
/// client closed before the end.
pub(super) async fn read(
    session: &mut Session,
    head: &Head<'_>,
    bytes_max: usize,
    deadline: Duration,
    held: &Arc<HeldBytes>,
) -> Result<Body, Refusal> {
    let declared = declared_length(head);
    if declared.is_some_and(|length| length > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let deadline = Instant::now() + deadline;
    if head.expects_continue
        && head.announces_body()
        && session.as_downstream_mut().write_continue_response().await.is_err()
    {
        return Err(cut_short());
    }
    let mut share = held.share();
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    loop {
        let piece = match tokio::time::timeout_at(deadline, session.as_downstream_mut().read_request_body()).await {
            Err(_) => return Err(too_slow()),
            // The proxy core's own bound on one read may end a moment before the deadline.
            Ok(Err(error)) if error.etype == ErrorType::ReadTimedout => return Err(too_slow()),
            Ok(Err(_)) => {
                return Err(wire_of(session).and_then(|wire| wire.refusal().cloned()).unwrap_or_else(cut_short));
            }
            Ok(Ok(None)) => break,
            Ok(Ok(Some(piece))) => piece,
        };
        if first.len() + whole.len() + piece.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        if !share.grow(piece.len()) {
            return Err(no_room());
        }
        if first.is_empty() && whole.is_empty() {
            first = piece;
            continue;
        }
        if whole.is_empty() {
            whole.reserve(
                declared.unwrap_or(0).clamp(first.len() + piece.len(), TRUSTED_LENGTH.max(first.len() + piece.len())),
            );
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&piece);
    }
    let bytes = if whole.is_empty() { first } else { whole.freeze() };
    Ok(Body { bytes, share })
}

fn too_large(bytes_max: usize) -> Refusal {
    Refusal::new(
        Code::BodyTooLarge,
        format!("The body is longer than {bytes_max} bytes, the bound of this call. Nothing was held or executed."),
    )
}

fn too_slow() -> Refusal {
    Refusal::new(
        Code::RequestTimeout,
        "The body did not arrive whole in time. Nothing was held or executed; send it again.",
    )
}

fn no_room() -> Refusal {
    Refusal::new(
        Code::RateLimited,
        "Too many calls are being read at this moment. Nothing was held or executed; try again.",
    )
}

fn cut_short() -> Refusal {
    Refusal::new(
        Code::RequestAmbiguous,
        "The connection ended before the body was as long as its head says. Nothing was held or executed.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_all_bodies_is_bounded_and_given_back() {
        let held = HeldBytes::new(10);
        let mut one = held.share();
        assert!(one.grow(4) && one.grow(3));
        let mut two = held.share();
        assert!(!two.grow(4));
        assert!(two.grow(3));
        drop(one);
        assert!(two.grow(7));
        assert!(!two.grow(1));
        assert!(!held.share().grow(usize::MAX));
        drop(two);
        assert_eq!(held.used.load(Ordering::Acquire), 0);
    }
}
