//! The connection to the server: made when it is needed, dropped when it breaks, made again by
//! whoever comes next. Runs one script per call and tells every way of failing apart.
//!
//! Owns the rule for what a failure means: an error of the server before a script runs left
//! nothing behind; a command without an answer may have run. Must never send a command that writes
//! twice: a step is asked again by its caller, with its step id.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value};
use tokio::time::timeout;

use crate::store::contract::StoreError;

use super::script::Script;

/// Bytes that may wait to be written on one connection before callers wait.
const PIPELINE: usize = 4_096;

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

/// The server behind one URL.
pub(super) struct Link {
    client: Client,
    patience: Duration,
    shared: tokio::sync::Mutex<Option<(u64, MultiplexedConnection)>>,
    generation: std::sync::atomic::AtomicU64,
    /// Connections on which only acknowledged steps run, one at a time: WAIT speaks of the writes
    /// of its own connection.
    own: Mutex<Vec<MultiplexedConnection>>,
    own_turns: tokio::sync::Semaphore,
}

impl Link {
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        Self {
            client,
            patience,
            shared: tokio::sync::Mutex::default(),
            generation: std::sync::atomic::AtomicU64::default(),
            own: Mutex::default(),
            own_turns: tokio::sync::Semaphore::new(ACKNOWLEDGED),
        }
    }

    /// A connection of its own for messages.
    pub(super) async fn subscription(&self) -> Result<redis::aio::PubSub, RedisError> {
        self.client.get_async_pubsub().await
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Failure> {
        // Bounded by our own clock: the library's own time would end a call without telling whether
        // it was sent.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        match timeout(self.patience, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(refused("disconnected", &error)),
            Err(_) => {
                Err(Failure::unavailable("disconnected", format!("no connection to Redis within {:?}", self.patience)))
            }
        }
    }

    async fn shared(&self) -> Result<(u64, MultiplexedConnection), Failure> {
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
        let count = commands.cmd_iter().count();
        let mut may_repeat = reads;
        let values = loop {
            let (generation, mut connection) = self.shared().await?;
            match self.answered(connection.send_packed_commands(commands, 0, count), reads).await {
                Ok(values) => break values,
                Err(failure) => self.lost(generation, failure, &mut may_repeat).await?,
            }
        };
        values.into_iter().map(|value| value.extract_error().map_err(|error| meaning(&error, reads))).collect()
    }

    /// Runs one step in one round trip; two where the server does not know the script yet.
    pub(super) async fn step(&self, script: &Script, key: &str, args: &[Vec<u8>]) -> Result<Value, Failure> {
        let (mut may_repeat, mut known) = (script.reads, true);
        loop {
            let (generation, mut connection) = self.shared().await?;
            let command = call(script, key, args, known);
            // The library hands an error of the server over as a value.
            let asked = async { connection.send_packed_command(&command).await?.extract_error() };
            match self.answered(asked, script.reads).await {
                Ok(value) => return Ok(value),
                Err(failure) if known && failure.kind == "noscript" => known = false,
                Err(failure) => self.lost(generation, failure, &mut may_repeat).await?,
            }
        }
    }

    /// What a failure does to the shared connection, and whether it ends the call. A question that only
    /// reads and whose connection was lost under it is asked once more on a new one: the old one may have
    /// been dead for long.
    async fn lost(&self, generation: u64, failure: Failure, may_repeat: &mut bool) -> Result<(), Failure> {
        if breaks(&failure) {
            self.drop_shared(generation).await;
        }
        if failure.kind == "disconnected" && std::mem::take(may_repeat) { Ok(()) } else { Err(failure) }
    }

    /// Runs one step and waits until enough replicas have what it wrote. A step that is asked again
    /// writes again, so its acknowledgement stands for the first one's.
    pub(super) async fn acknowledged(
        &self,
        script: &Script,
        key: &str,
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
            both.add_command(call(script, key, args, known));
            both.cmd("WAIT").arg(acks.wanted).arg(u64::try_from(acks.patience.as_millis()).unwrap_or(u64::MAX));
            let asked = connection.send_packed_commands(&both, 0, 2);
            // Not put back where it failed: what is still on its way would be read as another's answer.
            let mut answers = self.answered(asked, false).await?.into_iter();
            let (step, count) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
            let step = match step.extract_error().map_err(|error| meaning(&error, false)) {
                Err(failure) if known && failure.kind == "noscript" => continue,
                other => other,
            };
            self.own.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
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

fn call(script: &Script, key: &str, args: &[Vec<u8>], known: bool) -> Cmd {
    let mut command = if known { redis::cmd("EVALSHA") } else { redis::cmd("EVAL") };
    command.arg(if known { &script.sha } else { &script.text }).arg(1).arg(key);
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
