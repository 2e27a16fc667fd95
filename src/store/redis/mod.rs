//! The store on Redis or Valkey: any number of guards on one server. Every step of the contract is
//! one script of `lua/`, run in one round trip.
//!
//! Owns the connection, the scripts' arguments and answers, and the checks of the server. Must
//! never decide a race outside a script, send a command twice by itself, or believe a field that it
//! cannot read.

mod address;
mod arguments;
mod clock;
mod connection;
mod drafts;
mod fields;
mod fitness;
mod hints;
mod link;
mod queries;
mod reply;
pub(in crate::store) mod script;
mod steps;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Partition, StepId};
use crate::base::time::{Clock, Timestamp};
use crate::draft::decision::Decider;
use crate::draft::state::{State, Status};

use self::address::Server;
pub use self::address::{acks_by_default, is_tls};
use self::arguments::Call;
use self::clock::Times;
pub use self::fitness::Assumed;
use self::fitness::Fitness;
use self::link::{Acks, Failure, Link};
use self::queries::Fingerprint;
use self::reply::Reply;
use self::script::SCRIPTS;
pub use self::tls::{ClientFiles, TlsFiles};
use super::contract::{
    Decide, Decided, Due, Ended, Filter, HINTS_MAX, Held, Hold, Mark, Reject, Renewed, Settle, Settled, Store,
    StoreError, TakenOver,
};
use super::cursor::{Cursor, Page};
use super::observer::{StoreObserver, Unwatched};
use super::row::{Row, Stored};

/// How often the server is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// Which part of a step's time may be spent on waiting for replicas: less than half, because a server that does
/// not know the script is asked twice, and waits twice.
const ACKS_SHARE: u32 = 3;

/// How a [`RedisStore`] is opened.
#[derive(Clone)]
pub struct RedisOptions {
    /// How long one answer of the server may take.
    pub step_timeout: Duration,
    /// How many replicas must have a decision, a mark or an end before it counts; 0 asks for none.
    pub min_replica_acks: u32,
    /// What the operator vouches for.
    pub assumed: Assumed,
    /// Files for `rediss`.
    pub tls: TlsFiles,
    /// Who is told of every step.
    pub observer: Arc<dyn StoreObserver>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            step_timeout: Duration::from_secs(2),
            min_replica_acks: 0,
            assumed: Assumed::default(),
            tls: TlsFiles::default(),
            observer: Arc::new(Unwatched),
        }
    }
}

/// Why a server cannot be the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is none.
    #[error("`store.url` is no address of a Redis server: {0}")]
    Url(String),
    /// A file for TLS cannot be used.
    #[error("`store.tls`: {0}")]
    Tls(String),
    /// It cannot be reached, or does not answer.
    #[error("{0}; {advice}", advice = advice(.0))]
    Unreachable(String),
    /// It would lose what it was given.
    #[error("the Redis server is not fit to hold drafts: {}", .0.join("; "))]
    Unfit(Vec<String>),
}

/// What to do about a server that cannot be reached, by what the libraries say.
fn advice(why: &str) -> &'static str {
    let known = [
        (
            "AuthenticationFailed",
            "its user or password is wrong: look at `ACL LIST`, and write % / ? # @ of a password as %25 %2F %3F %23 %40",
        ),
        (
            "Authentication required",
            "it asks for a user and a password: write redis://USER:PASSWORD@HOST:PORT; Sentinels with a password of their own cannot be used",
        ),
        ("UnknownIssuer", "name the authority of its certificate in `store.tls.ca`"),
        ("UnknownCA", "it does not know who signed the certificate in `store.tls.cert`"),
        (
            "CertificateRequired",
            "it asks for a certificate: name yours in `store.tls.cert` and its key in `store.tls.key`",
        ),
        ("CaUsedAsEndEntity", "its certificate is an authority's own: give it one that the authority has signed"),
        ("NotValidForName", "its certificate is not for the host in the URL"),
        ("Expired", "its certificate is over"),
        ("KeyMismatch", "`store.tls.key` is not the key of `store.tls.cert`"),
        ("read only replica", "it is a replica: name the primary, or its Sentinels with redis+sentinel://"),
        (
            "Master with given name not found",
            "the Sentinels watch no primary of the name behind the slash; `SENTINEL MASTERS` lists them",
        ),
        ("reset by peer", "does it speak TLS? then write rediss://"),
    ];
    let found = known.into_iter().find(|(said, _)| why.contains(said));
    found.map_or(
        "is it running, may this machine reach it, and does it speak TLS just where the URL says rediss?",
        |(_, todo)| todo,
    )
}

