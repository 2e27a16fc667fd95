//! How many bytes of writes are in memory, and the reading of one write's body within that bound.
//!
//! Owns the bounds on a body: its own, the whole time it may take, and the sum over all bodies.
//! The memory that was taken for them counts, not only what is in it, from when they are read until
//! the hold is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
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
    /// Takes `bytes` more.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` where there is no room for them.
    fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.of.max);
        self.of.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).map_err(|_| no_room())?;
        self.bytes += bytes;
        Ok(())
    }

    fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.of.used.fetch_sub(bytes, Ordering::AcqRel);
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
    let mut gathered = Gathered::new(held, bytes_max, declared);
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
        gathered.add(piece)?;
    }
    Ok(gathered.finish())
}

/// A body's pieces as they come. A body of one piece is that piece and is never copied.
struct Gathered {
    share: Share,
    bytes_max: usize,
    /// What the head says, as far as memory is taken on its word alone.
    expected: usize,
    first: Bytes,
    whole: Vec<u8>,
}

impl Gathered {
    fn new(held: &Arc<HeldBytes>, bytes_max: usize, declared: Option<usize>) -> Self {
        let expected = declared.unwrap_or(0).min(TRUSTED_LENGTH);
        Self { share: held.share(), bytes_max, expected, first: Bytes::new(), whole: Vec::new() }
    }

    fn add(&mut self, piece: Bytes) -> Result<(), Refusal> {
        let length = self.first.len() + self.whole.len() + piece.len();
        if length > self.bytes_max {
            return Err(too_large(self.bytes_max));
        }
        if self.first.is_empty() && self.whole.is_empty() {
            self.share.take(piece.len())?;
            self.first = piece;
            return Ok(());
        }
        let capacity = self.whole.capacity();
        if length > capacity {
            let wanted = length.max(self.expected).max(capacity.saturating_mul(2)).min(self.bytes_max);
            // While bytes are moved, the old memory and the new are both there.
            self.share.take(wanted)?;
            self.whole.reserve_exact(wanted - self.whole.len());
            self.share.give_back(capacity);
            self.whole.extend_from_slice(&self.first);
            self.share.give_back(self.first.len());
            self.first = Bytes::new();
        }
        self.whole.extend_from_slice(&piece);
        Ok(())
    }

    fn finish(self) -> Body {
        let Self { share, first, whole, .. } = self;
        Body { bytes: if whole.is_empty() { first } else { Bytes::from(whole) }, share }
    }
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
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_sum_of_all_bodies_is_bounded_and_given_back() {
        let held = HeldBytes::new(10);
        let mut one = held.share();
        one.take(4).unwrap();
        one.take(3).unwrap();
        let mut two = held.share();
        assert_eq!(two.take(4).unwrap_err().code, Code::RateLimited);
        two.take(3).unwrap();
        drop(one);
        two.take(7).unwrap();
        assert!(two.take(1).is_err());
        assert!(held.share().take(usize::MAX).is_err());
        drop(two);
        assert_eq!(held.used.load(Ordering::Acquire), 0);
    }

    fn gathered(held: &Arc<HeldBytes>, declared: Option<usize>, pieces: &[usize]) -> Result<Body, Refusal> {
        let mut gathered = Gathered::new(held, 1 << 20, declared);
        for (number, length) in pieces.iter().enumerate() {
            gathered.add(Bytes::from(vec![u8::try_from(number).unwrap(); *length]))?;
            let taken = gathered.first.len() + gathered.whole.capacity();
            assert_eq!(held.used.load(Ordering::Acquire), taken, "what is taken is what counts");
        }
        Ok(gathered.finish())
    }

    #[test]
    fn memory_counts_as_it_is_taken_and_not_as_it_is_filled() {
        for (declared, pieces) in [
            (None, &[5][..]),
            (None, &[5, 1, 7, 700, 70_000, 1, 200_000]),
            (Some(65_536), &[1_000, 64_536]),
            (Some(900_000), &[65_536, 65_536, 65_536, 700_000]),
        ] {
            let held = HeldBytes::new(4 << 20);
            let body = gathered(&held, declared, pieces).unwrap();
            let mut expected = Vec::new();
            for (number, length) in pieces.iter().enumerate() {
                expected.resize(expected.len() + length, u8::try_from(number).unwrap());
            }
            assert_eq!(body.bytes, expected);
            drop(body);
            assert_eq!(held.used.load(Ordering::Acquire), 0);
        }
    }

    #[test]
    fn a_body_that_would_need_more_than_there_is_gives_all_of_it_back() {
        let held = HeldBytes::new(1_000);
        assert_eq!(gathered(&held, None, &[400, 300]).unwrap_err().code, Code::RateLimited);
        assert_eq!(held.used.load(Ordering::Acquire), 0);
    }
}
