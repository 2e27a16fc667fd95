//! Health, readiness and metrics: without a credential, and without a word about drafts.

use axum::response::Response;
use serde_json::json;

use super::asked::Asked;
use super::reply;

/// `GET /healthz`: the process answers.
pub(super) async fn healthz(_asked: Asked) -> Response {
    reply::json(200, &json!({"status": "ok"}))
}

/// `GET /readyz`: holds can be taken, or why not.
pub(super) async fn readyz(asked: Asked) -> Response {
    match asked.state.ready().await {
        Ok(()) => reply::json(200, &json!({"status": "ready"})),
        Err(reason) => reply::json(503, &json!({"status": "not_ready", "reason": reason})),
    }
}

/// `GET /metrics`: Prometheus text.
pub(super) async fn metrics(asked: Asked) -> Response {
    reply::text("text/plain; version=0.0.4; charset=utf-8", (asked.state.metrics)().await)
}
