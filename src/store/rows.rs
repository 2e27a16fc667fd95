//! What a transaction of a store gives to the steps: single rows by their keys, the owner's
//! counters, the outbox, the time.
//!
//! Owns the [`Rows`] trait. Must never decide anything: the rules stand in `store::steps`.

use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::base::time::Timestamp;

use super::contract::StoreError;
use super::row::{Event, Row, Stored};

/// One open transaction. A step reads and checks first and writes last, so that a store whose
/// transactions cannot be rolled back keeps the same rules.
pub trait Rows {
    /// The store's time of this step; it does not move while the step runs.
    fn now(&self) -> Timestamp;

    /// The row of a draft.
    ///
    /// # Errors
    ///
    /// As all methods: [`StoreError::Corrupt`] if this row cannot be read,
    /// [`StoreError::Unavailable`] if the store cannot.
    fn row(&mut self, id: &DraftId) -> Result<Option<Row>, StoreError>;

    /// The newest `at_most` rows under a join key, and the newest `at_most` of those that may answer an
    /// equal call, that is of those neither expired nor withdrawn: many that ended so do not hide
    /// one that did not. Newest first.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn by_join_key(&mut self, key: &Digest, at_most: usize) -> Result<Vec<Row>, StoreError>;

    /// The row that has a caller's key now.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn by_caller_key(&mut self, key: &Digest) -> Result<Option<Row>, StoreError>;

    /// The row that a token opens.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn by_token(&mut self, digest: &Digest) -> Result<Option<Row>, StoreError>;

    /// The sealed bytes of a draft that has a row.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`]; missing bytes are [`StoreError::Corrupt`].
    fn sealed(&mut self, id: &DraftId) -> Result<Vec<u8>, StoreError>;

    /// The sealed response, where one is kept.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn response(&mut self, id: &DraftId) -> Result<Option<Vec<u8>>, StoreError>;

    /// Adds a draft: its row, its sealed bytes, and its entries under token, join key and
    /// caller's key.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn insert(&mut self, row: &Row, sealed: &[u8]) -> Result<(), StoreError>;

    /// Writes a changed row and the entries that hang on it. The sealed bytes never change.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn put(&mut self, row: &Row) -> Result<(), StoreError>;

    /// Keeps a sealed response; an earlier one is replaced.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn put_response(&mut self, id: &DraftId, response: &[u8]) -> Result<(), StoreError>;

    /// Removes a draft with everything that hangs on it but its events.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn remove(&mut self, id: &DraftId) -> Result<(), StoreError>;

    /// How many drafts of an owner are pending and not past their time, counted up to `at_most`.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn pending_of(&mut self, owner: &Digest, at_most: u32) -> Result<u32, StoreError>;

    /// How many drafts of an owner were made after `since`, counted up to `at_most`.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn holds_of(&mut self, owner: &Digest, since: Timestamp, at_most: u32) -> Result<u32, StoreError>;

    /// Appends to the outbox. The store gives the event its `seq`.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn append(&mut self, event: Event) -> Result<(), StoreError>;

    /// Drops at most `at_most` of the oldest events while they are older than `before`. The
    /// newest event always stays.
    ///
    /// # Errors
    ///
    /// See [`Rows::row`].
    fn trim(&mut self, before: Timestamp, at_most: usize) -> Result<(), StoreError>;
}

/// The row with its sealed bytes and, where there is one, its sealed response.
pub(in crate::store) fn stored(rows: &mut dyn Rows, row: Row) -> Result<Box<Stored>, StoreError> {
    let sealed = rows.sealed(&row.id)?;
    let response = match row.has_response {
        true => Some(rows.response(&row.id)?.ok_or_else(|| gone(&row, "response"))?),
        false => None,
    };
    Ok(Box::new(Stored { row, sealed, response }))
}

fn gone(row: &Row, what: &str) -> StoreError {
    StoreError::Corrupt(format!("draft {}: its {what} is gone", row.id))
}
