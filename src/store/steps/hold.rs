//! Holding a call, and the table "A call that comes again" of docs/lifecycle.md.

use std::time::Duration;

use serde_json::json;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, StepId};
use crate::base::time::Timestamp;
use crate::draft::outcome::Failure;
use crate::draft::state::State;
use crate::store::contract::{Ended, HOLD_AHEAD_MAX, HOLD_BEHIND_MAX, Held, Hold, StoreError};
use crate::store::row::{Row, Stored};
use crate::store::rows::{Rows, stored};

use super::{emit, expire, expire_if_overdue, misuse, overdue, wild, within};

/// The longest life of a draft.
const LIFE_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How many of the newest drafts under one join key are looked at.
pub(in crate::store) const LOOK_BACK: usize = 16;

/// How many sessions a draft notes.
const SESSIONS_MAX: usize = 16;

/// The memory of a repetition.
const AGAIN: &str = "again";

/// Stores a draft, or finds the one that already answers the call.
pub(in crate::store) fn hold(rows: &mut dyn Rows, hold: Hold) -> Result<Held, StoreError> {
    if let Some(row) = rows.row(&hold.id)? {
        return repeated(rows, row, &hold);
    }
    let now = rows.now();
    check(&hold)?;
    if !in_time(&hold, now) {
        return Ok(Held::Clock(now));
    }
    let mut seen = Vec::new();
    let found = look(rows, &hold, now, &mut seen)?;
    // Reading is over, so writing may begin: first the ends of drafts whose time was over.
    for row in &mut seen {
        expire(rows, row)?;
    }
    match found {
        Found::Answer(row) => join(rows, row, &hold),
        Found::Refusal(row) => Ok(Held::RejectedBefore(stored(rows, row)?)),
        Found::OtherArgs(id) => Ok(Held::KeyReused(id)),
        Found::TooManyPending => Ok(Held::TooManyPending),
        Found::RateLimited => Ok(Held::RateLimited),
        Found::Nothing(before) => make(rows, hold, before),
    }
}

/// Makes a new pending draft from one that was provably not sent. The table of calls that come
/// again holds here too: if an equal call is live by now, that draft answers.
pub(in crate::store) fn again(
    rows: &mut dyn Rows,
    old: &DraftId,
    ask: Hold,
) -> Result<Result<Held, Ended>, StoreError> {
    let Some(mut row) = rows.row(old)? else { return Ok(Err(Ended::NotFound)) };
    let step = step_of(&ask.id);
    if let Some(memo) = row.steps.get(AGAIN) {
        let same = memo.id == step;
        if same && let Some(new) = rows.row(&ask.id)? {
            return repeated(rows, new, &ask).map(Ok);
        }
        return Ok(Err(Ended::NotPending(stored(rows, row)?)));
    }
    expire_if_overdue(rows, &mut row)?;
    if row.state != State::Failed || !row.failure.is_some_and(Failure::not_sent) {
        return Ok(Err(Ended::NotPending(stored(rows, row)?)));
    }
    if row.owner_hash != ask.owner_hash || row.initiator != ask.initiator || row.args_hash != ask.args_hash {
        return Err(misuse("a repetition of another owner's, another agent's or another call"));
    }
    let id = ask.id.clone();
    let held = hold(rows, ask)?;
    if let Held::New(_) = held
        && let Some(mut row) = rows.row(old)?
    {
        super::remember(&mut row, AGAIN, step, json!({ "draft": id }));
        rows.put(&row)?;
    }
    Ok(Ok(held))
}

/// What earlier drafts say to a call.
enum Found {
    Answer(Row),
    Refusal(Row),
    OtherArgs(DraftId),
    TooManyPending,
    RateLimited,
    /// A new draft; the caller's key leaves `key_of`.
    Nothing(Before),
}

/// What stands before a new draft.
#[derive(Default)]
struct Before {
    /// Who has the caller's key, which moves.
    key_of: Option<Row>,
    /// An equal call was carried out and its result collected.
    duplicate_of: Option<DraftId>,
    /// Equal drafts that ended without a send, if what stands there is true.
    passed_over: Vec<DraftId>,
}

/// What one earlier draft says to an equal call.
enum Says {
    Join,
    Refuse,
    New,
    /// A new one that may be a duplicate of this one.
    NewFlagged,
}

/// Reads and decides; writes nothing. Drafts whose time is over are noted in `overdue_rows`.
fn look(rows: &mut dyn Rows, hold: &Hold, now: Timestamp, overdue_rows: &mut Vec<Row>) -> Result<Found, StoreError> {
    let mut before = Before::default();
    if let Some(key) = &hold.caller_key
        && let Some(row) = rows.by_caller_key(key)?
    {
        if overdue(&row, now) {
            overdue_rows.push(row.clone());
        }
        if row.args_hash != hold.args_hash {
            return Ok(Found::OtherArgs(row.id));
        }
        match says(&row, now, true) {
            Says::Join => return Ok(Found::Answer(row)),
            Says::Refuse => return Ok(Found::Refusal(row)),
            Says::New | Says::NewFlagged => {
                before.passed_over.push(row.id.clone());
                before.key_of = Some(row);
            }
        }
    }
    for row in rows.by_join_key(&hold.join_key, LOOK_BACK)? {
        if overdue(&row, now) && !overdue_rows.iter().any(|seen| seen.id == row.id) {
            overdue_rows.push(row.clone());
        }
        match says(&row, now, false) {
            Says::Refuse => return Ok(Found::Refusal(row)),
            // With another key a call never joins; only the refusal memory applies.
            _ if hold.caller_key.is_some() => {}
            Says::Join => return Ok(Found::Answer(row)),
            Says::NewFlagged => {
                before.duplicate_of.get_or_insert(row.id);
            }
            Says::New => before.passed_over.push(row.id),
        }
    }
    let limits = hold.limits;
    if rows.pending_of(&hold.owner_hash, limits.pending_max)? >= limits.pending_max {
        return Ok(Found::TooManyPending);
    }
    if rows.holds_of(&hold.owner_hash, now - limits.window, limits.holds_max)? >= limits.holds_max {
        return Ok(Found::RateLimited);
    }
    Ok(Found::Nothing(before))
}