/// Whether a URL names a server; none is reached.
///
/// # Errors
///
/// [`OpenError::Url`].
pub fn check_url(url: &str) -> Result<(), OpenError> {
    Server::parse(url, LOOK, None).map(drop)
}

/// The store on a Redis server. Dropping it ends its tasks; what was asked for is not undone.
pub struct RedisStore {
    link: Arc<Link>,
    clock: Arc<dyn Clock>,
    times: Arc<Times>,
    fitness: Arc<Fitness>,
    /// By partition: until when everything has its replicas, in milliseconds.
    acknowledged: [AtomicI64; Partition::COUNT],
    hints: broadcast::Sender<DraftId>,
    options: RedisOptions,
    tasks: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects, and looks whether the server is fit. Must be called inside the runtime that uses
    /// the store.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says why and what to do.
    pub async fn open(url: &str, clock: Arc<dyn Clock>, options: RedisOptions) -> Result<Self, OpenError> {
        Self::begin(url, clock, options, false).await
    }

    /// The same with `clock` as the time of every step, in place of the server's: for the contract's
    /// suite, which turns it.
    ///
    /// # Errors
    ///
    /// As [`RedisStore::open`].
    #[doc(hidden)]
    pub async fn with_handed_clock(url: &str, clock: Arc<dyn Clock>, options: RedisOptions) -> Result<Self, OpenError> {
        Self::begin(url, clock, options, true).await
    }

    async fn begin(url: &str, clock: Arc<dyn Clock>, options: RedisOptions, handed: bool) -> Result<Self, OpenError> {
        let server = Server::parse(url, options.step_timeout, options.tls.read()?.as_ref())?;
        let link = Arc::new(Link::new(server, options.step_timeout));
        let unreachable = |failure: Failure| OpenError::Unreachable(failure.error.to_string());
        let fitness = Arc::new(Fitness::new(options.min_replica_acks, options.assumed, Arc::clone(&options.observer)));
        fitness.look(&link).await.map_err(unreachable)?;
        let found = fitness.faults();
        if !found.is_empty() {
            return Err(OpenError::Unfit(found));
        }
        let (hints, _) = broadcast::channel(HINTS_MAX);
        let times = Arc::new(Times::new(Arc::clone(&clock), handed));
        let mut store =
            Self { link, clock, times, fitness, acknowledged: Default::default(), hints, options, tasks: Vec::new() };
        store.set_time().await.map_err(unreachable)?;
        store.tasks.push(tokio::spawn(hints::relay(Arc::downgrade(&store.link), store.hints.clone())));
        if !handed {
            store.tasks.push(store.look_forever());
        }
        Ok(store)
    }

    /// Learns the server's time.
    async fn set_time(&self) -> Result<(), Failure> {
        if !self.times.handed {
            let asked = self.clock.boot();
            self.times.server_is_at(server_time(&self.link).await?, asked);
        }
        Ok(())
    }

