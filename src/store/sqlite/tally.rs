//! How many drafts stand in each status, carried along with every change instead of counted.
//!
//! Owns the numbers of the writer, which are those of its last durable commit. Must never be
//! written to the file: whoever opens it counts once, and a change that was not committed leaves
//! no trace here either.

use rusqlite::Connection;

use crate::draft::state::Status;

/// A number for each status, in the order of [`Status::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally([u64; Status::ALL.len()]);

impl Tally {
    /// Counts the file: reads an index from end to end, so only where it is opened.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut tally = Self::default();
        let mut statement = connection.prepare("SELECT count(*) FROM drafts WHERE status = ?1")?;
        for (count, status) in tally.0.iter_mut().zip(Status::ALL) {
            let found: i64 = statement.query_row([status.as_str()], |row| row.get(0))?;
            *count = u64::try_from(found).unwrap_or(0);
        }
        Ok(tally)
    }

    /// A draft came to stand in `to`, and does not stand in `from` any more. A word that is no
    /// status, which only an altered file has, counts nowhere.
    pub(super) fn moved(&mut self, from: Option<&str>, to: Option<&str>) {
        let place = |word: Option<&str>| Status::ALL.iter().position(|status| Some(status.as_str()) == word);
        if let Some(from) = place(from) {
            self.0[from] = self.0[from].saturating_sub(1);
        }
        if let Some(to) = place(to) {
            self.0[to] += 1;
        }
    }

    /// Every status with its number.
    pub(super) fn counts(&self) -> Vec<(Status, u64)> {
        Status::ALL.into_iter().zip(self.0).collect()
    }
}
