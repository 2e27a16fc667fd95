//! The gate before the first byte: the socket of one exchange, and what it knows of it.
//!
//! The gate sits beneath TLS, directly on the socket, so what it counts is exact: as long as the
//! socket has accepted no byte after the gate was armed, nothing of the request has left. The
//! permit is asked immediately before every write until the first byte is accepted (promises 3
//! and 4). Must never retry, and must never write after the whole exchange's time is over.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::base::time::{BootTime, Clock};
use crate::store::rights::SendPermit;

/// Where the writing side of an exchange stands.
enum Stage {
    /// Before the request: only TLS writes.
    Handshake,
    /// The request may begin while the permit is valid.
    Armed { permit: SendPermit, total: Duration },
    /// The permit's deadline had passed before the first byte.
    Expired,
    /// The socket refused the first write.
    Refused(io::ErrorKind),
    /// A byte has been accepted; nothing is written after `until`.
    Open { until: BootTime },
    /// The peer takes no more bytes. What is still to be written is dropped, so that an answer
    /// which came before (an early 413) can be read.
    Deaf(io::ErrorKind),
    /// The time for the whole exchange was over before the request was written.
    Overdue,
}

/// What is known of an exchange, shared between its socket and its classification.
pub(super) struct Latch {
    clock: Arc<dyn Clock>,
    stage: Mutex<Stage>,
    read_bytes: AtomicU64,
    answered: AtomicBool,
}

/// What the gate says of the request once it is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handed {
    /// No byte of the request was accepted by the socket; why, where the gate knows.
    Nothing(Option<Shut>),
    /// At least one byte was; the write error, where there was one.
    Something(Option<io::ErrorKind>),
}

/// Why the gate did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shut {
    /// The permit's deadline had passed.
    PermitExpired,
    /// The socket refused the first write.
    SocketRefused(io::ErrorKind),
}

impl Latch {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            stage: Mutex::new(Stage::Handshake),
            read_bytes: AtomicU64::new(0),
            answered: AtomicBool::new(false),
        })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the request begin, under this permit, for at most `total`.
    pub(super) fn arm(&self, permit: SendPermit, total: Duration) {
        *self.stage() = Stage::Armed { permit, total };
    }

    /// Whether a byte of the request may have left.
    pub(super) fn handed(&self) -> Handed {
        match &*self.stage() {
            Stage::Handshake | Stage::Armed { .. } => Handed::Nothing(None),
            Stage::Expired => Handed::Nothing(Some(Shut::PermitExpired)),
            Stage::Refused(kind) => Handed::Nothing(Some(Shut::SocketRefused(*kind))),
            Stage::Open { .. } => Handed::Something(None),
            Stage::Deaf(kind) => Handed::Something(Some(*kind)),
            Stage::Overdue => Handed::Something(Some(io::ErrorKind::TimedOut)),
        }
    }

    /// Notes plaintext bytes of the answer.
    pub(super) fn note_read(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How many plaintext bytes came back.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Whether a write was refused because the time for the whole exchange was over.
    pub(super) fn overdue(&self) -> bool {
        matches!(&*self.stage(), Stage::Overdue)
    }

    /// Notes that the answer came whole, so that the socket closes in the ordinary way.
    pub(super) fn note_answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    fn given_up(&self) -> bool {
        !self.answered.load(Ordering::Relaxed) && matches!(self.handed(), Handed::Something(_))
    }

    /// One write, under the rules of the stage.
    fn write(&self, bytes: usize, write: impl FnOnce() -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let mut stage = self.stage();
        match &*stage {
            Stage::Handshake => write(),
            Stage::Armed { permit, total } => {
                if !permit.still_valid(&*self.clock) {
                    *stage = Stage::Expired;
                    return Poll::Ready(Err(shut()));
                }
                let until = self.clock.boot() + *total;
                let wrote = write();
                match &wrote {
                    Poll::Ready(Ok(accepted)) if *accepted > 0 => *stage = Stage::Open { until },
                    Poll::Ready(Err(error)) => *stage = Stage::Refused(error.kind()),
                    Poll::Ready(Ok(_)) | Poll::Pending => {}
                }
                wrote
            }
            Stage::Open { until } => {
                if self.clock.boot() >= *until {
                    *stage = Stage::Overdue;
                    return Poll::Ready(Err(shut()));
                }
                match write() {
                    Poll::Ready(Err(error)) => {
                        *stage = Stage::Deaf(error.kind());
                        Poll::Ready(Ok(bytes))
                    }
                    other => other,
                }
            }
            Stage::Deaf(_) => Poll::Ready(Ok(bytes)),
            Stage::Expired | Stage::Refused(_) | Stage::Overdue => Poll::Ready(Err(shut())),
        }
    }
}

