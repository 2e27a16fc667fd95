//! One exchange: a request written once, an answer read, and what became of it.
//!
//! Owns the classification of an attempt by *stage*, never by error kind: as long as the socket
//! accepted no byte it is [`Attempt::NotSent`], after that it is [`Attempt::Unknown`] unless a
//! complete, well-formed answer came (promise 5). Must never send twice or follow a redirect.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, StatusCode, response::Parts};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::base::digest::Digest;
use crate::draft::outcome::StoredResponse;
use crate::policy::model::Timeouts;
use crate::store::rights::SendPermit;

use super::contract::{Attempt, Exchange, Outgoing, Response};
use super::gate::{Handed, Latch, Shut};
use super::request::{self, Goal};
use super::response::{self, Framing};
use super::wire::Wire;

/// The longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 128 * 1024;
/// The most header lines of an answer.
const HEADERS_MAX: usize = 256;

/// An open connection and where it leads.
pub(super) struct HttpExchange {
    pub(super) wire: Wire,
    pub(super) latch: Arc<Latch>,
    pub(super) goal: Goal,
    pub(super) timeouts: Timeouts,
}

#[async_trait]
impl Exchange for HttpExchange {
    async fn send(self: Box<Self>, permit: SendPermit, outgoing: Outgoing) -> Attempt {
        let Self { mut wire, latch, goal, timeouts } = *self;
        let request = match request::build(&outgoing, &goal) {
            Ok(request) => request,
            Err(why) => return Attempt::NotSent { why },
        };
        if let Some(why) = wire.lost_before_use().await {
            return Attempt::NotSent { why: why.to_owned() };
        }
        latch.arm(permit, timeouts.total);
        let mut seen = Seen::default();
        let reading = Reading { read: timeouts.read, kept_bytes_max: outgoing.response_bytes_max };
        let broken = match timeout(timeouts.total, converse(wire, request, reading, &latch, &mut seen)).await {
            // An answer to a request of which nothing was taken answers something else.
            Ok(Ok(_)) if matches!(latch.handed(), Handed::Nothing(_)) => {
                return Attempt::NotSent { why: "the connection took no byte of the request".to_owned() };
            }
            Ok(Ok(response)) => return Attempt::Answered(response),
            Ok(Err(_)) if latch.overdue() => Broken::TotalOver,
            Ok(Err(broken)) => broken,
            Err(_) => Broken::TotalOver,
        };
        classify(&broken, &seen, &latch)
    }
}

/// What had come back when an exchange ended.
#[derive(Default)]
struct Seen {
    status: Option<StatusCode>,
}

/// The bounds of reading.
#[derive(Clone, Copy)]
struct Reading {
    /// Between two pieces of the body.
    read: Duration,
    kept_bytes_max: usize,
}

/// Why there is no complete answer.
enum Broken {
    Hyper(hyper::Error),
    /// The answer is not one that can be relied on.
    Malformed(&'static str),
    ReadOver,
    TotalOver,
}

/// Writes the request and reads the answer to its end. Dropping the future closes the socket.
async fn converse(
    wire: Wire,
    request: Request<Full<Bytes>>,
    reading: Reading,
    latch: &Latch,
    seen: &mut Seen,
) -> Result<Response, Broken> {
    let method = request.method().clone();
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(2 * HEAD_BYTES_MAX)
        .handshake(TokioIo::new(wire))
        .await
        .map_err(Broken::Hyper)?;
    let mut connection = pin!(connection);
    let mut answer = pin!(async {
        let (head, body) = sender.send_request(request).await.map_err(Broken::Hyper)?.into_parts();
        seen.status = Some(head.status);
        let response = read_answer(&method, &head, body, reading).await?;
        latch.note_answered();
        Ok(response)
    });
    tokio::select! {
        biased;
        done = &mut answer => return done,
        // The connection has said all it will say; what it said waits in the answer.
        _ended = &mut connection => {}
    }
    answer.await
}

async fn read_answer(method: &Method, head: &Parts, mut body: Incoming, reading: Reading) -> Result<Response, Broken> {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Broken::Malformed("the upstream switched protocols without being asked to"));
    }
    let framing = response::framing(method, head.status, head.version, &head.headers).map_err(Broken::Malformed)?;
    let mut kept = Vec::new();
    let mut length = 0_u64;
    let mut hash = Sha256::new();
    loop {
        let piece = match timeout(reading.read, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Ok(Some(Err(error))) => return Err(Broken::Hyper(error)),
            Err(_) => return Err(Broken::ReadOver),
        };
        hash.update(&piece);
        length += piece.len() as u64;
        let room = reading.kept_bytes_max.saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    Ok(answered(head, framing, kept, length, Digest::from_bytes(hash.finalize().into())))
}

