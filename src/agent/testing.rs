//! A recording upstream, a guard on the in-memory store, and a raw client: for the tests of this
//! room. The oracle is what the upstream received, never what the guard says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::base::chance::SeededChance;
use crate::base::id::{DraftId, NodeId, StepId};
use crate::base::time::{SystemClock, Timestamp};
use crate::draft::keys::KeySet;
use crate::guard::pause::{NoPause, Pause};
use crate::guard::settings::Settings;
use crate::guard::{Guard, Parts};
use crate::policy::model::{PolicySet, Service};
use crate::policy::tests::set;
use crate::store::contract::Settle;
use crate::store::journal::{JournalError, Logged, SendLog};
use crate::store::twin::Twin;
use crate::upstream::contract::{Exchange, NotReached, Upstream};

use super::observe::{AgentObserver, Observed, Verdict};
use super::{AgentConfig, AgentListener};

/// How long anything may take before a test fails.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// Fails instead of hanging.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("it does not come to an end")
}

/// What the upstream does with a connection's next request.
#[derive(Debug, Clone)]
pub(super) enum Script {
    /// Writes these bytes.
    Answer(Vec<u8>),
    /// Reads the request whole, then closes without a byte.
    CloseUnanswered,
    /// Reads the request whole, then says nothing.
    Silent,
    /// Writes these bytes, then closes.
    Last(Vec<u8>),
    /// Writes these bytes, waits for the guard to close, and records that as `closed`.
    UntilClosed(Vec<u8>),
    /// Writes these bytes, then echoes whatever comes.
    Echo(Vec<u8>),
}

/// `200` with a length.
pub(super) fn ok(body: &str) -> Script {
    Script::Answer(
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Origin: yes\r\n\r\n{body}", body.len()).into_bytes(),
    )
}

/// An upstream that records every byte that it gets.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    /// Every request, head and body, as it came.
    received: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
    script: Arc<Mutex<Script>>,
    /// Pieces of an answer that a test sends by hand, to the connection of the last request.
    pieces: mpsc::UnboundedSender<Vec<u8>>,
}

