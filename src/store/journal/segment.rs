//! Reading a segment, and telling the torn end of a crash from damage.
//!
//! A commit is one line, and the next one begins only when the last one is on disk. So a crash
//! can spoil the end of a segment and nothing before it: unreadable bytes with an intact line
//! after them are damage, and are never skipped.

use super::line::{self, BadLine, Record};

/// What stands in a segment.
#[derive(Debug)]
pub(super) struct Content {
    /// The records in order, each with the bytes it takes.
    pub(super) records: Vec<(Record, u64)>,
    /// How many bytes are good; the rest is a torn end.
    pub(super) good_bytes: usize,
}

/// A segment that cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadSegment {
    /// Bytes at this offset are damaged.
    Damaged(usize),
    /// A line at this offset was written by another version.
    Unknown(usize),
}

/// Reads a whole segment.
pub(super) fn read(bytes: &[u8]) -> Result<Content, BadSegment> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(length) = line_length(&bytes[at..]) {
        match line::split(&bytes[at..at + length]) {
            Ok(found) => records.extend(found.into_iter().map(sized)),
            Err(BadLine::Unknown) => return Err(BadSegment::Unknown(at)),
            Err(BadLine::Checksum) if has_good_line(&bytes[at + 1..]) => return Err(BadSegment::Damaged(at)),
            Err(BadLine::Checksum) => break,
        }
        at += length + 1;
    }
    let begins = matches!(records.first(), Some((Record::Begin { version: line::VERSION, .. }, _)));
    if !records.is_empty() && !begins {
        return Err(BadSegment::Unknown(0));
    }
    Ok(Content { records, good_bytes: at })
}

fn line_length(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

/// Whether a good line stands anywhere in `bytes`, also behind a damaged line end.
fn has_good_line(bytes: &[u8]) -> bool {
    let mut starts = (0..bytes.len()).filter(|start| line::may_start(&bytes[*start..]));
    starts.any(|start| {
        let rest = &bytes[start..];
        line_length(rest).is_some_and(|length| match line::split(&rest[..length]) {
            Ok(records) => !records.is_empty(),
            Err(bad) => bad == BadLine::Unknown,
        })
    })
}

fn sized(record: Record) -> (Record, u64) {
    let bytes = line::encode(&record).map_or(0, |json| json.len() as u64 + 1);
    (record, bytes)
}
