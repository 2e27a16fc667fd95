//! The connection of one exchange as HTTP sees it: plain or TLS, both over the [`Gate`].
//!
//! Owns the count of plaintext bytes that came back. Must never write by itself.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use super::gate::{Gate, Latch};

enum Stream {
    Plain(Gate),
    Tls(Box<TlsStream<Gate>>),
}

/// A connection, ready for one request.
pub(super) struct Wire {
    stream: Stream,
    latch: Arc<Latch>,
}

impl Wire {
    pub(super) fn plain(gate: Gate, latch: Arc<Latch>) -> Self {
        Self { stream: Stream::Plain(gate), latch }
    }

    pub(super) fn tls(stream: TlsStream<Gate>, latch: Arc<Latch>) -> Self {
        Self { stream: Stream::Tls(Box::new(stream)), latch }
    }

    /// Whether the upstream has closed, broken or spoken before it was asked anything. Looks once
    /// and does not wait. While nothing was written this proves that nothing was executed, and a
    /// connection that fails it would make the outcome of a write unknown for no gain.
    pub(super) async fn lost_before_use(&mut self) -> Option<&'static str> {
        poll_fn(|cx| {
            let mut byte = [0; 1];
            let mut buf = ReadBuf::new(&mut byte);
            let polled = match &mut self.stream {
                Stream::Plain(gate) => Pin::new(gate).poll_read(cx, &mut buf),
                Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, &mut buf),
            };
            Poll::Ready(match polled {
                Poll::Pending => None,
                Poll::Ready(Ok(())) if buf.filled().is_empty() => {
                    Some("the upstream closed the connection before the request")
                }
                Poll::Ready(Ok(())) => Some("the upstream spoke before the request"),
                Poll::Ready(Err(_)) => Some("the connection broke before the request"),
            })
        })
        .await
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = match &mut this.stream {
            Stream::Plain(gate) => Pin::new(gate).poll_read(cx, buf),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, buf),
        };
        this.latch.note_read(buf.filled().len() - before);
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(gate) => Pin::new(gate).poll_write(cx, buf),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(gate) => Pin::new(gate).poll_write_vectored(cx, bufs),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(gate) => gate.is_write_vectored(),
            Stream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(gate) => Pin::new(gate).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
        }
    }

    /// Never half-closes, and sends no TLS goodbye: the socket is dropped after the answer.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
