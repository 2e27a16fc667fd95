//! Drafts by their ids and by their tokens: what a hash of the server says, with the time of its
//! partition.
//!
//! Owns which fields are read. Must never hand out a draft of which replicas that were asked for do not
//! know yet.

use std::collections::HashMap;

use redis::Value;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, Partition};
use crate::base::time::Timestamp;
use crate::store::contract::StoreError;
use crate::store::row::Stored;

use super::arguments::token_key;
use super::clock::Seen;
use super::fields::{Fields, NAMES};
use super::link::{Failure, UNACKNOWLEDGED};
use super::reply::{pairs, text, texts, time};
use super::{RedisStore, key};

/// How many drafts a list leaves out because replicas are not known to have them: those that ended or were
/// claimed just now, and not all that there ever were.
const LEFT_OUT_MAX: usize = 64;

/// Which partitions have too few replicas, as one list finds it, and how many drafts it has left out.
#[derive(Default)]
pub(super) struct Behind {
    partitions: [Option<Failure>; Partition::COUNT],
    left_out: usize,
}

/// The field of a draft's sealed bytes.
const SEALED: &str = "sealed";

/// The fields that were asked for by name, as far as they are there.
fn named(value: Value) -> Result<HashMap<Vec<u8>, Vec<u8>>, StoreError> {
    let Value::Array(values) = value else { return Err(strange("no fields")) };
    let names = NAMES.iter().chain(std::iter::once(&SEALED));
    let field = |(name, value): (&&str, Value)| match value {
        Value::Nil => None,
        Value::BulkString(bytes) => Some(Ok((name.as_bytes().to_vec(), bytes))),
        _ => Some(Err(strange("a field is none"))),
    };
    names.zip(values).filter_map(field).collect()
}

pub(super) fn strange(what: &str) -> StoreError {
    StoreError::Corrupt(format!("an answer of the server cannot be read: {what}"))
}

/// All lines of the index that begin with `stem`, as bounds of a range.
pub(super) fn line_range(stem: &str) -> (Vec<u8>, Vec<u8>) {
    let from = [b"[".as_slice(), stem.as_bytes()].concat();
    let to = [b"[".as_slice(), stem.as_bytes(), b"\xff"].concat();
    (from, to)
}

impl RedisStore {
    /// One draft as it stands.
    pub(super) async fn load(&self, id: &DraftId) -> Result<Option<Stored>, Failure> {
        let found = self.read(std::slice::from_ref(id), true).await?.pop().unwrap_or(Ok(None))?;
        match &found {
            Some(stored) => self.sure(&stored.row).await?,
            None => self.sure_of_none(id.partition()).await?,
        }
        Ok(found)
    }

    /// Some drafts of a list as they stand, without their responses. What cannot be read is left out, and
    /// so is what replicas are not known to have: in each partition they are waited for once, by the first that
    /// needs it. A list that would leave out many fails instead.
    pub(super) async fn read_listed(&self, ids: &[DraftId], behind: &mut Behind) -> Result<Vec<Stored>, Failure> {
        let mut listed = Vec::with_capacity(ids.len());
        for found in self.read(ids, false).await? {
            let stored = match found {
                Ok(Some(stored)) => stored,
                Ok(None) | Err(StoreError::Corrupt(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let waited = &mut behind.partitions[stored.row.id.partition().index()];
            let sure = match waited {
                Some(why) if self.to_be_sure(&stored.row) => Err(why.clone()),
                _ => self.sure(&stored.row).await,
            };
            match sure {
                Ok(()) => listed.push(stored),
                Err(failure) if failure.kind == UNACKNOWLEDGED && behind.left_out < LEFT_OUT_MAX => {
                    *waited = Some(failure);
                    behind.left_out += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(listed)
    }

    /// Drafts as they stand, in one pipeline; without their responses unless they are asked for. One that
    /// cannot be read fails by itself.
    async fn read(&self, ids: &[DraftId], responses: bool) -> Result<Vec<Result<Option<Stored>, StoreError>>, Failure> {
        let mut ask = redis::pipe();
        for id in ids {
            let hash = key(id.partition(), &format!("d:{id}"));
            if responses {
                ask.cmd("HGETALL").arg(hash);
            } else {
                ask.cmd("HMGET").arg(&hash).arg(&NAMES[..]).arg(SEALED);
                ask.cmd("HEXISTS").arg(hash).arg("response");
            }
            // Who judges a draft by its times does it by the partition's, as the scripts do.
            // MGET takes a key of another kind for none: a draft can be read where its partition cannot be written.
            ask.cmd("MGET").arg(key(id.partition(), "meta"));
        }
        if !self.link.is_cluster() {
            ask.cmd("TIME");
        }
        let asked = self.clock.boot();
        let mut answers = self.link.ask(&ask, true).await?.into_iter();
        let mut read = Vec::with_capacity(ids.len());
        for id in ids {
            let mut next = || answers.next().unwrap_or_default();
            let (found, has_response) = match responses {
                true => (pairs(next()), None),
                false => (named(next()), Some(next() == Value::Int(1))),
            };
            self.has_seen(id.partition(), next());
            read.push(found.and_then(|found| match (Fields::new(id.clone(), found), has_response) {
                (fields, _) if fields.is_empty() => Ok(None),
                (fields, None) => fields.stored().map(Some),
                (fields, Some(has_response)) => fields.listed(has_response).map(Some),
            }));
        }
        if let Some(Ok(now)) = answers.next().map(time) {
            self.times.server_is_at(now, asked);
        }
        Ok(read)
    }

    /// Notes what a partition says of its time. What cannot be read is refused by every script.
    fn has_seen(&self, partition: Partition, meta: Value) {
        let Ok(Some(numbers)) = texts(meta).map(|mut found| found.pop()) else { return };
        let mut numbers = numbers.split(' ').map(|number| number.parse().map(Timestamp::from_millis));
        if let (Some(Ok(clock)), Some(Ok(raw))) = (numbers.next(), numbers.next()) {
            self.times.partition_has_seen(partition, Seen { clock, raw });
        }
    }

    /// The draft of a partition that a token opens.
    pub(super) async fn find_token(&self, partition: Partition, digest: &Digest) -> Result<Option<Stored>, Failure> {
        let mut ask = redis::pipe();
        ask.cmd("GET").arg(key(partition, &token_key(digest)));
        let id = match self.link.ask(&ask, true).await?.pop() {
            None | Some(Value::Nil) => return self.sure_of_none(partition).await.map(|()| None),
            Some(found) => text(found)?,
        };
        let id: DraftId = id.parse().map_err(|_| strange("a token's draft"))?;
        match self.load(&id).await? {
            Some(stored) if stored.row.token_digest == *digest => Ok(Some(stored)),
            Some(_) => Err(StoreError::Corrupt(format!("draft {id}: a token that is not its own opens it")).into()),
            None => Ok(None),
        }
    }
}
