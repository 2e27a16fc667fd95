//! A store under test, a clock that is turned by hand, and short words for long requests.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::base::chance::OsChance;
use crate::base::digest::Digest;
use crate::base::id::{
    CapabilityId, DraftId, Initiator, NodeId, Partition, Principal, ServiceName, SessionId, StepId, Tenant, ToolName,
};
use crate::base::time::ManualClock;
use crate::draft::decision::{Channel, Decider, DeciderKind, Vote};
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::receipt::{Judged, Receipt, ReceiptStatus};
use crate::draft::record::Risk;
use crate::draft::state::Verdict;
use crate::store::contract::{
    Decide, Decided, Ended, Held, Hold, Mark, OwnerLimits, Reject, SWEEP_MAX, Settle, Settled, Store,
};
use crate::store::cursor::{Cursor, Page};
use crate::store::rights::Claim;
use crate::store::row::{Event, Stored};

/// How long a claim's lease is in these cases.
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// The send window in these cases.
pub(super) const WINDOW: Duration = Duration::from_secs(2);

/// How long a draft lives in these cases.
pub(super) const TTL: Duration = Duration::from_secs(900);

/// The MAC of a refusal, which means nothing to a store.
pub(super) const MAC: Digest = Digest::from_bytes([7; 32]);

/// Turns the clock of the store under test.
#[async_trait]
pub trait Dial: Send + Sync {
    /// Moves the store's time forward.
    async fn advance(&self, by: Duration);
}

#[async_trait]
impl Dial for ManualClock {
    async fn advance(&self, by: Duration) {
        Self::advance(self, by);
    }
}

/// An empty store under test.
pub struct Harness {
    store: Arc<dyn Store>,
    dial: Arc<dyn Dial>,
    chance: OsChance,
    /// Dropped last: the folder, the child process.
    _keep: Box<dyn Any + Send + Sync>,
}

/// One call of an agent.
#[derive(Debug, Clone)]
pub struct Call {
    args: String,
    key: Option<String>,
    tenant: &'static str,
    owner: &'static str,
    initiator: &'static str,
    session: String,
    tool: &'static str,
    risk: Risk,
    /// How long the draft lives.
    pub ttl: Duration,
    /// See [`Hold::replay_window_ms`].
    pub replay_window: Duration,
    /// The owner's bounds.
    pub limits: OwnerLimits,
}

impl Call {
    /// With a caller's key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// For another owner, by another agent.
    #[must_use]
    pub fn from(mut self, tenant: &'static str, owner: &'static str, initiator: &'static str) -> Self {
        (self.tenant, self.owner, self.initiator) = (tenant, owner, initiator);
        self
    }

    /// From another conversation.
    #[must_use]
    pub fn session(mut self, session: &str) -> Self {
        session.clone_into(&mut self.session);
        self
    }

    /// Of another tool, at another risk.
    #[must_use]
    pub fn tool(mut self, tool: &'static str, risk: Risk) -> Self {
        (self.tool, self.risk) = (tool, risk);
        self
    }

    /// The keyed owner hash.
    #[must_use]
    pub fn owner_hash(&self) -> Digest {
        digest(&["owner", self.tenant, self.owner])
    }

    fn scope<'a>(&'a self, purpose: &'a str, last: &'a str) -> Digest {
        digest(&[purpose, self.tenant, self.owner, self.initiator, self.tool, last])
    }
}

fn digest(parts: &[&str]) -> Digest {
    Digest::of(parts.join("\0").as_bytes())
}

