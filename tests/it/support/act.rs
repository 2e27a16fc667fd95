//! What the origin does with a request: answers, delays and every way to break.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};

/// How an answer's end is made known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By its true length.
    Length,
    /// By chunks.
    Chunks,
    /// By closing the connection.
    Close,
    /// By a length that is longer than what comes; then the connection closes.
    CutShort,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), end: End::Length }
    }

    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::status(status).header("Content-Type", "application/json").body(body)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = bytes.into();
        self
    }

    pub(crate) fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Writes it; `bodiless` for the answer to a HEAD. `false` if the connection must close.
    pub(crate) fn write(&self, out: &mut impl Write, bodiless: bool) -> io::Result<bool> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match self.end {
            End::Length if self.status == 204 || self.status == 304 => {}
            End::Length => head.push_str(&format!("Content-Length: {}\r\n", self.body.len())),
            End::CutShort => head.push_str(&format!("Content-Length: {}\r\n", self.body.len() + 500)),
            End::Chunks => head.push_str("Transfer-Encoding: chunked\r\n"),
            End::Close => head.push_str("Connection: close\r\n"),
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if !bodiless {
            match self.end {
                End::Chunks => {
                    for piece in self.body.chunks(1000) {
                        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                        bytes.extend_from_slice(piece);
                        bytes.extend_from_slice(b"\r\n");
                    }
                    bytes.extend_from_slice(b"0\r\n\r\n");
                }
                _ => bytes.extend_from_slice(&self.body),
            }
        }
        out.write_all(&bytes)?;
        Ok(matches!(self.end, End::Length | End::Chunks))
    }
}

/// A door that a test opens; acts wait behind it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate {
    inner: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Debug, Default)]
struct GateState {
    open: bool,
    waiting: usize,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.inner.0.lock().unwrap().open = true;
        self.inner.1.notify_all();
    }

    /// How many acts have come to the door so far.
    pub(crate) fn arrivals(&self) -> usize {
        self.inner.0.lock().unwrap().waiting
    }

    pub(crate) fn pass(&self) {
        let mut state = self.inner.0.lock().unwrap();
        state.waiting += 1;
        while !state.open {
            state = self.inner.1.wait(state).unwrap();
        }
    }
}

/// A stream of events that the test lets go one by one.
#[derive(Debug, Clone)]
pub(crate) struct Ticker {
    from_test: Arc<Mutex<Receiver<String>>>,
}

impl Ticker {
    pub(crate) fn new() -> (Sender<String>, Self) {
        let (to_origin, from_test) = mpsc::channel();
        (to_origin, Self { from_test: Arc::new(Mutex::new(from_test)) })
    }

    /// The next tick; `None` when the test dropped its end.
    pub(crate) fn next(&self) -> Option<String> {
        self.from_test.lock().unwrap().recv().ok()
    }
}

/// The origin's behaviour on one path.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Reads the request, answers.
    Answer(Answer),
    /// Reads the request, sends a 103 first, then answers.
    HintThenAnswer(Answer),
    /// Reads the whole request, counts its effect, closes without a byte.
    CloseAfterRead,
    /// Resets the connection with the request unread.
    ResetUnread,
    /// Reads the request, counts its effect, waits at the gate, then acts.
    After(Gate, Box<Act>),
    /// Answers with server-sent events as the test releases them.
    Events(Ticker),
    /// Answers with that many bytes.
    Download(usize),
    /// Answers right after the head, with the body unread, and closes.
    AnswerUnread(Answer),
    /// Reads the request, writes these bytes, closes.
    Raw(Vec<u8>),
}
