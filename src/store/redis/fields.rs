//! A draft's row as the fields of a hash, and back.
//!
//! What scripts compare stands in fields of its own; what they only carry (votes, receipts,
//! proofs) stays the text that the guard wrote. Must never fill in what is missing: a field that
//! cannot be read is an error, so that an unreadable expiry fails closed.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, SessionId, StepId};
use crate::base::time::Timestamp;
use crate::draft::decision::{Decider, Refused, Verb, Vote};
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::proof::Proof;
use crate::draft::record::Risk;
use crate::draft::state::State;
use crate::store::contract::{Hold, Mark, Renewed, StoreError};
use crate::store::row::{Row, StepMemo, Stored};

use super::script::state_word;

/// The fields that steps read: all but the sealed bytes and the response.
pub(super) const NAMES: [&str; 40] = [
    "fixed",
    "state",
    "epoch",
    "attempts",
    "lease_until",
    "lease_node",
    "claimed_at",
    "sent_at",
    "ckey",
    "sessions",
    "dup",
    "passed",
    "seen_at",
    "votes",
    "voters",
    "r_by",
    "r_reason",
    "r_at",
    "r_mac",
    "r_person",
    "dkeys",
    "failure",
    "receipt",
    "outcome",
    "out_ev",
    "kept",
    "evidence",
    "ended_at",
    "collected_at",
    "n",
    "m:decide",
    "m:reject",
    "m:withdraw",
    "m:renew",
    "m:mark_sending",
    "m:take_over",
    "m:settle",
    "m:late_answer",
    "m:resolve",
    "m:again",
];

/// What never changes, in the order of the lines of `fixed`. None of these values can hold a line
/// break: names have no control characters, the rest is digits.
pub(super) const FIXED: [&str; 15] = [
    "tenant",
    "owner",
    "initiator",
    "service",
    "tool",
    "capability",
    "risk",
    "args_hash",
    "created_at",
    "expires_at",
    "sealed_digest",
    "token",
    "join",
    "replay_ms",
    "refusal_ms",
];

/// The field `fixed` of a new draft.
pub(super) fn fixed(hold: &Hold, sealed_digest: &Digest) -> String {
    [
        hold.tenant.as_str(),
        &hold.owner_hash.to_hex(),
        hold.initiator.as_str(),
        hold.service.as_str(),
        hold.tool.as_str(),
        hold.capability.as_str(),
        hold.risk.as_str(),
        &hold.args_hash.to_hex(),
        &hold.created_at.as_millis().to_string(),
        &hold.expires_at.as_millis().to_string(),
        &sealed_digest.to_hex(),
        &hold.token_digest.to_hex(),
        &hold.join_key.to_hex(),
        &hold.replay_window_ms.to_string(),
        &hold.refusal_memory_ms.to_string(),
    ]
    .join("\n")
}

/// One piece of evidence as a line: its time, and the rest as the text that scripts carry.
pub(super) fn evidence_line(evidence: &Evidence) -> String {
    let Evidence { at, source, text, upstream_status } = evidence;
    format!("{}\t{}", at.as_millis(), evidence_rest(source, text, *upstream_status))
}

/// A piece of evidence without its time.
pub(super) fn evidence_rest(source: &str, text: &str, upstream_status: Option<u16>) -> String {
    json!([source, text, upstream_status]).to_string()
}

/// The hash of one draft as it came.
pub(super) struct Fields {
    id: DraftId,
    found: HashMap<Vec<u8>, Vec<u8>>,
}

impl Fields {
    pub(super) fn new(id: DraftId, found: HashMap<Vec<u8>, Vec<u8>>) -> Self {
        Self { id, found }
    }

    /// Whether there is no such draft.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The row with its sealed bytes and, where there is one, its response.
    pub(super) fn stored(mut self) -> Result<Stored, StoreError> {
        let response = self.found.remove("response".as_bytes());
        let stored = self.listed(response.is_some())?;
        Ok(Stored { response, ..stored })
    }

    /// The row with its sealed bytes, where it was only asked whether there is a response.
    pub(super) fn listed(mut self, has_response: bool) -> Result<Stored, StoreError> {
        let sealed = self.found.remove("sealed".as_bytes());
        let row = self.row()?;
        let sealed = sealed.ok_or_else(|| self.corrupt("its record is gone"))?;
        if row.has_response != has_response {
            return Err(self.corrupt("its response is gone"));
        }
        Ok(Stored { row, sealed, response: None })
    }

    fn corrupt(&self, what: impl std::fmt::Display) -> StoreError {
        StoreError::Corrupt(format!("draft {}: {what}", self.id))
    }

