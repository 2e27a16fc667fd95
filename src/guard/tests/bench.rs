//! A whole guard in memory, with every part a test may want to hold in its hand.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Notify;

use crate::base::chance::{Chance, SeededChance};
use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Principal, StepId, Tenant};
use crate::base::time::{Clock, ManualClock, Timestamp};
use crate::call::args::{self, BodyLimits};
use crate::call::head::Head;
use crate::draft::decision::Channel;
use crate::draft::keys::KeySet;
use crate::draft::record::Identity;
/// Who asks.
pub(crate) use crate::draft::record::sample::identity;
use crate::guard::answer::Answer;
use crate::guard::observer::Observer;
use crate::guard::pause::Pause;
use crate::guard::settings::Settings;
use crate::guard::who::{Approver, Rights};
use crate::guard::{Guard, Parts, Proposal};
use crate::policy::model::PolicySet;
use crate::store::contract::{Settle, Store};
use crate::store::journal::{JournalError, Logged, SendLog};
use crate::store::twin::Twin;
use crate::upstream::contract::Upstream;
use crate::upstream::fake::{FakeUpstream, Script};

/// Carries it out and answers.
pub(crate) fn answers(status: u16, body: &'static str) -> Script {
    Script::Answer {
        applied: true,
        status,
        content_type: "application/json",
        body: Bytes::from_static(body.as_bytes()),
    }
}

/// Carries it out and closes without an answer.
pub(crate) const CLOSES: Script = Script::Closed { applied: true };

/// A journal in memory that a "restart" of the guard keeps.
#[derive(Default)]
pub(crate) struct Journal {
    attempts: Mutex<BTreeSet<String>>,
    waiting: Mutex<Vec<Settle>>,
}

impl Journal {
    pub(crate) fn remember(&self, id: &DraftId) {
        self.attempts.lock().unwrap().insert(id.to_string());
    }

    /// As a trim does, long after.
    pub(crate) fn forget(&self) {
        self.attempts.lock().unwrap().clear();
    }

    /// As somebody does who can write to the journal's file.
    pub(crate) fn alter(&self, change: impl Fn(&mut Settle)) {
        self.waiting.lock().unwrap().iter_mut().for_each(change);
    }

    pub(crate) fn waiting_len(&self) -> usize {
        self.waiting.lock().unwrap().len()
    }
}

pub(crate) struct Log {
    journal: Arc<Journal>,
    node: NodeId,
    own_dead: Vec<NodeId>,
}

#[async_trait]
impl SendLog for Log {
    fn node(&self) -> &NodeId {
        &self.node
    }

    fn own_dead(&self) -> &[NodeId] {
        &self.own_dead
    }

    async fn attempt(&self, id: &DraftId, _epoch: u64, _attempt: u32, _at: Timestamp) -> Result<Logged, JournalError> {
        let new = self.journal.attempts.lock().unwrap().insert(id.to_string());
        Ok(if new { Logged::New } else { Logged::Already })
    }

    fn began(&self, id: &DraftId) -> bool {
        self.journal.attempts.lock().unwrap().contains(&id.to_string())
    }

    async fn keep(&self, outcome: &Settle) -> Result<(), JournalError> {
        self.journal.waiting.lock().unwrap().push(outcome.clone());
        Ok(())
    }

    async fn taken(&self, id: &DraftId, step: StepId) -> Result<(), JournalError> {
        self.journal.waiting.lock().unwrap().retain(|settle| settle.id != *id || settle.step != step);
        Ok(())
    }

    async fn waiting(&self) -> Vec<Settle> {
        self.journal.waiting.lock().unwrap().clone()
    }

    async fn trim(&self, _before: Timestamp) -> Result<(), JournalError> {
        Ok(())
    }
}

/// Counts what must stay zero, and what must not.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) duplicate_releases: AtomicU32,
    pub(crate) failed_closed: AtomicU32,
    pub(crate) integrity_failed: AtomicU32,
    pub(crate) taken_over: AtomicU32,
}

