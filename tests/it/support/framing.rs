//! Reads HTTP/1.1 messages from a stream, for our client and our origin alike. A second parser,
//! written apart from the guard's, so that both cannot be wrong in the same way.

use std::io::{self, ErrorKind, Read};

/// A stream with what was read from it but not yet used.
#[derive(Debug)]
pub(crate) struct Framed<S> {
    stream: S,
    unused: Vec<u8>,
}

/// Start line and headers of a message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    /// The first header of that name, without regard to case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

/// The first header of that name, without regard to case.
pub(crate) fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

impl<S: Read> Framed<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, unused: Vec::new() }
    }

    /// Whether everything that was read has been used.
    pub(crate) fn is_empty(&self) -> bool {
        self.unused.is_empty()
    }

    /// Reads more; the number of new bytes, 0 at the end of the stream.
    fn fill(&mut self) -> io::Result<usize> {
        let mut chunk = [0_u8; 64 * 1024];
        let got = loop {
            match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.unused.extend_from_slice(&chunk[..got]);
        Ok(got)
    }

    /// The next head, or `None` if the peer closed before its first byte.
    pub(crate) fn head(&mut self) -> io::Result<Option<Head>> {
        let end = loop {
            if let Some(at) = self.unused.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            if self.fill()? == 0 {
                return if self.unused.is_empty() { Ok(None) } else { Err(cut("inside a head")) };
            }
        };
        let raw: Vec<u8> = self.unused.drain(..end + 4).collect();
        let text: String = raw[..end].iter().map(|byte| char::from(*byte)).collect();
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Ok(Some(Head { start, headers }))
    }

    /// Exactly `length` bytes.
    pub(crate) fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unused.len() < length {
            if self.fill()? == 0 {
                return Err(cut("inside a body of known length"));
            }
        }
        Ok(self.unused.drain(..length).collect())
    }

    /// At least one byte, whatever is there; empty at the end of the stream.
    pub(crate) fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.unused.is_empty() {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.unused))
    }

    /// Everything until the peer closes.
    pub(crate) fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.unused))
    }

    /// One chunk of a chunked body; empty for the last one, whose trailers are read and dropped.
    pub(crate) fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let line = self.line()?;
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, format!("not a chunk size: {line:?}")))?;
        if size == 0 {
            while !self.line()?.is_empty() {}
            return Ok(Vec::new());
        }
        let chunk = self.exactly(size)?;
        self.exactly(2)?;
        Ok(chunk)
    }

    /// A whole chunked body.
    pub(crate) fn chunked(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.extend_from_slice(&chunk);
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.unused.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.unused[..at]).into_owned();
                self.unused.drain(..at + 2);
                return Ok(line);
            }
            if self.fill()? == 0 {
                return Err(cut("inside a chunk line"));
            }
        }
    }
}

fn cut(place: &str) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, format!("the peer closed {place}"))
}
