//! The arguments of a call of a script, by name, and the keys that follow from them.
//!
//! Owns how what a step is asked becomes text. Must never send it, and never read an answer.

use std::time::Duration;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Partition, StepId};
use crate::base::time::Timestamp;
use crate::draft::decision::Decider;
use crate::draft::outcome::Failure as Ending;
use crate::draft::proof::Proof;
use crate::draft::state::Verdict;
use crate::store::contract::{Hold, OwnerLimits, Settle, StoreError};
use crate::store::steps::misuse;

use super::fields::{evidence_line, fixed};
use super::key;
use super::script::{Script, verdict_word};

/// The arguments of one call, by the names of the script's head.
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) partition: Partition,
    args: Vec<(&'static str, Vec<u8>)>,
    /// The digest of the token, for the step that stores it.
    token: Option<Digest>,
}

impl Call {
    pub(super) fn new(script: &'static Script, id: &DraftId) -> Self {
        Self::of(script, id.partition()).with("id", id.as_str())
    }

    pub(super) fn of(script: &'static Script, partition: Partition) -> Self {
        Self { script, partition, args: Vec::with_capacity(16), token: None }
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
        let without = |arg: &str| misuse(&format!("{} without {arg}", self.script.name));
        let by = |kind: char, arg: &str| {
            let found = self.args.iter().find(|(name, _)| *name == arg);
            let value = found.and_then(|(_, value)| std::str::from_utf8(value).ok());
            value.map(|value| format!("{kind}:{value}")).ok_or_else(|| without(arg))
        };
        let named = |name: &&'static str| {
            let own = match *name {
                "draft" => by('d', "id")?,
                "old" => by('d', "old")?,
                "owner" => by('o', "owner")?,
                "token" => token_key(&self.token.ok_or_else(|| without("token"))?),
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

/// What leads from a token to its draft.
pub(super) fn token_key(digest: &Digest) -> String {
    format!("t:{digest}")
}

/// How many lines an owner's index has at least for each draft.
const LINES_MIN: u64 = 2;

/// What a hold and a repetition bring. Times are sixteen digits, as lines of an index have them.
pub(super) fn holding(mut call: Call, ask: &Hold, sealed_digest: &Digest) -> Call {
    let time = |at: Timestamp| format!("{:016}", at.as_millis());
    let OwnerLimits { pending_max, holds_max, window } = ask.limits;
    // An owner with fewer lines has reached neither limit.
    let few = u64::from(pending_max.min(holds_max)) * LINES_MIN;
    call.token = Some(ask.token_digest);
    call.with("fixed", fixed(ask, sealed_digest))
        .with("tenant", ask.tenant.as_str())
        .with("owner", ask.owner_hash.to_hex())
        .with("tool", ask.tool.as_str())
        .with("args_hash", ask.args_hash.to_hex())
        .with("join", ask.join_key.to_hex())
        .with("created_at", time(ask.created_at))
        .with("expires_at", time(ask.expires_at))
        .with("session", ask.session.as_str())
        .digest("ckey", ask.caller_key.as_ref())
        .with("sealed", ask.sealed.as_slice())
        .with("limits", format!("{few} {pending_max} {holds_max} {}", millis(window)))
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
