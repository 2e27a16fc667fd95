//! The connection to the server: made when it is needed, dropped when it breaks, made again by
//! whoever comes next. Runs one script per call and tells every way of failing apart.
//!
//! Owns the rule for what a failure means: an error of the server before a script runs left
//! nothing behind; a command without an answer may have run. Must never send a command that writes
//! twice: a step is asked again by its caller, with its step id.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, ErrorKind, Pipeline, RedisError, Value};
use tokio::time::{Instant, timeout_at};

use crate::store::contract::StoreError;

use super::address::{Server, connect_to};
use super::connection::Connection;
use super::script::Script;

/// Connections kept for steps that wait for replicas: each carries one at a time.
const ACKNOWLEDGED: usize = 16;

/// How long such a connection may lie unused: what is between may have cut it.
const IDLE: Duration = Duration::from_secs(30);

/// Why a call failed: what it means for the caller, and the word for the metric.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// The label in `countersign_store_errors_total{kind}`.
    pub(super) kind: &'static str,
    /// What the caller is told.
    pub(super) error: StoreError,
}

impl Failure {
    pub(super) fn unavailable(kind: &'static str, why: impl Into<String>) -> Self {
        Self { kind, error: StoreError::Unavailable(why.into()) }
    }

    /// The same where the library may have sent the command twice by itself, as it does in a Cluster: what the
    /// second one was told says nothing of the first.
    fn in_a(self, connection: &Connection, reads: bool) -> Self {
        match self.error {
            StoreError::Unavailable(why) if connection.heals() && !reads => {
                Self { kind: self.kind, error: StoreError::Uncertain(why) }
            }
            error => Self { kind: self.kind, error },
        }
    }

    fn unanswered(kind: &'static str, why: impl Into<String>, reads: bool) -> Self {
        let why = why.into();
        let error = if reads { StoreError::Unavailable(why) } else { StoreError::Uncertain(why) };
        Self { kind, error }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { kind: error.kind(), error }
    }
}

/// How many replicas must have a write, and how long to wait for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acks {
    pub(super) wanted: u32,
    pub(super) patience: Duration,
}

/// The connection that most calls share.
struct Shared {
    generation: u64,
    connection: Connection,
}

/// Connections to the server behind one URL. Every call ends within one patience of its begin,
/// whatever it waits for.
pub(super) struct Link {
    server: Server,
    patience: Duration,
    shared: Mutex<Option<Shared>>,
    /// Held by the one who makes the shared connection.
    making: tokio::sync::Mutex<()>,
    generation: AtomicU64,
    /// Connections on which only acknowledged steps run, one at a time, and since when they lie unused: WAIT
    /// speaks of the writes of its own connection.
    own: Mutex<Vec<(Connection, Instant)>>,
    own_turns: tokio::sync::Semaphore,
}

