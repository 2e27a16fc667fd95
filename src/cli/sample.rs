//! The quickstart's upstream: a small to-do service in memory. It knows nothing of the guard.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Longest body that it takes, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// It keeps at most this many to-dos.
const TODOS_MAX: usize = 10_000;
/// What a to-do may say of itself.
const STATUSES: [&str; 3] = ["open", "done", "archived"];

/// A running sample service.
#[derive(Debug)]
pub(super) struct Sample {
    /// Where it listens.
    pub(super) address: SocketAddr,
    stop: watch::Sender<bool>,
}

impl Sample {
    /// Starts it on a free port of the loopback address.
    ///
    /// # Errors
    ///
    /// No port could be opened.
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(accept(listener, Arc::default(), stopped));
        Ok(Self { address, stop })
    }

    /// Takes no more connections and ends those that are open.
    pub(super) fn stop(&self) {
        let _ = self.stop.send(true);
    }
}

async fn accept(listener: TcpListener, todos: Arc<Todos>, mut stopped: watch::Receiver<bool>) {
    loop {
        let stream = tokio::select! {
            _ = stopped.changed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, or the peer is gone already: neither ends the service.
                Err(_) => { tokio::time::sleep(Duration::from_millis(10)).await; continue }
            },
        };
        let (todos, mut stopped) = (Arc::clone(&todos), stopped.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&todos), request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(30))
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = stopped.changed() => {}
                // A client that breaks off is no business of the service.
                _ = connection => {}
            }
        });
    }
}

async fn answer(todos: Arc<Todos>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Ok(respond((StatusCode::PAYLOAD_TOO_LARGE, json!({"error": "the body is too long"})))),
    };
    Ok(respond(todos.answer(&head.method, head.uri.path(), &body)))
}

fn respond((status, body): (StatusCode, Value)) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The to-dos, oldest first. An id is a position, from 1.
#[derive(Debug, Default)]
struct Todos {
    all: Mutex<Vec<Map<String, Value>>>,
}

impl Todos {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let id = path.strip_prefix("/todos/").and_then(|id| id.parse::<usize>().ok());
        let missing = (StatusCode::NOT_FOUND, json!({"error": "not found"}));
        match (method.as_str(), path, id) {
            ("GET" | "HEAD", "/todos", _) => (StatusCode::OK, json!({"items": *all})),
            ("POST", "/todos", _) => create(&mut all, body),
            ("GET" | "HEAD", _, Some(id)) => find(&mut all, id).map_or(missing, |todo| (StatusCode::OK, json!(todo))),
            ("PATCH", _, Some(id)) => find(&mut all, id).map_or(missing, |todo| change(todo, body)),
            (_, "/todos", _) | (_, _, Some(_)) => {
                (StatusCode::METHOD_NOT_ALLOWED, json!({"error": "GET, POST and PATCH only"}))
            }
            _ => missing,
        }
    }
}

fn find(all: &mut [Map<String, Value>], id: usize) -> Option<&mut Map<String, Value>> {
    all.get_mut(id.checked_sub(1)?)
}

fn invalid(why: &str) -> (StatusCode, Value) {
    (StatusCode::UNPROCESSABLE_ENTITY, json!({"error": why}))
}

fn create(all: &mut Vec<Map<String, Value>>, body: &[u8]) -> (StatusCode, Value) {
    if all.len() >= TODOS_MAX {
        return (StatusCode::INSUFFICIENT_STORAGE, json!({"error": "there are enough to-dos"}));
    }
    let Ok(Value::Object(mut todo)) = serde_json::from_slice(body) else { return invalid("a JSON object is needed") };
    if todo.get("title").and_then(Value::as_str).is_none_or(|title| title.trim().is_empty()) {
        return invalid("title is needed");
    }
    todo.insert("id".to_owned(), json!(all.len() + 1));
    todo.insert("status".to_owned(), json!("open"));
    all.push(todo.clone());
    (StatusCode::CREATED, Value::Object(todo))
}

fn change(todo: &mut Map<String, Value>, body: &[u8]) -> (StatusCode, Value) {
    let Ok(Value::Object(new)) = serde_json::from_slice::<Value>(body) else {
        return invalid("a JSON object is needed");
    };
    let Some(status) = new.get("status").and_then(Value::as_str).filter(|status| STATUSES.contains(status)) else {
        return invalid("status is one of open, done, archived");
    };
    todo.insert("status".to_owned(), json!(status));
    (StatusCode::OK, Value::Object(todo.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn ask(todos: &Todos, method: Method, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = todos.answer(&method, path, body.as_bytes());
        (status.as_u16(), body)
    }

    #[test]
    fn what_was_made_can_be_read_and_changed() {
        let todos = Todos::default();
        assert_eq!(ask(&todos, Method::GET, "/todos", ""), (200, json!({"items": []})));
        let made = json!({"id": 1, "title": "milk", "priority": 1, "status": "open"});
        assert_eq!(ask(&todos, Method::POST, "/todos", r#"{"title":"milk","priority":1}"#), (201, made.clone()));
        assert_eq!(ask(&todos, Method::GET, "/todos", ""), (200, json!({"items": [made.clone()]})));
        assert_eq!(ask(&todos, Method::PATCH, "/todos/1", r#"{"status":"done"}"#).1["status"], "done");
        assert_eq!(ask(&todos, Method::GET, "/todos/1", "").1["status"], "done");
    }

    #[test]
    fn what_is_wrong_changes_nothing() {
        let todos = Todos::default();
        for body in ["", "[]", "{}", r#"{"title":" "}"#, r#"{"title":3}"#] {
            assert_eq!(ask(&todos, Method::POST, "/todos", body).0, 422, "{body}");
        }
        for path in ["/todos/1", "/todos/0", "/todos/99999999999999999999", "/", "/todos/x"] {
            assert_eq!(ask(&todos, Method::PATCH, path, r#"{"status":"done"}"#).0, 404, "{path}");
        }
        assert_eq!(ask(&todos, Method::DELETE, "/todos", "").0, 405);
        assert_eq!(ask(&todos, Method::GET, "/todos", ""), (200, json!({"items": []})));
        ask(&todos, Method::POST, "/todos", r#"{"title":"milk"}"#);
        assert_eq!(ask(&todos, Method::PATCH, "/todos/1", r#"{"status":"gone"}"#).0, 422);
        assert_eq!(ask(&todos, Method::GET, "/todos/1", "").1["status"], "open");
    }

    #[tokio::test]
    async fn it_answers_on_a_socket_and_stops() {
        let sample = Sample::start().await.unwrap();
        let mut stream = tokio::net::TcpStream::connect(sample.address).await.unwrap();
        stream.write_all(b"GET /todos HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut some = [0; 12];
        stream.read_exact(&mut some).await.unwrap();
        assert_eq!(&some, b"HTTP/1.1 200");
        sample.stop();
        let mut rest = Vec::new();
        // Ends with the connection, cleanly or by a reset.
        let _ = stream.read_to_end(&mut rest).await;
    }
}
