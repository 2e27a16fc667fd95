//! [`Rows`] over one SQLite connection.

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Params, params};

use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::base::time::Timestamp;
use crate::store::clock::TRUST;
use crate::store::contract::StoreError;
use crate::store::row::{Event, Row};
use crate::store::rows::Rows;
use crate::store::steps::care::place;

use super::tally::Tally;

/// The columns that [`believe`] takes, in its order.
pub(super) const COLUMNS: &str = "ulid, status, owner, join_key, caller_key, token, created_at, expires_at, lease_until, ended_at, control, tenant, \
     initiator, tool, risk";

/// One connection, for the length of one step.
pub(super) struct SqlRows<'c> {
    pub(super) connection: &'c Connection,
    pub(super) now: Timestamp,
    /// The drafts of the events appended so far, for hints after the commit.
    pub(super) told: Vec<DraftId>,
    /// Whether anything was written.
    pub(super) wrote: bool,
    /// How many drafts stand where, with what this step has changed; believed if it commits.
    pub(super) tally: Tally,
    /// Whether an error was seen after which the connection must be opened again.
    pub(super) broken: bool,
}

impl SqlRows<'_> {
    pub(super) const fn new(connection: &Connection, now: Timestamp, tally: Tally) -> SqlRows<'_> {
        SqlRows { connection, now, told: Vec::new(), wrote: false, tally, broken: false }
    }

    /// What an error of SQLite means for the step.
    pub(super) fn fail(&mut self, error: &rusqlite::Error) -> StoreError {
        self.broken |= breaks(error);
        match error.sqlite_error_code() {
            // Also where the whole file is damaged: nothing can be said of any one draft then.
            Some(_) => StoreError::Unavailable(error.to_string()),
            // Not SQLite's own: a column has another type than was written.
            None => StoreError::Corrupt(error.to_string()),
        }
    }

    pub(super) fn run(&mut self, sql: &str, values: impl Params) -> Result<usize, StoreError> {
        let connection = self.connection;
        let changed = connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        self.wrote = true;
        changed.map_err(|error| self.fail(&error))
    }

    pub(super) fn find<T: rusqlite::types::FromSql>(
        &mut self,
        sql: &str,
        values: impl Params,
    ) -> Result<Option<T>, StoreError> {
        let connection = self.connection;
        let found = connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(values, |row| row.get(0)).optional());
        found.map_err(|error| self.fail(&error))
    }

    fn status(&mut self, id: &DraftId) -> Result<Option<String>, StoreError> {
        self.find("SELECT status FROM drafts WHERE ulid = ?1", [place(id)])
    }

    fn one(&mut self, condition: &str, values: impl Params) -> Result<Option<Row>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM drafts WHERE {condition}");
        let mut found = self.some(&sql, values, 1, Some)?;
        found.pop().transpose()
    }

    /// Reads rows until `pick` has taken `at_most`.
    pub(super) fn some<T>(
        &mut self,
        sql: &str,
        values: impl Params,
        at_most: usize,
        pick: impl Fn(Result<Row, StoreError>) -> Option<T>,
    ) -> Result<Vec<T>, StoreError> {
        let connection = self.connection;
        let read = || -> rusqlite::Result<Vec<T>> {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(values)?;
            let mut picked = Vec::new();
            while picked.len() < at_most
                && let Some(row) = rows.next()?
            {
                if let Some(one) = pick(believe(row).map_err(StoreError::Corrupt)) {
                    picked.push(one);
                }
            }
            Ok(picked)
        };
        read().map_err(|error| self.fail(&error))
    }

    fn count(&mut self, sql: &str, values: impl Params) -> Result<u32, StoreError> {
        let found: i64 = self.find(sql, values)?.unwrap_or(0);
        Ok(u32::try_from(found).unwrap_or(u32::MAX))
    }
}

