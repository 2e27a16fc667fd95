//! Where a request begins and ends on a connection, HTTP/1.0 and HTTP/1.1 (RFC 9112).
//!
//! Owns the decision which bytes of a client may be passed on to an HTTP parser. It stands in front
//! of every parser and follows heads and bodies over any split of the bytes; what two parsers could
//! frame in two ways is refused, and of a refused head not one byte is passed on. Must never wait,
//! read a clock or a socket: the shell feeds it and keeps the time.
//!
//! # What the shell keeps time of
//!
//! | [`Phase`] | begins with | deadline that runs |
//! | --- | --- | --- |
//! | `Idle` | the connection, or the end of a request | idle time between requests |
//! | `Head` | the first byte of a head | the whole head (`limits.head`), whatever trickles in |
//! | `Body` | the end of a head that announces a body | the whole body (`limits.body`) |
//! | `Ended`, `Raw`, `Cut` | the last request, a switch of protocol, a refusal | none of these |
//!
//! A head that comes whole in one piece goes from `Idle` to `Body` or `Idle` within one call; then
//! [`Framer::requests`] has grown.

mod chunks;
mod request;
#[cfg(test)]
mod tests;

use crate::base::code::Code;
use crate::base::refusal::Refusal;

use self::chunks::Chunks;
use self::request::{Body, Judged};

/// Bounds on what a client may send before a parser sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramingLimits {
    /// Longest head with its last empty line, in bytes.
    pub head_bytes_max: usize,
    /// Most header lines of one head.
    pub headers_max: usize,
    /// Longest line that announces a chunk, in bytes without its line break.
    pub chunk_line_bytes_max: usize,
    /// Most bytes of chunk extensions in one body.
    pub chunk_extension_bytes_max: usize,
    /// Longest trailer section, in bytes.
    pub trailer_bytes_max: usize,
    /// Whether a connection may begin with the preface of HTTP/2; everything after it then passes.
    pub http2_prior_knowledge: bool,
}

impl Default for FramingLimits {
    fn default() -> Self {
        Self {
            head_bytes_max: 64 * 1024,
            headers_max: 128,
            chunk_line_bytes_max: 256,
            chunk_extension_bytes_max: 16 * 1024,
            trailer_bytes_max: 8 * 1024,
            http2_prior_knowledge: false,
        }
    }
}

/// Where on a connection the last byte that was fed stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Between two requests, or before the first.
    Idle,
    /// Inside a head; its bytes are held back.
    Head,
    /// Inside a body.
    Body,
    /// After the last request that the connection may carry.
    Ended,
    /// After a switch of protocol: everything passes.
    Raw,
    /// After a refusal: nothing passes any more.
    Cut,
}

/// What became of the bytes of one call of [`Framer::feed`]. To be passed on are first `released`,
/// then the first `pass` bytes of the input; the rest of the input is held back, or dropped after a
/// cut.
#[derive(Debug, Default)]
pub struct Fed {
    /// Bytes of earlier calls that were held back until now.
    pub released: Option<Vec<u8>>,
    /// How many bytes of the input are passed on.
    pub pass: usize,
    /// The refusal, if this call met one.
    pub cut: Option<Box<Cut>>,
}

/// The end of a connection by refusal. After the answer, if there is one, it has to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// What the client is told.
    pub refusal: Refusal,
    /// Whether the request that is refused was passed on already, up to here: then whoever reads it
    /// must see an error and not an end. If not, the shell itself answers, once the answers to all
    /// earlier requests are out.
    pub mid_request: bool,
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub struct Framer {
    limits: FramingLimits,
    state: State,
    /// The head so far, if it did not come whole.
    held: Vec<u8>,
    /// How much of `held` was searched for its end.
    searched: usize,
    /// Where the lines of the head end, so far.
    line_ends: Vec<usize>,
    requests: u64,
}

#[derive(Debug)]
enum State {
    Head,
    Length { left: u64, last: bool },
    Chunked { chunks: Chunks, last: bool },
    Ended,
    Raw,
    Cut,
}

/// How far a head reaches.
enum Reach {
    Complete(usize),
    Partial,
}

impl Framer {
    /// A framer for a new connection.
    #[must_use]
    pub const fn new(limits: FramingLimits) -> Self {
        Self { limits, state: State::Head, held: Vec::new(), searched: 0, line_ends: Vec::new(), requests: 0 }
    }

    /// Judges the next bytes of the connection, in any split: every split of the same bytes passes
    /// on the same bytes and ends in the same refusal.
    pub fn feed(&mut self, input: &[u8]) -> Fed {
        self.feed_until(input, false)
    }

    /// Judges the next bytes as [`Self::feed`] does, up to the end of one request at most: what
    /// follows it in `input` was not looked at and is to be fed again. While a head is held back
    /// ([`Phase::Head`]), all of `input` was taken.
    pub fn feed_request(&mut self, input: &[u8]) -> Fed {
        self.feed_until(input, true)
    }

