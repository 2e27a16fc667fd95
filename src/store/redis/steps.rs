//! Each step of the contract as one call of its script: arguments in, words out.
//!
//! Owns what the words of an answer mean. Checks only what needs no draft, with the same functions
//! as the other stores. Must never decide what a script decides.

use std::time::Duration;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Partition, StepId};
use crate::base::time::Timestamp;
use crate::draft::decision::{Decider, DeciderKind};
use crate::draft::outcome::Failure as Ending;
use crate::draft::proof::withdrawn_by;
use crate::store::contract::{
    Decide, Decided, Ended, Held, Hold, Mark, Reject, Renewed, Settle, Settled, StoreError, TakenOver,
};
use crate::store::rights::Claim;
use crate::store::row::Stored;
use crate::store::steps::release::{LOST_TEXT, TAKE_OVER};
use crate::store::steps::{LEASE_MAX, bounded, decide, hold, misuse, reason_code, settle};

use super::RedisStore;
use super::arguments::{Call, end, holding, json, millis, names};
use super::fields::evidence_rest;
use super::link::Failure;
use super::reply::Reply;
use super::script::{SCRIPTS, Script};

/// The answer of a hold, and of a repetition.
fn held(reply: Reply, ask: Hold) -> Result<Held, StoreError> {
    Ok(match reply.word.as_str() {
        "made" => {
            let duplicate = match reply.one() {
                "" => None,
                id => Some(id.parse().map_err(|_| reply.unknown("hold"))?),
            };
            let passed = reply.two().split('\n').filter(|id| !id.is_empty()).map(str::parse).collect::<Result<_, _>>();
            let passed = passed.map_err(|_| reply.unknown("hold"))?;
            let (row, sealed) = hold::row_of(ask, duplicate, passed);
            Held::New(Box::new(Stored { row, sealed, response: None }))
        }
        "new" => Held::New(reply.stored()?),
        "joined" => Held::Joined(reply.stored()?),
        "rejected_before" => Held::RejectedBefore(reply.stored()?),
        "key_reused" => Held::KeyReused(reply.one().parse().map_err(|_| reply.unknown("hold"))?),
        "too_many_pending" => Held::TooManyPending,
        "rate_limited" => Held::RateLimited,
        "clock" => Held::Clock(reply.time(reply.one())?),
        "other_draft" => return Err(misuse("a draft id that another draft has")),
        _ => return Err(reply.unknown("hold")),
    })
}

impl RedisStore {
    pub(super) async fn hold_step(&self, ask: Hold) -> Result<Held, Failure> {
        hold::check(&ask)?;
        if ask.id.partition() != Partition::of(&ask.owner_hash) {
            return Err(misuse("a draft id of another owner's partition").into());
        }
        let call = holding(Call::new(&SCRIPTS.hold, &ask.id), &ask, &Digest::of(&ask.sealed));
        let reply = self.run_acknowledged(call).await?;
        Ok(held(reply, ask)?)
    }

    pub(super) async fn again_step(&self, old: &DraftId, ask: Hold) -> Result<Result<Held, Ended>, Failure> {
        hold::check(&ask)?;
        if ask.id.partition() != old.partition() {
            // Of another owner; but first it is looked whether there is such a draft.
            return match self.load(old).await? {
                None => Ok(Err(Ended::NotFound)),
                Some(_) => Err(other_call().into()),
            };
        }
        let call = Call::new(&SCRIPTS.again, &ask.id)
            .with("old", old.as_str())
            .step(hold::step_of(&ask.id))
            .with("initiator", ask.initiator.as_str());
        let reply = self.run_acknowledged(holding(call, &ask, &Digest::of(&ask.sealed))).await?;
        Ok(match reply.word.as_str() {
            "not_found" => Err(Ended::NotFound),
            "not_pending" => Err(Ended::NotPending(reply.stored()?)),
            "other_call" => return Err(other_call().into()),
            _ => Ok(held(reply, ask)?),
        })
    }

