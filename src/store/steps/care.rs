//! The small steps around a draft: noted collection, noted opening, deletion; and what a sweep
//! looks for.

use crate::base::id::DraftId;
use crate::base::time::Timestamp;
use crate::draft::state::{State, Status};
use crate::store::contract::{Filter, StoreError};
use crate::store::row::Row;
use crate::store::rows::Rows;

use super::{emit, expire_if_overdue, wild};

/// Notes that the agent got the result; the first time counts. A draft whose outcome is not
/// known yet has no result to collect.
pub(in crate::store) fn collect(rows: &mut dyn Rows, id: &DraftId) -> Result<(), StoreError> {
    let Some(mut row) = rows.row(id)? else { return Ok(()) };
    expire_if_overdue(rows, &mut row)?;
    let ended = row.state.status().is_terminal() && row.state != State::Unverifiable;
    if ended && row.collected_at.is_none() {
        row.collected_at = Some(rows.now());
        rows.put(&row)?;
        emit(rows, &row, "draft.collected", None, None)?;
    }
    Ok(())
}

/// Notes that an approver opened the card of a pending draft; the first time counts.
pub(in crate::store) fn note_seen(rows: &mut dyn Rows, id: &DraftId) -> Result<(), StoreError> {
    let Some(mut row) = rows.row(id)? else { return Ok(()) };
    expire_if_overdue(rows, &mut row)?;
    if row.state == State::Pending && row.seen_at.is_none() {
        row.seen_at = Some(rows.now());
        rows.put(&row)?;
        emit(rows, &row, "draft.seen", None, None)?;
    }
    Ok(())
}

/// Deletes a terminal, resolved draft that ended before `ended_before`.
pub(in crate::store) fn delete(rows: &mut dyn Rows, id: &DraftId, ended_before: Timestamp) -> Result<bool, StoreError> {
    let Some(mut row) = rows.row(id)? else { return Ok(false) };
    expire_if_overdue(rows, &mut row)?;
    if !deletable(&row, ended_before, rows.now()) {
        return Ok(false);
    }
    rows.remove(id)?;
    emit(rows, &row, "draft.deleted", None, None)?;
    Ok(true)
}

/// Whether a draft is past retention. What is not resolved is never deleted.
pub(in crate::store) fn deletable(row: &Row, ended_before: Timestamp, now: Timestamp) -> bool {
    let over = row.ended_at.is_some_and(|at| at < ended_before || wild(at, now));
    over && row.state.status().is_terminal() && row.state.status() != Status::Unverifiable
}

/// Whether a row belongs on a page, but for its place in the order.
pub(in crate::store) fn listed(row: &Row, filter: &Filter) -> bool {
    fn fits<T: PartialEq>(wanted: Option<&T>, has: &T) -> bool {
        wanted.is_none_or(|wanted| wanted == has)
    }
    (filter.statuses.is_empty() || filter.statuses.contains(&row.state.status()))
        && fits(filter.tenant.as_ref(), &row.tenant)
        && fits(filter.tool.as_ref(), &row.tool)
        && fits(filter.owner_hash.as_ref(), &row.owner_hash)
        && fits(filter.initiator.as_ref(), &row.initiator)
        && fits(filter.risk.as_ref(), &row.risk)
}

/// The place of a draft in the order "newest first": the ULID of its id, which sorts by time.
pub(in crate::store) fn place(id: &DraftId) -> &str {
    id.as_str().get(5..).unwrap_or_default()
}
