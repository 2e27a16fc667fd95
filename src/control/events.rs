//! Events: a page to catch up with, or a live stream.
//!
//! A hint wakes the stream; what it sends comes from the store, so nothing is missed and nothing
//! is told before it is durable. Streams are bounded in number and in time: a client that comes
//! back names the last event it saw.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio::time::Instant;

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::guard::problem::Problem;
use crate::guard::who::Approver;
use crate::policy::visible::spelled_json;
use crate::store::cursor::Cursor;
use crate::store::row::Event;

use super::asked::{Asked, Caller};
use super::caller;
use super::reply;
use super::routes;
use super::state::ControlState;

/// Events of one page, where nobody says.
const LIMIT_DEFAULT: usize = 100;

/// Events of one page, at most.
const LIMIT_MAX: usize = 1_000;

/// A stream without events says that it is alive this often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a stream lives.
pub(super) const STREAM_LIFE: Duration = Duration::from_secs(15 * 60);

/// Marks the response whose connection may live as long as a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live;

/// A page of events.
#[derive(Debug, Serialize)]
struct Events {
    events: Vec<Event>,
    /// The cursor of the next page: `after` of the next call.
    next: Cursor,
}

/// `GET /v1/events`
pub(super) async fn events(asked: Asked) -> Response {
    match try_events(asked).await {
        Ok(response) => response,
        Err(problem) => reply::from_problem(&problem),
    }
}

async fn try_events(asked: Asked) -> Result<Response, Problem> {
    let mut query = asked.query()?;
    let after = query.take("after", "the `next` of the page before", |text| text.parse::<Cursor>().ok());
    let limit = query.take("limit", "a number from 1 to 1000", |text| {
        text.parse::<usize>().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit))
    });
    query.finish()?;
    let accepts = |wanted: &str| {
        let lines = asked.headers().get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
        lines
            .flat_map(|line| line.split(','))
            .any(|item| item.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted))
    };
    if accepts("text/event-stream") {
        let resumed = asked.headers().get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
        return live(&asked, resumed.or(after).unwrap_or_default());
    }
    let after = after.unwrap_or_default();
    let page = asked.state.desk.events(asked.approver()?, &after, limit.unwrap_or(LIMIT_DEFAULT)).await?;
    let next = page.next();
    Ok(reply::json(200, &Events { events: page.events, next }))
}

fn live(asked: &Asked, after: Cursor) -> Result<Response, Problem> {
    let Caller::Approver { who, token_sha256 } = &asked.caller else { return Err(routes::credential_unknown()) };
    let permit = Arc::clone(&asked.state.streams).try_acquire_owned().map_err(|_| {
        Problem::new(
            Code::RateLimited,
            "Too many live streams are open. Close one, or read pages without Accept: text/event-stream.",
        )
    })?;
    let feed = Feed {
        hints: asked.state.desk.hints(),
        stopping: asked.state.stopping.subscribe(),
        state: Arc::clone(&asked.state),
        who: who.clone(),
        token_sha256: *token_sha256,
        after,
        ends: Instant::now() + STREAM_LIFE,
        greeted: false,
        _permit: permit,
    };
    let body = Body::from_stream(stream::unfold(feed, |mut feed| async move {
        let piece = feed.next().await?;
        Some((Ok::<_, Infallible>(piece), feed))
    }));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.extensions_mut().insert(Live);
    Ok(reply::secured(response))
}

/// What a live stream goes on with.
struct Feed {
    state: Arc<ControlState>,
    hints: broadcast::Receiver<DraftId>,
    stopping: watch::Receiver<bool>,
    who: Approver,
    token_sha256: Digest,
    after: Cursor,
    ends: Instant,
    greeted: bool,
    _permit: OwnedSemaphorePermit,
}

impl Feed {
    /// Whether the credential is still known, the listener still open and the time not over.
    fn may_go_on(&self) -> bool {
        let known = self.state.credentials.load();
        caller::still_known(&known, &self.who.name, &self.token_sha256).is_some()
            && !*self.stopping.borrow()
            && Instant::now() < self.ends
    }

    /// The next piece; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.greeted, true) {
            return Some(Bytes::from_static(b": countersign events\n\n"));
        }
        loop {
            if !self.may_go_on() {
                return None;
            }
            // A store that is away ends the stream: the client comes back with its cursor.
            let page = self.state.desk.events(&self.who, &self.after, LIMIT_DEFAULT).await.ok()?;
            self.after = page.next();
            if !page.events.is_empty() {
                return Some(page.with_cursors().map(written).collect::<String>().into());
            }
            let wait = KEEP_ALIVE.min(self.ends.saturating_duration_since(Instant::now()));
            tokio::select! {
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                hint = self.hints.recv() => if hint == Err(broadcast::error::RecvError::Closed) {
                    return None;
                },
                () = tokio::time::sleep(wait) => return Some(Bytes::from_static(b": alive\n\n")),
            }
        }
    }
}

/// An event of a stream. Its id is where a reader stands who has seen it.
fn written((cursor, event): (Cursor, &Event)) -> String {
    let data = serde_json::to_string(event).unwrap_or_else(|_| "{}".to_owned());
    format!("id: {cursor}\nevent: {}\ndata: {}\n\n", event.kind, spelled_json(&data))
}
