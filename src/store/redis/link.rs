//! The connection to the server: made when it is needed, dropped when it breaks, made again by
//! whoever comes next. Runs one script per call and tells every way of failing apart.
//!
//! Owns the rule for what a failure means: an error of the server before a script runs left
//! nothing behind; a command without an answer may have run. Must never send a command that writes
//! twice: a step is asked again by its caller, with its step id.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use redis::{Cmd, ErrorKind, Pipeline, RedisError, Value};
use tokio::time::timeout;

use crate::store::contract::StoreError;

use super::address::{Server, connect_to};
use super::connection::Connection;
use super::script::Script;

/// Connections kept for steps that wait for replicas: each carries one at a time.
const ACKNOWLEDGED: usize = 16;

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

/// Connections to the server behind one URL.
pub(super) struct Link {
    server: Server,
    patience: Duration,
    shared: tokio::sync::Mutex<Option<(u64, Connection)>>,
    generation: std::sync::atomic::AtomicU64,
    /// Connections on which only acknowledged steps run, one at a time: WAIT speaks of the writes
    /// of its own connection.
    own: Mutex<Vec<Connection>>,
    own_turns: tokio::sync::Semaphore,
}

impl Link {
    pub(super) fn new(server: Server, patience: Duration) -> Self {
        Self {
            server,
            patience,
            shared: tokio::sync::Mutex::default(),
            generation: std::sync::atomic::AtomicU64::default(),
            own: Mutex::default(),
            own_turns: tokio::sync::Semaphore::new(ACKNOWLEDGED),
        }
    }

    /// A connection of its own for messages. A Cluster hands them to all of its nodes.
    pub(super) async fn subscription(&self) -> Result<redis::aio::PubSub, RedisError> {
        let mut failed = None;
        for server in self.server.primaries().await? {
            match server.get_async_pubsub().await {
                Ok(subscription) => return Ok(subscription),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| RedisError::from((ErrorKind::Io, "no server takes writes"))))
    }

    /// Asks each server that takes writes.
    pub(super) async fn ask_all(&self, commands: &Pipeline) -> Result<Vec<Result<Vec<Value>, Failure>>, Failure> {
        let primaries = self.bounded(self.server.primaries()).await?;
        let mut answers = Vec::with_capacity(primaries.len());
        for server in primaries {
            let mut connection = Connection::One(self.bounded(connect_to(&server)).await?);
            answers.push(self.answered(connection.each(commands), true).await);
        }
        Ok(answers)
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        self.bounded(self.server.connect()).await
    }

    /// Something on the way to a connection, before any command.
    async fn bounded<T>(&self, connecting: impl Future<Output = Result<T, RedisError>>) -> Result<T, Failure> {
        match timeout(self.patience, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(refused("disconnected", &error)),
            Err(_) => {
                Err(Failure::unavailable("disconnected", format!("no connection to Redis within {:?}", self.patience)))
            }
        }
    }

    async fn shared(&self) -> Result<(u64, Connection), Failure> {
        let mut shared = self.shared.lock().await;
        if let Some(found) = shared.as_ref() {
            return Ok(found.clone());
        }
        let connection = self.connect().await?;
        let generation = self.generation.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        *shared = Some((generation, connection.clone()));
        Ok((generation, connection))
    }

    /// Drops the connection that failed, unless somebody has made another.
    async fn drop_shared(&self, generation: u64) {
        let mut shared = self.shared.lock().await;
        if shared.as_ref().is_some_and(|(known, _)| *known == generation) {
            *shared = None;
        }
    }

    /// Asks a plain question, or several at once.
    pub(super) async fn ask(&self, commands: &Pipeline, reads: bool) -> Result<Vec<Value>, Failure> {
        let mut may_repeat = reads;
        loop {
            let (generation, mut connection) = self.shared().await?;
            match self.answered(connection.each(commands), reads).await {
                Ok(values) => return Ok(values),
                Err(failure) => self.lost(generation, &connection, failure, &mut may_repeat).await?,
            }
        }
    }

    /// Runs one step in one round trip; two where the server does not know the script yet.
    pub(super) async fn step(&self, script: &Script, keys: &[String], args: &[Vec<u8>]) -> Result<Value, Failure> {
        let (mut may_repeat, mut known) = (script.reads, true);
        loop {
            let (generation, mut connection) = self.shared().await?;
            let command = call(script, keys, args, known);
            match self.answered(connection.command(&command), script.reads).await {
                Ok(value) => return Ok(value),
                Err(failure) if known && failure.kind == "noscript" => known = false,
                Err(failure) => self.lost(generation, &connection, failure, &mut may_repeat).await?,
            }
        }
    }

    /// What a failure does to the shared connection, and whether it ends the call. A question that only
    /// reads and whose connection was lost under it is asked once more on a new one: the old one may have
    /// been dead for long.
    async fn lost(
        &self,
        generation: u64,
        connection: &Connection,
        failure: Failure,
        may_repeat: &mut bool,
    ) -> Result<(), Failure> {
        if breaks(&failure) && !connection.heals() {
            self.drop_shared(generation).await;
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
        let turn = timeout(self.patience, self.own_turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            let why =
                format!("all {ACKNOWLEDGED} connections for acknowledged steps were busy for {:?}", self.patience);
            return Err(Failure::unavailable("pool_exhausted", why));
        };
        let kept = self.own.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        for known in [true, false] {
            let mut both = redis::pipe();
            both.add_command(call(script, keys, args, known));
            both.cmd("WAIT").arg(acks.wanted).arg(u64::try_from(acks.patience.as_millis()).unwrap_or(u64::MAX));
            let asked = connection.together(&both);
            // Not put back where it failed: what is still on its way would be read as another's answer.
            let mut answers = self.answered(asked, false).await?.into_iter();
            let (step, count) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
            let step = match step.extract_error().map_err(|error| meaning(&error, false)) {
                Err(failure) if known && failure.kind == "noscript" => continue,
                other => other,
            };
            if !step.as_ref().is_err_and(breaks) {
                self.own.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
            let step = step?;
            let have = match count.extract_error() {
                Ok(Value::Int(have)) => have,
                Ok(_) | Err(_) => 0,
            };
            if have < i64::from(acks.wanted) {
                let why = format!("{have} of {} replicas have acknowledged the step", acks.wanted);
                return Err(Failure { kind: "unacknowledged", error: StoreError::Uncertain(why) });
            }
            return Ok(step);
        }
        Err(Failure::unavailable("noscript", "the server does not keep scripts"))
    }

    async fn answered<T>(&self, asked: impl Future<Output = Result<T, RedisError>>, reads: bool) -> Result<T, Failure> {
        match timeout(self.patience, asked).await {
            Ok(answer) => answer.map_err(|error| meaning(&error, reads)),
            Err(_) => {
                Err(Failure::unanswered("timeout", format!("Redis did not answer within {:?}", self.patience), reads))
            }
        }
    }
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
        "CORRUPT" | "WRONGTYPE" => return Failure { kind: "corrupt", error: StoreError::Corrupt(why) },
        "NOSCRIPT" => "noscript",
        "READONLY" => "readonly",
        "BUSY" => "busy",
        "TRYAGAIN" => "tryagain",
        "LOADING" => "loading",
        "OOM" => "oom",
        "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" => "cluster",
        "MASTERDOWN" | "NOREPLICAS" | "MISCONF" => "not_writable",
        "NOAUTH" | "WRONGPASS" | "NOPERM" => "forbidden",
        // An error inside a script comes after its first checks: it may have written.
        _ => return Failure::unanswered("server_error", why, reads),
    };
    Failure::unavailable(kind, why)
}