fn shut() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the gate is shut")
}

/// A socket behind its latch.
pub(super) struct Gate {
    tcp: TcpStream,
    latch: Arc<Latch>,
}

impl Gate {
    pub(super) fn new(tcp: TcpStream, latch: Arc<Latch>) -> Self {
        Self { tcp, latch }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.latch.given_up() {
            // Bytes that still wait in the kernel must not be delivered after the exchange was
            // given up. Where this fails the socket closes in the ordinary way: the outcome is
            // unknown in both cases, and is classified so.
            let _ = self.tcp.set_zero_linger();
        }
    }
}

impl AsyncRead for Gate {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gate {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { tcp, latch } = self.get_mut();
        latch.write(buf.len(), || Pin::new(tcp).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { tcp, latch } = self.get_mut();
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        latch.write(bytes, || Pin::new(tcp).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    /// Never half-closes: the answer is read first, then the socket is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::{ManualClock, Timestamp};
    use crate::upstream::testing::permit_until;

    fn latch() -> (Arc<ManualClock>, Arc<Latch>) {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        (Arc::clone(&clock), Latch::new(clock))
    }

    fn ok(bytes: usize) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes))
    }

    fn reset() -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }

    #[test]
    fn p4_the_permit_is_asked_at_every_write_until_a_byte_is_accepted() {
        let (clock, latch) = latch();
        latch.arm(permit_until(clock.boot() + Duration::from_secs(2)), Duration::from_secs(30));
        assert!(latch.write(5, || Poll::Pending).is_pending());
        assert_eq!(latch.handed(), Handed::Nothing(None));
        clock.advance(Duration::from_secs(2));
        let mut tried = false;
        let late = latch.write(5, || {
            tried = true;
            ok(5)
        });
        assert!(matches!(late, Poll::Ready(Err(_))));
        assert!(!tried, "nothing reaches the socket after the deadline");
        assert_eq!(latch.handed(), Handed::Nothing(Some(Shut::PermitExpired)));
    }

    #[test]
    fn p3_after_the_first_byte_the_permit_is_spent_and_the_total_time_counts() {
        let (clock, latch) = latch();
        latch.arm(permit_until(clock.boot() + Duration::from_secs(2)), Duration::from_secs(30));
        assert!(latch.write(5, || ok(1)).is_ready());
        clock.advance(Duration::from_secs(29));
        assert!(matches!(latch.write(4, || ok(2)), Poll::Ready(Ok(2))), "the permit is for the first byte only");
        clock.advance(Duration::from_secs(1));
        let mut tried = false;
        let late = latch.write(2, || {
            tried = true;
            ok(2)
        });
        assert!(matches!(late, Poll::Ready(Err(_))) && !tried);
        assert_eq!(latch.handed(), Handed::Something(Some(io::ErrorKind::TimedOut)));
    }

    #[test]
    fn a_refused_first_write_is_nothing_and_a_refused_second_one_is_swallowed() {
        let (clock, first) = latch();
        first.arm(permit_until(clock.boot() + Duration::from_secs(2)), Duration::from_secs(30));
        assert!(matches!(first.write(5, reset), Poll::Ready(Err(_))));
        assert_eq!(first.handed(), Handed::Nothing(Some(Shut::SocketRefused(io::ErrorKind::ConnectionReset))));
        assert!(matches!(first.write(5, || ok(5)), Poll::Ready(Err(_))), "a refused gate stays shut");

        let (clock, second) = latch();
        second.arm(permit_until(clock.boot() + Duration::from_secs(2)), Duration::from_secs(30));
        assert!(second.write(5, || ok(5)).is_ready());
        assert!(matches!(second.write(7, reset), Poll::Ready(Ok(7))));
        assert!(matches!(second.write(9, || Poll::Pending), Poll::Ready(Ok(9))));
        assert_eq!(second.handed(), Handed::Something(Some(io::ErrorKind::ConnectionReset)));
    }
}
