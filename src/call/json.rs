//! The strict reader of JSON that agents send.
//!
//! Owns the decision which bytes are JSON that every parser reads in the same way (RFC 8259 over
//! I-JSON, RFC 7493). Must never repair anything: what is read in two ways is refused, because
//! what a person confirms has to be what the upstream reads (promise 2).

mod members;
mod number;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::base::code::Code;
use crate::base::refusal::Refusal;

use super::args::Inexact;

pub use members::{items, member, members};

/// How deep arrays and objects may stand in each other.
pub const DEPTH_MAX: usize = 110;

/// Bound on what a document may cost in memory, in cells of 32 bytes: one per value, twenty more
/// per object that is not empty (the first node of its map).
pub const CELLS_MAX: usize = 1_000_000;

/// How many numbers of one document may stand in [`Parsed::inexact`].
pub const INEXACT_MAX: usize = 1_000;

/// How long the pointers of all of them may be together, in bytes.
pub const INEXACT_POINTER_BYTES_MAX: usize = 256 * 1024;

/// A document that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The value. A number whose text is exactly an integer of 64 bits stands as that integer,
    /// however it was written (`1`, `1.0`, `1e0` are one value); every other one as its double.
    pub value: Value,
    /// Every number whose text is not exactly its double, in the order of the text: JSON Pointer
    /// (RFC 6901) and the text as it came.
    pub inexact: Vec<Inexact>,
}

/// Why bytes are not JSON that can be read in one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{why} (byte {offset})")]
pub struct Malformed {
    /// Offset of the first byte that is wrong.
    pub offset: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        let detail = format!("The body cannot be read as JSON: {malformed}. Nothing was sent; send valid JSON.");
        Self::new(Code::BodyMalformed, detail)
    }
}

/// Reads one JSON document.
///
/// # Errors
///
/// [`Malformed`] for everything that is not JSON at all, and for duplicate keys (also when spelled
/// with escapes), lone surrogates, invalid UTF-8, a byte order mark, a second value or any other
/// trailing byte, an empty text, nesting over [`DEPTH_MAX`], numbers beyond the range of a double,
/// and documents over [`CELLS_MAX`] or [`INEXACT_MAX`].
pub fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(Malformed { offset: 0, why: "it begins with a byte order mark" });
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Malformed { offset: error.valid_up_to(), why: "it is not valid UTF-8" })?;
    let mut reader = Reader { text, at: 0, depth: 0, cells: 0, inexact: Vec::new(), pointer_bytes: 0 };
    reader.skip_space();
    if reader.at == text.len() {
        return Err(reader.wrong("it is empty"));
    }
    let value = reader.value()?;
    reader.skip_space();
    if reader.at != text.len() {
        return Err(reader.wrong("something follows after the value"));
    }
    Ok(Parsed { value, inexact: reader.inexact.into_iter().map(Found::finish).collect() })
}

/// A number that is not exactly its double; its path grows from the inside out.
struct Found {
    /// Pointer tokens, innermost first.
    tokens: Vec<String>,
    text: String,
}

impl Found {
    fn finish(self) -> Inexact {
        let mut pointer = String::new();
        for token in self.tokens.iter().rev() {
            pointer.push('/');
            push_pointer_token(&mut pointer, token);
        }
        Inexact { pointer, text: self.text }
    }
}

/// Appends one reference token, escaped as RFC 6901 section 3 says.
pub(super) fn push_pointer_token(pointer: &mut String, token: &str) {
    for character in token.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    cells: usize,
    inexact: Vec<Found>,
    pointer_bytes: usize,
}

/// Bytes that end a run of plain characters in a string.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        stops[byte] = true;
        byte += 1;
    }
    stops[b'"' as usize] = true;
    stops[b'\\' as usize] = true;
    stops
};

