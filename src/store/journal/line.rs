//! How records stand in a segment: one line per commit, `CHECKSUM [record,record,…]`.
//!
//! The checksum is the first 16 hex digits of SHA-256 over the JSON. All records of one commit
//! share a line, so that a commit is either whole or torn, never half of each.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::id::{DraftId, StepId};
use crate::base::time::Timestamp;
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::receipt::Receipt;
use crate::draft::state::Verdict;
use crate::store::contract::Settle;

/// The version of the format. 2: outcomes carry their MAC, and are taken one by one.
pub(super) const VERSION: u32 = 2;

const CHECKSUM_BYTES: usize = 16;

/// One record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Record {
    /// The first of every segment.
    Begin {
        version: u32,
        /// Which process wrote it, for the person who reads it.
        node: String,
        at: Timestamp,
        /// Whether the segment holds everything that counts, so that earlier ones are done with.
        afresh: bool,
    },
    /// An attempt that may send its first byte.
    Attempt { id: DraftId, epoch: u64, attempt: u32, at: Timestamp },
    /// An outcome that the store has not taken.
    Keep(Box<Kept>),
    /// The store has taken this outcome of this draft.
    Taken { id: DraftId, step: StepId },
}

/// A [`Settle`] as it stands on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    id: DraftId,
    step: StepId,
    epoch: u64,
    verdict: Verdict,
    failure: Option<Failure>,
    receipt: Option<Receipt>,
    /// Base64 of the sealed response.
    response: Option<String>,
    evidence: Evidence,
    mac: Digest,
}

impl Kept {
    pub(super) fn id(&self) -> &DraftId {
        &self.id
    }

    pub(super) fn step(&self) -> StepId {
        self.step
    }

    /// `None` if the response is not base64; nothing that was written by [`Kept::from`] is.
    pub(super) fn settle(&self) -> Option<Settle> {
        let response = match &self.response {
            None => None,
            Some(text) => Some(BASE64.decode(text.as_bytes()).ok()?),
        };
        Some(Settle {
            id: self.id.clone(),
            step: self.step,
            epoch: self.epoch,
            verdict: self.verdict,
            failure: self.failure,
            receipt: self.receipt.clone(),
            response,
            evidence: self.evidence.clone(),
            mac: self.mac,
        })
    }
}

impl From<&Settle> for Kept {
    fn from(settle: &Settle) -> Self {
        // Spelled out, so that a new field of an outcome is not forgotten on disk.
        let Settle { id, step, epoch, verdict, failure, receipt, response, evidence, mac } = settle;
        Self {
            id: id.clone(),
            step: *step,
            epoch: *epoch,
            verdict: *verdict,
            failure: *failure,
            receipt: receipt.clone(),
            response: response.as_deref().map(|bytes| BASE64.encode(bytes)),
            evidence: evidence.clone(),
            mac: *mac,
        }
    }
}

/// A line that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadLine {
    /// The bytes are not what was written.
    Checksum,
    /// The bytes are as written, but not in a form that this version knows.
    Unknown,
}

/// One record's JSON.
pub(super) fn encode(record: &Record) -> Result<String, serde_json::Error> {
    serde_json::to_string(record)
}

/// One line, with its end, of encoded records.
pub(super) fn join<'a>(records: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut json = String::from("[");
    for (index, record) in records.into_iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str(record);
    }
    json.push(']');
    let mut line = checksum(json.as_bytes()).into_bytes();
    line.push(b' ');
    line.extend_from_slice(json.as_bytes());
    line.push(b'\n');
    line
}

/// How many bytes a line takes beside its records and the commas between them.
pub(super) const LINE_BYTES: u64 = CHECKSUM_BYTES as u64 + 4;

/// Whether a line may begin here: cheap, and wrong only in saying yes.
pub(super) fn may_start(bytes: &[u8]) -> bool {
    bytes.get(CHECKSUM_BYTES..).is_some_and(|rest| rest.starts_with(b" ["))
}

/// The records of a line, without its end.
pub(super) fn split(line: &[u8]) -> Result<Vec<Record>, BadLine> {
    let (sum, rest) = line.split_at_checked(CHECKSUM_BYTES).ok_or(BadLine::Checksum)?;
    let json = rest.strip_prefix(b" ").ok_or(BadLine::Checksum)?;
    if checksum(json).as_bytes() != sum {
        return Err(BadLine::Checksum);
    }
    serde_json::from_slice(json).map_err(|_| BadLine::Unknown)
}

fn checksum(json: &[u8]) -> String {
    let mut hex = Digest::of(json).to_hex();
    hex.truncate(CHECKSUM_BYTES);
    hex
}
