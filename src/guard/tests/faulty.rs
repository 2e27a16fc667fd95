//! A store between the guard and the twin that loses answers, refuses, or applies and forgets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Partition, StepId};
use crate::base::time::Timestamp;
use crate::draft::decision::Decider;
use crate::draft::state::Status;
use crate::store::contract::{
    Decide, Decided, Due, Ended, Filter, Held, Hold, Mark, Reject, Renewed, Settle, Settled, Store, StoreError,
    TakenOver,
};
use crate::store::cursor::{Cursor, Page};
use crate::store::row::Stored;

/// What happens to a call of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It does not run: `Unavailable`.
    Refuse,
    /// It runs, and the answer is lost: `Uncertain`.
    LoseAnswer,
}

/// The store with faults by step name; each fault is used up by one call.
pub(super) struct Faulty {
    inner: Arc<dyn Store>,
    faults: Mutex<BTreeMap<&'static str, Vec<Fault>>>,
    damaged: AtomicBool,
    misled: Mutex<Option<Stored>>,
    waits: Mutex<BTreeMap<&'static str, Vec<Wait>>>,
    /// How far this node's idea of the store's clock is off, in milliseconds.
    off_ms: AtomicI64,
}

/// What happens while a step waits for its turn.
type Wait = Box<dyn FnOnce() + Send>;

impl Faulty {
    pub(super) fn over(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            faults: Mutex::default(),
            damaged: AtomicBool::new(false),
            misled: Mutex::default(),
            waits: Mutex::default(),
            off_ms: AtomicI64::new(0),
        })
    }

    /// The next `times` calls of `step` fail like this.
    pub(super) fn next(&self, step: &'static str, fault: Fault, times: usize) {
        self.faults.lock().unwrap().entry(step).or_default().extend(std::iter::repeat_n(fault, times));
    }

    /// The next call of `step` waits for its turn while this happens.
    pub(super) fn wait(&self, step: &'static str, meanwhile: impl FnOnce() + Send + 'static) {
        self.waits.lock().unwrap().entry(step).or_default().insert(0, Box::new(meanwhile));
    }

    /// From now on this node's idea of the store's clock is off by so much.
    pub(super) fn off_by(&self, ms: i64) {
        self.off_ms.store(ms, Ordering::SeqCst);
    }

    /// From now on every sealed record that is read has one bit changed.
    pub(super) fn damage(&self) {
        self.damaged.store(true, Ordering::SeqCst);
    }

    /// From now on every hold is told that this draft answers it, as a forged index would.
    pub(super) fn mislead(&self, to: Stored) {
        *self.misled.lock().unwrap() = Some(to);
    }

    /// Everything works again.
    pub(super) fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    async fn run<T>(
        &self,
        step: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let meanwhile = self.waits.lock().unwrap().get_mut(step).and_then(Vec::pop);
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        let fault = self.faults.lock().unwrap().get_mut(step).and_then(Vec::pop);
        match fault {
            // A step takes a moment on both sides, as a real one does: a caller can be gone by then.
            None => {
                tokio::task::yield_now().await;
                let answer = call.await;
                tokio::task::yield_now().await;
                answer
            }
            Some(Fault::Refuse) => Err(StoreError::Unavailable("/srv/secret/place.db refused by the test".to_owned())),
            Some(Fault::LoseAnswer) => {
                let _lost = call.await;
                Err(StoreError::Uncertain("answer lost by the test".to_owned()))
            }
        }
    }
}