    fn feed_until(&mut self, input: &[u8], one_request: bool) -> Fed {
        let mut fed = Fed::default();
        while fed.pass < input.len() {
            if one_request && fed.pass > 0 && self.at_boundary() {
                break;
            }
            let rest = &input[fed.pass..];
            let step = match &mut self.state {
                State::Head => self.feed_head(rest, &mut fed),
                State::Length { left, last } => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= u64::try_from(taken).unwrap_or(*left);
                    let over = *left == 0;
                    let last = *last;
                    fed.pass += taken;
                    self.end_body_if(over, last);
                    Ok(true)
                }
                State::Chunked { chunks, last } => {
                    let (taken, step) = chunks.feed(rest, &self.limits);
                    let last = *last;
                    fed.pass += taken;
                    step.map(|over| {
                        self.end_body_if(over, last);
                        true
                    })
                }
                State::Ended => Err(ambiguous("bytes follow after a request that is the connection's last")),
                State::Raw => {
                    fed.pass = input.len();
                    Ok(true)
                }
                State::Cut => Ok(false),
            };
            match step {
                Ok(true) => {}
                Ok(false) => break,
                Err(refusal) => {
                    let mid_request = self.phase() == Phase::Body;
                    self.state = State::Cut;
                    self.held = Vec::new();
                    fed.cut = Some(Box::new(Cut { refusal, mid_request }));
                    break;
                }
            }
        }
        fed
    }

    /// Whether the connection stands between two requests, with nothing held back.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::Ended)
    }

    /// Whether the connection stands inside a body.
    #[must_use]
    pub fn in_body(&self) -> bool {
        self.phase() == Phase::Body
    }

    /// Where the last byte stands, for deadlines (see the module's table).
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Head if self.held.is_empty() => Phase::Idle,
            State::Head => Phase::Head,
            State::Length { .. } | State::Chunked { .. } => Phase::Body,
            State::Ended => Phase::Ended,
            State::Raw => Phase::Raw,
            State::Cut => Phase::Cut,
        }
    }

    /// How many heads were passed on.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Whether the client may close here without having left a request unfinished.
    #[must_use]
    pub fn may_end(&self) -> bool {
        !matches!(self.phase(), Phase::Head | Phase::Body)
    }

    /// Passes everything from here on, after the upstream accepted the upgrade of the request that
    /// is the `request`th of this connection (counted from 1).
    ///
    /// # Errors
    ///
    /// `REQUEST_AMBIGUOUS` if any byte came after that request: it was read as the next request and
    /// must not be taken for the new protocol. The connection is cut then.
    pub fn switch_to_raw(&mut self, request: u64) -> Result<(), Refusal> {
        if self.at_boundary() && self.requests == request {
            self.state = State::Raw;
            return Ok(());
        }
        self.state = State::Cut;
        self.held = Vec::new();
        Err(ambiguous("bytes came after a request for another protocol and before the answer to it"))
    }

    fn end_body_if(&mut self, over: bool, last: bool) {
        if over {
            self.state = if last { State::Ended } else { State::Head };
        }
    }

    /// Takes bytes of a head. `Ok(false)`: all of them are held back.
    fn feed_head(&mut self, rest: &[u8], fed: &mut Fed) -> Result<bool, Refusal> {
        if self.held.is_empty() {
            if !rest.first().is_some_and(|byte| request::is_token_byte(*byte)) {
                return Err(ambiguous("it does not begin with a method"));
            }
            self.line_ends.clear();
            let Reach::Complete(end) = reach(rest, 0, &mut self.line_ends, &self.limits)? else {
                self.held = rest.to_vec();
                self.searched = rest.len();
                return Ok(false);
            };
            self.begin(&rest[..end])?;
            fed.pass += end;
            return Ok(true);
        }
        let before = self.held.len();
        let room = self.limits.head_bytes_max.saturating_sub(before).min(rest.len());
        self.held.extend_from_slice(&rest[..room]);
        let Reach::Complete(end) = reach(&self.held, self.searched, &mut self.line_ends, &self.limits)? else {
            self.searched = self.held.len();
            return Ok(false);
        };
        let mut head = std::mem::take(&mut self.held);
        self.begin(&head[..end])?;
        head.truncate(before);
        fed.released = Some(head);
        fed.pass += end - before;
        Ok(true)
    }

    /// Judges a whole head and goes on to what follows it.
    fn begin(&mut self, head: &[u8]) -> Result<(), Refusal> {
        self.state = match request::judge(head, &self.line_ends)? {
            Judged::Http2Preface if self.limits.http2_prior_knowledge && self.requests == 0 => State::Raw,
            Judged::Http2Preface => return Err(ambiguous("HTTP/2 is not spoken here")),
            Judged::Request { body: Body::Length(left), last } => State::Length { left, last },
            Judged::Request { body: Body::Chunked, last } => State::Chunked { chunks: Chunks::default(), last },
            Judged::Request { body: Body::None, last: true } => State::Ended,
            Judged::Request { body: Body::None, last: false } => State::Head,
        };
        self.requests += 1;
        Ok(())
    }
}

/// Looks for the empty line that ends a head, from `from` on, and notes where lines end.
fn reach(bytes: &[u8], from: usize, ends: &mut Vec<usize>, limits: &FramingLimits) -> Result<Reach, Refusal> {
    let bounded = &bytes[..bytes.len().min(limits.head_bytes_max)];
    for at in memchr::memchr_iter(b'\n', &bounded[from..]).map(|at| at + from) {
        ends.push(at);
        match bounded[..at] {
            [.., b'\n', b'\r'] => return Ok(Reach::Complete(at + 1)),
            // The first line is no header.
            [.., b'\r'] if ends.len() > limits.headers_max + 1 => return Err(too_large("the list of its headers")),
            [.., b'\r'] => {}
            _ => return Err(ambiguous("a line of its head ends without a carriage return")),
        }
    }
    if bounded.len() == limits.head_bytes_max {
        return Err(too_large("the head"));
    }
    Ok(Reach::Partial)
}

/// A request whose framing two parsers could read in two ways.
fn ambiguous(why: &str) -> Refusal {
    Refusal::new(
        Code::RequestAmbiguous,
        format!(
            "The request's framing could be read in two ways: {why}. Nothing was sent, and the connection is closed."
        ),
    )
}

/// Something over its bound.
fn too_large(what: &str) -> Refusal {
    Refusal::new(
        Code::HeadTooLarge,
        format!("The request is refused: {what} is too long. Nothing was sent, and the connection is closed."),
    )
}
