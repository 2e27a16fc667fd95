//! The in-memory twin: the same steps over ordered maps, on a handed clock. For tests and
//! simulations; it keeps nothing over a restart.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Partition, StepId};
use crate::base::time::{Clock, Timestamp};
use crate::draft::decision::Decider;
use crate::draft::state::{State, Status};

use super::clock::StoreClock;
use super::contract::{
    Decide, Decided, Due, Ended, Filter, HINTS_MAX, Held, Hold, Mark, PAGE_MAX, Reject, Renewed, SWEEP_MAX, Settle,
    Settled, Store, StoreError, TakenOver, page_is_full,
};
use super::cursor::{Cursor, Page};
use super::row::{Event, Row, Stored};
use super::rows::{Rows, stored};
use super::steps::care::{deletable, listed, place};
use super::steps::release::is_orphan;
use super::steps::{care, decide, hold, overdue, release, settle, wild};

/// A store in memory.
pub struct Twin {
    clock: StoreClock,
    /// Whether every partition has an outbox of its own, as on Redis.
    parted: bool,
    tables: Mutex<Tables>,
    hints: broadcast::Sender<DraftId>,
}

#[derive(Default)]
struct Tables {
    drafts: BTreeMap<DraftId, Kept>,
    tokens: BTreeMap<Digest, DraftId>,
    caller_keys: BTreeMap<Digest, DraftId>,
    /// By join key and number: newest last.
    joins: BTreeMap<(Digest, u64), DraftId>,
    /// By partition; the first one has them all where there is one outbox only.
    outboxes: [Outbox; Partition::COUNT],
    last_number: u64,
    keys: Option<Digest>,
}

#[derive(Default)]
struct Outbox {
    events: VecDeque<Event>,
    last_seq: u64,
}

struct Kept {
    number: u64,
    row: Row,
    sealed: Vec<u8>,
    response: Option<Vec<u8>>,
}

impl Twin {
    /// An empty store on `clock`, whose events have one sequence: the twin of SQLite.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with(clock, false)
    }

    /// An empty store on `clock`, whose events have a sequence per partition: the twin of Redis.
    #[must_use]
    pub fn in_partitions(clock: Arc<dyn Clock>) -> Self {
        Self::with(clock, true)
    }

    fn with(clock: Arc<dyn Clock>, parted: bool) -> Self {
        let (clock, _) = StoreClock::new(clock, None);
        let (hints, _) = broadcast::channel(HINTS_MAX);
        Self { clock, parted, tables: Mutex::default(), hints }
    }

    /// Changes a row as somebody with write access to a store could.
    #[cfg(test)]
    pub(crate) fn alter(&self, id: &DraftId, change: impl FnOnce(&mut Row)) {
        if let Some(kept) = self.tables().drafts.get_mut(id) {
            change(&mut kept.row);
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step<T>(&self, run: impl FnOnce(&mut dyn Rows) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut tables = self.tables();
        let mut rows = TwinRows {
            now: self.clock.now(),
            tables: &mut tables,
            parted: self.parted,
            told: Vec::new(),
            wrote: false,
        };
        let answer = run(&mut rows);
        // Nothing can be rolled back here, so a step that fails must not have begun to write.
        debug_assert!(answer.is_ok() || !rows.wrote, "a step wrote before its last check");
        for draft in rows.told {
            let _unheard = self.hints.send(draft);
        }
        answer
    }
}

struct TwinRows<'t> {
    now: Timestamp,
    tables: &'t mut Tables,
    parted: bool,
    told: Vec<DraftId>,
    wrote: bool,
}

impl TwinRows<'_> {
    fn by_id(&self, id: Option<&DraftId>) -> Option<Row> {
        id.and_then(|id| self.tables.drafts.get(id)).map(|kept| kept.row.clone())
    }

    fn kept(&mut self, id: &DraftId) -> Result<&mut Kept, StoreError> {
        self.tables.drafts.get_mut(id).ok_or_else(|| StoreError::Corrupt(format!("draft {id} is gone")))
    }

    /// The outbox that the draft's events go to.
    fn outbox(&mut self, id: &DraftId) -> &mut Outbox {
        &mut self.tables.outboxes[if self.parted { id.partition().index() } else { 0 }]
    }

    fn count(&self, at_most: u32, wanted: impl Fn(&Row) -> bool) -> u32 {
        let found = self.tables.drafts.values().filter(|kept| wanted(&kept.row)).count();
        u32::try_from(found).unwrap_or(u32::MAX).min(at_most)
    }
}

