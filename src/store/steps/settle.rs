//! The ends of a release: settle, late answer, resolution by a person.

use serde_json::{Value, json};

use crate::base::digest::Digest;
use crate::draft::decision::Decider;
use crate::draft::outcome::Evidence;
use crate::draft::proof::Proof;
use crate::draft::receipt::ReceiptStatus;
use crate::draft::state::{Move, State, Verdict, next};
use crate::store::contract::{Settle, Settled, StoreError};
use crate::store::row::Row;
use crate::store::rows::{Rows, stored};

use super::{Memory, emit, expire_if_overdue, misuse, moved, recall, remember};

const SETTLE: &str = "settle";
const LATE: &str = "late_answer";
const RESOLVE: &str = "resolve";

/// How many pieces of evidence a draft keeps: the first, the latest and the one of the outcome.
const EVIDENCE_MAX: usize = 16;

/// Ends a running or verifying draft under its epoch.
pub(in crate::store) fn settle(rows: &mut dyn Rows, ask: Settle) -> Result<Settled, StoreError> {
    check(&ask)?;
    let Some(mut row) = rows.row(&ask.id)? else { return Ok(Settled::NotFound) };
    match recall(&row, SETTLE, ask.step) {
        Memory::Same(answer) => return same_again(rows, row, &answer),
        Memory::Superseded => return Ok(Settled::Superseded(stored(rows, row)?)),
        Memory::New => {}
    }
    expire_if_overdue(rows, &mut row)?;
    if row.epoch != ask.epoch || !moved(&mut row, Move::Settle(ask.verdict)) {
        return Ok(Settled::Superseded(stored(rows, row)?));
    }
    let kind = match ask.verdict {
        Verdict::Succeeded => "draft.succeeded",
        Verdict::Failed => "draft.failed",
        Verdict::Unverifiable => "draft.unverifiable",
    };
    end(rows, row, ask, SETTLE, kind, None)
}

/// Records an answer that came after its attempt was given up.
pub(in crate::store) fn late_answer(rows: &mut dyn Rows, ask: Settle) -> Result<Settled, StoreError> {
    check(&ask)?;
    let Some(mut row) = rows.row(&ask.id)? else { return Ok(Settled::NotFound) };
    match recall(&row, LATE, ask.step) {
        Memory::Same(answer) => return same_again(rows, row, &answer),
        Memory::Superseded => return Ok(Settled::Superseded(stored(rows, row)?)),
        Memory::New => {}
    }
    expire_if_overdue(rows, &mut row)?;
    if row.attempts == 0 {
        // No attempt was marked, so this is no answer to one.
        return Ok(Settled::Superseded(stored(rows, row)?));
    }
    if let Some(state) = next(row.state, Move::LateAnswer(ask.verdict)) {
        row.state = state;
        return end(rows, row, ask, LATE, "draft.late_answer", None);
    }
    note_evidence(&mut row, ask.evidence);
    remember(&mut row, LATE, ask.step, json!({ "done": false }));
    rows.put(&row)?;
    emit(rows, &row, "draft.late_answer", None, ask.failure.map(|failure| failure.as_str()))?;
    Ok(Settled::Superseded(stored(rows, row)?))
}

/// Settles an unverifiable draft by a named person.
pub(in crate::store) fn resolve(rows: &mut dyn Rows, ask: Settle, by: &Decider) -> Result<Settled, StoreError> {
    check(&ask)?;
    let Some(mut row) = rows.row(&ask.id)? else { return Ok(Settled::NotFound) };
    match recall(&row, RESOLVE, ask.step) {
        Memory::Same(answer) => return same_again(rows, row, &answer),
        Memory::Superseded => return Ok(Settled::Superseded(stored(rows, row)?)),
        Memory::New => {}
    }
    expire_if_overdue(rows, &mut row)?;
    if !moved(&mut row, Move::Resolve(ask.verdict)) {
        return Ok(Settled::Superseded(stored(rows, row)?));
    }
    end(rows, row, ask, RESOLVE, "draft.resolved", Some(by))
}

/// Writes what an end brings: the state is moved already.
fn end(
    rows: &mut dyn Rows,
    mut row: Row,
    ask: Settle,
    step: &str,
    kind: &str,
    by: Option<&Decider>,
) -> Result<Settled, StoreError> {
    let now = rows.now();
    row.failure = if ask.verdict == Verdict::Failed { ask.failure } else { None };
    row.receipt = ask.receipt;
    note_evidence(&mut row, ask.evidence.clone());
    row.outcome = Some(Proof {
        epoch: ask.epoch,
        evidence: ask.evidence,
        response: ask.response.as_deref().map(Digest::of),
        by: by.cloned(),
        mac: ask.mac,
    });
    row.ended_at = Some(now);
    row.lease_until = None;
    row.lease_node = None;
    row.has_response = ask.response.is_some();
    remember(&mut row, step, ask.step, json!({ "done": true }));
    rows.put(&row)?;
    if let Some(response) = &ask.response {
        rows.put_response(&row.id, response)?;
    }
    let reason = row.failure.map(|failure| failure.as_str());
    emit(rows, &row, kind, by.map(|by| by.id.as_str()), reason)?;
    debug_assert!(row.state != State::Succeeded || row.receipt.is_some(), "promise 6");
    Ok(Settled::Done(stored(rows, row)?))
}

fn same_again(rows: &mut dyn Rows, row: Row, answer: &Value) -> Result<Settled, StoreError> {
    let stored = stored(rows, row)?;
    Ok(if answer["done"] == true { Settled::Done(stored) } else { Settled::Superseded(stored) })
}

/// No receipt, no success (promise 6); and a receipt must be this draft's and say the same. The
/// MAC covers the evidence, so it cannot be cut here.
pub(in crate::store) fn check(ask: &Settle) -> Result<(), StoreError> {
    let proves = ask.receipt.as_ref().map(|receipt| receipt.status);
    let fits = match ask.verdict {
        Verdict::Succeeded => proves == Some(ReceiptStatus::Succeeded),
        Verdict::Failed => proves == Some(ReceiptStatus::Failed) && ask.failure.is_some(),
        Verdict::Unverifiable => proves.is_none(),
    };
    if !fits {
        return Err(misuse("an end whose receipt or failure does not say what its verdict says"));
    }
    if ask.receipt.as_ref().is_some_and(|receipt| receipt.action_id != ask.id) {
        return Err(misuse("a receipt of another draft"));
    }
    if !ask.evidence.is_bounded() {
        return Err(misuse("evidence of more than 500 characters, or from a source of more than 32"));
    }
    Ok(())
}

/// Adds a piece of evidence; the first, the latest and the outcome's stay.
pub(super) fn note_evidence(row: &mut Row, evidence: Evidence) {
    while row.evidence.len() >= EVIDENCE_MAX {
        let second_stays = row.outcome.as_ref().is_some_and(|outcome| row.evidence[1] == outcome.evidence);
        row.evidence.remove(if second_stays { 2 } else { 1 });
    }
    row.evidence.push(evidence);
}