impl Harness {
    /// A harness over an empty store; `keep` is dropped after it.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, dial: Arc<dyn Dial>, keep: Box<dyn Any + Send + Sync>) -> Self {
        Self { store, dial, chance: OsChance, _keep: keep }
    }

    /// The store under test.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The store under test, for a task of its own.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Moves the store's time forward.
    pub async fn advance(&self, by: Duration) {
        self.dial.advance(by).await;
    }

    /// A new intention.
    #[must_use]
    pub fn step(&self) -> StepId {
        StepId::new(&self.chance)
    }

    /// A keyless call with these args, by the usual owner and agent.
    #[must_use]
    pub fn call(&self, args: &str) -> Call {
        Call {
            args: args.to_owned(),
            key: None,
            tenant: "default",
            owner: "olga",
            initiator: "agent",
            session: "s1".to_owned(),
            tool: "send",
            risk: Risk::Low,
            ttl: TTL,
            replay_window: Duration::from_secs(120),
            limits: OwnerLimits { pending_max: 10_000, holds_max: 10_000, window: Duration::from_secs(60) },
        }
    }

    /// The hold of a call; every time with a new id.
    #[must_use]
    pub fn hold_of(&self, call: &Call) -> Hold {
        let now = self.store.now();
        let owner_hash = call.owner_hash();
        let id = DraftId::new(Partition::of(&owner_hash), now, &self.chance);
        Hold {
            tenant: name(Tenant::new(call.tenant)),
            owner_hash,
            initiator: name(Initiator::new(call.initiator)),
            session: name(SessionId::new(call.session.clone())),
            service: name(ServiceName::new("mail")),
            tool: name(ToolName::new(call.tool)),
            capability: name(CapabilityId::new("mail.send")),
            risk: call.risk,
            args_hash: digest(&["args", call.tool, &call.args]),
            join_key: call.scope("join", &call.args),
            caller_key: call.key.as_deref().map(|key| call.scope("caller", key)),
            token_digest: digest(&["token", id.as_str()]),
            created_at: now,
            expires_at: now + call.ttl,
            replay_window_ms: u64::try_from(call.replay_window.as_millis()).unwrap_or(0),
            refusal_memory_ms: 600_000,
            limits: call.limits,
            sealed: format!("sealed {id}").into_bytes(),
            id,
        }
    }

    /// What the store says to a call.
    pub async fn ask(&self, call: &Call) -> Held {
        self.store.hold(self.hold_of(call)).await.expect("the store answers a hold")
    }

    /// Holds a call that must make a new draft.
    pub async fn held(&self, call: &Call) -> Stored {
        match self.ask(call).await {
            Held::New(stored) => *stored,
            other => panic!("not a new draft: {other:?}"),
        }
    }

    /// Holds a call that must be answered by an earlier draft.
    pub async fn joined(&self, call: &Call) -> Stored {
        match self.ask(call).await {
            Held::Joined(stored) => *stored,
            other => panic!("not joined: {other:?}"),
        }
    }

    /// A person, through the API.
    #[must_use]
    pub fn person(&self, name: &str) -> Decider {
        self.decider(name, DeciderKind::Approver, Channel::Api)
    }

    /// A decider.
    #[must_use]
    pub fn decider(&self, id: &str, kind: DeciderKind, channel: Channel) -> Decider {
        let id = Principal::new(id).expect("a legal name");
        Decider { kind, id, auth_method: "bearer".to_owned(), channel, at: self.store.now() }
    }

    /// A yes that is enough.
    #[must_use]
    pub fn yes(&self, draft: &Stored, who: &str) -> Decide {
        Decide {
            id: draft.row.id.clone(),
            step: self.step(),
            sealed_digest: draft.row.sealed_digest,
            vote: Vote {
                decider: self.person(who),
                epoch: draft.row.epoch + 1,
                comment: None,
                mac: Digest::of(who.as_bytes()),
            },
            quorum: 1,
            decision_key: None,
            node: node("n1"),
            lease: LEASE,
        }
    }

    /// A no.
    #[must_use]
    pub fn no(&self, draft: &Stored, by: Decider) -> Reject {
        Reject {
            id: draft.row.id.clone(),
            step: self.step(),
            sealed_digest: draft.row.sealed_digest,
            by,
            reason: "not this one".to_owned(),
            mac: MAC,
            decision_key: None,
        }
    }

    /// Claims a pending draft.
    pub async fn claim(&self, draft: &Stored) -> (Claim, Stored) {
        match self.store.decide(self.yes(draft, "ada")).await.expect("the store answers a yes") {
            Decided::Claimed(claim, stored) => (claim, *stored),
            other => panic!("not claimed: {other:?}"),
        }
    }

    /// Claims a pending draft for a node that does nothing with it.
    pub async fn claimed(&self, draft: &Stored) -> Stored {
        self.claim(draft).await.1
    }

    /// Claims and marks a pending draft.
    pub async fn sending(&self, draft: &Stored) -> Stored {
        let (claim, _) = self.claim(draft).await;
        let mark = self.store.mark_sending(claim.id(), claim.epoch(), self.step(), WINDOW).await;
        assert!(matches!(mark, Ok(Mark::Marked { attempt: 1, .. })), "{mark:?}");
        self.get(&draft.row.id).await
    }

    /// The end of an attempt under the epoch of `draft`.
    #[must_use]
    pub fn end(&self, draft: &Stored, verdict: Verdict, failure: Option<Failure>) -> Settle {
        let now = self.store.now();
        let status = match verdict {
            Verdict::Succeeded => Some(ReceiptStatus::Succeeded),
            Verdict::Failed => Some(ReceiptStatus::Failed),
            Verdict::Unverifiable => None,
        };
        Settle {
            id: draft.row.id.clone(),
            step: self.step(),
            epoch: draft.row.epoch,
            verdict,
            failure,
            receipt: status.map(|status| receipt(draft, status, now)),
            response: (verdict == Verdict::Succeeded).then(|| b"sealed response".to_vec()),
            evidence: Evidence {
                at: now,
                source: "attempt".to_owned(),
                text: "it ended".to_owned(),
                upstream_status: Some(200),
            },
            // Opaque to the store: as good as any other.
            mac: Digest::of(format!("{verdict:?} {}", draft.row.id).as_bytes()),
        }
    }

    /// Settles a marked draft.
    pub async fn settle(&self, draft: &Stored, verdict: Verdict, failure: Option<Failure>) -> Stored {
        let draft = self.get(&draft.row.id).await;
        match self.store.settle(self.end(&draft, verdict, failure)).await.expect("the store answers a settle") {
            Settled::Done(stored) => *stored,
            other => panic!("not settled: {other:?}"),
        }
    }

    /// Holds, claims, marks and settles as succeeded.
    pub async fn succeeded(&self, call: &Call) -> Stored {
        let draft = self.held(call).await;
        self.sending(&draft).await;
        self.settle(&draft, Verdict::Succeeded, None).await
    }

    /// Holds, claims, marks and settles as refused by the upstream.
    pub async fn refused(&self, call: &Call) -> Stored {
        let draft = self.held(call).await;
        self.sending(&draft).await;
        self.settle(&draft, Verdict::Failed, Some(Failure::Refused)).await
    }

    /// Holds, claims and settles as provably not sent.
    pub async fn not_sent(&self, call: &Call) -> Stored {
        let draft = self.held(call).await;
        self.claimed(&draft).await;
        self.settle(&draft, Verdict::Failed, Some(Failure::NotSent)).await
    }

    /// Holds, claims, marks and settles as unverifiable.
    pub async fn unverifiable(&self, call: &Call) -> Stored {
        let draft = self.held(call).await;
        self.sending(&draft).await;
        self.settle(&draft, Verdict::Unverifiable, None).await
    }

    /// Holds and rejects by a person.
    pub async fn rejected(&self, call: &Call, by: Decider) -> Stored {
        let draft = self.held(call).await;
        match self.store.reject(self.no(&draft, by)).await.expect("the store answers a no") {
            Ended::Done(stored) => *stored,
            other => panic!("not rejected: {other:?}"),
        }
    }

    /// A marked draft whose node died and was taken over.
    pub async fn verifying(&self, call: &Call) -> Stored {
        let draft = self.held(call).await;
        self.sending(&draft).await;
        let id = &draft.row.id;
        let taken = self.store.take_over(id, self.step(), &node("n2"), LEASE, &[node("n1")]).await;
        assert!(matches!(taken, Ok(crate::store::contract::TakenOver::Verifying { epoch: 2, .. })), "{taken:?}");
        self.get(id).await
    }

    /// A draft that must be there.
    pub async fn get(&self, id: &DraftId) -> Stored {
        self.store.get(id).await.expect("the store answers a read").expect("the draft is there")
    }

    /// Every event so far.
    pub async fn events(&self) -> Vec<Event> {
        self.events_after(Cursor::default(), SWEEP_MAX).await
    }

    /// A page of events.
    pub async fn page(&self, after: &Cursor, limit: usize) -> Page {
        self.store.events(after, limit).await.expect("the store answers a read")
    }

    /// Every event after a cursor, read `limit` at a time.
    pub async fn events_after(&self, mut after: Cursor, limit: usize) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let page = self.page(&after, limit).await;
            if page.events.is_empty() {
                return events;
            }
            after = page.next();
            events.extend(page.events);
        }
    }

    /// The kinds of a draft's events, without `draft.`, in order.
    pub async fn kinds(&self, id: &DraftId) -> Vec<String> {
        let events = self.events().await;
        let own = events.into_iter().filter(|event| event.draft_id == *id);
        own.map(|event| event.kind.trim_start_matches("draft.").to_owned()).collect()
    }
}

