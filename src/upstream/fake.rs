//! A scripted upstream for simulations: it counts effects, and obeys the permit like a real one.
//!
//! Owns nothing but memory. Must never be wired into a running guard: no configuration names it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::base::time::Clock;
use crate::draft::outcome::StoredResponse;
use crate::policy::model::Service;
use crate::store::rights::SendPermit;

use super::contract::{Attempt, Exchange, NotReached, Outgoing, Response, Upstream};

/// What happens to one attempt.
#[derive(Debug, Clone)]
pub(crate) enum Script {
    /// No connection.
    NotReached,
    /// A connection whose socket refuses the first write.
    Refused,
    /// A complete answer; `applied`: after its effect.
    Answer {
        /// Whether the call had its effect.
        applied: bool,
        /// The status.
        status: u16,
        /// `Content-Type`.
        content_type: &'static str,
        /// The body.
        body: Bytes,
    },
    /// The request is read, and the connection closed without an answer.
    Closed {
        /// Whether the call had its effect.
        applied: bool,
    },
    /// Waits at the stop after the first byte left and before any effect, then goes on.
    Slow(Stop, Box<Self>),
    /// Waits at the stop before the permit is asked, as a process does that was suspended.
    Suspended(Stop, Box<Self>),
}

impl Script {
    /// An effect and a JSON answer.
    #[must_use]
    pub(crate) fn applied(status: u16, json: &serde_json::Value) -> Self {
        let body = Bytes::from(json.to_string());
        Self::Answer { applied: true, status, content_type: "application/json", body }
    }
}

/// A place where an attempt waits until the test lets it go on. Clones are the same place.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    arrived: Arc<watch::Sender<u64>>,
    open: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { arrived: Arc::new(watch::Sender::new(0)), open: Arc::new(watch::Sender::new(false)) }
    }
}

impl Stop {
    /// A closed stop that nobody has reached.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Waits until an attempt stands here, or has passed.
    pub(crate) async fn reached(&self) {
        let _ = self.arrived.subscribe().wait_for(|count| *count > 0).await;
    }

    /// Lets everybody pass, now and later.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    async fn pass(&self) {
        self.arrived.send_modify(|count| *count += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// A request that reached the fake: its first byte left under a valid permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The draft, from the permit.
    pub(crate) draft: DraftId,
    /// Which attempt, from the permit.
    pub(crate) attempt: u32,
    /// The method.
    pub(crate) method: String,
    /// The target.
    pub(crate) target: String,
    /// The headers.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Bytes,
    /// Under which key its effect counts: `Idempotency-Key`, else method and target.
    pub(crate) key: String,
}

#[derive(Debug, Default)]
struct State {
    scripts: VecDeque<Script>,
    connections: u64,
    arrived: Vec<Arrived>,
    effects: BTreeMap<String, u64>,
}

/// The fake. Clones share everything.
#[derive(Clone)]
pub(crate) struct FakeUpstream {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
    otherwise: Script,
}

impl FakeUpstream {
    /// A fake that carries everything out and answers 201 with `{}`, until it is told otherwise.
    #[must_use]
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::default(), otherwise: Script::applied(201, &serde_json::json!({})) }
    }

    /// What happens to attempts that no script was pushed for.
    #[must_use]
    pub(crate) fn otherwise(mut self, script: Script) -> Self {
        self.otherwise = script;
        self
    }

    /// Adds a script; one is used per connection, in order.
    pub(crate) fn push(&self, script: Script) {
        self.state().scripts.push_back(script);
    }

    /// How many times a key had its effect.
    #[must_use]
    pub(crate) fn effects(&self, key: &str) -> u64 {
        self.state().effects.get(key).copied().unwrap_or(0)
    }

    /// All effects.
    #[must_use]
    pub(crate) fn effects_total(&self) -> u64 {
        self.state().effects.values().sum()
    }

    /// How many connections were asked for, also those that were not made.
    #[must_use]
    pub(crate) fn connections(&self) -> u64 {
        self.state().connections
    }

    /// Every request whose first byte left, in order.
    #[must_use]
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.state().arrived.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(&self, permit: &SendPermit, outgoing: Outgoing) -> String {
        let given = outgoing.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
        let key = given.map_or_else(|| format!("{} {}", outgoing.method, outgoing.target), |(_, key)| key.clone());
        self.state().arrived.push(Arrived {
            draft: permit.id().clone(),
            attempt: permit.attempt(),
            method: outgoing.method,
            target: outgoing.target,
            headers: outgoing.headers,
            body: outgoing.body,
            key: key.clone(),
        });
        key
    }

    fn apply(&self, applied: bool, key: &str) {
        if applied {
            *self.state().effects.entry(key.to_owned()).or_default() += 1;
        }
    }
}

