//! The ends of `pending`: yes, no, withdrawal, expiry.

use serde_json::json;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, StepId};
use crate::draft::decision::{Refused, Verb, Vote, WORDS_CHARS_MAX};
use crate::draft::proof::withdrawn_by;
use crate::draft::state::{Move, next};
use crate::store::contract::{Decide, Decided, Ended, Reject, StoreError};
use crate::store::rights::Claim;
use crate::store::row::Row;
use crate::store::rows::{Rows, stored};

use super::{
    LEASE_MAX, Memory, emit, expire_if_overdue, misuse, moved, next_epoch, overdue, reason_code, recall, remember,
};

const DECIDE: &str = "decide";
const REJECT: &str = "reject";
const WITHDRAW: &str = "withdraw";

/// How many decision keys a draft notes.
const DECISION_KEYS_MAX: usize = 32;

/// Counts a yes; the one that completes the quorum claims the draft.
pub(in crate::store) fn decide(rows: &mut dyn Rows, ask: Decide) -> Result<Decided, StoreError> {
    check_vote(&ask.vote)?;
    let Some(mut row) = rows.row(&ask.id)? else { return Ok(Decided::NotFound) };
    match recall(&row, DECIDE, ask.step) {
        Memory::Same(answer) => return same_again(rows, row, &answer),
        Memory::Superseded => return Ok(Decided::NotPending(stored(rows, row)?)),
        Memory::New => {}
    }
    let key_used_for = key_used_for(&row, ask.decision_key.as_deref());
    if key_used_for == Some(Verb::Reject) {
        return Ok(Decided::KeyReused);
    }
    expire_if_overdue(rows, &mut row)?;
    let Some(claimed) = next(row.state, Move::Claim) else {
        return Ok(Decided::NotPending(stored(rows, row)?));
    };
    // Only of a draft that can still be decided: of any other its end is told, whatever the caller saw.
    if row.sealed_digest != ask.sealed_digest || ask.vote.epoch != row.epoch + 1 {
        return Ok(Decided::Changed);
    }
    let need = ask.quorum.max(1);
    if key_used_for.is_some() || has_voted(&row, &ask.vote) {
        let have = count(&row);
        return Ok(Decided::AlreadyVoted { have, need, stored: stored(rows, row)? });
    }
    note_key(&mut row, ask.decision_key, Verb::Confirm);
    let by = ask.vote.decider.id.clone();
    row.votes.push(ask.vote);
    let have = count(&row);
    if have < need {
        remember(&mut row, DECIDE, ask.step, json!({ "have": have, "need": need }));
        rows.put(&row)?;
        emit(rows, &row, "draft.voted", Some(by.as_str()), None)?;
        return Ok(Decided::Voted { have, need, stored: stored(rows, row)? });
    }
    let now = rows.now();
    row.state = claimed;
    row.epoch = next_epoch(&row)?;
    row.claimed_at = Some(now);
    row.lease_until = Some(now + ask.lease.min(LEASE_MAX));
    row.lease_node = Some(ask.node);
    remember(&mut row, DECIDE, ask.step, json!({ "claimed": true }));
    rows.put(&row)?;
    emit(rows, &row, "draft.confirmed", Some(by.as_str()), None)?;
    Ok(Decided::Claimed(Claim::new(row.id.clone(), row.epoch, now), stored(rows, row)?))
}

fn same_again(rows: &mut dyn Rows, row: Row, answer: &serde_json::Value) -> Result<Decided, StoreError> {
    if let Some(claimed_at) = row.claimed_at {
        let claim = Claim::new(row.id.clone(), row.epoch, claimed_at);
        return Ok(Decided::Claimed(claim, stored(rows, row)?));
    }
    let number = |name: &str| answer[name].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    Ok(Decided::Voted { have: number("have"), need: number("need"), stored: stored(rows, row)? })
}