/// Errors after which the connection may hold on to a wrong idea of the file.
pub(super) fn breaks(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// Parses `control` and holds the columns against it. What cannot be read is an error and never
/// a default, so an unreadable expiry fails closed.
fn believe(found: &rusqlite::Row<'_>) -> Result<Row, String> {
    let ulid: String = found.get(0).map_err(|error| error.to_string())?;
    let corrupt = |what: &str| format!("draft …{ulid}: {what}");
    let column = |error: rusqlite::Error| corrupt(&error.to_string());
    let control: String = found.get(10).map_err(column)?;
    let row: Row = serde_json::from_str(&control).map_err(|error| corrupt(&format!("control: {error}")))?;
    let digest =
        |index: usize| found.get::<_, Option<[u8; 32]>>(index).map_err(column).map(|d| d.map(Digest::from_bytes));
    let time = |index: usize| found.get::<_, Option<i64>>(index).map_err(column).map(|t| t.map(Timestamp::from_millis));
    let is = |index: usize, word: &str| found.get_ref(index).is_ok_and(|found| found.as_str() == Ok(word));
    let agrees = place(&row.id) == ulid
        && is(1, row.state.status().as_str())
        && digest(2)? == Some(row.owner_hash)
        && digest(3)? == Some(row.join_key)
        && digest(4)? == row.caller_key
        && digest(5)? == Some(row.token_digest)
        && time(6)? == Some(row.created_at)
        && time(7)? == Some(row.expires_at)
        && time(8)? == row.lease_until
        && time(9)? == row.ended_at
        // By these, lists are made: a draft stands in nobody else's.
        && is(11, row.tenant.as_str())
        && is(12, row.initiator.as_str())
        && is(13, row.tool.as_str())
        && is(14, row.risk.as_str());
    if !agrees {
        return Err(corrupt("the columns and the control data differ"));
    }
    if row.is_possible() { Ok(row) } else { Err(corrupt("the control data contradict themselves")) }
}

fn control(row: &Row) -> Result<String, StoreError> {
    serde_json::to_string(row).map_err(|error| StoreError::Unavailable(format!("draft {}: {error}", row.id)))
}

fn missing(id: &DraftId, what: &str) -> StoreError {
    StoreError::Corrupt(format!("draft {id}: its {what} is gone"))
}

impl Rows for SqlRows<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn row(&mut self, id: &DraftId) -> Result<Option<Row>, StoreError> {
        let row = self.one("ulid = ?1", [place(id)])?;
        Ok(row.filter(|row| row.id == *id))
    }

    fn by_join_key(&mut self, key: &Digest, at_most: usize) -> Result<Vec<Row>, StoreError> {
        let mut found: Vec<Row> = Vec::new();
        for which in ["", " AND status NOT IN ('expired', 'withdrawn')"] {
            let sql = format!("SELECT {COLUMNS} FROM drafts WHERE join_key = ?1{which} ORDER BY n DESC");
            for row in self.some(&sql, [key.as_bytes()], at_most, Some)? {
                let row = row?;
                if !found.iter().any(|known| known.id == row.id) {
                    found.push(row);
                }
            }
        }
        // The second walk only adds older ones, in its own order.
        Ok(found)
    }

    fn by_caller_key(&mut self, key: &Digest) -> Result<Option<Row>, StoreError> {
        self.one("caller_key = ?1", [key.as_bytes()])
    }

    fn by_token(&mut self, digest: &Digest) -> Result<Option<Row>, StoreError> {
        self.one("token = ?1", [digest.as_bytes()])
    }

    fn sealed(&mut self, id: &DraftId) -> Result<Vec<u8>, StoreError> {
        let sql = "SELECT bytes FROM sealed WHERE n = (SELECT n FROM drafts WHERE ulid = ?1)";
        self.find(sql, [place(id)])?.ok_or_else(|| missing(id, "record"))
    }

    fn response(&mut self, id: &DraftId) -> Result<Option<Vec<u8>>, StoreError> {
        self.find("SELECT bytes FROM responses WHERE n = (SELECT n FROM drafts WHERE ulid = ?1)", [place(id)])
    }

    fn insert(&mut self, row: &Row, sealed: &[u8]) -> Result<(), StoreError> {
        let sql = "INSERT INTO drafts (ulid, status, tenant, owner, initiator, tool, risk, token, join_key, caller_key,
                   created_at, expires_at, lease_until, ended_at, control)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
        let values = params![
            place(&row.id),
            row.state.status().as_str(),
            row.tenant.as_str(),
            row.owner_hash.as_bytes(),
            row.initiator.as_str(),
            row.tool.as_str(),
            row.risk.as_str(),
            row.token_digest.as_bytes(),
            row.join_key.as_bytes(),
            row.caller_key.as_ref().map(Digest::as_bytes),
            row.created_at.as_millis(),
            row.expires_at.as_millis(),
            row.lease_until.map(Timestamp::as_millis),
            row.ended_at.map(Timestamp::as_millis),
            control(row)?,
        ];
        self.run(sql, values)?;
        let n = self.connection.last_insert_rowid();
        self.run("INSERT INTO sealed (n, bytes) VALUES (?1, ?2)", params![n, sealed])?;
        self.tally.moved(None, Some(row.state.status().as_str()));
        Ok(())
    }

    fn put(&mut self, row: &Row) -> Result<(), StoreError> {
        let sql = "UPDATE drafts SET status = ?2, caller_key = ?3, lease_until = ?4, ended_at = ?5, control = ?6
                   WHERE ulid = ?1";
        let values = params![
            place(&row.id),
            row.state.status().as_str(),
            row.caller_key.as_ref().map(Digest::as_bytes),
            row.lease_until.map(Timestamp::as_millis),
            row.ended_at.map(Timestamp::as_millis),
            control(row)?,
        ];
        let before = self.status(&row.id)?;
        if self.run(sql, values)? != 1 {
            return Err(missing(&row.id, "row"));
        }
        self.tally.moved(before.as_deref(), Some(row.state.status().as_str()));
        Ok(())
    }

    fn put_response(&mut self, id: &DraftId, response: &[u8]) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO responses (n, bytes) SELECT n, ?2 FROM drafts WHERE ulid = ?1";
        if self.run(sql, params![place(id), response])? == 1 { Ok(()) } else { Err(missing(id, "row")) }
    }

    fn remove(&mut self, id: &DraftId) -> Result<(), StoreError> {
        let before = self.status(id)?;
        self.run("DELETE FROM sealed WHERE n = (SELECT n FROM drafts WHERE ulid = ?1)", [place(id)])?;
        self.run("DELETE FROM responses WHERE n = (SELECT n FROM drafts WHERE ulid = ?1)", [place(id)])?;
        self.run("DELETE FROM drafts WHERE ulid = ?1", [place(id)])?;
        self.tally.moved(before.as_deref(), None);
        Ok(())
    }

    fn pending_of(&mut self, owner: &Digest, at_most: u32) -> Result<u32, StoreError> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM drafts WHERE status = 'pending' AND owner = ?1
                   AND expires_at > ?2 AND created_at <= ?3 LIMIT ?4)";
        let (now, trusted) = (self.now.as_millis(), (self.now + TRUST).as_millis());
        self.count(sql, params![owner.as_bytes(), now, trusted, at_most])
    }

    fn holds_of(&mut self, owner: &Digest, since: Timestamp, at_most: u32) -> Result<u32, StoreError> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM drafts WHERE owner = ?1 AND created_at > ?2
                   AND created_at <= ?3 LIMIT ?4)";
        let trusted = (self.now + TRUST).as_millis();
        self.count(sql, params![owner.as_bytes(), since.as_millis(), trusted, at_most])
    }

    fn append(&mut self, event: Event) -> Result<(), StoreError> {
        let body = serde_json::to_string(&event)
            .map_err(|error| StoreError::Unavailable(format!("draft {}: its event: {error}", event.draft_id)))?;
        // The newest event is never dropped, so the number after it is the next one.
        self.run("INSERT INTO events (at, body) VALUES (?1, ?2)", params![event.at.as_millis(), body])?;
        self.told.push(event.draft_id);
        Ok(())
    }

    fn trim(&mut self, before: Timestamp, at_most: usize) -> Result<(), StoreError> {
        let sql = "DELETE FROM events WHERE seq IN (SELECT seq FROM (SELECT seq, at FROM events ORDER BY seq LIMIT ?3)
                   WHERE at < ?1 OR at > ?2) AND seq < (SELECT max(seq) FROM events)";
        let trusted = (self.now + TRUST).as_millis();
        let at_most = i64::try_from(at_most).unwrap_or(1);
        self.run(sql, params![before.as_millis(), trusted, at_most])?;
        Ok(())
    }
}
