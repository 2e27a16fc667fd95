//! What the processes do: an origin, a bare proxy, the guard.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use countersign::agent::identity::{AgentEntry, Source};
use countersign::agent::{AgentConfig, AgentListener};
use countersign::base::chance::OsChance;
use countersign::base::digest::Digest;
use countersign::base::id::{DraftId, Initiator, NodeId, StepId, Tenant};
use countersign::base::time::{SystemClock, Timestamp};
use countersign::draft::keys::KeySet;
use countersign::guard::observer::Unobserved;
use countersign::guard::pause::NoPause;
use countersign::guard::settings::Settings;
use countersign::guard::{Guard, Parts};
use countersign::policy::model::{PolicySet, Service};
use countersign::store::contract::Settle;
use countersign::store::journal::{JournalError, Logged, SendLog};
use countersign::store::sqlite::{SqliteOptions, SqliteStore};
use countersign::upstream::contract::{Exchange, NotReached, Upstream};
use http::HeaderName;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::{Opt, ServerConf};
use pingora::upstreams::peer::HttpPeer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Answers everything with the same 1.1 KiB of JSON.
pub(crate) fn origin() {
    let body =
        format!("{{\"items\":[{}]}}", vec!["{\"id\":1,\"title\":\"water the plants\",\"done\":false}"; 23].join(","));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    let answer: Arc<[u8]> = [head, body].concat().into_bytes().into();
    runtime().block_on(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let mut buf = [0; 8192];
                // Every request of the bench comes in one piece.
                while matches!(stream.read(&mut buf).await, Ok(1..)) {
                    if stream.write_all(&answer).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The least that a proxy does: every request to one address.
struct Bare(SocketAddr);

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.0, false, String::new())))
    }
}

/// A bare pingora proxy, run as pingora's own examples do.
pub(crate) fn bare(upstream: &str) {
    let conf = ServerConf { threads: 1, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(Opt::default(), conf);
    server.bootstrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut service = http_proxy_service(&server.configuration, Bare(upstream.parse().unwrap()));
    service.add_tcp(&free);
    server.add_service(service);
    let address = free.clone();
    std::thread::spawn(move || {
        while std::net::TcpStream::connect(&address).is_err() {
            std::thread::yield_now();
        }
        println!("{address}");
    });
    server.run_forever();
}

/// The guard with the embedded store in a temporary folder; reads pass and writes are held.
pub(crate) fn guard(upstream: &str, agents: bool) {
    let folder = tempfile::tempdir().unwrap();
    let set = PolicySet::open("origin", &format!("http://{upstream}")).expect("the policy of one open upstream");
    let mut config = AgentConfig::local();
    // An approver's and an app's token are always there to be recognised.
    config.foreign.store(Arc::new(vec![Digest::of(b"approver"), Digest::of(b"app")]));
    if agents {
        config.identity.agents = vec![AgentEntry {
            name: Initiator::new("bot").unwrap(),
            token_sha256: Digest::of(b"3f1c0a7be2d94f5c8a6b7c8d9e0f1a2b"),
            tenant: Tenant::new("default").unwrap(),
            deliver_token: false,
        }];
        config.identity.owner = Some(Source::Header(HeaderName::from_static("x-user-id")));
        config.identity.session = Some(Source::Header(HeaderName::from_static("x-session-id")));
    }
    let guard = new_guard(folder.path(), set);
    runtime().block_on(async move {
        let listener = AgentListener::bind(guard, config, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        println!("{}", listener.local_addr());
        let (_running, stop) = tokio::sync::watch::channel(false);
        tokio::spawn(listener.serve(stop)).await.unwrap();
    });
}

fn new_guard(folder: &Path, set: PolicySet) -> Arc<Guard> {
    let clock = Arc::new(SystemClock);
    let store =
        SqliteStore::open(&folder.join("bench.db"), clock.clone(), SqliteOptions::default()).expect("the store opens");
    Guard::new(Parts {
        store: Arc::new(store),
        upstream: Arc::new(NoUpstream),
        journal: Arc::new(NoLog(NodeId::new("bench").unwrap())),
        keys: KeySet::ephemeral(&OsChance),
        policies: Arc::new(ArcSwap::from_pointee(set)),
        clock,
        chance: Arc::new(OsChance),
        observer: Arc::new(Unobserved),
        pause: Arc::new(NoPause),
        settings: Settings::default(),
    })
}

/// Nothing is released here.
struct NoUpstream;

#[async_trait]
impl Upstream for NoUpstream {
    async fn connect(&self, _service: &Service, _patience: Duration) -> Result<Box<dyn Exchange>, NotReached> {
        Err(NotReached { why: "nothing is released here".to_owned() })
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

/// One row of a draft's size per durable commit, as fast as this disk takes them.
pub(crate) fn commits_per_second(seconds: f64) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let database = rusqlite::Connection::open(folder.path().join("bare.db")).unwrap();
    database.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE rows (id INTEGER PRIMARY KEY, row BLOB)").unwrap();
    let row = vec![7_u8; 4096];
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed().as_secs_f64() < seconds {
        database.execute("INSERT INTO rows (row) VALUES (?1)", [&row]).unwrap();
        count += 1;
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}