/// Ends a pending draft with a no.
pub(in crate::store) fn reject(rows: &mut dyn Rows, ask: Reject) -> Result<Ended, StoreError> {
    check_reason(&ask.reason)?;
    let Some(mut row) = rows.row(&ask.id)? else { return Ok(Ended::NotFound) };
    match recall(&row, REJECT, ask.step) {
        Memory::Same(_) => return Ok(Ended::Done(stored(rows, row)?)),
        Memory::Superseded => return Ok(Ended::NotPending(stored(rows, row)?)),
        Memory::New => {}
    }
    if key_used_for(&row, ask.decision_key.as_deref()) == Some(Verb::Confirm) {
        return Ok(Ended::KeyReused);
    }
    expire_if_overdue(rows, &mut row)?;
    let changed = ask.sealed_digest != row.sealed_digest;
    if changed && next(row.state, Move::Reject).is_some() {
        return Ok(Ended::Changed);
    }
    if !moved(&mut row, Move::Reject) {
        return Ok(Ended::NotPending(stored(rows, row)?));
    }
    let now = rows.now();
    note_key(&mut row, ask.decision_key, Verb::Reject);
    let by = ask.by.id.clone();
    let code = reason_code(&ask.by, &ask.reason).map(str::to_owned);
    row.refused = Some(Refused { by: Some(ask.by), reason: ask.reason, at: now, mac: Some(ask.mac) });
    row.ended_at = Some(now);
    remember(&mut row, REJECT, ask.step, json!({ "done": true }));
    rows.put(&row)?;
    emit(rows, &row, "draft.rejected", Some(by.as_str()), code.as_deref())?;
    Ok(Ended::Done(stored(rows, row)?))
}

/// Ends a pending draft because the agent took it back.
pub(in crate::store) fn withdraw(
    rows: &mut dyn Rows,
    id: &DraftId,
    step: StepId,
    by: &str,
    mac: Digest,
) -> Result<Ended, StoreError> {
    let Some(mut row) = rows.row(id)? else { return Ok(Ended::NotFound) };
    match recall(&row, WITHDRAW, step) {
        Memory::Same(_) => return Ok(Ended::Done(stored(rows, row)?)),
        Memory::Superseded => return Ok(Ended::NotPending(stored(rows, row)?)),
        Memory::New => {}
    }
    expire_if_overdue(rows, &mut row)?;
    if !moved(&mut row, Move::Withdraw) {
        return Ok(Ended::NotPending(stored(rows, row)?));
    }
    let now = rows.now();
    row.refused = Some(Refused { by: None, reason: withdrawn_by(by), at: now, mac: Some(mac) });
    row.ended_at = Some(now);
    remember(&mut row, WITHDRAW, step, json!({ "done": true }));
    rows.put(&row)?;
    emit(rows, &row, "draft.withdrawn", Some(by), None)?;
    Ok(Ended::Done(stored(rows, row)?))
}

/// Ends a pending draft whose time is over.
pub(in crate::store) fn expire(rows: &mut dyn Rows, id: &DraftId) -> Result<Ended, StoreError> {
    let Some(mut row) = rows.row(id)? else { return Ok(Ended::NotFound) };
    if !overdue(&row, rows.now()) {
        return Ok(Ended::NotPending(stored(rows, row)?));
    }
    super::expire(rows, &mut row)?;
    Ok(Ended::Done(stored(rows, row)?))
}

/// Refuses a comment that is too long.
pub(in crate::store) fn check_vote(vote: &Vote) -> Result<(), StoreError> {
    let long = vote.comment.as_deref().is_some_and(too_long);
    if long { Err(misuse("a comment of more than 1,000 characters")) } else { Ok(()) }
}

/// Refuses a reason that is too long.
pub(in crate::store) fn check_reason(reason: &str) -> Result<(), StoreError> {
    if too_long(reason) { Err(misuse("a reason of more than 1,000 characters")) } else { Ok(()) }
}

/// A MAC covers a person's words, so they cannot be cut here.
fn too_long(words: &str) -> bool {
    words.chars().count() > WORDS_CHARS_MAX
}

/// One principal counts once, over all channels.
fn has_voted(row: &Row, vote: &Vote) -> bool {
    row.votes.iter().any(|earlier| earlier.decider.id == vote.decider.id)
}

fn count(row: &Row) -> u32 {
    u32::try_from(row.votes.len()).unwrap_or(u32::MAX)
}

fn key_used_for(row: &Row, key: Option<&str>) -> Option<Verb> {
    key.and_then(|key| row.decision_keys.get(key)).copied()
}

fn note_key(row: &mut Row, key: Option<String>, verb: Verb) {
    if let Some(key) = key
        && row.decision_keys.len() < DECISION_KEYS_MAX
    {
        row.decision_keys.insert(key, verb);
    }
}
