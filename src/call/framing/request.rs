//! One whole head of a request: its syntax, and which body follows.

use crate::base::refusal::Refusal;

use super::ambiguous;
pub(super) use crate::call::media::is_token_byte;

/// What a head announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    /// A request.
    Request {
        /// The body that follows.
        body: Body,
        /// Whether nothing may follow after it.
        last: bool,
    },
    /// `PRI * HTTP/2.0`.
    Http2Preface,
}

/// The framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// None.
    None,
    /// So many bytes, at least one.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// What the header lines say about framing.
#[derive(Default)]
struct Lines {
    length: Option<u64>,
    chunked: bool,
    hosts: u32,
    close: bool,
    keep_alive: bool,
}

/// Judges a head that ends in an empty line. `ends` has the place of every line feed; each follows
/// a carriage return.
pub(super) fn judge(head: &[u8], ends: &[usize]) -> Result<Judged, Refusal> {
    let (first, ends_of_headers) = ends.split_first().map_or((head.len(), ends), |(first, rest)| (*first, rest));
    let request_line = line_of(head, 0, first);
    if request_line == b"PRI * HTTP/2.0" {
        return Ok(Judged::Http2Preface);
    }
    let (safe, http10) = judge_request_line(request_line)?;
    let mut lines = Lines::default();
    let mut from = first + 1;
    for end in ends_of_headers {
        match line_of(head, from, *end) {
            b"" => break,
            line => lines.take(line)?,
        }
        from = end + 1;
    }
    if control_count(head) != 2 * ends.len() {
        return Err(ambiguous("its head has a bare carriage return, a NUL or another control character"));
    }
    lines.conclude(safe, http10)
}

/// A line without its CRLF.
fn line_of(head: &[u8], from: usize, end: usize) -> &[u8] {
    let line = head.get(from..end).unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// How many control characters but tabs there are, counted over many bytes at once.
fn control_count(bytes: &[u8]) -> usize {
    let of = |chunk: &[u8]| {
        chunk.iter().fold(0_u8, |sum, byte| sum + u8::from((*byte < 0x20) & (*byte != b'\t') | (*byte == 0x7f)))
    };
    bytes.chunks(128).map(|chunk| usize::from(of(chunk))).sum()
}

/// Whether the method is GET or HEAD, and whether the version is 1.0.
fn judge_request_line(line: &[u8]) -> Result<(bool, bool), Refusal> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(ambiguous("its first line is not three words with one space between them"));
    };
    if method.is_empty() || !method.iter().all(|byte| is_token_byte(*byte)) {
        return Err(ambiguous("its method is no token"));
    }
    if target.is_empty() || target.iter().fold(false, |found, byte| found | !byte.is_ascii_graphic()) {
        return Err(ambiguous("its target has a tab or a byte beyond ASCII"));
    }
    // A fragment never belongs in a request (RFC 9112 section 3.2), and a parser behind this one
    // would drop it: what is matched would not be what came.
    if memchr::memchr(b'#', target).is_some() {
        return Err(ambiguous("its target has a fragment"));
    }
    let http10 = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return Err(ambiguous("its version is neither HTTP/1.1 nor HTTP/1.0")),
    };
    Ok((matches!(method, b"GET" | b"HEAD"), http10))
}

impl Lines {
    fn take(&mut self, line: &[u8]) -> Result<(), Refusal> {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(ambiguous("a header is folded over two lines"));
        }
        let colon = line.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(line.len());
        if line.get(colon) != Some(&b':') || colon == 0 {
            return Err(bad_name(line));
        }
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts += 1,
            10 if name.eq_ignore_ascii_case(b"connection") => self.take_connection(value)?,
            14 if is_spelled(name, b"content-length") => self.take_length(name, value)?,
            17 if is_spelled(name, b"transfer-encoding") => self.take_encoding(name, value)?,
            _ => {}
        }
        Ok(())
    }

    fn take_length(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        refuse_underscore(name)?;
        let value = value.trim_ascii();
        if self.length.is_some() {
            return Err(ambiguous("it has more than one `Content-Length`"));
        }
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let padded = value.len() > 1 && value[0] == b'0';
        let length = std::str::from_utf8(value).ok().filter(|_| digits && !padded).and_then(|text| text.parse().ok());
        self.length = Some(length.ok_or_else(|| ambiguous("its `Content-Length` is not one plain number"))?);
        Ok(())
    }

    fn take_encoding(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        refuse_underscore(name)?;
        if self.chunked {
            return Err(ambiguous("it has more than one `Transfer-Encoding`"));
        }
        if !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(ambiguous("its `Transfer-Encoding` is not exactly `chunked`"));
        }
        self.chunked = true;
        Ok(())
    }

    fn take_connection(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            match word.len() {
                5 if word.eq_ignore_ascii_case(b"close") => self.close = true,
                10 if word.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                4 | 14 | 17 => {
                    let framing: [&[u8]; 3] = [b"host", b"content-length", b"transfer-encoding"];
                    if framing.iter().any(|name| word.eq_ignore_ascii_case(name)) {
                        return Err(ambiguous("`Connection` names a header that frames the request"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn conclude(self, safe: bool, http10: bool) -> Result<Judged, Refusal> {
        if self.chunked && self.length.is_some() {
            return Err(ambiguous("it has both `Content-Length` and `Transfer-Encoding`"));
        }
        if self.chunked && http10 {
            return Err(ambiguous("HTTP/1.0 has no chunks"));
        }
        if http10 && !safe && self.length.is_none() {
            // Older servers take everything up to the close for its body.
            return Err(ambiguous("an HTTP/1.0 request that may have a body does not say how long it is"));
        }
        match self.hosts {
            0 if !http10 => return Err(ambiguous("it has no `Host`")),
            0 | 1 => {}
            _ => return Err(ambiguous("it has more than one `Host`")),
        }
        // Without a length, what follows on HTTP/1.0 could be a body up to the close.
        let ends = http10 && !(self.keep_alive && (safe || self.length.is_some()));
        let body = match self.length {
            Some(0) | None if !self.chunked => Body::None,
            Some(length) => Body::Length(length),
            None => Body::Chunked,
        };
        Ok(Judged::Request { body, last: self.close || ends })
    }
}

/// What is wrong with a line whose first word is no header's name.
fn bad_name(line: &[u8]) -> Refusal {
    ambiguous(match memchr::memchr(b':', line) {
        None => "a line of its head has no colon",
        Some(colon) if matches!(line[..colon].last(), Some(b' ' | b'\t')) => "space stands before a colon",
        Some(_) => "the name of a header is no token",
    })
}

/// Compares a name in any case, `_` read as `-`, as gateways to older interfaces do.
fn is_spelled(name: &[u8], wanted: &[u8]) -> bool {
    let fold = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.iter().map(fold).eq(wanted.iter().copied())
}

fn refuse_underscore(name: &[u8]) -> Result<(), Refusal> {
    if name.contains(&b'_') { Err(ambiguous("a header that frames it is spelled with `_`")) } else { Ok(()) }
}
