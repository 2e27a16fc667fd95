//! A small blocking HTTP/1.1 client with full control of every byte.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::framing::{Framed, Head, find};

/// A request as it will be written, header by header.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self { method: method.to_owned(), target: target.to_owned(), headers: Vec::new(), body: None }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub(crate) fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(self, value: &Value) -> Self {
        self.body("application/json", value.to_string())
    }

    /// A body with its type; the length is announced.
    pub(crate) fn body(mut self, media_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        if !media_type.is_empty() {
            self = self.header("Content-Type", media_type);
        }
        self.body = Some(bytes.into());
        self
    }

    fn has(&self, name: &str) -> bool {
        find(&self.headers, name).is_some()
    }

    /// The request's bytes; `Host` and `Content-Length` are added where they are not given.
    pub(crate) fn to_bytes(&self, host: &str) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.has("Host") {
            let _ = write!(text, "Host: {host}\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if let Some(body) = &self.body
            && !self.has("Content-Length")
        {
            let _ = write!(text, "Content-Length: {}\r\n", body.len());
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// A response, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The interim statuses (1xx) that came before.
    pub(crate) interim: Vec<u16>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {} {}", self.status, self.text()))
    }

    /// The problem's `code`; empty if the answer is no problem.
    pub(crate) fn code(&self) -> String {
        serde_json::from_slice::<Value>(&self.body)
            .ok()
            .and_then(|body| body.get("code").and_then(Value::as_str).map(str::to_owned))
            .unwrap_or_default()
    }

    /// Asserts the status; the failure shows the whole answer.
    #[track_caller]
    pub(crate) fn must_be(self, status: u16) -> Self {
        assert_eq!(self.status, status, "unexpected answer: {} {:?} {}", self.status, self.headers, self.text());
        self
    }

    /// Asserts a whole problem document: status, type, code, and that its members agree.
    #[track_caller]
    pub(crate) fn must_refuse(self, status: u16, code: &str) -> Value {
        assert_eq!(
            (self.status, self.code().as_str()),
            (status, code),
            "unexpected answer: {:?} {}",
            self.headers,
            self.text()
        );
        let media_type = self.header("Content-Type").unwrap_or_default();
        assert!(media_type.starts_with("application/problem+json"), "a problem is sent as {media_type:?}");
        let problem = self.json();
        let kebab = code.to_ascii_lowercase().replace('_', "-");
        assert_eq!(problem["type"], format!("urn:countersign:problem:{kebab}"), "{problem}");
        problem
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    out: TcpStream,
    framed: Framed<TcpStream>,
}

impl Wire {
    #[track_caller]
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    pub(crate) fn try_open(address: SocketAddr) -> io::Result<Self> {
        let out = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        out.set_read_timeout(Some(Duration::from_secs(70)))?;
        out.set_write_timeout(Some(Duration::from_secs(70)))?;
        out.set_nodelay(true)?;
        let framed = Framed::new(out.try_clone()?);
        Ok(Self { out, framed })
    }

    /// Writes bytes; a peer that closed early is no failure of the writer.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Half-closes: no more bytes from here.
    pub(crate) fn finish(&self) {
        let _ = self.out.shutdown(Shutdown::Write);
    }

    /// The next response, to its end; `None` if the peer closed without one.
    pub(crate) fn response(&mut self, method: &str) -> io::Result<Option<Response>> {
        let mut interim = Vec::new();
        loop {
            let Some(head) = self.framed.head()? else { return Ok(None) };
            let status = status_of(&head)?;
            if (100..200).contains(&status) && status != 101 {
                interim.push(status);
                continue;
            }
            let body = self.read_body(&head, status, method)?;
            return Ok(Some(Response { status, headers: head.headers, body, interim }));
        }
    }

    /// The next head only, for answers that are read as they come.
    #[track_caller]
    pub(crate) fn response_head(&mut self) -> Head {
        match self.framed.head() {
            Ok(Some(head)) => head,
            other => panic!("no response head: {other:?}"),
        }
    }

    /// The next piece of a streamed body, with or without chunk framing.
    #[track_caller]
    pub(crate) fn next_piece(&mut self, head: &Head) -> Vec<u8> {
        let piece = if is_chunked(head) { self.framed.chunk() } else { self.framed.some() };
        piece.unwrap_or_else(|error| panic!("the stream broke: {error}"))
    }

    /// Whether the peer closed (or reset) without another byte.
    pub(crate) fn closed_by_peer(&mut self) -> bool {
        match self.framed.some() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }

    fn read_body(&mut self, head: &Head, status: u16, method: &str) -> io::Result<Vec<u8>> {
        if method == "HEAD" || status == 204 || status == 304 || status == 101 {
            return Ok(Vec::new());
        }
        if is_chunked(head) {
            return self.framed.chunked();
        }
        match head.get("Content-Length").and_then(|length| length.parse().ok()) {
            Some(length) => self.framed.exactly(length),
            None => self.framed.rest(),
        }
    }
}

fn is_chunked(head: &Head) -> bool {
    head.get("Transfer-Encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

fn status_of(head: &Head) -> io::Result<u16> {
    let status =
        head.start.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|digits| digits.parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not a status line: {:?}", head.start)))
}

/// Sends one request on a connection of its own and reads the answer.
#[track_caller]
pub(crate) fn exchange(address: SocketAddr, request: &Request) -> Response {
    match try_exchange(address, request) {
        Ok(Some(response)) => response,
        Ok(None) => panic!("closed without an answer: {} {}", request.method, request.target),
        Err(error) => panic!("{} {} broke: {error}", request.method, request.target),
    }
}

/// [`exchange`] for peers that may be gone.
pub(crate) fn try_exchange(address: SocketAddr, request: &Request) -> io::Result<Option<Response>> {
    let mut wire = Wire::try_open(address)?;
    let sent = wire.send(&request.to_bytes(&address.to_string()));
    match wire.response(&request.method) {
        Ok(Some(response)) => Ok(Some(response)),
        Ok(None) => sent.map(|()| None),
        Err(error) => Err(error),
    }
}

/// Sends exactly these bytes, half-closes, and reads the first answer, if there is one.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Option<Response> {
    let mut wire = Wire::open(address);
    let _ = wire.send(bytes);
    wire.finish();
    wire.response("POST").ok().flatten()
}
