//! A recording HTTP/1.1 origin: keeps every complete request and counts effects. It is the
//! oracle of this suite: what the guard says of itself is never the proof.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::act::{Act, Answer};
use super::framing::{Framed, Head, find};

/// One complete request as it came off the wire.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Which connection carried it, from 1.
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    fn is_effect(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }
}

#[derive(Debug, Default)]
struct Shared {
    acts: Mutex<HashMap<String, Act>>,
    seen: Mutex<Vec<Seen>>,
    heads: Mutex<Vec<String>>,
    connections: AtomicUsize,
    stopping: AtomicBool,
}

/// The origin. Listens until it is dropped or closed.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Upstream {
    /// Listens on a free port of the loopback. Unscripted paths answer 200 to reads and 201 with
    /// `Location` and `ETag` to everything else.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let upstream = Self { address, shared: Arc::default() };
        upstream.serve(listener);
        upstream
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on requests for `path` (without query) get this.
    pub(crate) fn on(&self, path: &str, act: Act) {
        self.shared.acts.lock().unwrap().insert(path.to_owned(), act);
    }

    /// From now on requests for `path` get this answer.
    pub(crate) fn answers(&self, path: &str, answer: Answer) {
        self.on(path, Act::Answer(answer));
    }

    /// How many complete calls that change something came for `path`.
    pub(crate) fn effects(&self, path: &str) -> usize {
        self.shared.seen.lock().unwrap().iter().filter(|seen| seen.is_effect() && seen.path() == path).count()
    }

    /// How many complete calls that change something came at all.
    pub(crate) fn all_effects(&self) -> usize {
        self.shared.seen.lock().unwrap().iter().filter(|seen| seen.is_effect()).count()
    }

    /// Every complete request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// The only request for `path`; fails if there is none or more than one.
    #[track_caller]
    pub(crate) fn the_one(&self, path: &str) -> Seen {
        let mut found: Vec<Seen> = self.seen().into_iter().filter(|seen| seen.path() == path).collect();
        assert_eq!(found.len(), 1, "requests for {path}: {found:?}");
        found.remove(0)
    }

    /// How many request heads came, complete requests or not: zero means that not a byte of a
    /// request got here.
    pub(crate) fn heads(&self) -> usize {
        self.shared.heads.lock().unwrap().len()
    }

    /// Stops listening: from now on connections are refused.
    pub(crate) fn close(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        super::wait::until("the origin's port is closed", || TcpStream::connect(self.address).is_err());
    }

    /// Listens again on the same port.
    pub(crate) fn reopen(&self) {
        self.shared.stopping.store(false, Ordering::SeqCst);
        let listener = super::wait::eventually("the origin's port is free", || TcpListener::bind(self.address).ok());
        self.serve(listener);
    }

    fn serve(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _ = converse(&shared, stream, number);
                });
            }
        });
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves one connection until somebody closes it.
fn converse(shared: &Shared, stream: TcpStream, connection: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut framed = Framed::new(stream.try_clone()?);
    loop {
        if framed.is_empty() && resets_unread(shared, &stream)? {
            return Ok(());
        }
        let Some(head) = framed.head()? else { return Ok(()) };
        shared.heads.lock().unwrap().push(head.start.clone());
        let (method, target) = start_line(&head);
        let path = target.split('?').next().unwrap_or_default();
        let act = shared.acts.lock().unwrap().get(path).cloned();
        if let Some(Act::AnswerUnread(answer)) = act {
            answer.write(&mut out, false)?;
            // The answer must not be lost in a reset: take what still comes before closing.
            out.shutdown(Shutdown::Write)?;
            return framed.rest().map(|_| ());
        }
        if head.get("Expect").is_some() {
            out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = read_body(&mut framed, &head)?;
        let seen = Seen { method: method.clone(), target, headers: head.headers, body, connection };
        let standard = standard_answer(&seen);
        shared.seen.lock().unwrap().push(seen);
        if !perform(&act.unwrap_or(Act::Answer(standard)), &mut out, method == "HEAD")? {
            return Ok(());
        }
    }
}

/// Looks at the request line without taking it: closing with unread bytes sends a reset.
fn resets_unread(shared: &Shared, stream: &TcpStream) -> io::Result<bool> {
    let mut bytes = [0_u8; 2048];
    let got = stream.peek(&mut bytes)?;
    let line = String::from_utf8_lossy(&bytes[..got]);
    let path = line.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
    let resets = matches!(shared.acts.lock().unwrap().get(&path), Some(Act::ResetUnread));
    if resets {
        shared.heads.lock().unwrap().push(line.lines().next().unwrap_or_default().to_owned());
    }
    Ok(resets)
}

fn start_line(head: &Head) -> (String, String) {
    let mut words = head.start.split(' ');
    (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned())
}

fn read_body(framed: &mut Framed<TcpStream>, head: &Head) -> io::Result<Vec<u8>> {
    let chunked = head.get("Transfer-Encoding").is_some();
    let length = head.get("Content-Length");
    if chunked && length.is_some() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "both framings on one request"));
    }
    if chunked {
        return framed.chunked();
    }
    match length {
        Some(length) => framed.exactly(length.parse().map_err(|_| io::ErrorKind::InvalidData)?),
        None => Ok(Vec::new()),
    }
}

fn standard_answer(seen: &Seen) -> Answer {
    if seen.is_effect() {
        Answer::json(201, r#"{"id":"r-1","made":true}"#).header("Location", "/made/r-1").header("ETag", "\"v1\"")
    } else {
        Answer::json(200, &format!("{{\"target\":{:?}}}", seen.target)).header("ETag", "\"v1\"")
    }
}

/// Plays an act; `false` if the connection must close now.
fn perform(act: &Act, out: &mut TcpStream, bodiless: bool) -> io::Result<bool> {
    match act {
        Act::Answer(answer) => answer.write(out, bodiless),
        Act::HintThenAnswer(answer) => {
            out.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")?;
            answer.write(out, bodiless)
        }
        Act::CloseAfterRead | Act::ResetUnread | Act::AnswerUnread(_) => Ok(false),
        Act::After(gate, then) => {
            gate.pass();
            perform(then, out, bodiless)
        }
        Act::Events(ticker) => {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
            while let Some(tick) = ticker.next() {
                out.write_all(tick.as_bytes())?;
            }
            Ok(false)
        }
        Act::Download(length) => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
            );
            out.write_all(head.as_bytes())?;
            let piece = [0x5a_u8; 64 * 1024];
            let mut left = *length;
            while left > 0 {
                let now = left.min(piece.len());
                out.write_all(&piece[..now])?;
                left -= now;
            }
            Ok(true)
        }
        Act::Raw(bytes) => {
            out.write_all(bytes)?;
            Ok(false)
        }
    }
}