#[async_trait]
impl Store for Faulty {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.inner.now().as_millis() + self.off_ms.load(Ordering::SeqCst))
    }
    async fn hold(&self, hold: Hold) -> Result<Held, StoreError> {
        if let Some(other) = self.misled.lock().unwrap().clone() {
            return Ok(Held::Joined(Box::new(other)));
        }
        let mut held = self.run("hold", self.inner.hold(hold)).await?;
        if let Held::New(stored) = &mut held
            && self.damaged.load(Ordering::SeqCst)
            && let Some(last) = stored.sealed.last_mut()
        {
            *last ^= 1;
        }
        Ok(held)
    }
    async fn decide(&self, decide: Decide) -> Result<Decided, StoreError> {
        self.run("decide", self.inner.decide(decide)).await
    }
    async fn reject(&self, reject: Reject) -> Result<Ended, StoreError> {
        self.run("reject", self.inner.reject(reject)).await
    }
    async fn withdraw(&self, id: &DraftId, step: StepId, by: &str, mac: Digest) -> Result<Ended, StoreError> {
        self.run("withdraw", self.inner.withdraw(id, step, by, mac)).await
    }
    async fn expire(&self, id: &DraftId) -> Result<Ended, StoreError> {
        self.run("expire", self.inner.expire(id)).await
    }
    async fn renew(&self, id: &DraftId, epoch: u64, step: StepId, lease: Duration) -> Result<Renewed, StoreError> {
        self.run("renew", self.inner.renew(id, epoch, step, lease)).await
    }
    async fn mark_sending(&self, id: &DraftId, epoch: u64, step: StepId, window: Duration) -> Result<Mark, StoreError> {
        self.run("mark_sending", self.inner.mark_sending(id, epoch, step, window)).await
    }
    async fn settle(&self, settle: Settle) -> Result<Settled, StoreError> {
        self.run("settle", self.inner.settle(settle)).await
    }
    async fn late_answer(&self, settle: Settle) -> Result<Settled, StoreError> {
        self.run("late_answer", self.inner.late_answer(settle)).await
    }
    async fn take_over(
        &self,
        id: &DraftId,
        step: StepId,
        node: &NodeId,
        lease: Duration,
        own_dead: &[NodeId],
    ) -> Result<TakenOver, StoreError> {
        self.run("take_over", self.inner.take_over(id, step, node, lease, own_dead)).await
    }
    async fn resolve(&self, settle: Settle, by: &Decider) -> Result<Settled, StoreError> {
        self.run("resolve", self.inner.resolve(settle, by)).await
    }
    async fn collect(&self, id: &DraftId) -> Result<(), StoreError> {
        self.run("collect", self.inner.collect(id)).await
    }
    async fn note_seen(&self, id: &DraftId) -> Result<(), StoreError> {
        self.run("note_seen", self.inner.note_seen(id)).await
    }
    async fn again(&self, old: &DraftId, hold: Hold) -> Result<Result<Held, Ended>, StoreError> {
        self.run("again", self.inner.again(old, hold)).await
    }
    async fn delete(&self, id: &DraftId, ended_before: Timestamp) -> Result<bool, StoreError> {
        self.run("delete", self.inner.delete(id, ended_before)).await
    }
    async fn get(&self, id: &DraftId) -> Result<Option<Stored>, StoreError> {
        let mut found = self.run("get", self.inner.get(id)).await?;
        if let Some(stored) = &mut found
            && self.damaged.load(Ordering::SeqCst)
            && let Some(last) = stored.sealed.last_mut()
        {
            *last ^= 1;
        }
        Ok(found)
    }
    async fn by_token(&self, partition: Partition, digest: &Digest) -> Result<Option<Stored>, StoreError> {
        self.run("by_token", self.inner.by_token(partition, digest)).await
    }
    async fn list(&self, filter: &Filter) -> Result<Vec<Stored>, StoreError> {
        self.run("list", self.inner.list(filter)).await
    }
    async fn due(&self, ended_before: Timestamp, own_dead: &[NodeId], limit: usize) -> Result<Due, StoreError> {
        self.run("due", self.inner.due(ended_before, own_dead, limit)).await
    }
    async fn counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        self.run("counts", self.inner.counts()).await
    }
    async fn events(&self, after: &Cursor, limit: usize) -> Result<Page, StoreError> {
        self.run("events", self.inner.events(after, limit)).await
    }
    fn hints(&self) -> broadcast::Receiver<DraftId> {
        self.inner.hints()
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.run("check", self.inner.check()).await
    }
    async fn same_keys(&self, fingerprint: &Digest) -> Result<bool, StoreError> {
        self.run("same_keys", self.inner.same_keys(fingerprint)).await
    }
}