    /// Looks at the server every ten seconds for as long as the store is there.
    fn look_forever(&self) -> JoinHandle<()> {
        let link = Arc::downgrade(&self.link);
        let (clock, times, fitness) = (Arc::clone(&self.clock), Arc::clone(&self.times), Arc::clone(&self.fitness));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(link) = link.upgrade() else { return };
                let asked = clock.boot();
                if let Ok(now) = server_time(&link).await {
                    times.server_is_at(now, asked);
                }
                // A server that does not answer is told by every step; here it changes nothing.
                if let Err(failure) = fitness.look(&link).await {
                    tracing::debug!(error = %failure.error, "the Redis server could not be looked at");
                }
            }
        })
    }

    fn bound(&self, call: Call) -> Result<(Vec<String>, Vec<Vec<u8>>), Failure> {
        let clock = if self.times.handed { self.clock.now().as_millis().to_string() } else { String::new() };
        Ok((call.keys()?, call.with("clock", clock).ordered()?))
    }

    async fn run_raw(&self, call: Call) -> Result<Value, Failure> {
        let script = call.script;
        if !script.reads {
            self.fitness.fit()?;
        }
        let (keys, args) = self.bound(call)?;
        self.link.step(script, &keys, &args).await
    }

    async fn run(&self, call: Call) -> Result<Reply, Failure> {
        let script = call.script;
        Ok(Reply::read(script, self.run_raw(call).await?)?)
    }

    /// What replicas are asked for, if they are.
    fn acks(&self) -> Option<Acks> {
        let wanted = self.options.min_replica_acks;
        (wanted > 0).then(|| Acks { wanted, patience: self.options.step_timeout / ACKS_SHARE })
    }

    /// For steps whose answer is told to somebody, or acted on: the replicas that were asked for have
    /// it first.
    async fn run_acknowledged(&self, call: Call) -> Result<Reply, Failure> {
        let Some(acks) = self.acks() else { return self.run(call).await };
        self.fitness.fit()?;
        let script = call.script;
        let (keys, args) = self.bound(call)?;
        let reply = Reply::read(script, self.link.acknowledged(script, &keys, &args, acks).await?)?;
        if let Some(stored) = reply.peek() {
            self.has_acknowledged(&stored.row);
        }
        Ok(reply)
    }

    /// Whether a draft is told only when replicas have it, and it is not known here that they do.
    fn to_be_sure(&self, row: &Row) -> bool {
        let known = self.acknowledged[row.id.partition().index()].load(Ordering::Relaxed);
        self.acks().is_some() && row.state != State::Pending && changed_at(row).is_none_or(|at| at.as_millis() > known)
    }

    /// With acknowledging replicas, an end or a claim is told only when they have it, whoever asks: it
    /// was written before its own step was acknowledged.
    async fn sure(&self, row: &Row) -> Result<(), Failure> {
        if let Some(acks) = self.acks().filter(|_| self.to_be_sure(row)) {
            self.link.caught_up(&key(row.id.partition(), "told"), acks).await?;
            self.has_acknowledged(row);
        }
        Ok(())
    }

    /// With acknowledging replicas, a draft that is not here is told as missing only by a server that has them: one that
    /// was a primary before a failover does not know of what is newer.
    async fn sure_of_none(&self, partition: Partition) -> Result<(), Failure> {
        match self.acks() {
            Some(acks) => self.link.caught_up(&key(partition, "told"), acks).await.map(drop),
            None => Ok(()),
        }
    }

    /// The replicas have this draft as it stands here, and so everything of its partition until then.
    fn has_acknowledged(&self, row: &Row) {
        if let Some(at) = changed_at(row) {
            self.acknowledged[row.id.partition().index()].fetch_max(at.as_millis(), Ordering::Relaxed);
        }
    }

    async fn told<T>(
        &self,
        name: &'static str,
        step: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, StoreError> {
        let asked = self.clock.boot();
        let answer = step.await;
        let took = self.clock.boot().since(asked);
        self.options.observer.step(name, took, answer.as_ref().err().map(|failure| failure.kind));
        answer.map_err(|failure| failure.error)
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// When a draft was last changed in a way that is told; `None` where that is not known.
fn changed_at(row: &Row) -> Option<Timestamp> {
    match row.state {
        State::Pending | State::Verifying => None,
        State::Running(_) => row.sent_at.max(row.claimed_at),
        State::Succeeded
        | State::Failed
        | State::Unverifiable
        | State::Rejected
        | State::Expired
        | State::Withdrawn => row.ended_at,
    }
}

/// A key of a partition. The braces make it the whole of what decides the slot.
fn key(partition: Partition, name: &str) -> String {
    format!("cs:{{{}}}:{name}", partition.as_char())
}

async fn server_time(link: &Link) -> Result<Timestamp, Failure> {
    let mut ask = redis::pipe();
    ask.cmd("TIME");
    Ok(reply::time(link.ask(&ask, true).await?.pop().unwrap_or_default())?)
}

#[async_trait]
impl Store for RedisStore {
    fn now(&self) -> Timestamp {
        self.times.server()
    }

    fn now_in(&self, partition: Partition) -> Timestamp {
        self.times.of(partition)
    }

    async fn hold(&self, hold: Hold) -> Result<Held, StoreError> {
        self.told("hold", self.hold_step(hold)).await
    }

    async fn decide(&self, decide: Decide) -> Result<Decided, StoreError> {
        self.told("decide", self.decide_step(decide)).await
    }

    async fn reject(&self, reject: Reject) -> Result<Ended, StoreError> {
        self.told("reject", self.reject_step(reject)).await
    }

    async fn withdraw(&self, id: &DraftId, step: StepId, by: &str, mac: Digest) -> Result<Ended, StoreError> {
        self.told("withdraw", self.withdraw_step(id, step, by, mac)).await
    }

    async fn expire(&self, id: &DraftId) -> Result<Ended, StoreError> {
        self.told("expire", self.expire_step(id)).await
    }

    async fn renew(&self, id: &DraftId, epoch: u64, step: StepId, lease: Duration) -> Result<Renewed, StoreError> {
        self.told("renew", self.renew_step(id, epoch, step, lease)).await
    }

    async fn mark_sending(
        &self,
        id: &DraftId,
        epoch: u64,
        step: StepId,
        send_window: Duration,
    ) -> Result<Mark, StoreError> {
        self.told("mark_sending", self.mark_step(id, epoch, step, send_window)).await
    }

    async fn settle(&self, settle: Settle) -> Result<Settled, StoreError> {
        self.told("settle", self.settle_step(settle)).await
    }

    async fn late_answer(&self, settle: Settle) -> Result<Settled, StoreError> {
        self.told("late_answer", self.late_answer_step(settle)).await
    }

    async fn take_over(
        &self,
        id: &DraftId,
        step: StepId,
        node: &NodeId,
        lease: Duration,
        own_dead: &[NodeId],
    ) -> Result<TakenOver, StoreError> {
        self.told("take_over", self.take_over_step(id, step, node, lease, own_dead)).await
    }

    async fn resolve(&self, settle: Settle, by: &Decider) -> Result<Settled, StoreError> {
        self.told("resolve", self.resolve_step(settle, by)).await
    }

    async fn collect(&self, id: &DraftId) -> Result<(), StoreError> {
        self.told("collect", self.note_step(&SCRIPTS.collect, id)).await
    }

    async fn note_seen(&self, id: &DraftId) -> Result<(), StoreError> {
        self.told("note_seen", self.note_step(&SCRIPTS.note_seen, id)).await
    }

    async fn again(&self, old: &DraftId, hold: Hold) -> Result<Result<Held, Ended>, StoreError> {
        self.told("again", self.again_step(old, hold)).await
    }

    async fn delete(&self, id: &DraftId, ended_before: Timestamp) -> Result<bool, StoreError> {
        self.told("delete", self.delete_step(id, ended_before)).await
    }

    async fn get(&self, id: &DraftId) -> Result<Option<Stored>, StoreError> {
        self.told("get", self.load(id)).await
    }

    async fn by_token(&self, partition: Partition, token_digest: &Digest) -> Result<Option<Stored>, StoreError> {
        self.told("by_token", self.find_token(partition, token_digest)).await
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Stored>, StoreError> {
        self.told("list", self.page(filter)).await
    }

    async fn due(&self, ended_before: Timestamp, own_dead: &[NodeId], limit: usize) -> Result<Due, StoreError> {
        self.told("due", self.work(ended_before, own_dead, limit)).await
    }

    async fn counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        self.told("counts", self.count()).await
    }

    async fn events(&self, after: &Cursor, limit: usize) -> Result<Page, StoreError> {
        self.told("events", self.outbox(after, limit)).await
    }

    fn hints(&self) -> broadcast::Receiver<DraftId> {
        self.hints.subscribe()
    }

    async fn check(&self) -> Result<(), StoreError> {
        // Whoever asks is told what is so now, not what was so at the last look.
        let probe = async {
            self.fitness.look(&self.link).await?;
            self.fitness.fit()?;
            self.probe().await
        };
        self.told("check", probe).await
    }

    async fn same_keys(&self, fingerprint: &Digest) -> Result<bool, StoreError> {
        let found = self.told("same_keys", queries::fingerprint(&self.link, fingerprint)).await?;
        match found {
            Fingerprint::OtherLayout => Err(StoreError::Unavailable(queries::OTHER_LAYOUT.to_owned())),
            Fingerprint::Other => Ok(false),
            Fingerprint::Same | Fingerprint::Written => {
                self.fitness.must_have(*fingerprint);
                Ok(true)
            }
        }
    }
}
