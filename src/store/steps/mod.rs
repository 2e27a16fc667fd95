//! Every atomic step of a draft's life, written once over [`Rows`].
//!
//! A step checks everything before its first write, changes a state only by
//! [`crate::draft::state::next`], writes its event beside the change, and remembers its step id,
//! epoch and answer. Must never open a sealed draft, read a clock or know which store it runs on.

pub(in crate::store) mod care;
pub(in crate::store) mod decide;
pub(in crate::store) mod hold;
pub(in crate::store) mod release;
pub(in crate::store) mod settle;

use std::time::Duration;

use serde_json::Value;

use crate::base::id::StepId;
use crate::base::time::Timestamp;
use crate::draft::decision::{Decider, DeciderKind, Refused};
use crate::draft::proof::EXPIRED;
use crate::draft::state::{Move, State, next};

use super::clock::TRUST;
use super::contract::StoreError;
use super::row::{Event, Row, StepMemo};
use super::rows::Rows;

/// How long events stay in the outbox; older ones are dropped by the steps that add new ones.
pub(in crate::store) const EVENTS_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A lease is never longer than this, whatever is asked for.
pub(in crate::store) const LEASE_MAX: Duration = Duration::from_secs(60 * 60);

/// Whether a stamp is so far ahead that it can only come from a clock that was wrong.
pub(in crate::store) fn wild(at: Timestamp, now: Timestamp) -> bool {
    at > now + TRUST
}

/// Whether a pending draft's time is over: from `expires_at` on.
pub(in crate::store) fn overdue(row: &Row, now: Timestamp) -> bool {
    row.state == State::Pending && (now >= row.expires_at || wild(row.created_at, now))
}

/// Whether `at` is less than `window` ago.
pub(in crate::store) fn within(at: Timestamp, window_ms: u64, now: Timestamp) -> bool {
    !wild(at, now) && now.since(at) < Duration::from_millis(window_ms)
}

/// Whether the lease is over: also if there is none, or if a wrong clock wrote it.
pub(in crate::store) fn lease_over(row: &Row, now: Timestamp) -> bool {
    row.lease_until.is_none_or(|until| now >= until || wild(until, now))
}

/// The epoch after the row's; an altered row may have the last one.
fn next_epoch(row: &Row) -> Result<u64, StoreError> {
    row.epoch.checked_add(1).ok_or_else(|| last(row, "epoch"))
}

/// A counter that no honest draft ever counts up to its end.
fn last(row: &Row, what: &str) -> StoreError {
    StoreError::Corrupt(format!("draft {}: its {what} is the last that can be counted", row.id))
}

/// Moves the row by the one table; `false` and no change if the table refuses.
fn moved(row: &mut Row, step: Move) -> bool {
    match next(row.state, step) {
        Some(state) => {
            row.state = state;
            true
        }
        None => false,
    }
}

/// Writes the event of a step.
fn emit(rows: &mut dyn Rows, row: &Row, kind: &str, by: Option<&str>, reason: Option<&str>) -> Result<(), StoreError> {
    let now = rows.now();
    rows.append(Event {
        seq: 0,
        at: now,
        kind: kind.to_owned(),
        draft_id: row.id.clone(),
        tenant: row.tenant.clone(),
        owner_hash: row.owner_hash,
        tool: row.tool.clone(),
        status: row.state.status().as_str().to_owned(),
        epoch: row.epoch,
        args_hash: row.args_hash,
        by: by.map(|name| bounded(name, 255)),
        reason: reason.map(str::to_owned),
    })?;
    rows.trim(now - EVENTS_KEPT, 2)
}

/// Expires a pending draft whose time is over; every step that meets one does this.
fn expire(rows: &mut dyn Rows, row: &mut Row) -> Result<(), StoreError> {
    if moved(row, Move::Expire) {
        let now = rows.now();
        row.refused = Some(Refused { by: None, reason: EXPIRED.to_owned(), at: now, mac: None });
        row.ended_at = Some(now);
        rows.put(row)?;
        emit(rows, row, "draft.expired", None, None)?;
    }
    Ok(())
}

/// Expires the row if its time is over.
fn expire_if_overdue(rows: &mut dyn Rows, row: &mut Row) -> Result<(), StoreError> {
    if overdue(row, rows.now()) { expire(rows, row) } else { Ok(()) }
}

/// What a row remembers of a step id.
enum Memory {
    /// Another id, or none: the step runs.
    New,
    /// This id, at the epoch that still holds: the same answer again.
    Same(Value),
    /// This id, but the epoch has moved on.
    Superseded,
}

fn recall(row: &Row, step: &str, id: StepId) -> Memory {
    match row.steps.get(step) {
        Some(memo) if memo.id == id && memo.epoch == row.epoch => Memory::Same(memo.answer.clone()),
        Some(memo) if memo.id == id => Memory::Superseded,
        _ => Memory::New,
    }
}

fn remember(row: &mut Row, step: &str, id: StepId, answer: Value) {
    row.steps.insert(step.to_owned(), StepMemo { id, epoch: row.epoch, answer });
}

/// Cuts a text at a number of characters.
pub(in crate::store) fn bounded(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}

/// The reason word of an event: a guard's or a policy's code, never a person's words.
pub(in crate::store) fn reason_code<'a>(by: &Decider, reason: &'a str) -> Option<&'a str> {
    let code = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let legal = (1..=64).contains(&reason.len()) && reason.chars().all(code);
    (legal && matches!(by.kind, DeciderKind::Guard | DeciderKind::Policy)).then_some(reason)
}

/// A request that no store can carry out. Nothing was written.
pub(in crate::store) fn misuse(what: &str) -> StoreError {
    StoreError::Unavailable(format!("a step was asked for that cannot be carried out: {what}"))
}