    pub(super) async fn decide_step(&self, ask: Decide) -> Result<Decided, Failure> {
        decide::check_vote(&ask.vote)?;
        let call = Call::new(&SCRIPTS.decide, &ask.id)
            .step(ask.step)
            .with("sealed_digest", ask.sealed_digest.to_hex())
            .with("vote", json(&ask.vote)?)
            .with("voter", ask.vote.decider.id.as_str())
            .number("vote_epoch", ask.vote.epoch)
            .number("quorum", ask.quorum)
            .with("dkey", ask.decision_key.unwrap_or_default())
            .with("node", ask.node.as_str())
            .number("lease_ms", millis(ask.lease.min(LEASE_MAX)));
        let reply = self.run_acknowledged(call).await?;
        let id = &ask.id;
        Ok(match reply.word.as_str() {
            "not_found" => Decided::NotFound,
            "changed" => Decided::Changed,
            "key_reused" => Decided::KeyReused,
            "not_pending" => Decided::NotPending(reply.stored()?),
            "claimed" => {
                let stored = reply.stored()?;
                let row = &stored.row;
                let claimed_at = row.claimed_at.ok_or_else(|| gone(id, "claim"))?;
                Decided::Claimed(Claim::new(id.clone(), row.epoch, claimed_at), stored)
            }
            word @ ("voted" | "already_voted") => {
                let (have, need) = (reply.number(reply.one())?, reply.number(reply.two())?);
                let voted = word == "voted";
                let stored = reply.stored()?;
                if voted { Decided::Voted { have, need, stored } } else { Decided::AlreadyVoted { have, need, stored } }
            }
            _ => return Err(reply.unknown("decide").into()),
        })
    }

    pub(super) async fn reject_step(&self, ask: Reject) -> Result<Ended, Failure> {
        decide::check_reason(&ask.reason)?;
        let person = matches!(ask.by.kind, DeciderKind::Approver | DeciderKind::Owner);
        let call = Call::new(&SCRIPTS.reject, &ask.id)
            .step(ask.step)
            .with("sealed_digest", ask.sealed_digest.to_hex())
            .with("by", json(&ask.by)?)
            .with("by_name", ask.by.id.as_str())
            .with("person", if person { "1" } else { "0" })
            .with("code", reason_code(&ask.by, &ask.reason).unwrap_or_default())
            .with("reason", ask.reason)
            .with("mac", ask.mac.to_hex())
            .with("dkey", ask.decision_key.unwrap_or_default());
        ended(self.run_acknowledged(call).await?)
    }

    pub(super) async fn withdraw_step(
        &self,
        id: &DraftId,
        step: StepId,
        by: &str,
        mac: Digest,
    ) -> Result<Ended, Failure> {
        let call = Call::new(&SCRIPTS.withdraw, id)
            .step(step)
            .with("by", bounded(by, 255))
            .with("reason", withdrawn_by(by))
            .with("mac", mac.to_hex());
        ended(self.run_acknowledged(call).await?)
    }

    pub(super) async fn expire_step(&self, id: &DraftId) -> Result<Ended, Failure> {
        ended(self.run(Call::new(&SCRIPTS.expire, id)).await?)
    }

    pub(super) async fn renew_step(
        &self,
        id: &DraftId,
        epoch: u64,
        step: StepId,
        lease: Duration,
    ) -> Result<Renewed, Failure> {
        let call = Call::new(&SCRIPTS.renew, id)
            .number("epoch", epoch)
            .step(step)
            .number("lease_ms", millis(lease.min(LEASE_MAX)));
        let reply = self.run(call).await?;
        match reply.word.as_str() {
            "superseded" => Ok(Renewed::Superseded),
            "until" => Ok(Renewed::Until(reply.time(reply.one())?)),
            _ => Err(reply.unknown("renew").into()),
        }
    }

    pub(super) async fn mark_step(
        &self,
        id: &DraftId,
        epoch: u64,
        step: StepId,
        send_window: Duration,
    ) -> Result<Mark, Failure> {
        let call = Call::new(&SCRIPTS.mark_sending, id)
            .number("epoch", epoch)
            .step(step)
            .number("send_window_ms", millis(send_window));
        let reply = self.run_acknowledged(call).await?;
        match reply.word.as_str() {
            "superseded" => Ok(Mark::Superseded),
            "lease_too_short" => Ok(Mark::LeaseTooShort),
            "marked" => Ok(Mark::Marked { attempt: reply.number(reply.one())?, sent_at: reply.time(reply.two())? }),
            _ => Err(reply.unknown("mark_sending").into()),
        }
    }

