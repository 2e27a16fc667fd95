//! One request as the HTTP library reads it: its head, and its body as far as it is framed in one way.
//!
//! Owns the bytes between a client and the library. Must never pass on a byte behind the end of the
//! request: what a client sends there is read and dropped.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use crate::base::refusal::Refusal;
use crate::call::framing::{Fed, Framer};

/// Why the body of a request was refused, for whoever reads it.
#[derive(Debug, Clone, Default)]
pub(super) struct BodyCut(Arc<OnceLock<Refusal>>);

impl BodyCut {
    /// The refusal, if there is one.
    pub(super) fn why(&self) -> Option<&Refusal> {
        self.0.get()
    }
}

/// See the module.
pub(super) struct Framed<R> {
    io: R,
    framer: Framer,
    /// Judged, and not yet read.
    judged: BytesMut,
    cut: BodyCut,
}

impl<R: AsyncRead + Unpin> Framed<R> {
    /// A request of which `judged`, its head at least, has passed `framer`.
    pub(super) fn new(io: R, framer: Framer, judged: BytesMut) -> Self {
        Self { io, framer, judged, cut: BodyCut::default() }
    }

    /// Where the refusal of the body will stand.
    pub(super) fn cut(&self) -> BodyCut {
        self.cut.clone()
    }

    /// What is left of the connection.
    pub(super) fn into_inner(self) -> R {
        self.io
    }

    /// Reads a piece of the body, as far as it is part of the request.
    fn poll_body(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = out.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, out))?;
        // The body cannot release a head that was held back.
        let Fed { released: _, pass, cut } = self.framer.feed_request(&out.filled()[start..]);
        let Some(cut) = cut else {
            out.set_filled(start + pass);
            return Poll::Ready(Ok(()));
        };
        // A reader that fails has read nothing.
        out.set_filled(start);
        // Kept by the first refusal; there is no second one.
        let _ = self.cut.0.set(cut.refusal);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the framing of the body was refused")))
    }

    /// Reads what no request is made of, up to the end.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut unheard = [0; 1024];
            let mut buf = ReadBuf::new(&mut unheard);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Framed<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.judged.is_empty() {
            let now = this.judged.len().min(out.remaining());
            out.put_slice(&this.judged[..now]);
            this.judged.advance(now);
            return Poll::Ready(Ok(()));
        }
        if this.framer.in_body() { this.poll_body(cx, out) } else { this.poll_rest(cx) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;

    use crate::base::code::Code;
    use crate::control::door;

    const HEAD: &str = "POST /v1/rejections HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Sends head, body and what stands behind it apart; gives what was read of the request and why it was cut.
    async fn read(body: &str, behind: &str) -> (String, Option<Code>) {
        let from = tokio::io::AsyncReadExt::chain(HEAD.as_bytes(), body.as_bytes());
        let from = tokio::io::AsyncReadExt::chain(from, behind.as_bytes());
        let Ok(Some(mut framed)) = door::admit(from, Duration::from_secs(5)).await else { panic!("a good head") };
        let cut = framed.cut();
        let mut whole = Vec::new();
        let read = framed.read_to_end(&mut whole).await;
        assert_eq!(read.is_err(), cut.why().is_some());
        let whole = String::from_utf8(whole).unwrap();
        (whole.strip_prefix(HEAD).unwrap().to_owned(), cut.why().map(|refusal| refusal.code))
    }

    #[tokio::test]
    async fn a_body_passes_to_its_end_and_not_further() {
        let body = "2\r\n{}\r\n0\r\n\r\n";
        let next = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(read(body, "").await, (body.to_owned(), None));
        assert_eq!(read(&format!("{body}{next}"), "").await, (body.to_owned(), None));
        assert_eq!(read(body, next).await, (body.to_owned(), None));
    }

    #[tokio::test]
    async fn chunks_that_could_be_read_in_two_ways_are_cut() {
        for body in ["2\n{}\r\n0\r\n\r\n", "2\r\n{}\n0\r\n\r\n", "2;a\nb\r\n{}\r\n0\r\n\r\n", "+2\r\n{}\r\n0\r\n\r\n"] {
            let (passed, cut) = read(body, "").await;
            assert_eq!(cut, Some(Code::RequestAmbiguous), "{body:?}");
            assert!(!passed.contains("0\r\n\r\n"), "{body:?}: the end was passed on");
        }
    }
}
