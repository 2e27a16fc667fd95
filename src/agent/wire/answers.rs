//! The answers of a connection on their way to the client.
//!
//! Owns what is gathered before it is written, how long a client that reads nothing is waited for,
//! and how a connection ends so that its last answer is read. Must never let out what pingora says
//! of a head by itself: until the request has reached the guard, that is replaced.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use pingora::protocols::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::{INBOX_BYTES, LINGER, OUTBOX_BYTES, Stage, StrictStream, WRITE_MAX};
use crate::agent::respond;
use crate::base::code::Code;
use crate::base::refusal::Refusal;

impl<S: AsyncRead + AsyncWrite + Unpin> StrictStream<S> {
    /// Writes what waits in the outbox and then `more`; says how much of both. Waits for a client that
    /// reads nothing for [`WRITE_MAX`] at most, whatever is written.
    fn poll_write_parts(&mut self, cx: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        let waiting = &self.outbox[self.written..];
        let written = match (waiting, more) {
            (waiting, []) => Pin::new(&mut self.io).poll_write(cx, waiting),
            ([], more) => Pin::new(&mut self.io).poll_write(cx, more),
            (waiting, more) => {
                let parts = [io::IoSlice::new(waiting), io::IoSlice::new(more)];
                Pin::new(&mut self.io).poll_write_vectored(cx, &parts)
            }
        };
        match written {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(written) => {
                self.stalled = None;
                Poll::Ready(written)
            }
            Poll::Pending => {
                let timer = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_MAX)));
                ready!(timer.as_mut().poll(cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
            }
        }
    }

    pub(super) fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.outbox.len() {
            self.written += ready!(self.poll_write_parts(cx, &[]))?;
        }
        self.outbox.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Listens to a client that is still sending, so that it reads the last answer and not a
    /// reset, until it stops or its time is over.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let timer = self.lingering.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut unheard = [0; INBOX_BYTES];
            let mut buf = ReadBuf::new(&mut unheard);
            let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf));
            if read.is_err() || buf.filled().is_empty() {
                self.peer_closed = true;
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> StrictStream<S> {
    /// Writes the last bytes of the connection and closes it.
    pub(in crate::agent) async fn close_with(&mut self, answer: &[u8]) {
        *self.reached.get_mut() = true;
        if self.write_all(answer).await.is_ok() {
            Shutdown::shutdown(self).await;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for StrictStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !*this.reached.get_mut() {
            this.replaced = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        if this.outbox.len() + bytes.len() <= OUTBOX_BYTES {
            if this.outbox.capacity() == 0 {
                this.outbox.reserve_exact(OUTBOX_BYTES);
            }
            this.outbox.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        while this.written < this.outbox.len() && this.io.is_write_vectored() {
            let waiting = this.outbox.len() - this.written;
            let now = ready!(this.poll_write_parts(cx, bytes))?;
            if now > waiting {
                this.outbox.clear();
                this.written = 0;
                return Poll::Ready(Ok(now - waiting));
            }
            this.written += now;
        }
        ready!(this.poll_write_out(cx))?;
        this.poll_write_parts(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_out(cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.replaced) {
            *this.reached.get_mut() = true;
            this.outbox.extend_from_slice(&respond::last_bytes(&respond::refusal(not_passed_on())));
        }
        ready!(this.poll_write_out(cx))?;
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
        }
        let still_sending = matches!(this.stage, Stage::Body | Stage::Cut) || this.passed < this.filled;
        if still_sending && !this.peer_closed { this.poll_linger(cx) } else { Poll::Ready(Ok(())) }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Drop for StrictStream<S> {
    fn drop(&mut self) {
        // What was answered before the connection broke is not withheld, as far as it can be
        // written without waiting.
        let mut cx = Context::from_waker(Waker::noop());
        while let rest @ [_, ..] = &self.outbox[self.written..]
            && let Poll::Ready(Ok(now @ 1..)) = Pin::new(&mut self.io).poll_write(&mut cx, rest)
        {
            self.written += now;
        }
    }
}

fn not_passed_on() -> Refusal {
    Refusal::new(
        Code::RequestAmbiguous,
        "The head of the request cannot be passed on: `Host` is malformed or names another authority than the target. \
         Nothing was sent, and the connection is closed.",
    )
}
