//! A plain read: one request without a body, one answer streamed back.
//!
//! Owns the exchange with the upstream for reads that upload nothing, switch to nothing and have no
//! headers for one connection alone, which are nearly all. pingora's pool of connections and its
//! HTTP/1.1 client do the work; its proxying, which carries bodies both ways at once, takes the
//! other reads. Must never send a write, and never send anything twice.

use std::sync::Arc;

use futures_util::FutureExt as _;
use http::header::CONNECTION;
use http::{StatusCode, Version};
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::v1::client::HttpSession;
use pingora::proxy::Session;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType};

use super::ask::PlainRead;
use super::lanes::{POOLED_IDLE, Table};
use super::proxy::{AgentProxy, Exchange};
use super::strip::{frame, strip};

impl AgentProxy {
    /// Carries out a plain read.
    ///
    /// # Errors
    ///
    /// The upstream's or the client's failure, final. What was not answered yet is answered by
    /// whoever gets the error.
    pub(super) async fn relay(
        &self,
        session: &mut Session,
        table: &Table,
        ctx: &mut Exchange,
        _right: PlainRead,
    ) -> pingora::Result<()> {
        let mut request = Box::new(session.req_header().clone());
        request.set_version(Version::HTTP_11);
        request.remove_header(&CONNECTION);
        if let Some((_, lane)) = ctx.service.and_then(|index| table.get(index)) {
            ctx.dressed(lane, &mut request)?;
        }
        let (mut upstream, peer) = self.connect(table, ctx).await?;
        upstream.read_timeout = peer.options.read_timeout;
        upstream.write_timeout = peer.options.write_timeout;
        upstream.write_request_header(request).await.map_err(|error| error.into_up())?;
        stream(session, &mut upstream).await?;
        self.connector.release_http_session(upstream, &*peer, Some(POOLED_IDLE)).await;
        Ok(())
    }

    /// A connection to the first address that takes one.
    async fn connect(&self, table: &Table, ctx: &mut Exchange) -> pingora::Result<(HttpSession, Arc<HttpPeer>)> {
        loop {
            let (address, lane) = self.way(table, ctx).await?;
            let peer = lane.plain_peer(address);
            if let Some(upstream) = self.connector.reused_http_session(&*peer).await {
                return Ok((upstream, peer));
            }
            // Boxed, so that a read on a pooled connection does not carry the size of a handshake along.
            match Box::pin(self.connector.get_http_session(&*peer)).await {
                Ok((upstream, reused)) => {
                    if !reused {
                        self.check_connected(Some(upstream.digest()), ctx)?;
                    }
                    return Ok((upstream, peer));
                }
                Err(error) if ctx.tries.goes_on(&error) => {}
                Err(error) => return Err(error.into_up()),
            }
        }
    }
}

/// Streams the answer to the client, each piece as soon as it is there.
async fn stream(session: &mut Session, upstream: &mut HttpSession) -> pingora::Result<()> {
    loop {
        let task = tokio::select! {
            biased;
            task = upstream.read_response_task() => task.map_err(|error| error.into_up())?,
            // Ends only when the client is gone, and the upstream's connection with it.
            Err(error) = session.as_downstream_mut().read_body_or_idle(true) => return Err(error.into_down()),
        };
        let came_along = match &task {
            HttpTask::Header(_, false) => tokio::task::unconstrained(upstream.read_response_task()).now_or_never(),
            _ => None,
        };
        let mut tasks = Vec::with_capacity(2);
        tasks.push(judged(session, task)?);
        // What came along with the head leaves in one piece with it.
        match came_along {
            Some(Ok(task)) => tasks.push(judged(session, task)?),
            Some(Err(error)) => tasks.push(HttpTask::Failed(error.into_up())),
            None => {}
        }
        if session.as_downstream_mut().response_duplex_vec(tasks).await? {
            return Ok(());
        }
    }
}

/// A piece of the answer as the client gets it.
fn judged(session: &mut Session, mut task: HttpTask) -> pingora::Result<HttpTask> {
    if let HttpTask::Header(head, _) = &mut task {
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "a switch nobody asked for").into_up());
        }
        strip(head)?;
        frame(session, head)?;
    }
    Ok(task)
}
