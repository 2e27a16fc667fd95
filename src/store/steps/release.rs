//! The steps of the holder of a lease: renew, mark, take over.

use std::time::Duration;

use serde_json::json;

use crate::base::id::{DraftId, NodeId, StepId};
use crate::base::time::Timestamp;
use crate::draft::outcome::Evidence;
use crate::draft::state::{Move, Phase, State};
use crate::store::contract::{Mark, Renewed, StoreError, TakenOver};
use crate::store::rights::Claim;
use crate::store::row::Row;
use crate::store::rows::{Rows, stored};

use super::settle::note_evidence;
use super::{LEASE_MAX, Memory, emit, expire_if_overdue, last, lease_over, moved, next_epoch, recall, remember};

const RENEW: &str = "renew";
const MARK: &str = "mark_sending";
/// The step, and the source of the evidence that it notes.
pub(in crate::store) const TAKE_OVER: &str = "take_over";

/// What is known of a send whose process is gone.
pub(in crate::store) const LOST_TEXT: &str =
    "the process that was sending it is gone; whether the call arrived is unknown";

/// Extends the lease of a running or verifying draft; never shortens it.
pub(in crate::store) fn renew(
    rows: &mut dyn Rows,
    id: &DraftId,
    epoch: u64,
    step: StepId,
    lease: Duration,
) -> Result<Renewed, StoreError> {
    let Some(mut row) = rows.row(id)? else { return Ok(Renewed::Superseded) };
    match recall(&row, RENEW, step) {
        Memory::Same(answer) => return read(&row, answer),
        Memory::Superseded => return Ok(Renewed::Superseded),
        Memory::New => {}
    }
    expire_if_overdue(rows, &mut row)?;
    if row.epoch != epoch || !matches!(row.state, State::Running(_) | State::Verifying) {
        return Ok(Renewed::Superseded);
    }
    let asked = rows.now() + lease.min(LEASE_MAX);
    let until = row.lease_until.map_or(asked, |until| until.max(asked));
    row.lease_until = Some(until);
    let answer = Renewed::Until(until);
    remember(&mut row, RENEW, step, write(&answer));
    rows.put(&row)?;
    Ok(answer)
}

/// Writes the mark before the first byte (promise 4).
pub(in crate::store) fn mark_sending(
    rows: &mut dyn Rows,
    id: &DraftId,
    epoch: u64,
    step: StepId,
    send_window: Duration,
) -> Result<Mark, StoreError> {
    let Some(mut row) = rows.row(id)? else { return Ok(Mark::Superseded) };
    match recall(&row, MARK, step) {
        Memory::Same(answer) => return read(&row, answer),
        Memory::Superseded => return Ok(Mark::Superseded),
        Memory::New => {}
    }
    expire_if_overdue(rows, &mut row)?;
    if row.epoch != epoch || row.state != State::Running(Phase::Claimed) {
        return Ok(Mark::Superseded);
    }
    let now = rows.now();
    if lease_over(&row, now) || row.lease_until.is_none_or(|until| until.since(now) <= send_window) {
        return Ok(Mark::LeaseTooShort);
    }
    if !moved(&mut row, Move::MarkSending) {
        return Ok(Mark::Superseded);
    }
    row.attempts = row.attempts.checked_add(1).ok_or_else(|| last(&row, "attempt"))?;
    row.sent_at = Some(now);
    let answer = Mark::Marked { attempt: row.attempts, sent_at: now };
    remember(&mut row, MARK, step, write(&answer));
    rows.put(&row)?;
    emit(rows, &row, "draft.sending", None, None)?;
    Ok(answer)
}

/// Takes over a running or verifying draft whose holder is gone.
pub(in crate::store) fn take_over(
    rows: &mut dyn Rows,
    id: &DraftId,
    step: StepId,
    node: &NodeId,
    lease: Duration,
    own_dead: &[NodeId],
) -> Result<TakenOver, StoreError> {
    let Some(mut row) = rows.row(id)? else { return Ok(TakenOver::NotFound) };
    match recall(&row, TAKE_OVER, step) {
        Memory::Same(answer) => return taken(rows, row, answer["claimed"] == true),
        Memory::Superseded => return Ok(TakenOver::NotDue),
        Memory::New => {}
    }
    expire_if_overdue(rows, &mut row)?;
    let now = rows.now();
    let before = row.state;
    if !is_orphan(&row, own_dead, now) || !moved(&mut row, Move::TakeOver) {
        return Ok(TakenOver::NotDue);
    }
    row.epoch = next_epoch(&row)?;
    row.lease_until = Some(now + lease.min(LEASE_MAX));
    row.lease_node = Some(node.clone());
    let claimed = row.state == State::Running(Phase::Claimed);
    remember(&mut row, TAKE_OVER, step, json!({ "claimed": claimed }));
    if before == State::Running(Phase::Sending) {
        let text = LOST_TEXT.to_owned();
        note_evidence(&mut row, Evidence { at: now, source: TAKE_OVER.to_owned(), text, upstream_status: None });
    }
    rows.put(&row)?;
    if before != row.state {
        emit(rows, &row, "draft.verifying", None, None)?;
    }
    taken(rows, row, claimed)
}

fn taken(rows: &mut dyn Rows, row: Row, claimed: bool) -> Result<TakenOver, StoreError> {
    let epoch = row.epoch;
    if claimed {
        let claim = Claim::new(row.id.clone(), epoch, row.claimed_at.unwrap_or_else(|| rows.now()));
        return Ok(TakenOver::Claimed(claim, stored(rows, row)?));
    }
    Ok(TakenOver::Verifying { epoch, stored: stored(rows, row)? })
}

/// Whether a running or verifying draft has nobody who works on it.
pub(in crate::store) fn is_orphan(row: &Row, own_dead: &[NodeId], now: Timestamp) -> bool {
    let working = matches!(row.state, State::Running(_) | State::Verifying);
    working && (lease_over(row, now) || row.lease_node.as_ref().is_some_and(|node| own_dead.contains(node)))
}

fn write<T: serde::Serialize>(answer: &T) -> serde_json::Value {
    serde_json::to_value(answer).unwrap_or(serde_json::Value::Null)
}

fn read<T: serde::de::DeserializeOwned>(row: &Row, answer: serde_json::Value) -> Result<T, StoreError> {
    serde_json::from_value(answer)
        .map_err(|error| StoreError::Corrupt(format!("draft {}: a step's memory: {error}", row.id)))
}
