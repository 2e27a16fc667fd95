//! Rights that are spent: winning the claim gives a [`Claim`], marking it turns it into a
//! [`SendPermit`], and sending takes the permit by value. Neither can be made outside the store
//! or copied, so there is no other way to reach an upstream with a write (promises 3 and 4).

use std::time::Duration;

use crate::base::chance::Chance;
use crate::base::id::{DraftId, StepId};
use crate::base::time::{BootTime, Clock, Timestamp};

use super::contract::{Mark, Store, StoreError};

/// The right to release one draft, won by the decision that completed the quorum or by a
/// take-over of a draft that was never marked.
#[derive(Debug)]
#[must_use = "a claim that is dropped leaves the draft to the lease"]
pub struct Claim {
    id: DraftId,
    epoch: u64,
    claimed_at: Timestamp,
}

impl Claim {
    pub(in crate::store) const fn new(id: DraftId, epoch: u64, claimed_at: Timestamp) -> Self {
        Self { id, epoch, claimed_at }
    }

    /// The draft.
    #[must_use]
    pub const fn id(&self) -> &DraftId {
        &self.id
    }

    /// The fencing epoch.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// When the claim was first won; `late_release` counts from here.
    #[must_use]
    pub const fn claimed_at(&self) -> Timestamp {
        self.claimed_at
    }

    /// Writes the durable sending mark and turns the claim into a permit. The permit's deadline
    /// is `send_window` after the mark was *asked for*, so a slow or repeated mark never makes
    /// it longer. A mark whose reply was lost is asked again with the same step id.
    ///
    /// # Errors
    ///
    /// [`MarkFailed`] says whether anything may have been marked.
    pub async fn mark(
        self,
        store: &dyn Store,
        clock: &dyn Clock,
        chance: &dyn Chance,
        send_window: Duration,
    ) -> Result<SendPermit, MarkFailed> {
        let asked = clock.boot();
        let deadline = asked + send_window;
        let step = StepId::new(chance);
        loop {
            match store.mark_sending(&self.id, self.epoch, step, send_window).await {
                Ok(Mark::Marked { attempt, sent_at }) => {
                    return Ok(SendPermit { id: self.id, epoch: self.epoch, attempt, sent_at, deadline });
                }
                Ok(Mark::Superseded) => return Err(MarkFailed::Superseded),
                Ok(Mark::LeaseTooShort) => return Err(MarkFailed::LeaseTooShort(self)),
                Err(StoreError::Uncertain(_)) if clock.boot() < deadline => {}
                Err(error) => return Err(MarkFailed::Store(error)),
            }
        }
    }
}

/// Why there is no permit. Nothing was sent in any of these cases.
#[derive(Debug)]
pub enum MarkFailed {
    /// Another node has taken over, or the draft has moved on.
    Superseded,
    /// The lease has less than the send window left; renew it and mark again.
    LeaseTooShort(Claim),
    /// The store did not take the mark, or may have: the lease ends it either way.
    Store(StoreError),
}

/// The right to write the first byte, until its deadline on the clock that counts suspended time.
#[derive(Debug)]
#[must_use = "a permit that is dropped leaves a marked draft to recovery"]
pub struct SendPermit {
    id: DraftId,
    epoch: u64,
    attempt: u32,
    sent_at: Timestamp,
    deadline: BootTime,
}

impl SendPermit {
    /// A permit that no store has marked, for tests of what is done with one.
    #[cfg(test)]
    pub(crate) const fn for_tests(id: DraftId, attempt: u32, sent_at: Timestamp, deadline: BootTime) -> Self {
        Self { id, epoch: 1, attempt, sent_at, deadline }
    }

    /// The draft.
    #[must_use]
    pub const fn id(&self) -> &DraftId {
        &self.id
    }

    /// The fencing epoch.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the mark was set, by the store's clock.
    #[must_use]
    pub const fn sent_at(&self) -> Timestamp {
        self.sent_at
    }

    /// Whether the first byte may still be written. Checked immediately before it; once false,
    /// nothing may be written any more.
    #[must_use]
    pub fn still_valid(&self, clock: &dyn Clock) -> bool {
        clock.boot() < self.deadline
    }
}