impl Rows for TwinRows<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn row(&mut self, id: &DraftId) -> Result<Option<Row>, StoreError> {
        Ok(self.by_id(Some(id)))
    }

    fn by_join_key(&mut self, key: &Digest, at_most: usize) -> Result<Vec<Row>, StoreError> {
        let ids = self.tables.joins.range((*key, 0)..=(*key, u64::MAX)).rev();
        let rows: Vec<Row> = ids.filter_map(|(_, id)| self.by_id(Some(id))).collect();
        let answers = |row: &Row| !matches!(row.state, State::Expired | State::Withdrawn);
        let mut answering = 0;
        let near = |(index, row): &(usize, Row)| {
            answering += usize::from(answers(row));
            *index < at_most || answers(row) && answering <= at_most
        };
        Ok(rows.into_iter().enumerate().filter(near).map(|(_, row)| row).collect())
    }

    fn by_caller_key(&mut self, key: &Digest) -> Result<Option<Row>, StoreError> {
        Ok(self.by_id(self.tables.caller_keys.get(key)))
    }

    fn by_token(&mut self, digest: &Digest) -> Result<Option<Row>, StoreError> {
        Ok(self.by_id(self.tables.tokens.get(digest)))
    }

    fn sealed(&mut self, id: &DraftId) -> Result<Vec<u8>, StoreError> {
        Ok(self.kept(id)?.sealed.clone())
    }

    fn response(&mut self, id: &DraftId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.kept(id)?.response.clone())
    }

    fn insert(&mut self, row: &Row, sealed: &[u8]) -> Result<(), StoreError> {
        self.wrote = true;
        self.tables.last_number += 1;
        let number = self.tables.last_number;
        self.tables.tokens.insert(row.token_digest, row.id.clone());
        self.tables.joins.insert((row.join_key, number), row.id.clone());
        if let Some(key) = row.caller_key {
            self.tables.caller_keys.insert(key, row.id.clone());
        }
        let kept = Kept { number, row: row.clone(), sealed: sealed.to_vec(), response: None };
        self.tables.drafts.insert(row.id.clone(), kept);
        Ok(())
    }

    fn put(&mut self, row: &Row) -> Result<(), StoreError> {
        let kept = self.kept(&row.id)?;
        let key_before = kept.row.caller_key;
        kept.row = row.clone();
        self.wrote = true;
        if key_before != row.caller_key {
            if let Some(key) = key_before {
                self.tables.caller_keys.remove(&key);
            }
            if let Some(key) = row.caller_key {
                self.tables.caller_keys.insert(key, row.id.clone());
            }
        }
        Ok(())
    }

    fn put_response(&mut self, id: &DraftId, response: &[u8]) -> Result<(), StoreError> {
        self.kept(id)?.response = Some(response.to_vec());
        self.wrote = true;
        Ok(())
    }

    fn remove(&mut self, id: &DraftId) -> Result<(), StoreError> {
        self.wrote = true;
        if let Some(Kept { number, row, .. }) = self.tables.drafts.remove(id) {
            self.tables.tokens.remove(&row.token_digest);
            self.tables.joins.remove(&(row.join_key, number));
            if let Some(key) = row.caller_key {
                self.tables.caller_keys.remove(&key);
            }
        }
        Ok(())
    }

    fn pending_of(&mut self, owner: &Digest, at_most: u32) -> Result<u32, StoreError> {
        let now = self.now;
        let open = |row: &Row| row.owner_hash == *owner && row.state == State::Pending && !overdue(row, now);
        Ok(self.count(at_most, open))
    }

    fn holds_of(&mut self, owner: &Digest, since: Timestamp, at_most: u32) -> Result<u32, StoreError> {
        let now = self.now;
        let made = |row: &Row| row.owner_hash == *owner && row.created_at > since && !wild(row.created_at, now);
        Ok(self.count(at_most, made))
    }

    fn append(&mut self, event: Event) -> Result<(), StoreError> {
        self.wrote = true;
        self.told.push(event.draft_id.clone());
        let outbox = self.outbox(&event.draft_id);
        outbox.last_seq += 1;
        outbox.events.push_back(Event { seq: outbox.last_seq, ..event });
        Ok(())
    }

    fn trim(&mut self, before: Timestamp, at_most: usize) -> Result<(), StoreError> {
        let (now, Some(id)) = (self.now, self.told.last().cloned()) else { return Ok(()) };
        let events = &mut self.outbox(&id).events;
        for _ in 0..at_most {
            let old = |event: &Event| event.at < before || wild(event.at, now);
            if events.len() < 2 || !events.front().is_some_and(old) {
                break;
            }
            events.pop_front();
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Twin {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn hold(&self, ask: Hold) -> Result<Held, StoreError> {
        self.step(|rows| hold::hold(rows, ask))
    }

    async fn decide(&self, ask: Decide) -> Result<Decided, StoreError> {
        self.step(|rows| decide::decide(rows, ask))
    }

    async fn reject(&self, ask: Reject) -> Result<Ended, StoreError> {
        self.step(|rows| decide::reject(rows, ask))
    }

    async fn withdraw(&self, id: &DraftId, step: StepId, by: &str, mac: Digest) -> Result<Ended, StoreError> {
        self.step(|rows| decide::withdraw(rows, id, step, by, mac))
    }

    async fn expire(&self, id: &DraftId) -> Result<Ended, StoreError> {
        self.step(|rows| decide::expire(rows, id))
    }

    async fn renew(&self, id: &DraftId, epoch: u64, step: StepId, lease: Duration) -> Result<Renewed, StoreError> {
        self.step(|rows| release::renew(rows, id, epoch, step, lease))
    }

    async fn mark_sending(
        &self,
        id: &DraftId,
        epoch: u64,
        step: StepId,
        send_window: Duration,
    ) -> Result<Mark, StoreError> {
        self.step(|rows| release::mark_sending(rows, id, epoch, step, send_window))
    }

    async fn settle(&self, ask: Settle) -> Result<Settled, StoreError> {
        self.step(|rows| settle::settle(rows, ask))
    }

    async fn late_answer(&self, ask: Settle) -> Result<Settled, StoreError> {
        self.step(|rows| settle::late_answer(rows, ask))
    }

    async fn take_over(
        &self,
        id: &DraftId,
        step: StepId,
        node: &NodeId,
        lease: Duration,
        own_dead: &[NodeId],
    ) -> Result<TakenOver, StoreError> {
        self.step(|rows| release::take_over(rows, id, step, node, lease, own_dead))
    }

    async fn resolve(&self, ask: Settle, by: &Decider) -> Result<Settled, StoreError> {
        self.step(|rows| settle::resolve(rows, ask, by))
    }

    async fn collect(&self, id: &DraftId) -> Result<(), StoreError> {
        self.step(|rows| care::collect(rows, id))
    }

    async fn note_seen(&self, id: &DraftId) -> Result<(), StoreError> {
        self.step(|rows| care::note_seen(rows, id))
    }

    async fn again(&self, old: &DraftId, ask: Hold) -> Result<Result<Held, Ended>, StoreError> {
        self.step(|rows| hold::again(rows, old, ask))
    }

    async fn delete(&self, id: &DraftId, ended_before: Timestamp) -> Result<bool, StoreError> {
        self.step(|rows| care::delete(rows, id, ended_before))
    }

    async fn get(&self, id: &DraftId) -> Result<Option<Stored>, StoreError> {
        self.step(|rows| match rows.row(id)? {
            Some(row) => Ok(Some(*stored(rows, row)?)),
            None => Ok(None),
        })
    }

    async fn by_token(&self, partition: Partition, token_digest: &Digest) -> Result<Option<Stored>, StoreError> {
        self.step(|rows| match rows.by_token(token_digest)?.filter(|row| row.id.partition() == partition) {
            Some(row) => Ok(Some(*stored(rows, row)?)),
            None => Ok(None),
        })
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Stored>, StoreError> {
        let tables = self.tables();
        let before = |row: &Row| filter.before.as_ref().is_none_or(|before| place(&row.id) < place(before));
        let mut page: Vec<&Kept> =
            tables.drafts.values().filter(|kept| listed(&kept.row, filter) && before(&kept.row)).collect();
        page.sort_by(|one, other| place(&other.row.id).cmp(place(&one.row.id)));
        let limit = filter.limit.clamp(1, PAGE_MAX);
        let mut taken = Vec::new();
        for kept in page {
            if page_is_full(&taken, limit) {
                break;
            }
            taken.push(Stored { row: kept.row.clone(), sealed: kept.sealed.clone(), response: None });
        }
        Ok(taken)
    }

    async fn due(&self, ended_before: Timestamp, own_dead: &[NodeId], limit: usize) -> Result<Due, StoreError> {
        let tables = self.tables();
        let (now, limit) = (self.clock.now(), limit.clamp(1, SWEEP_MAX));
        let find = |wanted: &dyn Fn(&Row) -> bool, order: &dyn Fn(&Row) -> Option<Timestamp>| {
            let mut found: Vec<&Row> = tables.drafts.values().map(|kept| &kept.row).filter(|row| wanted(row)).collect();
            found.sort_by_key(|row| order(row));
            found.into_iter().take(limit).map(|row| row.id.clone()).collect()
        };
        Ok(Due {
            expired: find(&|row| overdue(row, now), &|row| Some(row.expires_at)),
            orphaned: find(&|row| is_orphan(row, own_dead, now), &|row| row.lease_until),
            deletable: find(&|row| deletable(row, ended_before, now), &|row| row.ended_at),
        })
    }

    async fn counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        let tables = self.tables();
        let stands = |status: Status| tables.drafts.values().filter(|kept| kept.row.state.status() == status).count();
        Ok(Status::ALL.into_iter().map(|status| (status, stands(status) as u64)).collect())
    }

    async fn events(&self, after: &Cursor, limit: usize) -> Result<Page, StoreError> {
        let limit = limit.clamp(1, SWEEP_MAX);
        let tables = self.tables();
        let later = |outbox: &Outbox, seq: u64| -> Vec<Event> {
            outbox.events.iter().filter(|event| event.seq > seq).take(limit).cloned().collect()
        };
        if !self.parted {
            let seq = after.one();
            return Ok(Page { from: Cursor::One(seq), events: later(&tables.outboxes[0], seq) });
        }
        let from = after.each();
        let found = std::array::from_fn(|partition| later(&tables.outboxes[partition], from[partition]));
        Ok(Page::merged(from, found, limit))
    }

    fn hints(&self) -> broadcast::Receiver<DraftId> {
        self.hints.subscribe()
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn same_keys(&self, fingerprint: &Digest) -> Result<bool, StoreError> {
        Ok(*self.tables().keys.get_or_insert(*fingerprint) == *fingerprint)
    }
}