impl Observer for Counts {
    fn duplicate_release(&self) {
        self.duplicate_releases.fetch_add(1, Ordering::SeqCst);
    }
    fn failed_closed(&self) {
        self.failed_closed.fetch_add(1, Ordering::SeqCst);
    }
    fn integrity_failed(&self) {
        self.integrity_failed.fetch_add(1, Ordering::SeqCst);
    }
    fn taken_over(&self) {
        self.taken_over.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs a closure at one named point; may hang there for ever, as a stopped process does.
pub(crate) struct At {
    pub(crate) point: &'static str,
    pub(crate) then: Box<dyn Fn() + Send + Sync>,
    pub(crate) hang: bool,
    pub(crate) reached: Arc<Notify>,
}

#[async_trait]
impl Pause for At {
    async fn at(&self, point: &'static str) {
        if point == self.point {
            (self.then)();
            self.reached.notify_one();
            if self.hang {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Everything.
pub(crate) struct Bench {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
    /// What is under `store`, to be written to past every step.
    pub(crate) twin: Arc<Twin>,
    pub(crate) upstream: FakeUpstream,
    pub(crate) journal: Arc<Journal>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) policies: Arc<ArcSwap<PolicySet>>,
    pub(crate) keys: KeySet,
    pub(crate) settings: Settings,
    chance: Arc<dyn Chance>,
}

pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

impl Bench {
    pub(crate) fn new() -> Self {
        Self::over(|twin| twin)
    }

    /// A bench whose store has an outbox per partition.
    pub(crate) fn in_partitions() -> Self {
        Self::with(Twin::in_partitions, |twin| twin)
    }

    /// A bench whose store is wrapped.
    pub(crate) fn over(wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        Self::with(Twin::new, wrap)
    }

    fn with(twin: impl FnOnce(Arc<dyn Clock>) -> Twin, wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let chance = Arc::new(SeededChance::new(42));
        let upstream = FakeUpstream::new(clock.clone()).otherwise(answers(201, r#"{"id":1}"#));
        let set = PolicySet::open("api", "http://api.test").expect("a legal set");
        let twin = Arc::new(twin(clock.clone()));
        Self {
            store: wrap(twin.clone()),
            twin,
            upstream,
            journal: Arc::default(),
            counts: Arc::default(),
            policies: Arc::new(ArcSwap::from_pointee(set)),
            keys: KeySet::ephemeral(&*chance),
            settings: Settings { confirm_wait: Duration::from_secs(5), ..Settings::default() },
            clock,
            chance,
        }
    }

    pub(crate) fn plays(self, scripts: impl IntoIterator<Item = Script>) -> Self {
        scripts.into_iter().for_each(|script| self.upstream.push(script));
        self
    }

    /// How often anything happened upstream.
    pub(crate) fn effects(&self) -> u64 {
        self.upstream.effects_total()
    }

    /// A guard process over these parts; `number` names the process.
    pub(crate) fn guard(&self, number: u32, pause: Arc<dyn Pause>) -> Arc<Guard> {
        self.guard_before(number, pause, Arc::new(self.upstream.clone()))
    }

    /// The same in front of another upstream.
    pub(crate) fn guard_before(&self, number: u32, pause: Arc<dyn Pause>, upstream: Arc<dyn Upstream>) -> Arc<Guard> {
        let node = |number: u32| NodeId::new(format!("node.{number}")).unwrap();
        Guard::new(Parts {
            store: Arc::clone(&self.store),
            upstream,
            journal: Arc::new(Log { journal: Arc::clone(&self.journal), node: node(number), own_dead: Vec::new() }),
            keys: self.keys.clone(),
            policies: Arc::clone(&self.policies),
            clock: self.clock.clone(),
            chance: Arc::clone(&self.chance),
            observer: self.counts.clone(),
            pause,
            settings: self.settings.clone(),
        })
    }

    pub(crate) fn ready(&self) -> Arc<Guard> {
        self.guard(1, Arc::new(crate::guard::pause::NoPause))
    }
}

/// A person with every right.
pub(crate) fn approver(name: &str) -> Approver {
    Approver {
        name: Principal::new(name).unwrap(),
        tenant: Tenant::new("default").unwrap(),
        roles: Vec::new(),
        rights: Some(Rights::all()),
        auth_method: "bearer",
        channel: Channel::Api,
    }
}

/// Asks for `POST /todos` with a JSON body.
pub(crate) async fn ask(guard: &Arc<Guard>, who: Identity, body: &'static str, key: Option<&str>) -> Answer {
    let policies = guard.policies();
    let mut headers = http::HeaderMap::new();
    headers.insert("host", "api.test".parse().unwrap());
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert("content-length", body.len().into());
    let head = Head::read("POST", b"/todos", false, &headers).unwrap().into_owned();
    let service = policies.route("api.test", "/todos").unwrap();
    let limits = BodyLimits { body_bytes_max: 1 << 20 };
    let call = args::understand(head, Bytes::from_static(body.as_bytes()), &[], &limits, true).unwrap();
    let selection = service.select(&call.head);
    guard
        .hold(Proposal {
            policies: &policies,
            service,
            selection,
            call,
            identity: who,
            idempotency_key: key.map(str::to_owned),
            request_id: "r1".to_owned(),
            traceparent: None,
            identity_headers: &[],
            ttl_max: None,
        })
        .await
}

/// The JSON of an answer.
pub(crate) fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("not JSON: {:?}", answer.body))
}

/// Holds and gives the draft's id and args hash.
pub(crate) async fn held(guard: &Arc<Guard>, body: &'static str) -> (DraftId, Digest) {
    let answer = ask(guard, identity("u1"), body, None).await;
    assert_eq!(answer.status, 202, "{:?}", answer.body);
    let body = json(&answer);
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    (text("draft_id").parse().unwrap(), text("args_hash").parse().unwrap())
}

/// Confirms as `alice`.
pub(crate) async fn confirm(guard: &Arc<Guard>, id: &DraftId, hash: Digest) -> Answer {
    guard.confirm(&approver("alice"), id, Some(hash), None, None, None).await
}

/// The status word of a draft.
pub(crate) async fn status(bench: &Bench, id: &DraftId) -> String {
    bench.store.get(id).await.unwrap().unwrap().row.state.status().to_string()
}