    fn text(&self, name: &str) -> Result<Option<&str>, StoreError> {
        let found = self.found.get(name.as_bytes());
        found.map(|bytes| std::str::from_utf8(bytes).map_err(|_| self.corrupt(name))).transpose()
    }

    fn must(&self, name: &str) -> Result<&str, StoreError> {
        self.text(name)?.ok_or_else(|| self.corrupt(format!("{name} is gone")))
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, StoreError> {
        self.text(name)?.map(|text| text.parse().map_err(|_| self.corrupt(name))).transpose()
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, StoreError> {
        self.parsed(name)?.ok_or_else(|| self.corrupt(format!("{name} is gone")))
    }

    fn time(&self, name: &str) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.parsed::<i64>(name)?.map(Timestamp::from_millis))
    }

    fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        let read = |text| serde_json::from_str(text).map_err(|error| self.corrupt(format!("{name}: {error}")));
        self.text(name)?.map(read).transpose()
    }

    fn lines(&self, name: &str) -> Result<Vec<&str>, StoreError> {
        Ok(self.text(name)?.map(|text| text.split('\n').collect()).unwrap_or_default())
    }

    fn named<T, E>(&self, name: &str, made: Result<T, E>) -> Result<T, StoreError> {
        made.map_err(|_| self.corrupt(name))
    }

    fn row(&self) -> Result<Row, StoreError> {
        let fixed: [&str; FIXED.len()] =
            self.must("fixed")?.split('\n').collect::<Vec<_>>().try_into().map_err(|_| self.corrupt("fixed"))?;
        let [tenant, owner, initiator, service, tool, capability, risk, args_hash, created, expires, rest @ ..] = fixed;
        let [sealed_digest, token, join, replay, refusal] = rest;
        let millis = |name: &str, text: &str| self.named(name, text.parse::<i64>()).map(Timestamp::from_millis);
        // Its place under its join key, which scripts compare.
        self.number::<u64>("n")?;
        let word = self.must("state")?;
        let state = State::ALL.into_iter().find(|state| state_word(*state) == word);
        let row = Row {
            id: self.id.clone(),
            state: state.ok_or_else(|| self.corrupt("state"))?,
            epoch: self.number("epoch")?,
            lease_until: self.time("lease_until")?,
            lease_node: self.text("lease_node")?.map(|name| self.named("lease_node", NodeId::new(name))).transpose()?,
            claimed_at: self.time("claimed_at")?,
            attempts: self.number("attempts")?,
            sent_at: self.time("sent_at")?,
            tenant: self.named("tenant", tenant.to_owned().try_into())?,
            owner_hash: self.named("owner", owner.parse())?,
            initiator: self.named("initiator", initiator.to_owned().try_into())?,
            service: self.named("service", service.to_owned().try_into())?,
            tool: self.named("tool", tool.to_owned().try_into())?,
            capability: self.named("capability", capability.to_owned().try_into())?,
            risk: Risk::parse(risk).ok_or_else(|| self.corrupt("risk"))?,
            args_hash: self.named("args_hash", args_hash.parse())?,
            created_at: millis("created_at", created)?,
            expires_at: millis("expires_at", expires)?,
            sealed_digest: self.named("sealed_digest", sealed_digest.parse())?,
            token_digest: self.named("token", token.parse())?,
            join_key: self.named("join", join.parse())?,
            caller_key: self.parsed("ckey")?,
            replay_window_ms: self.named("replay_ms", replay.parse())?,
            refusal_memory_ms: self.named("refusal_ms", refusal.parse())?,
            sessions: self.sessions()?,
            possible_duplicate_of: self.parsed("dup")?,
            passed_over: self.passed_over()?,
            seen_at: self.time("seen_at")?,
            votes: self.votes()?,
            refused: self.refused()?,
            decision_keys: self.decision_keys()?,
            failure: self.failure()?,
            receipt: self.json("receipt")?,
            outcome: self.outcome()?,
            has_response: self.text("kept")? == Some("1"),
            evidence: self.evidence()?,
            ended_at: self.time("ended_at")?,
            collected_at: self.time("collected_at")?,
            steps: self.steps()?,
        };
        if row.is_possible() { Ok(row) } else { Err(self.corrupt("the control data contradict themselves")) }
    }

    fn sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        self.lines("sessions")?.into_iter().map(|name| self.named("sessions", SessionId::new(name))).collect()
    }

    fn passed_over(&self) -> Result<Vec<DraftId>, StoreError> {
        self.lines("passed")?.into_iter().map(|id| self.named("passed", id.parse())).collect()
    }

    /// The votes; the names beside them, by which a script counts, must be theirs.
    fn votes(&self) -> Result<Vec<Vote>, StoreError> {
        let read = |line| self.named("votes", serde_json::from_str::<Vote>(line));
        let votes = self.lines("votes")?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<&str> = votes.iter().map(|vote| vote.decider.id.as_str()).collect();
        if names == self.lines("voters")? { Ok(votes) } else { Err(self.corrupt("votes and voters differ")) }
    }

    fn refused(&self) -> Result<Option<Refused>, StoreError> {
        let Some(reason) = self.text("r_reason")? else { return Ok(None) };
        let by = match self.must("r_by")? {
            "" => None,
            by => Some(self.named("r_by", serde_json::from_str::<Decider>(by))?),
        };
        let at = self.time("r_at")?.ok_or_else(|| self.corrupt("r_at is gone"))?;
        let refused = Refused { by, reason: reason.to_owned(), at, mac: self.parsed("r_mac")? };
        let said = self.text("r_person")? == Some("1");
        if refused.by_person() == said { Ok(Some(refused)) } else { Err(self.corrupt("r_person")) }
    }

    fn decision_keys(&self) -> Result<BTreeMap<String, Verb>, StoreError> {
        let read = |line: &str| {
            let (key, verb) = line.split_once(' ')?;
            let verb = [Verb::Confirm, Verb::Reject].into_iter().find(|known| known.as_str() == verb)?;
            Some((key.to_owned(), verb))
        };
        self.lines("dkeys")?.into_iter().map(|line| read(line).ok_or_else(|| self.corrupt("dkeys"))).collect()
    }

    fn failure(&self) -> Result<Option<Failure>, StoreError> {
        let read = |word: &str| Failure::ALL.into_iter().find(|failure| failure.as_str() == word);
        self.text("failure")?.map(|word| read(word).ok_or_else(|| self.corrupt("failure"))).transpose()
    }

    fn outcome(&self) -> Result<Option<Proof>, StoreError> {
        let outcome: Option<Proof> = self.json("outcome")?;
        let line = outcome.as_ref().map(|outcome| evidence_line(&outcome.evidence));
        if line.as_deref() == self.text("out_ev")? { Ok(outcome) } else { Err(self.corrupt("out_ev")) }
    }

    fn evidence(&self) -> Result<Vec<Evidence>, StoreError> {
        let read = |line: &str| {
            let (at, rest) = line.split_once('\t')?;
            let (source, text, upstream_status) = serde_json::from_str(rest).ok()?;
            Some(Evidence { at: Timestamp::from_millis(at.parse().ok()?), source, text, upstream_status })
        };
        self.lines("evidence")?.into_iter().map(|line| read(line).ok_or_else(|| self.corrupt("evidence"))).collect()
    }

    fn steps(&self) -> Result<BTreeMap<String, StepMemo>, StoreError> {
        let mut steps = BTreeMap::new();
        for name in NAMES.iter().filter_map(|name| name.strip_prefix("m:")) {
            let Some(memo) = self.text(&format!("m:{name}"))? else { continue };
            let memo = read_memo(memo).ok_or_else(|| self.corrupt(format!("the memory of {name}")))?;
            steps.insert(name.to_owned(), memo);
        }
        Ok(steps)
    }
}

