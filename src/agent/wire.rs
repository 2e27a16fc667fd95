//! The strict framing in front of pingora's parser, as a stream that pingora reads from.
//!
//! Owns the bytes between a client and pingora: a head is passed on whole and only after it was
//! judged, a body only as far as it is framed in one way, and never a byte of the next request
//! before this one is over; the way back is in `answers`, what pingora asks beside bytes in
//! `stream`. Must never understand a request: [`crate::call::framing`] does.

mod answers;
mod stream;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::base::refusal::Refusal;
use crate::call::framing::{Cut, Fed, Framer, FramingLimits, Phase};

/// How much is read at once where pingora has no buffer of its own for it.
const INBOX_BYTES: usize = 4096;
/// How much of an answer is gathered before it is written.
const OUTBOX_BYTES: usize = 4096;
/// How long a client may take to read a piece of an answer.
pub(super) const WRITE_MAX: Duration = Duration::from_secs(60);
/// How long a client that is still sending is listened to after the last answer, so that it reads
/// that answer and not a reset.
const LINGER: Duration = Duration::from_secs(2);

/// Where the present request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its head has not been passed on.
    Head,
    /// Its head was passed on, its body not to the end.
    Body,
    /// All of it was passed on.
    Done,
    /// It became another protocol.
    Raw,
    /// Its framing was refused.
    Cut,
}

/// What came of waiting for a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arrival {
    /// A head was judged and is ready for pingora.
    Head,
    /// The client closed between two requests.
    Closed,
    /// The client closed inside a head.
    Truncated,
    /// The framing is refused; no byte of the request was passed on.
    Refused(Refusal),
}

/// A connection of a client, one well-framed request at a time.
pub(super) struct StrictStream<S: AsyncRead + AsyncWrite + Unpin> {
    io: S,
    framer: Framer,
    stage: Stage,
    /// Why the framing of the present body was refused.
    refusal: Option<Refusal>,
    /// The beginning of a head that came in pieces.
    spill: Vec<u8>,
    spill_taken: usize,
    /// `inbox[taken..passed]` may be read, `inbox[passed..filled]` was not judged yet.
    inbox: Vec<u8>,
    taken: usize,
    passed: usize,
    filled: usize,
    /// Answers that were not written yet.
    outbox: Vec<u8>,
    written: usize,
    /// Set through a shared reference, by the filter that sees the upstream's 101.
    upgraded: AtomicBool,
    /// Set through a shared reference, when the request reaches the guard's own filter. What
    /// pingora writes before is its own refusal of the head, without a word of explanation.
    reached: AtomicBool,
    /// Such a refusal was written, and is replaced at the end.
    replaced: bool,
    peer_closed: bool,
    /// How long the end of a client that is still sending is awaited.
    lingering: Option<Pin<Box<Sleep>>>,
    /// How long a client that reads nothing is still waited for.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> StrictStream<S> {
    /// Wraps a new connection.
    pub(super) fn new(io: S, limits: FramingLimits) -> Self {
        Self {
            io,
            framer: Framer::new(limits),
            stage: Stage::Head,
            refusal: None,
            spill: Vec::new(),
            spill_taken: 0,
            inbox: Vec::new(),
            taken: 0,
            passed: 0,
            filled: 0,
            outbox: Vec::new(),
            written: 0,
            upgraded: AtomicBool::new(false),
            reached: AtomicBool::new(false),
            replaced: false,
            peer_closed: false,
            lingering: None,
            stalled: None,
        }
    }

    /// Whether a part of a head has come.
    pub(super) fn is_in_head(&self) -> bool {
        self.framer.phase() == Phase::Head
    }

    /// Why the framing of the present request's body was refused, if it was.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// Goes on to the next request. `false` if the present one was the last, or if pingora and the
    /// framing do not agree that it is over: then the connection must be closed.
    pub(super) fn next_request(&mut self) -> bool {
        let read = self.taken == self.passed && self.spill_taken == self.spill.len();
        let over = self.stage == Stage::Done && read && self.framer.phase() != Phase::Ended;
        if over {
            self.stage = Stage::Head;
            *self.reached.get_mut() = false;
            self.spill = Vec::new();
            self.spill_taken = 0;
        }
        over
    }

    /// The request reached the guard's own filter: from here on, answers are the guard's or the
    /// upstream's.
    pub(super) fn reach(&self) {
        self.reached.store(true, Ordering::Release);
    }

    /// Lets everything pass from here on, after the upstream's 101. `false` if bytes came after
    /// the request and before its answer: they are never taken for the new protocol.
    pub(super) fn accept_upgrade(&self) -> bool {
        let clean = self.stage == Stage::Done && self.passed == self.filled;
        if clean {
            self.upgraded.store(true, Ordering::Release);
        }
        clean
    }

    /// Feeds what is in the inbox and not judged yet.
    fn judge_inbox(&mut self) {
        let fed = self.framer.feed_request(&self.inbox[self.passed..self.filled]);
        let Fed { released, pass, cut } = fed;
        if let Some(released) = released {
            self.spill = released;
            self.spill_taken = 0;
        }
        self.passed += pass;
        if self.framer.phase() == Phase::Head {
            // The framer keeps the beginning of a head itself.
            self.filled = self.passed;
        }
        self.after(cut);
    }

