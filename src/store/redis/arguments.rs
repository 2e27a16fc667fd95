//! The arguments of a call of a script, by name, and the keys that follow from them.
//!
//! Owns how what a step is asked becomes text. Must never send it, and never read an answer.

use std::time::Duration;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Partition, StepId};
use crate::draft::decision::Decider;
use crate::draft::outcome::Failure as Ending;
use crate::draft::proof::Proof;
use crate::draft::state::Verdict;
use crate::store::contract::{HOLD_AHEAD_MAX, HOLD_BEHIND_MAX, Hold, Settle, StoreError};
use crate::store::steps::misuse;

use super::fields::{evidence_line, fixed};
use super::key;
use super::script::{Script, verdict_word};

/// The arguments of one call, by the names of the script's head.
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) partition: Partition,
    args: Vec<(&'static str, Vec<u8>)>,
}

impl Call {
    pub(super) fn new(script: &'static Script, id: &DraftId) -> Self {
        Self { script, partition: id.partition(), args: Vec::with_capacity(16) }.with("id", id.as_str())
    }

    pub(super) fn of(script: &'static Script, partition: Partition) -> Self {
        Self { script, partition, args: Vec::with_capacity(16) }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.args.push((name, value.into()));
        self
    }

    pub(super) fn number(self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.with(name, value.to_string())
    }

    pub(super) fn step(self, step: StepId) -> Self {
        self.with("step", String::from(step))
    }

    fn digest(self, name: &'static str, value: Option<&Digest>) -> Self {
        self.with(name, value.map(Digest::to_hex).unwrap_or_default())
    }

    /// The keys that the head names.
    pub(super) fn keys(&self) -> Result<Vec<String>, StoreError> {
        let draft = |arg: &str| {
            let found = self.args.iter().find(|(name, _)| *name == arg);
            let id = found.and_then(|(_, id)| std::str::from_utf8(id).ok());
            id.map(|id| format!("d:{id}")).ok_or_else(|| misuse(&format!("{} without {arg}", self.script.name)))
        };
        let named = |name: &&'static str| {
            let own = match *name {
                "draft" => draft("id")?,
                "old" => draft("old")?,
                other => other.to_owned(),
            };
            Ok(key(self.partition, &own))
        };
        self.script.keys.iter().map(named).collect()
    }

    /// In the order of the head. A name that the head has not, or one that is missing, is a mistake
    /// of this crate: nothing is sent.
    pub(super) fn ordered(mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut ordered = Vec::with_capacity(self.args.len());
        for name in &self.script.args {
            let place = self.args.iter().position(|(own, _)| own == name);
            let place = place.ok_or_else(|| misuse(&format!("{} without {name}", self.script.name)))?;
            ordered.push(self.args.swap_remove(place).1);
        }
        match self.args.first() {
            None => Ok(ordered),
            Some((name, _)) => Err(misuse(&format!("{} with {name}", self.script.name))),
        }
    }
}

/// One value as JSON.
pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// Milliseconds, as the scripts count.
pub(super) fn millis(duration: Duration) -> u128 {
    duration.as_millis()
}

/// Names, one to a line: they have no control characters.
pub(super) fn names(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::as_str).collect::<Vec<_>>().join("\n")
}

/// What a hold and a repetition bring.
pub(super) fn holding(call: Call, ask: &Hold, sealed_digest: &Digest) -> Call {
    call.with("fixed", fixed(ask, sealed_digest))
        .with("tenant", ask.tenant.as_str())
        .with("owner", ask.owner_hash.to_hex())
        .with("tool", ask.tool.as_str())
        .with("args_hash", ask.args_hash.to_hex())
        .with("join", ask.join_key.to_hex())
        .with("token", ask.token_digest.to_hex())
        .with("sealed_digest", sealed_digest.to_hex())
        .number("created_at", ask.created_at.as_millis())
        .number("expires_at", ask.expires_at.as_millis())
        .with("session", ask.session.as_str())
        .digest("ckey", ask.caller_key.as_ref())
        .with("sealed", ask.sealed.as_slice())
        .number("pending_max", ask.limits.pending_max)
        .number("holds_max", ask.limits.holds_max)
        .number("window_ms", millis(ask.limits.window))
        .number("ahead_ms", millis(HOLD_AHEAD_MAX))
        .number("behind_ms", millis(HOLD_BEHIND_MAX))
}

/// How an attempt ended.
pub(super) fn end(call: Call, ask: &Settle, by: Option<&Decider>) -> Result<Call, StoreError> {
    let outcome = Proof {
        epoch: ask.epoch,
        evidence: ask.evidence.clone(),
        response: ask.response.as_deref().map(Digest::of),
        by: by.cloned(),
        mac: ask.mac,
    };
    let failure = ask.failure.filter(|_| ask.verdict == Verdict::Failed);
    Ok(call
        .step(ask.step)
        .with("verdict", verdict_word(ask.verdict))
        .with("evidence", evidence_line(&ask.evidence))
        .with("failure", failure.map(Ending::as_str).unwrap_or_default())
        .with("receipt", ask.receipt.as_ref().map(json).transpose()?.unwrap_or_default())
        .with("outcome", json(&outcome)?)
        .with("has_response", if ask.response.is_some() { "1" } else { "0" })
        .with("response", ask.response.clone().unwrap_or_default()))
}