#[async_trait]
impl Upstream for FakeUpstream {
    async fn connect(&self, _service: &Service, _patience: Duration) -> Result<Box<dyn Exchange>, NotReached> {
        let mut state = self.state();
        state.connections += 1;
        let script = state.scripts.pop_front().unwrap_or_else(|| self.otherwise.clone());
        if matches!(script, Script::NotReached) {
            return Err(NotReached { why: "no connection (connection refused)".to_owned() });
        }
        drop(state);
        Ok(Box::new(FakeExchange { fake: self.clone(), script }))
    }
}

struct FakeExchange {
    fake: FakeUpstream,
    script: Script,
}

#[async_trait]
impl Exchange for FakeExchange {
    async fn send(self: Box<Self>, permit: SendPermit, outgoing: Outgoing) -> Attempt {
        let Self { fake, mut script } = *self;
        while let Script::Suspended(stop, then) = script {
            stop.pass().await;
            script = *then;
        }
        if !permit.still_valid(&*fake.clock) {
            return Attempt::NotSent { why: "the time to send had passed before the first byte".to_owned() };
        }
        if matches!(script, Script::NotReached | Script::Refused) {
            return Attempt::NotSent {
                why: "the connection took no byte of the request (connection reset)".to_owned(),
            };
        }
        let kept_bytes_max = outgoing.response_bytes_max;
        let key = fake.arrive(&permit, outgoing);
        loop {
            script = match script {
                Script::Slow(stop, then) | Script::Suspended(stop, then) => {
                    stop.pass().await;
                    *then
                }
                Script::Answer { applied, status, content_type, body } => {
                    fake.apply(applied, &key);
                    return Attempt::Answered(answer(status, content_type, &body, kept_bytes_max));
                }
                Script::Closed { applied } => {
                    fake.apply(applied, &key);
                    let why = "the connection was closed before the answer".to_owned();
                    return Attempt::Unknown { why, status: None };
                }
                // A byte has left: from here on nobody can say that it did not.
                Script::NotReached | Script::Refused => Script::Closed { applied: false },
            };
        }
    }
}

fn answer(status: u16, content_type: &str, body: &Bytes, kept_bytes_max: usize) -> Response {
    let kept = body[..body.len().min(kept_bytes_max)].to_vec();
    let truncated = kept.len() < body.len();
    let json = (content_type == "application/json" && !truncated && !kept.is_empty())
        .then(|| serde_json::from_slice(&kept).map_err(|_| ()));
    Response {
        json,
        stored: StoredResponse {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: kept,
            length: body.len() as u64,
            digest: Digest::of(body),
            truncated,
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::base::time::{ManualClock, Timestamp};
    use crate::upstream::testing::{outgoing, permit_until, service};

    async fn attempt(fake: &FakeUpstream, clock: &ManualClock) -> Attempt {
        let exchange = fake.connect(&service("127.0.0.1", 1), Duration::ZERO).await.unwrap();
        let mut call = outgoing("POST", "http://127.0.0.1:1/x", "{}");
        call.headers.push(("Idempotency-Key".to_owned(), "cs1-1".to_owned()));
        exchange.send(permit_until(clock.boot() + Duration::from_secs(2)), call).await
    }

    #[tokio::test]
    async fn scripts_are_used_in_order_and_effects_are_counted_per_key() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        let fake = FakeUpstream::new(Arc::clone(&clock) as Arc<dyn Clock>);
        fake.push(Script::Closed { applied: true });
        fake.push(Script::Refused);
        fake.push(Script::NotReached);
        assert!(matches!(attempt(&fake, &clock).await, Attempt::Unknown { status: None, .. }));
        assert!(matches!(attempt(&fake, &clock).await, Attempt::NotSent { .. }));
        assert!(fake.connect(&service("127.0.0.1", 1), Duration::ZERO).await.is_err());
        let Attempt::Answered(response) = attempt(&fake, &clock).await else { panic!("an answer") };
        assert_eq!((response.stored.status, response.json), (201, Some(Ok(serde_json::json!({})))));
        assert_eq!(
            (fake.effects("cs1-1"), fake.effects_total(), fake.connections(), fake.arrived().len()),
            (2, 2, 4, 2)
        );
    }

    #[tokio::test]
    async fn a_suspended_attempt_does_not_send_after_its_deadline() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        let fake = FakeUpstream::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let stop = Stop::new();
        fake.push(Script::Suspended(stop.clone(), Box::new(Script::applied(200, &serde_json::json!({})))));
        let wake = async {
            stop.reached().await;
            clock.advance(Duration::from_secs(60));
            stop.open();
        };
        let (attempt, ()) = tokio::join!(attempt(&fake, &clock), wake);
        assert!(matches!(attempt, Attempt::NotSent { .. }));
        assert_eq!((fake.effects_total(), fake.arrived().len()), (0, 0));
    }
}