impl Reader<'_> {
    fn wrong(&self, why: &'static str) -> Malformed {
        Malformed { offset: self.at, why }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn spend(&mut self, cells: usize) -> Result<(), Malformed> {
        self.cells += cells;
        if self.cells > CELLS_MAX { Err(self.wrong("it has too many values")) } else { Ok(()) }
    }

    fn value(&mut self) -> Result<Value, Malformed> {
        self.spend(1)?;
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(b'/') => Err(self.wrong("JSON has no comments")),
            Some(_) => Err(self.wrong("a value was expected")),
            None => Err(self.wrong("it ends in the middle")),
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, Malformed> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.wrong("a value was expected"))
        }
    }

    /// Steps into an array or object. The recursion is as deep as [`DEPTH_MAX`] and no deeper.
    fn enter(&mut self) -> Result<(), Malformed> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("it is nested more than 110 deep"));
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    fn array(&mut self) -> Result<Value, Malformed> {
        self.enter()?;
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.leave();
            return Ok(Value::Array(items));
        }
        loop {
            let before = self.inexact.len();
            let item = self.value()?;
            if self.inexact.len() > before {
                self.note_token(before, &items.len().to_string())?;
            }
            items.push(item);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                Some(_) => return Err(self.wrong("`,` or `]` was expected")),
                None => return Err(self.wrong("it ends in the middle")),
            }
            self.skip_space();
        }
        self.leave();
        Ok(Value::Array(items))
    }

    fn object(&mut self) -> Result<Value, Malformed> {
        self.enter()?;
        let mut members = Map::new();
        if self.peek() == Some(b'}') {
            self.leave();
            return Ok(Value::Object(members));
        }
        self.spend(20)?;
        loop {
            let name_at = self.at;
            let name = match self.peek() {
                Some(b'"') => self.string()?,
                Some(_) => return Err(self.wrong("a name in double quotes was expected")),
                None => return Err(self.wrong("it ends in the middle")),
            };
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.wrong("`:` was expected"));
            }
            self.at += 1;
            self.skip_space();
            let before = self.inexact.len();
            let member = self.value()?;
            if self.inexact.len() > before {
                self.note_token(before, &name)?;
            }
            if members.insert(name, member).is_some() {
                return Err(Malformed { offset: name_at, why: "a name stands twice in one object" });
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                Some(_) => return Err(self.wrong("`,` or `}` was expected")),
                None => return Err(self.wrong("it ends in the middle")),
            }
            self.skip_space();
        }
        self.leave();
        Ok(Value::Object(members))
    }

    /// Puts one more token in front of the pointers of the numbers found since `from`.
    fn note_token(&mut self, from: usize, token: &str) -> Result<(), Malformed> {
        self.pointer_bytes += (self.inexact.len() - from) * (token.len() + 1);
        if self.pointer_bytes > INEXACT_POINTER_BYTES_MAX {
            return Err(self.wrong("it has too many numbers that no double holds exactly"));
        }
        for found in &mut self.inexact[from..] {
            found.tokens.push(token.to_owned());
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, Malformed> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        match number::read(text) {
            Some((value, true)) => Ok(Value::Number(value)),
            Some((value, false)) => {
                if self.inexact.len() == INEXACT_MAX {
                    return Err(self.wrong("it has too many numbers that no double holds exactly"));
                }
                self.inexact.push(Found { tokens: Vec::new(), text: text.to_owned() });
                Ok(Value::Number(value))
            }
            None => Err(Malformed { offset: start, why: "a number is beyond the range of a double" }),
        }
    }

    /// At least one decimal digit.
    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.wrong("a digit was expected")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<String, Malformed> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        let mut start = self.at;
        let mut read = String::new();
        loop {
            while bytes.get(self.at).is_some_and(|byte| !STOPS[usize::from(*byte)]) {
                self.at += 1;
            }
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    read.push_str(&self.text[start..self.at]);
                    read.push(self.escape()?);
                    start = self.at;
                }
                Some(_) => return Err(self.wrong("a control character stands in a string")),
                None => return Err(self.wrong("it ends in the middle")),
            }
        }
        let tail = &self.text[start..self.at];
        self.at += 1;
        if read.is_empty() {
            return Ok(tail.to_owned());
        }
        read.push_str(tail);
        Ok(read)
    }

    fn escape(&mut self) -> Result<char, Malformed> {
        let at = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape(at);
            }
            Some(_) => return Err(self.wrong("this escape does not exist")),
            None => return Err(self.wrong("it ends in the middle")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// After `\u`; a high surrogate takes its low one along. `at` is where the escape began.
    fn unicode_escape(&mut self, at: usize) -> Result<char, Malformed> {
        const LONE: &str = "a lone surrogate stands in a string";
        let first = self.four_hex()?;
        let scalar = match first {
            0xd800..=0xdbff => {
                if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                    return Err(Malformed { offset: at, why: LONE });
                }
                self.at += 2;
                let second = self.four_hex()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(Malformed { offset: at, why: LONE });
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            other => other,
        };
        char::from_u32(scalar).ok_or(Malformed { offset: at, why: LONE })
    }

    fn four_hex(&mut self) -> Result<u32, Malformed> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.wrong("four hexadecimal digits were expected"));
            };
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }
}