fn answered(head: &Parts, framing: Framing, body: Vec<u8>, length: u64, digest: Digest) -> Response {
    let truncated = (body.len() as u64) < length;
    Response {
        json: response::json(&head.headers, framing, &body, truncated),
        stored: StoredResponse {
            status: head.status.as_u16(),
            headers: response::kept_headers(&head.headers),
            body,
            length,
            digest,
            truncated,
        },
    }
}

/// The class of an attempt that brought no complete answer.
fn classify(broken: &Broken, seen: &Seen, latch: &Latch) -> Attempt {
    match latch.handed() {
        Handed::Nothing(shut) => Attempt::NotSent { why: not_sent(shut, broken) },
        Handed::Something(write_error) => Attempt::Unknown {
            why: unknown(broken, seen, latch.read_bytes(), write_error),
            status: seen.status.map(|status| status.as_u16()),
        },
    }
}

fn not_sent(shut: Option<Shut>, broken: &Broken) -> String {
    match shut {
        Some(Shut::PermitExpired) => "the time to send had passed before the first byte".to_owned(),
        Some(Shut::SocketRefused(kind)) => format!("the connection took no byte of the request ({kind})"),
        None => match broken {
            Broken::Hyper(error) => format!("the request was not begun ({})", kind_of(error)),
            Broken::Malformed(why) => (*why).to_owned(),
            Broken::ReadOver | Broken::TotalOver => "the connection took no byte of the request in time".to_owned(),
        },
    }
}

fn unknown(broken: &Broken, seen: &Seen, read_bytes: u64, write_error: Option<io::ErrorKind>) -> String {
    let stage = match (seen.status, read_bytes) {
        (Some(_), _) => "in the body of the answer",
        (None, 0) => "before the answer",
        (None, _) => "in the head of the answer",
    };
    let mut why = match broken {
        Broken::Malformed(why) => (*why).to_owned(),
        Broken::ReadOver => format!("nothing more came in time {stage}"),
        Broken::TotalOver => format!("the time for the whole exchange ended {stage}"),
        Broken::Hyper(error) if error.is_parse_too_large() => "the head of the answer is too long".to_owned(),
        Broken::Hyper(error) if error.is_parse() => "the answer is not well-formed HTTP/1.1".to_owned(),
        Broken::Hyper(error) => format!("{} {stage}", kind_of(error)),
    };
    if let Some(kind) = write_error {
        why.push_str(&format!("; the request could not be written to its end ({kind})"));
    }
    why
}

/// What happened to the connection, in words that hold no data.
fn kind_of(error: &hyper::Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(now) = cause {
        if let Some(io) = now.downcast_ref::<io::Error>() {
            return match io.kind() {
                io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
                io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => "what came was malformed".to_owned(),
                kind => format!("the connection failed ({kind})"),
            };
        }
        cause = now.source();
    }
    if error.is_incomplete_message() {
        "the connection was closed".to_owned()
    } else {
        "the connection ended".to_owned()
    }
}

#[cfg(test)]
mod tests;