impl Origin {
    pub(super) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (pieces, by_hand) = mpsc::unbounded_channel();
        let origin = Self {
            address: listener.local_addr().unwrap(),
            received: Arc::default(),
            connections: Arc::default(),
            script: Arc::new(Mutex::new(script)),
            pieces,
        };
        let by_hand = Arc::new(tokio::sync::Mutex::new(by_hand));
        let (received, connections, script) =
            (origin.received.clone(), origin.connections.clone(), origin.script.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *connections.lock().unwrap() += 1;
                tokio::spawn(serve(stream, received.clone(), script.clone(), by_hand.clone()));
            }
        });
        origin
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn script(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }

    pub(super) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    pub(super) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    pub(super) fn send_piece(&self, piece: &str) {
        self.pieces.send(piece.as_bytes().to_vec()).unwrap();
    }

    /// Waits until this many requests were received.
    pub(super) async fn until_received(&self, count: usize) {
        soon(async {
            while self.received.lock().unwrap().len() < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

async fn serve(
    mut stream: TcpStream,
    received: Arc<Mutex<Vec<String>>>,
    script: Arc<Mutex<Script>>,
    by_hand: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Vec<u8>>>>,
) {
    let mut bytes = Vec::new();
    loop {
        let Some(request) = read_message(&mut stream, &mut bytes).await else { return };
        received.lock().unwrap().push(request);
        let script = script.lock().unwrap().clone();
        match script {
            Script::Answer(answer) => stream.write_all(&answer).await.unwrap(),
            Script::CloseUnanswered => return,
            Script::Last(answer) => {
                stream.write_all(&answer).await.unwrap();
                return;
            }
            Script::UntilClosed(answer) => {
                stream.write_all(&answer).await.unwrap();
                while let Ok(1..) = stream.read(&mut [0; 64]).await {}
                received.lock().unwrap().push("closed".to_owned());
                return;
            }
            Script::Silent => {
                let mut by_hand = by_hand.lock().await;
                while let Some(piece) = by_hand.recv().await {
                    if stream.write_all(&piece).await.is_err() {
                        return;
                    }
                }
            }
            Script::Echo(answer) => {
                stream.write_all(&answer).await.unwrap();
                let mut raw = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut raw).await {
                    received.lock().unwrap().push(String::from_utf8_lossy(&raw[..read]).into_owned());
                    stream.write_all(&raw[..read]).await.unwrap();
                }
                return;
            }
        }
    }
}

/// Reads one message with its body; `bytes` keeps what came too early.
async fn read_message(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = message_end(bytes) {
            let rest = bytes.split_off(end);
            return Some(String::from_utf8_lossy(&std::mem::replace(bytes, rest)).into_owned());
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn message_end(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let field = |name: &str| {
        text[..head.min(text.len())]
            .split("\r\n")
            .find_map(|line| line.strip_prefix(name).map(|value| value.trim().to_owned()))
    };
    if field("transfer-encoding:").is_some_and(|value| value == "chunked") {
        let end = bytes[head..].windows(5).position(|window| window == b"0\r\n\r\n")?;
        return Some(head + end + 5);
    }
    let length: usize = field("content-length:").map_or(0, |value| value.parse().unwrap());
    (bytes.len() >= head + length).then_some(head + length)
}

/// An answer, read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answered {
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A client that sends exactly what it is told.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    bytes: Vec<u8>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, bytes: Vec::new() }
    }

    pub(super) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads one answer. `bodiless` for HEAD.
    pub(super) async fn answer_to(&mut self, bodiless: bool) -> Answered {
        soon(async {
            let head_end = loop {
                if let Some(at) = self.bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                    break at + 4;
                }
                assert!(
                    self.stream.read_buf(&mut self.bytes).await.unwrap() > 0,
                    "closed before an answer: {:?}",
                    self.bytes
                );
            };
            let rest = self.bytes.split_off(head_end);
            let head = String::from_utf8(std::mem::replace(&mut self.bytes, rest)).unwrap();
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            let mut answered = Answered { status, head, body: String::new() };
            let length = answered.header("content-length").map_or(0, |value| value.parse().unwrap());
            let length = if bodiless || status < 200 { 0 } else { length };
            while self.bytes.len() < length {
                assert!(self.stream.read_buf(&mut self.bytes).await.unwrap() > 0, "closed inside a body");
            }
            let rest = self.bytes.split_off(length);
            answered.body = String::from_utf8(std::mem::replace(&mut self.bytes, rest)).unwrap();
            answered
        })
        .await
    }

    pub(super) async fn answer(&mut self) -> Answered {
        self.answer_to(false).await
    }

    /// Reads at least this text, and nothing is lost.
    pub(super) async fn read_until(&mut self, text: &str) -> String {
        soon(async {
            loop {
                if let Some(at) = self.bytes.windows(text.len()).position(|window| window == text.as_bytes()) {
                    let rest = self.bytes.split_off(at + text.len());
                    return String::from_utf8(std::mem::replace(&mut self.bytes, rest)).unwrap();
                }
                assert!(
                    self.stream.read_buf(&mut self.bytes).await.unwrap() > 0,
                    "closed before {text:?}: {:?}",
                    self.bytes
                );
            }
        })
        .await
    }

    /// Whether the guard closes without another byte.
    pub(super) async fn is_closed(&mut self) -> bool {
        let rest = soon(async {
            let mut rest = Vec::new();
            // A reset is an end as well.
            let _ = self.stream.read_to_end(&mut rest).await;
            rest
        });
        self.bytes.is_empty() && rest.await.is_empty()
    }

    /// Sends and reads one answer on a connection of its own.
    pub(super) async fn once(address: SocketAddr, text: &str) -> Answered {
        let mut client = Self::connect(address).await;
        client.send(text).await;
        client.answer().await
    }
}

/// What was observed, for tests of the observer.
#[derive(Debug, Default)]
pub(super) struct Seen(pub(super) Mutex<Vec<(Option<String>, crate::draft::record::Effect, Verdict)>>);