/// `<step id> <epoch> <answer>`.
fn read_memo(memo: &str) -> Option<StepMemo> {
    let mut parts = memo.splitn(3, ' ');
    let id = StepId::try_from(parts.next()?.to_owned()).ok()?;
    let epoch = parts.next()?.parse().ok()?;
    Some(StepMemo { id, epoch, answer: read_answer(parts.next()?)? })
}

/// The answer that a step wrote, in the form in which the other stores keep it.
fn read_answer(answer: &str) -> Option<Value> {
    let mut words = answer.split(' ');
    let word = words.next()?;
    let mut number = || words.next()?.parse::<u32>().ok();
    Some(match word {
        "claimed" => json!({ "claimed": true }),
        "verifying" => json!({ "claimed": false }),
        "done" => json!({ "done": true }),
        "noted" => json!({ "done": false }),
        "voted" => json!({ "have": number()?, "need": number()? }),
        "marked" => {
            let attempt = number()?;
            let sent_at = Timestamp::from_millis(words.next()?.parse().ok()?);
            serde_json::to_value(Mark::Marked { attempt, sent_at }).ok()?
        }
        "until" => serde_json::to_value(Renewed::Until(Timestamp::from_millis(words.next()?.parse().ok()?))).ok()?,
        id => json!({ "draft": id.parse::<DraftId>().ok()? }),
    })
}
