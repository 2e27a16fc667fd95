//! The control listener: connections, and how much each of them may ask of us.
//!
//! Owns the bounds in number, size and time. One connection carries one request: the calls are
//! few, and nothing can be smuggled behind the first one. Must never know what a call means.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::door;
use super::events::{Live, STREAM_LIFE};
use super::routes;
use super::state::ControlState;

/// The bounds of the listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Connections at one time; more wait in the backlog.
    pub(super) connections_max: u32,
    /// How long a head may take.
    pub(super) head: Duration,
    /// How long a connection may take that is no live stream.
    pub(super) connection: Duration,
    /// How long a closing connection is read on, so that a client that is still sending gets the
    /// answer and not a reset.
    pub(super) linger: Duration,
    /// How long connections may take to end when the listener stops.
    pub(super) stop: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: 512,
            head: Duration::from_secs(10),
            connection: Duration::from_secs(120),
            linger: Duration::from_secs(2),
            stop: Duration::from_secs(15),
        }
    }
}

/// Serves until `shutdown` is ready, then lets the requests in flight end (bounded).
pub async fn serve(state: Arc<ControlState>, listener: TcpListener, shutdown: impl Future<Output = ()>) {
    serve_within(state, listener, shutdown, Bounds::default()).await;
}

pub(super) async fn serve_within(
    state: Arc<ControlState>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
    bounds: Bounds,
) {
    let router = routes::router(&state);
    let places = Arc::new(Semaphore::new(bounds.connections_max as usize));
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        let router = router.clone();
        tokio::spawn(async move {
            connection(stream, router, bounds).await;
            drop(place);
        });
    }
    drop(listener);
    state.stop();
    let all = places.acquire_many(bounds.connections_max);
    if tokio::time::timeout(bounds.stop, all).await.is_err() {
        tracing::warn!("stopping with control requests in flight");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            // Out of file descriptors, mostly: trying again at once would only burn time.
            tracing::warn!(%error, "the control listener cannot accept");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, router: Router, bounds: Bounds) {
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    let request = match door::admit(reader, bounds.head).await {
        Ok(Some(request)) => request,
        Ok(None) => return,
        Err((reader, problem)) => {
            tracing::debug!(code = %problem.code, "a control connection was refused");
            let said = async {
                writer.write_all(&door::written(&problem)).await.ok()?;
                writer.shutdown().await.ok()
            };
            let _ = tokio::time::timeout(bounds.linger, said).await;
            return linger(reader, bounds.linger).await;
        }
    };
    let live = Arc::new(AtomicBool::new(false));
    let marks = Arc::clone(&live);
    let cut = request.cut();
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(cut.clone());
        let (inner, marks) = (inner.clone(), Arc::clone(&marks));
        let answered: BoxFuture<'static, Result<Response, Infallible>> = Box::pin(async move {
            let response = inner.call(request.map(Body::new)).await?;
            marks.store(response.extensions().get::<Live>().is_some(), Ordering::Relaxed);
            Ok(response)
        });
        answered
    });
    let io = TokioIo::new(tokio::io::join(request, writer));
    let served = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .timer(TokioTimer::new())
        .max_headers(door::HEADERS_MAX)
        .max_buf_size(door::HEAD_BYTES_MAX * 2)
        .serve_connection(io, service)
        .without_shutdown();
    let Some(Ok(parts)) = within(served, &live, bounds.connection).await else { return };
    let (request, mut writer) = parts.io.into_inner().into_inner();
    let _ = tokio::time::timeout(bounds.linger, writer.shutdown()).await;
    linger(request.into_inner(), bounds.linger).await;
}

/// Waits for `work`, longer where it turned out to be a live stream.
pub(super) async fn within<T>(work: impl Future<Output = T>, live: &AtomicBool, patience: Duration) -> Option<T> {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(patience, &mut work).await {
        return Some(done);
    }
    if !live.load(Ordering::Relaxed) {
        return None;
    }
    tokio::time::timeout(STREAM_LIFE, work).await.ok()
}

/// Reads and drops what the client still sends.
async fn linger(mut reader: impl tokio::io::AsyncRead + Unpin, patience: Duration) {
    let drain = async {
        let mut scratch = [0; 8 * 1024];
        while reader.read(&mut scratch).await.is_ok_and(|read| read > 0) {}
    };
    let _ = tokio::time::timeout(patience, drain).await;
}