fn name<T, E: std::fmt::Debug>(name: Result<T, E>) -> T {
    name.expect("a legal name")
}

/// A process.
pub(super) fn node(id: &str) -> NodeId {
    name(NodeId::new(id))
}

fn receipt(draft: &Stored, status: ReceiptStatus, settled_at: crate::base::time::Timestamp) -> Receipt {
    let row = &draft.row;
    Receipt {
        id: row.id.receipt_id(),
        action_id: row.id.clone(),
        service: row.service.clone(),
        tool: row.tool.clone(),
        capability: row.capability.clone(),
        status,
        summary: "a message".to_owned(),
        judged: Judged::Status,
        partial: false,
        accepted: false,
        recovered: false,
        superseded: false,
        args_hash: row.args_hash,
        sent_digest: None,
        policy_version: "1".to_owned(),
        decided_by: Vec::new(),
        effect_key: None,
        attempts: row.attempts,
        upstream_status: None,
        response_digest: None,
        truncated: false,
        sent_at: row.sent_at,
        settled_at,
    }
}

/// A harness over the twin, for tests inside this room.
#[cfg(test)]
pub(in crate::store) fn twin() -> Harness {
    let clock = Arc::new(ManualClock::new(crate::base::time::Timestamp::from_millis(1_700_000_000_000)));
    Harness::new(Arc::new(crate::store::twin::Twin::new(clock.clone())), clock, Box::new(()))
}

/// A harness over a new SQLite file, for tests inside this room.
#[cfg(test)]
pub(in crate::store) fn sqlite() -> Harness {
    use crate::store::sqlite::{SqliteOptions, SqliteStore};
    let clock = Arc::new(ManualClock::new(crate::base::time::Timestamp::from_millis(1_700_000_000_000)));
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        SqliteStore::open(&folder.path().join("store.db"), clock.clone(), SqliteOptions::default()).expect("opens");
    Harness::new(Arc::new(store), clock, Box::new(folder))
}