impl Link {
    /// Whether questions without a key are answered by any of several servers.
    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self.server, Server::Cluster { .. })
    }

    pub(super) fn new(server: Server, patience: Duration) -> Self {
        Self {
            server,
            patience,
            shared: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            generation: AtomicU64::default(),
            own: Mutex::default(),
            own_turns: tokio::sync::Semaphore::new(ACKNOWLEDGED),
        }
    }

    fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// A connection of its own for messages. A Cluster hands them to all of its nodes.
    pub(super) async fn subscription(&self) -> Result<redis::aio::PubSub, Failure> {
        let until = self.until();
        let mut failed = Failure::unavailable("disconnected", "no server takes writes");
        for server in self.bounded(until, self.server.primaries()).await? {
            match self.bounded(until, server.get_async_pubsub()).await {
                Ok(subscription) => return Ok(subscription),
                Err(failure) => failed = failure,
            }
        }
        Err(failed)
    }

    /// Asks each server that takes writes. Where the Sentinels name another one than before, the connections to
    /// the former are given up: it may be cut off and not know it.
    pub(super) async fn ask_all(&self, commands: &Pipeline) -> Result<Vec<Result<Vec<Value>, Failure>>, Failure> {
        let until = self.until();
        let primaries = self.bounded(until, self.server.primaries()).await?;
        if self.server.has_moved(&primaries) {
            *lock(&self.shared) = None;
            lock(&self.own).clear();
        }
        let mut answers = Vec::with_capacity(primaries.len());
        for server in primaries {
            let mut connection = Connection::One(self.bounded(until, connect_to(&server)).await?);
            answers.push(self.answered(until, connection.each(commands), true).await);
        }
        Ok(answers)
    }

    /// Something on the way to a connection, before any command.
    async fn bounded<T>(
        &self,
        until: Instant,
        connecting: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Failure> {
        match timeout_at(until, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(refused("disconnected", &error)),
            Err(_) => Err(self.nobody_there()),
        }
    }

    fn nobody_there(&self) -> Failure {
        Failure::unavailable("disconnected", format!("no connection to Redis within {:?}", self.patience))
    }

    fn known(&self) -> Option<(u64, Connection)> {
        lock(&self.shared).as_ref().map(|shared| (shared.generation, shared.connection.clone()))
    }

    async fn shared(&self, until: Instant) -> Result<(u64, Connection), Failure> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        // One makes it, the others wait for that, each no longer than its own time.
        let Ok(_making) = timeout_at(until, self.making.lock()).await else { return Err(self.nobody_there()) };
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let connection = self.bounded(until, self.server.connect()).await?;
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        *lock(&self.shared) = Some(Shared { generation, connection: connection.clone() });
        Ok((generation, connection))
    }

    /// Drops the connection that failed, unless somebody has made another.
    fn drop_shared(&self, generation: u64) {
        let mut shared = lock(&self.shared);
        if shared.as_ref().is_some_and(|known| known.generation == generation) {
            *shared = None;
        }
    }

    /// Asks a plain question, or several at once.
    pub(super) async fn ask(&self, commands: &Pipeline, reads: bool) -> Result<Vec<Value>, Failure> {
        let (until, mut may_repeat) = (self.until(), reads);
        loop {
            let (generation, mut connection) = self.shared(until).await?;
            match self.answered(until, connection.each(commands), reads).await {
                Ok(values) => return Ok(values),
                Err(failure) => {
                    self.lost(generation, &connection, failure.in_a(&connection, reads), &mut may_repeat)?
                }
            }
        }
    }

    /// Runs one step in one round trip; two where the server does not know the script yet.
    pub(super) async fn step(&self, script: &Script, keys: &[String], args: &[Vec<u8>]) -> Result<Value, Failure> {
        let (until, reads) = (self.until(), script.reads);
        let (mut may_repeat, mut known) = (reads, true);
        loop {
            let (generation, mut connection) = self.shared(until).await?;
            let command = call(script, keys, args, known);
            match self.answered(until, connection.command(&command), reads).await {
                Ok(value) => return Ok(value),
                Err(failure) if known && failure.kind == "noscript" => known = false,
                Err(failure) => {
                    self.lost(generation, &connection, failure.in_a(&connection, reads), &mut may_repeat)?
                }
            }
        }
    }

    /// What a failure does to the shared connection, and whether it ends the call. A question that only
    /// reads and whose connection was lost under it is asked once more on a new one: the old one may have
    /// been dead for long.
    fn lost(
        &self,
        generation: u64,
        connection: &Connection,
        failure: Failure,
        may_repeat: &mut bool,
    ) -> Result<(), Failure> {
        // What hangs is not healed by the library either: a new connection asks where the slots are now.
        if breaks(&failure) && (!connection.heals() || failure.kind == "timeout") {
            self.drop_shared(generation);
        }
        if failure.kind == "disconnected" && std::mem::take(may_repeat) { Ok(()) } else { Err(failure) }
    }

    /// Runs one step and waits until enough replicas have what it wrote. A step that is asked again
    /// writes again, so its acknowledgement stands for the first one's.
    pub(super) async fn acknowledged(
        &self,
        script: &Script,
        keys: &[String],
        args: &[Vec<u8>],
        acks: Acks,
    ) -> Result<Value, Failure> {
        self.with_wait(&|known| call(script, keys, args, known), acks).await
    }

    /// Waits until enough replicas have everything that the server of `key` has by now.
    pub(super) async fn caught_up(&self, key: &str, acks: Acks) -> Result<(), Failure> {
        let write = |_| {
            let mut command = redis::cmd("SET");
            command.arg(key).arg("1");
            command
        };
        self.with_wait(&write, acks).await.map(drop)
    }

    /// A command that writes and its WAIT, in one pipeline on a connection that carries nothing else.
    async fn with_wait(&self, command: &(dyn Fn(bool) -> Cmd + Sync), acks: Acks) -> Result<Value, Failure> {
        let until = self.until();
        let Ok(Ok(_turn)) = timeout_at(until, self.own_turns.acquire()).await else {
            let why =
                format!("all {ACKNOWLEDGED} connections for acknowledged steps were busy for {:?}", self.patience);
            return Err(Failure::unavailable("pool_exhausted", why));
        };
        let mut connection = match self.kept() {
            Some(connection) => connection,
            None => self.bounded(until, self.server.connect()).await?,
        };
        for known in [true, false] {
            let mut both = redis::pipe();
            both.add_command(command(known));
            both.cmd("WAIT").arg(acks.wanted).arg(u64::try_from(acks.patience.as_millis()).unwrap_or(u64::MAX));
            let answers = match self.answered(until, connection.together(&both), false).await {
                Ok(answers) => answers,
                // Not put back: what is still on its way would be read as another's answer. And what cut this
                // one has cut the others as well.
                Err(failure) => {
                    lock(&self.own).clear();
                    return Err(failure.in_a(&connection, false));
                }
            };
            let mut answers = answers.into_iter();
            let (step, count) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
            let step = match step.extract_error().map_err(|error| meaning(&error, false)) {
                Err(failure) if known && failure.kind == "noscript" => continue,
                other => other,
            };
            match step {
                Err(failure) if breaks(&failure) => {
                    lock(&self.own).clear();
                    return Err(failure);
                }
                Err(failure) => {
                    let failure = failure.in_a(&connection, false);
                    lock(&self.own).push((connection, Instant::now()));
                    return Err(failure);
                }
                Ok(answer) => {
                    lock(&self.own).push((connection, Instant::now()));
                    return enough(count, acks).map(|()| answer);
                }
            }
        }
        Err(Failure::unavailable("noscript", "the server does not keep scripts"))
    }

    /// A kept connection that has not lain unused for long.
    fn kept(&self) -> Option<Connection> {
        let mut own = lock(&self.own);
        own.retain(|(_, since)| since.elapsed() < IDLE);
        own.pop().map(|(connection, _)| connection)
    }

    async fn answered<T>(
        &self,
        until: Instant,
        asked: impl Future<Output = Result<T, RedisError>>,
        reads: bool,
    ) -> Result<T, Failure> {
        match timeout_at(until, asked).await {
            Ok(answer) => answer.map_err(|error| meaning(&error, reads)),
            Err(_) => {
                Err(Failure::unanswered("timeout", format!("Redis did not answer within {:?}", self.patience), reads))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The word for a partition's numbers or an owner's index that somebody has written over.
pub(super) const DAMAGED: &str = "damaged";

/// The word for a step that too few replicas have.
pub(super) const UNACKNOWLEDGED: &str = "unacknowledged";

/// Whether WAIT counted enough replicas.
fn enough(count: Value, acks: Acks) -> Result<(), Failure> {
    let have = match count.extract_error() {
        Ok(Value::Int(have)) => have,
        Ok(_) | Err(_) => 0,
    };
    if have >= i64::from(acks.wanted) {
        return Ok(());
    }
    let why = format!("{have} of {} replicas have acknowledged the step", acks.wanted);
    Err(Failure { kind: UNACKNOWLEDGED, error: StoreError::Uncertain(why) })
}

fn call(script: &Script, keys: &[String], args: &[Vec<u8>], known: bool) -> Cmd {
    let mut command = if known { redis::cmd("EVALSHA") } else { redis::cmd("EVAL") };
    command.arg(if known { &script.sha } else { &script.text }).arg(keys.len()).arg(keys);
    for arg in args {
        command.arg(arg.as_slice());
    }
    command
}

/// After these a connection is of no use any more.
fn breaks(failure: &Failure) -> bool {
    matches!(failure.kind, "disconnected" | "timeout" | "readonly")
}

/// A failure before anything was sent.
fn refused(kind: &'static str, error: &RedisError) -> Failure {
    Failure::unavailable(kind, format!("no connection to Redis: {error}"))
}

/// What an error says about the step: refused before it ran, run in part, or nobody knows.
fn meaning(error: &RedisError, reads: bool) -> Failure {
    let why = error.to_string();
    if error.kind() == ErrorKind::ClusterConnectionNotFound {
        return Failure::unavailable("disconnected", why);
    }
    let Some(code) = error.code() else {
        return Failure::unanswered("disconnected", why, reads);
    };
    let kind = match code {
        // Raised by a script before its first write.
        "CORRUPT" => return Failure { kind: "corrupt", error: StoreError::Corrupt(why) },
        "DAMAGED" => {
            let advice = "nothing is changed there until it is put right (docs/operators.md, \"Damaged keys\")";
            return Failure::unavailable(DAMAGED, format!("{why}; {advice}"));
        }
        // A script reads every key that it comes upon before its first write.
        _ if why.contains("access a non local key") => "tryagain",
        "NOSCRIPT" => "noscript",
        "READONLY" => "readonly",
        "BUSY" => "busy",
        "TRYAGAIN" => "tryagain",
        "LOADING" => "loading",
        "OOM" => "oom",
        "MOVED" | "ASK" => {
            let advice = "a node of a Cluster is named by redis+cluster:// in `store.url`";
            return Failure::unavailable("cluster", format!("{why}; {advice}"));
        }
        "CLUSTERDOWN" | "CROSSSLOT" => "cluster",
        "MASTERDOWN" | "NOREPLICAS" | "MISCONF" => "not_writable",
        "NOAUTH" | "WRONGPASS" | "NOPERM" => "forbidden",
        // An error inside a script comes after its first checks: it may have written.
        _ => return Failure::unanswered("server_error", why, reads),
    };
    Failure::unavailable(kind, why)
}
