//! A small blocking client of Redis (RESP2): one command, one answer, a deadline on every read.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take, where nobody says.
const PATIENCE: Duration = Duration::from_secs(30);

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    /// `+OK` and the like.
    Simple(String),
    Bulk(Vec<u8>),
    /// `-NOSCRIPT No matching script…`, without the hyphen.
    Error(String),
    List(Vec<Self>),
}

impl Reply {
    /// The text of a simple, bulk or error answer; numbers in decimal; nothing of a list or a nil.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Int(number) => number.to_string(),
            Self::Nil | Self::List(_) => String::new(),
        }
    }

    #[track_caller]
    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("not a number: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn list(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            other => panic!("not a list: {other:?}"),
        }
    }

    /// The texts of a list's items.
    #[track_caller]
    pub(crate) fn texts(&self) -> Vec<String> {
        self.list().iter().map(Self::text).collect()
    }

    pub(crate) const fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

trait Stream: Read + Write + Send {
    fn wait_for(&self, patience: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn wait_for(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

impl Stream for TcpStream {
    fn wait_for(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

/// One connection, which keeps what a connection keeps: a transaction, a selected database, a name.
pub(crate) struct Connection(BufReader<Box<dyn Stream>>);

impl Connection {
    pub(crate) fn unix(socket: &Path) -> io::Result<Self> {
        Self::over(Box::new(UnixStream::connect(socket)?))
    }

    pub(crate) fn tcp(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Self::over(Box::new(stream))
    }

    fn over(stream: Box<dyn Stream>) -> io::Result<Self> {
        stream.wait_for(PATIENCE)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// From now on an answer may take this long. One that is late is an error of the kind
    /// `WouldBlock`; the connection is of no use after it.
    pub(crate) fn wait_for(&mut self, patience: Duration) -> io::Result<()> {
        self.0.get_ref().wait_for(patience)
    }

    /// Sends a command and reads its answer; an error of Redis is an answer.
    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command and leaves its answer to [`Connection::receive`].
    pub(crate) fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            bytes.extend(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes)
    }

    /// The next answer, or the next message of a subscription.
    pub(crate) fn receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| strange(&line))?;
        let number = || rest.parse::<i64>().map_err(|_| strange(&line));
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => Reply::Bulk(self.bytes(length)?),
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(count) => Reply::List((0..count).map(|_| self.receive()).collect::<io::Result<_>>()?),
            },
            _ => return Err(strange(&line)),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended")),
        }
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }
}

fn strange(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of Redis: {line:?}"))
}