impl AgentObserver for Seen {
    fn request(&self, seen: &Observed<'_>) {
        assert!(seen.overhead <= seen.took, "{seen:?}");
        let service = seen.service.map(|name| name.as_str().to_owned());
        self.0.lock().unwrap().push((service, seen.effect, seen.verdict));
    }
}

struct NoUpstream;

#[async_trait]
impl Upstream for NoUpstream {
    async fn connect(&self, _service: &Service, _patience: Duration) -> Result<Box<dyn Exchange>, NotReached> {
        Err(NotReached { why: "tests of this room release nothing".to_owned() })
    }
}

struct NoLog(NodeId);

#[async_trait]
impl SendLog for NoLog {
    fn node(&self) -> &NodeId {
        &self.0
    }

    fn own_dead(&self) -> &[NodeId] {
        &[]
    }

    async fn attempt(&self, _id: &DraftId, _epoch: u64, _attempt: u32, _at: Timestamp) -> Result<Logged, JournalError> {
        Ok(Logged::New)
    }

    fn began(&self, _id: &DraftId) -> bool {
        false
    }

    async fn keep(&self, _outcome: &Settle) -> Result<(), JournalError> {
        Ok(())
    }

    async fn taken(&self, _id: &DraftId, _step: StepId) -> Result<(), JournalError> {
        Ok(())
    }

    async fn waiting(&self) -> Vec<Settle> {
        Vec::new()
    }

    async fn trim(&self, _before: Timestamp) -> Result<(), JournalError> {
        Ok(())
    }
}

/// A listener with its guard, in this process.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) policies: Arc<ArcSwap<PolicySet>>,
    pub(super) seen: Arc<Seen>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) served: JoinHandle<()>,
}

/// How a test differs from the plain listener.
pub(super) struct Setup {
    pub(super) set: PolicySet,
    pub(super) config: AgentConfig,
    pub(super) pause: Arc<dyn Pause>,
}

impl Setup {
    /// Reads pass to `origin`, writes are held, everyone is local.
    pub(super) fn open(url: &str) -> Self {
        let set = PolicySet::open("origin", url).unwrap();
        Self { set, config: AgentConfig::local(), pause: Arc::new(NoPause) }
    }

    /// The policy file `text`, with `URL` standing for the upstream's.
    pub(super) fn file(text: &str, url: &str) -> Self {
        let set = set(&text.replace("URL", url));
        Self { set, config: AgentConfig::local(), pause: Arc::new(NoPause) }
    }

    pub(super) fn service(&mut self) -> &mut Service {
        &mut self.set.services[0]
    }

    pub(super) async fn run(self) -> Running {
        let policies = Arc::new(ArcSwap::from_pointee(self.set));
        let chance = SeededChance::new(7);
        let guard = Guard::new(Parts {
            store: Arc::new(Twin::new(Arc::new(SystemClock))),
            upstream: Arc::new(NoUpstream),
            journal: Arc::new(NoLog(NodeId::new("n1").unwrap())),
            keys: KeySet::ephemeral(&chance),
            policies: Arc::clone(&policies),
            clock: Arc::new(SystemClock),
            chance: Arc::new(chance),
            observer: Arc::new(crate::guard::observer::Unobserved),
            pause: self.pause,
            settings: Settings::default(),
        });
        let seen = Arc::new(Seen::default());
        let config = AgentConfig { observer: Arc::clone(&seen) as Arc<dyn AgentObserver>, ..self.config };
        let addresses = Arc::clone(&config.addresses);
        let listener = AgentListener::bind(guard, config, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr();
        addresses.set_own_listeners(vec![address]);
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(listener.serve(stopping));
        Running { address, policies, seen, stop, served }
    }
}

/// An origin that answers `script`, and an open listener in front of it.
pub(super) async fn open(script: Script) -> (Origin, Running) {
    let origin = Origin::start(script).await;
    let running = Setup::open(&origin.url()).run().await;
    (origin, running)
}