    pub(super) async fn take_over_step(
        &self,
        id: &DraftId,
        step: StepId,
        node: &NodeId,
        lease: Duration,
        own_dead: &[NodeId],
    ) -> Result<TakenOver, Failure> {
        let call = Call::new(&SCRIPTS.take_over, id)
            .step(step)
            .with("node", node.as_str())
            .number("lease_ms", millis(lease.min(LEASE_MAX)))
            .with("own_dead", names(own_dead))
            .with("piece", evidence_rest(TAKE_OVER, LOST_TEXT, None));
        let reply = self.run(call).await?;
        Ok(match reply.word.as_str() {
            "not_found" => TakenOver::NotFound,
            "not_due" => TakenOver::NotDue,
            "claimed" => {
                let stored = reply.stored()?;
                let claimed_at = stored.row.claimed_at.ok_or_else(|| gone(id, "claim"))?;
                TakenOver::Claimed(Claim::new(id.clone(), stored.row.epoch, claimed_at), stored)
            }
            "verifying" => {
                let stored = reply.stored()?;
                TakenOver::Verifying { epoch: stored.row.epoch, stored }
            }
            _ => return Err(reply.unknown("take_over").into()),
        })
    }

    pub(super) async fn settle_step(&self, ask: Settle) -> Result<Settled, Failure> {
        settle::check(&ask)?;
        let call = end(Call::new(&SCRIPTS.settle, &ask.id), &ask, None)?.number("epoch", ask.epoch);
        self.tell(settled(self.run_acknowledged(call).await?)?)
    }

    pub(super) async fn late_answer_step(&self, ask: Settle) -> Result<Settled, Failure> {
        settle::check(&ask)?;
        let reason = ask.failure.map(Ending::as_str).unwrap_or_default();
        let call = end(Call::new(&SCRIPTS.late_answer, &ask.id), &ask, None)?.with("event_reason", reason);
        self.tell(settled(self.run_acknowledged(call).await?)?)
    }

    pub(super) async fn resolve_step(&self, ask: Settle, by: &Decider) -> Result<Settled, Failure> {
        settle::check(&ask)?;
        let call = end(Call::new(&SCRIPTS.resolve, &ask.id), &ask, Some(by))?.with("by_name", by.id.as_str());
        self.tell(settled(self.run_acknowledged(call).await?)?)
    }

    pub(super) async fn note_step(&self, script: &'static Script, id: &DraftId) -> Result<(), Failure> {
        let reply = self.run(Call::new(script, id)).await?;
        if reply.word == "done" { Ok(()) } else { Err(reply.unknown(script.name).into()) }
    }

    pub(super) async fn delete_step(&self, id: &DraftId, ended_before: Timestamp) -> Result<bool, Failure> {
        let call = Call::new(&SCRIPTS.delete, id).number("ended_before", ended_before.as_millis());
        let reply = self.run(call).await?;
        match reply.word.as_str() {
            "deleted" => Ok(true),
            "kept" => Ok(false),
            _ => Err(reply.unknown("delete").into()),
        }
    }
}

impl RedisStore {
    /// Wakes this node's own waiters for an end that it wrote itself: they need not hear it from the
    /// server, whose messages may be cut.
    fn tell(&self, settled: Settled) -> Result<Settled, Failure> {
        if let Settled::Done(stored) = &settled {
            let _unheard = self.hints.send(stored.row.id.clone());
        }
        Ok(settled)
    }
}

fn ended(reply: Reply) -> Result<Ended, Failure> {
    Ok(match reply.word.as_str() {
        "not_found" => Ended::NotFound,
        "changed" => Ended::Changed,
        "key_reused" => Ended::KeyReused,
        "not_pending" => Ended::NotPending(reply.stored()?),
        "done" => Ended::Done(reply.stored()?),
        _ => return Err(reply.unknown("an end of pending").into()),
    })
}

fn settled(reply: Reply) -> Result<Settled, Failure> {
    Ok(match reply.word.as_str() {
        "not_found" => Settled::NotFound,
        "superseded" => Settled::Superseded(reply.stored()?),
        "done" => Settled::Done(reply.stored()?),
        _ => return Err(reply.unknown("an end of an attempt").into()),
    })
}

fn gone(id: &DraftId, what: &str) -> StoreError {
    StoreError::Corrupt(format!("draft {id}: its {what} is gone"))
}

fn other_call() -> StoreError {
    misuse("a repetition of another owner's, another agent's or another call")
}
