//! Lists, sweeps, the outbox and the probe of readiness. A row that cannot be read is
//! left out here, so that the others are still served; asked for by itself it is an error.

use std::collections::BTreeSet;

use rusqlite::types::Value;
use rusqlite::{Params, params_from_iter};

use super::rows::{COLUMNS, SqlRows};
use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId};
use crate::base::time::Timestamp;
use crate::draft::state::Status;
use crate::store::clock::TRUST;
use crate::store::contract::{Due, Filter, PAGE_MAX, SWEEP_MAX, StoreError, page_is_full};
use crate::store::row::{Event, Row, Stored};
use crate::store::rows::Rows as _;
use crate::store::steps::care::{deletable, place};
use crate::store::steps::overdue;
use crate::store::steps::release::is_orphan;

/// A page of drafts, newest first, without responses. Ends where [`page_is_full`] says.
pub(super) fn list(rows: &mut SqlRows<'_>, filter: &Filter) -> Result<Vec<Stored>, StoreError> {
    let limit = filter.limit.clamp(1, PAGE_MAX);
    let mut found = Vec::new();
    for (sql, values) in walks(filter) {
        found.extend(rows.some(&sql, params_from_iter(values), limit, Result::ok)?);
    }
    found.sort_by(|one, other| place(&other.id).cmp(place(&one.id)));
    let mut found = found.into_iter();
    let mut page = Vec::new();
    while !page_is_full(&page, limit)
        && let Some(row) = found.next()
    {
        match rows.sealed(&row.id) {
            Ok(sealed) => page.push(Stored { row, sealed, response: None }),
            Err(StoreError::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(page)
}

/// The queries that together find a page, each newest first. One walk down the index of each
/// status: asked for several at once, SQLite would sort all of their drafts to find the newest.
pub(super) fn walks(filter: &Filter) -> Vec<(String, Vec<Value>)> {
    // A page is full or the last one: what cannot be shown must not make it look short.
    let mut sql = format!("SELECT {COLUMNS} FROM drafts WHERE {WHOLE}");
    let mut values: Vec<Value> = Vec::new();
    let mut and = |condition: &str, value: Value| {
        sql.push_str(condition);
        values.push(value);
    };
    let text = |text: &str| Value::Text(text.to_owned());
    if let Some(before) = &filter.before {
        and(" AND ulid < ?", text(place(before)));
    }
    if let Some(tenant) = &filter.tenant {
        and(" AND tenant = ?", text(tenant.as_str()));
    }
    if let Some(tool) = &filter.tool {
        and(" AND tool = ?", text(tool.as_str()));
    }
    if let Some(owner) = &filter.owner_hash {
        and(" AND owner = ?", Value::Blob(owner.as_bytes().to_vec()));
    }
    if let Some(initiator) = &filter.initiator {
        and(" AND initiator = ?", text(initiator.as_str()));
    }
    if let Some(risk) = filter.risk {
        and(" AND risk = ?", text(risk.as_str()));
    }
    let order = "ORDER BY ulid DESC";
    if filter.statuses.is_empty() {
        return vec![(format!("{sql} {order}"), values)];
    }
    let one = |status: &Status| {
        let values = values.iter().cloned().chain([text(status.as_str())]).collect();
        (format!("{sql} AND status = ? {order}"), values)
    };
    BTreeSet::from_iter(&filter.statuses).into_iter().map(one).collect()
}

/// A draft whose sealed bytes are gone cannot be worked on.
const WHOLE: &str = "EXISTS (SELECT 1 FROM sealed WHERE sealed.n = drafts.n)";

/// Work for the sweeper.
pub(super) fn due(
    rows: &mut SqlRows<'_>,
    ended_before: Timestamp,
    own_dead: &[NodeId],
    limit: usize,
) -> Result<Due, StoreError> {
    let now = rows.now();
    let limit = limit.clamp(1, SWEEP_MAX);
    let wild = (now + TRUST).as_millis();
    let mut due = Due::default();
    let is_overdue = |row: &Row| overdue(row, now);
    let expiry = format!("SELECT {COLUMNS} FROM drafts WHERE {WHOLE} AND status = 'pending' AND expires_at");
    due.expired = ids(rows, &format!("{expiry} <= ?1 ORDER BY expires_at"), [now.as_millis()], limit, is_overdue)?;
    let rest = limit - due.expired.len();
    due.expired.extend(ids(
        rows,
        &format!("{expiry} > ?1 AND created_at > ?1 ORDER BY expires_at DESC"),
        [wild],
        rest,
        is_overdue,
    )?);

    let lease = format!(
        "SELECT {COLUMNS} FROM drafts WHERE {WHOLE} AND status IN ('running', 'verifying') ORDER BY lease_until"
    );
    due.orphaned = ids(rows, &lease, [], limit, |row| is_orphan(row, own_dead, now))?;

    let past = |row: &Row| deletable(row, ended_before, now);
    let ended = format!("SELECT {COLUMNS} FROM drafts WHERE {WHOLE} AND status <> 'unverifiable' AND ended_at");
    due.deletable = ids(rows, &format!("{ended} < ?1 ORDER BY ended_at"), [ended_before.as_millis()], limit, past)?;
    let rest = limit - due.deletable.len();
    due.deletable.extend(ids(rows, &format!("{ended} > ?1 ORDER BY ended_at DESC"), [wild], rest, past)?);
    Ok(due)
}

fn ids(
    rows: &mut SqlRows<'_>,
    sql: &str,
    values: impl Params,
    limit: usize,
    wanted: impl Fn(&Row) -> bool,
) -> Result<Vec<DraftId>, StoreError> {
    rows.some(sql, values, limit, |found| found.ok().filter(&wanted).map(|row| row.id))
}

/// Events after `after`, oldest first. One that cannot be read is left out and read past: its number
/// shows the gap.
pub(super) fn events(rows: &mut SqlRows<'_>, after: u64, limit: usize) -> Result<Vec<Event>, StoreError> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = limit.clamp(1, SWEEP_MAX);
    let connection = rows.connection;
    let read = || -> rusqlite::Result<Vec<Event>> {
        let mut statement = connection.prepare_cached("SELECT seq, body FROM events WHERE seq > ?1 ORDER BY seq")?;
        let mut found = statement.query([after])?;
        let mut events = Vec::new();
        while events.len() < limit
            && let Some(row) = found.next()?
        {
            let seq = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
            let body: String = row.get(1)?;
            if let Ok(event) = serde_json::from_str::<Event>(&body) {
                events.push(Event { seq, ..event });
            }
        }
        Ok(events)
    };
    read().map_err(|error| rows.fail(&error))
}

/// Writes as much as a usual hold does, so that a full disk shows here first.
pub(super) fn check(rows: &mut SqlRows<'_>) -> Result<(), StoreError> {
    rows.run("INSERT OR REPLACE INTO meta (name, value) VALUES ('probe', zeroblob(8192))", [])?;
    Ok(())
}

/// Compares the key-set fingerprint with the first guard's; writes it if there is none.
pub(super) fn same_keys(rows: &mut SqlRows<'_>, fingerprint: &Digest) -> Result<bool, StoreError> {
    let known: Option<Value> = rows.find("SELECT value FROM meta WHERE name = 'keys'", [])?;
    match known {
        Some(Value::Text(known)) => Ok(known == fingerprint.to_hex()),
        Some(_) => Ok(false),
        None => {
            rows.run("INSERT INTO meta (name, value) VALUES ('keys', ?1)", [fingerprint.to_hex()])?;
            Ok(true)
        }
    }
}