    fn after(&mut self, cut: Option<Box<Cut>>) {
        if let Some(cut) = cut {
            self.refusal = Some(cut.refusal);
            self.stage = Stage::Cut;
            return;
        }
        self.stage = match self.framer.phase() {
            Phase::Head => Stage::Head,
            Phase::Body => Stage::Body,
            Phase::Idle | Phase::Ended | Phase::Raw | Phase::Cut => Stage::Done,
        };
    }

    /// Keeps bytes that were read into pingora's buffer and belong to the next request.
    fn stash(&mut self, rest: &[u8]) {
        self.make_room();
        if self.inbox.len() < self.filled + rest.len() {
            self.inbox.resize(self.filled + rest.len(), 0);
        }
        self.inbox[self.filled..self.filled + rest.len()].copy_from_slice(rest);
        self.filled += rest.len();
    }

    /// Forgets what was read, and gives the inbox its size.
    fn make_room(&mut self) {
        if self.taken == self.filled {
            (self.taken, self.passed, self.filled) = (0, 0, 0);
            if self.inbox.len() != INBOX_BYTES {
                self.inbox.resize(INBOX_BYTES, 0);
                self.inbox.shrink_to(INBOX_BYTES);
            }
        }
    }

    /// Hands on what was passed, as far as `out` has room.
    fn hand_on(&mut self, out: &mut ReadBuf<'_>) -> bool {
        let before = out.filled().len();
        let rest = &self.spill[self.spill_taken..];
        let now = rest.len().min(out.remaining());
        out.put_slice(&rest[..now]);
        self.spill_taken += now;
        let rest = &self.inbox[self.taken..self.passed];
        let now = rest.len().min(out.remaining());
        out.put_slice(&rest[..now]);
        self.taken += now;
        out.filled().len() > before
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> StrictStream<S> {
    /// Waits for the next head. To be called again until it is ready; keeps no time.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        loop {
            if self.passed < self.filled {
                let before = self.framer.requests();
                self.judge_inbox();
                if let Some(refusal) = self.refusal.take() {
                    return Poll::Ready(Ok(Arrival::Refused(refusal)));
                }
                if self.framer.requests() > before {
                    return Poll::Ready(Ok(Arrival::Head));
                }
            }
            if ready!(self.poll_fill(cx))? == 0 {
                let cut_off = self.is_in_head();
                return Poll::Ready(Ok(if cut_off { Arrival::Truncated } else { Arrival::Closed }));
            }
        }
    }

    /// Reads into the inbox. Zero is the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut buf = ReadBuf::new(&mut self.inbox[self.filled..]);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
        let read = buf.filled().len();
        self.filled += read;
        self.peer_closed |= read == 0;
        Poll::Ready(Ok(read))
    }

    /// Reads a body straight into pingora's buffer and gives back what is not this request's.
    fn poll_body(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = out.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, out))?;
        let read = &out.filled()[start..];
        if read.is_empty() {
            self.peer_closed = true;
            return Poll::Ready(Ok(()));
        }
        let Fed { released: _, pass, cut } = self.framer.feed_request(read);
        if cut.is_none() && pass < read.len() {
            self.stash(&read[pass..]);
        }
        out.set_filled(start + pass);
        self.after(cut);
        Poll::Ready(Ok(()))
    }

    /// Nothing is there to read. Whoever listens has nothing more to write for now: then what is
    /// gathered does not wait for more.
    fn pend(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for StrictStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.hand_on(out) {
                return Poll::Ready(Ok(()));
            }
            match this.stage {
                // Only `poll_head` brings the next head; until then there is nothing to read.
                Stage::Head => return Poll::Pending,
                Stage::Body if this.passed < this.filled => this.judge_inbox(),
                Stage::Body => {
                    let before = out.filled().len();
                    match this.poll_body(cx, out) {
                        Poll::Ready(read) => read?,
                        Poll::Pending => return this.pend(cx),
                    }
                    if this.stage != Stage::Cut || out.filled().len() > before {
                        return Poll::Ready(Ok(()));
                    }
                }
                Stage::Done if *this.upgraded.get_mut() => this.stage = Stage::Raw,
                // What came too early waits for its turn, unread: a client that has sent all its
                // requests and closed its side still gets its answers.
                Stage::Done if this.passed < this.filled => return this.pend(cx),
                Stage::Done => match this.poll_fill(cx) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(end) => return Poll::Ready(end.map(|_| ())),
                    Poll::Pending => return this.pend(cx),
                },
                Stage::Raw => return Pin::new(&mut this.io).poll_read(cx, out),
                Stage::Cut => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the body's framing was refused",
                    )));
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + fmt::Debug> fmt::Debug for StrictStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the bytes: they carry credentials (promise 10).
        f.debug_struct("StrictStream").field("io", &self.io).field("stage", &self.stage).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