/// The table, one row at a time.
fn says(row: &Row, now: Timestamp, same_key: bool) -> Says {
    if overdue(row, now) {
        return Says::New;
    }
    match row.state {
        State::Pending | State::Running(_) | State::Verifying | State::Unverifiable => Says::Join,
        State::Failed if row.failure.is_some_and(Failure::not_sent) => Says::New,
        State::Succeeded | State::Failed => {
            let replays = row.collected_at.is_none_or(|at| within(at, row.replay_window_ms, now));
            if same_key || replays { Says::Join } else { Says::NewFlagged }
        }
        State::Rejected => {
            let by_person = row.refused.as_ref().filter(|refused| refused.by_person());
            let remembered = by_person.is_some_and(|refused| within(refused.at, row.refusal_memory_ms, now));
            if remembered || (same_key && by_person.is_some()) { Says::Refuse } else { Says::New }
        }
        State::Expired | State::Withdrawn => Says::New,
    }
}

/// The same draft id again: the same answer, if it is the same draft.
fn repeated(rows: &mut dyn Rows, row: Row, hold: &Hold) -> Result<Held, StoreError> {
    if row.token_digest != hold.token_digest
        || row.join_key != hold.join_key
        || row.sealed_digest != Digest::of(&hold.sealed)
    {
        return Err(misuse("a draft id that another draft has"));
    }
    let held = row.epoch == 0;
    let stored = stored(rows, row)?;
    Ok(if held { Held::New(stored) } else { Held::Joined(stored) })
}

fn join(rows: &mut dyn Rows, mut row: Row, hold: &Hold) -> Result<Held, StoreError> {
    if row.sessions.len() < SESSIONS_MAX && !row.sessions.contains(&hold.session) {
        row.sessions.push(hold.session.clone());
        rows.put(&row)?;
        emit(rows, &row, "draft.joined", None, None)?;
    }
    Ok(Held::Joined(stored(rows, row)?))
}

fn make(rows: &mut dyn Rows, hold: Hold, before: Before) -> Result<Held, StoreError> {
    if let Some(old) = &before.key_of
        // Read again: expiring it may have changed it.
        && let Some(mut old) = rows.row(&old.id)?
    {
        old.caller_key = None;
        rows.put(&old)?;
    }
    let (row, sealed) = row_of(hold, before.duplicate_of, before.passed_over);
    rows.insert(&row, &sealed)?;
    emit(rows, &row, "draft.held", None, None)?;
    Ok(Held::New(Box::new(Stored { row, sealed, response: None })))
}

/// The row of a new draft, and its sealed bytes.
pub(in crate::store) fn row_of(
    hold: Hold,
    possible_duplicate_of: Option<DraftId>,
    passed_over: Vec<DraftId>,
) -> (Row, Vec<u8>) {
    let row = Row {
        id: hold.id,
        state: State::Pending,
        epoch: 0,
        lease_until: None,
        lease_node: None,
        claimed_at: None,
        attempts: 0,
        sent_at: None,
        tenant: hold.tenant,
        owner_hash: hold.owner_hash,
        initiator: hold.initiator,
        service: hold.service,
        tool: hold.tool,
        capability: hold.capability,
        risk: hold.risk,
        args_hash: hold.args_hash,
        created_at: hold.created_at,
        expires_at: hold.expires_at,
        sealed_digest: Digest::of(&hold.sealed),
        token_digest: hold.token_digest,
        join_key: hold.join_key,
        caller_key: hold.caller_key,
        replay_window_ms: hold.replay_window_ms,
        refusal_memory_ms: hold.refusal_memory_ms,
        sessions: vec![hold.session],
        possible_duplicate_of,
        passed_over,
        seen_at: None,
        votes: Vec::new(),
        refused: None,
        decision_keys: std::collections::BTreeMap::new(),
        failure: None,
        receipt: None,
        outcome: None,
        has_response: false,
        evidence: Vec::new(),
        ended_at: None,
        collected_at: None,
        steps: std::collections::BTreeMap::new(),
    };
    (row, hold.sealed)
}

/// Refuses what no store can hold.
pub(in crate::store) fn check(hold: &Hold) -> Result<(), StoreError> {
    if hold.expires_at < hold.created_at || hold.expires_at > hold.created_at + LIFE_MAX {
        return Err(misuse("a draft that ends before it begins or lives longer than 366 days"));
    }
    debug_assert!(!wild(hold.created_at, hold.expires_at));
    Ok(())
}

/// Whether a hold's time is the store's, but for the wait for its turn, and its life not over.
fn in_time(hold: &Hold, now: Timestamp) -> bool {
    let near = hold.created_at.since(now) <= HOLD_AHEAD_MAX && now.since(hold.created_at) <= HOLD_BEHIND_MAX;
    near && hold.expires_at > now
}

/// The draft id as the step id of a repetition.
pub(in crate::store) fn step_of(id: &DraftId) -> StepId {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Digest::of(id.as_str().as_bytes()).as_bytes()[..16]);
    StepId::from_bytes(bytes)
}
