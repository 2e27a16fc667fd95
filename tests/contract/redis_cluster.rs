//! The store on a Cluster of real servers: drafts of many owners, in all partitions; and a slot
//! that moves while drafts in it are worked on.

use std::sync::Arc;
use std::time::Duration;

use countersign::base::digest::Digest;
use countersign::base::id::{DraftId, Partition};
use countersign::base::time::{Clock as _, ManualClock, SystemClock};
use countersign::draft::state::{State, Status, Verdict};
use countersign::store::conformance::{Call, Harness};
use countersign::store::contract::{Filter, Held, StoreError};
use countersign::store::redis::{RedisOptions, RedisStore};
use countersign::store::row::Stored;

use crate::START;
use crate::redis::Redis;
use crate::redis_bench::again;

/// How many slots a Cluster has.
const SLOTS: usize = 16_384;

/// Three primaries that share the slots.
struct Cluster(Vec<Redis>);

impl Cluster {
    fn start() -> Self {
        let options = ["--cluster-enabled", "yes", "--appendonly", "yes", "--cluster-node-timeout", "15000"];
        let nodes: Vec<Redis> = (0..3)
            .map(|_| {
                let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
                Redis::start_on_tcp(&[&options[..], &["--cluster-port", &bus]].concat())
            })
            .collect();
        for (place, node) in nodes.iter().enumerate() {
            let (first, next) = (place * SLOTS / 3, (place + 1) * SLOTS / 3);
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(next - 1).to_string()]);
            let (port, bus) = (nodes[0].port().to_string(), nodes[0].setting("cluster-port"));
            if place > 0 {
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        for node in &nodes {
            node.until("the Cluster is whole", |node| {
                let info = node.command(&["CLUSTER", "INFO"]).text();
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            });
        }
        Self(nodes)
    }

    /// A node that takes connections and says nothing, before the others.
    fn url_behind(&self, hung: &std::net::TcpListener) -> String {
        let port = hung.local_addr().unwrap().port();
        self.url().replace("://", &format!("://127.0.0.1:{port},"))
    }

    fn url(&self) -> String {
        let hosts: Vec<String> = self.0.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Which of them has a slot.
    fn owner_of(slot: u16) -> usize {
        (0..3).find(|place| usize::from(slot) < (place + 1) * SLOTS / 3).unwrap()
    }
}

async fn harness(cluster: &Cluster) -> Harness {
    let options = RedisOptions { step_timeout: Duration::from_secs(5), ..RedisOptions::default() };
    let store = RedisStore::open(&cluster.url(), Arc::new(SystemClock), options).await.expect("opens");
    Harness::new(Arc::new(store), Arc::new(ManualClock::new(START)), Box::new(()))
}

/// A call of an owner in this partition.
fn hold_in(h: &Harness, call: &Call, partition: Partition, n: u8) -> countersign::store::contract::Hold {
    let mut hold = h.hold_of(call);
    let digit = partition.as_char().to_digit(16).unwrap();
    let mut owner = [n; 32];
    owner[0] = u8::try_from(digit << 4).unwrap();
    hold.owner_hash = Digest::from_bytes(owner);
    hold.id = DraftId::new(partition, hold.created_at, &countersign::base::chance::OsChance);
    hold.token_digest = Digest::of(hold.id.as_str().as_bytes());
    hold
}

async fn held_in(h: &Harness, call: &Call, partition: Partition, n: u8) -> Stored {
    match h.store().hold(hold_in(h, call, partition, n)).await {
        Ok(Held::New(stored)) => *stored,
        other => panic!("not a new draft: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drafts_live_in_every_partition() {
    let cluster = Cluster::start();
    let h = harness(&cluster).await;
    let mut drafts = Vec::new();
    for partition in Partition::all() {
        drafts.push(held_in(&h, &h.call("a"), partition, 7).await);
    }
    let all = Filter { limit: 200, ..Filter::default() };
    let listed: Vec<DraftId> = h.store().list(&all).await.unwrap().into_iter().map(|stored| stored.row.id).collect();
    let mut newest_first: Vec<DraftId> = drafts.iter().map(|draft| draft.row.id.clone()).collect();
    newest_first.sort_by(|one, other| other.as_str()[5..].cmp(&one.as_str()[5..]));
    assert_eq!(listed, newest_first);
    for draft in &drafts {
        let opened = h.store().by_token(draft.row.id.partition(), &draft.row.token_digest).await.unwrap();
        assert_eq!(opened.map(|stored| stored.row.id), Some(draft.row.id.clone()));
        h.sending(draft).await;
        h.settle(draft, Verdict::Succeeded, None).await;
        assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed", "sending", "succeeded"]);
    }
    let counts = h.store().counts().await.unwrap();
    assert_eq!(counts.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [(Status::Succeeded, 16)]);
    let due = h.store().due(SystemClock.now() + Duration::from_secs(1), &[], 100).await.unwrap();
    assert_eq!(due.deletable.len(), 16);
    assert_eq!(h.store().same_keys(&Digest::of(b"one")).await, Ok(true));
    assert_eq!(h.store().same_keys(&Digest::of(b"other")).await, Ok(false));
    h.store().check().await.expect("every server takes writes");
}

/// While a slot moves, its drafts are refused or served, never half written; afterwards everything
/// is where it was, and each draft was confirmed and marked once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_slot_that_moves_takes_its_drafts_along() {
    let cluster = Cluster::start();
    let h = Arc::new(harness(&cluster).await);
    let partition = Partition::first();
    let mut drafts = Vec::new();
    for n in 0..20 {
        drafts.push(held_in(&h, &h.call(&format!("{n}")), partition, n).await);
    }
    let nodes = &cluster.0;
    let slot = u16::try_from(nodes[0].command(&["CLUSTER", "KEYSLOT", "cs:{0}:meta"]).int()).unwrap();
    let from = Cluster::owner_of(slot);
    let to = (from + 1) % 3;
    let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).text();
    let (from_id, to_id, number) = (id(&nodes[from]), id(&nodes[to]), slot.to_string());
    nodes[to].command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &from_id]);
    nodes[from].command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &to_id]);

    let working = h.clone();
    let asked = drafts.clone();
    let work = tokio::spawn(async move {
        for draft in &asked {
            let yes = working.yes(draft, "ada");
            let decided = again(|| working.store().decide(yes.clone())).await;
            assert!(matches!(decided, countersign::store::contract::Decided::Claimed(..)), "{decided:?}");
            let step = working.step();
            let marked = again(|| working.store().mark_sending(&draft.row.id, 1, step, Duration::from_secs(1))).await;
            assert!(matches!(marked, countersign::store::contract::Mark::Marked { attempt: 1, .. }), "{marked:?}");
        }
    });
    let port = nodes[to].port().to_string();
    loop {
        let keys = nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &number, "3"]).texts();
        if keys.is_empty() {
            break;
        }
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        nodes[from].command(&words);
    }
    for node in [&nodes[to], &nodes[from], &nodes[(from + 2) % 3]] {
        node.command(&["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
    }
    work.await.expect("every draft was decided and marked");
    for draft in &drafts {
        let stored = h.store().get(&draft.row.id).await.unwrap().expect("it moved along");
        assert!(matches!(stored.row.state, State::Running(_)));
        assert_eq!((stored.row.attempts, stored.row.epoch), (1, 1));
        assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed", "sending"]);
    }
    let counts = h.store().counts().await.unwrap();
    assert!(counts.contains(&(Status::Running, 20)), "{counts:?}");
}

/// A step that knows only a draft's id comes upon its owner's lines and its token: while those are on the other node
/// it is refused (in a Cluster told as uncertain) and nothing of it is written. Afterwards it leaves what it leaves elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_waits_for_every_key_of_its_draft() {
    let cluster = Cluster::start();
    let h = harness(&cluster).await;
    let mut drafts = Vec::new();
    for n in 0..4 {
        drafts.push(held_in(&h, &h.call(&format!("{n}")), Partition::first(), n).await);
    }
    let [voted, withdrawn, rejected, gone] = &drafts[..] else { unreachable!("four") };
    let withdraw =
        async |draft: &Stored| h.store().withdraw(&draft.row.id, h.step(), "agent", Digest::of(b"mac")).await;
    let far = SystemClock.now() + Duration::from_secs(3_600);
    withdraw(gone).await.expect("ends");
    let nodes = &cluster.0;
    let slot = u16::try_from(nodes[0].command(&["CLUSTER", "KEYSLOT", "cs:{0}:meta"]).int()).unwrap();
    let (from, number) = (Cluster::owner_of(slot), slot.to_string());
    let to = (from + 1) % 3;
    let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).text();
    nodes[to].command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &id(&nodes[from])]);
    nodes[from].command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &id(&nodes[to])]);
    let port = nodes[to].port().to_string();
    let own = |key: &String| key.contains(":o:") || key.contains(":t:");
    let move_all = |wanted: &dyn Fn(&String) -> bool| {
        let keys = nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &number, "100"]).texts();
        for key in keys.iter().filter(|key| wanted(key)) {
            nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
    };
    // First what the steps name, then what they come upon; and, for other drafts, the other way round.
    move_all(&|key| !own(key));
    for draft in [voted, withdrawn, rejected] {
        let answer = withdraw(draft).await;
        assert!(matches!(answer, Err(StoreError::Uncertain(_))), "{answer:?}");
    }
    let answer = h.store().decide(h.yes(voted, "ada")).await;
    assert!(matches!(answer, Err(StoreError::Uncertain(_))), "{answer:?}");
    let answer = h.store().delete(&gone.row.id, far).await;
    assert!(matches!(answer, Err(StoreError::Uncertain(_))), "{answer:?}");
    move_all(&|_| true);
    for node in [&nodes[to], &nodes[from], &nodes[(from + 2) % 3]] {
        node.command(&["CLUSTER", "SETSLOT", &number, "NODE", &id(&nodes[to])]);
    }
    let index = nodes[to].command(&["ZRANGE", "cs:{0}:ix", "0", "-1"]).texts();
    let lines = |draft: &Stored| index.iter().filter(|line| line.ends_with(draft.row.id.as_str())).count();
    assert_eq!([voted, withdrawn, rejected, gone].map(lines), [2; 4], "half a step was written: {index:?}");
    again(|| h.store().withdraw(&withdrawn.row.id, h.step(), "agent", Digest::of(b"mac"))).await;
    again(|| h.store().withdraw(&rejected.row.id, h.step(), "agent", Digest::of(b"mac"))).await;
    again(|| h.store().decide(h.yes(voted, "ada"))).await;
    for draft in [withdrawn, rejected, gone] {
        assert!(again(|| h.store().delete(&draft.row.id, far)).await);
    }
    // Of four drafts one is left, and the lines that lead to it.
    let keys = nodes[to].command(&["KEYS", "cs:?0?:[ot]:*"]).texts();
    assert_eq!(keys.len(), 2, "{keys:?}");
    let lines = nodes[to].command(&["ZRANGE", keys.iter().find(|key| key.contains(":o:")).unwrap(), "0", "-1"]).texts();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.ends_with(voted.row.id.as_str())), "{lines:?}");
}

/// The one draft of a partition whose slot begins to move is written whole: its index never loses its last line, which
/// the node would not make again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_draft_of_a_slot_that_moves_is_written_whole() {
    let cluster = Cluster::start();
    let h = harness(&cluster).await;
    let draft = held_in(&h, &h.call("a"), Partition::first(), 1).await;
    let nodes = &cluster.0;
    let slot = u16::try_from(nodes[0].command(&["CLUSTER", "KEYSLOT", "cs:{0}:meta"]).int()).unwrap();
    let (from, number) = (Cluster::owner_of(slot), slot.to_string());
    let to = &nodes[(from + 1) % 3];
    to.command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &nodes[from].command(&["CLUSTER", "MYID"]).text()]);
    nodes[from].command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &to.command(&["CLUSTER", "MYID"]).text()]);
    h.sending(&draft).await;
    h.settle(&draft, Verdict::Succeeded, None).await;
    assert_eq!(h.kinds(&draft.row.id).await, ["held", "confirmed", "sending", "succeeded"]);
    let far = SystemClock.now() + Duration::from_secs(3_600);
    let due = h.store().due(far, &[], 10).await.expect("answers");
    assert!(due.deletable.iter().eq([&draft.row.id]), "{due:?}");
    assert!(h.store().delete(&draft.row.id, far).await.expect("it ends there"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_first_in_the_url_keeps_no_guard_from_starting() {
    let cluster = Cluster::start();
    let hung = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let options = RedisOptions { step_timeout: Duration::from_secs(4), ..RedisOptions::default() };
    let store = RedisStore::open(&cluster.url_behind(&hung), Arc::new(SystemClock), options).await.expect("opens");
    let h = Harness::new(Arc::new(store), Arc::new(ManualClock::new(START)), Box::new(cluster));
    for n in 0..16 {
        h.held(&h.call(&format!("call {n}")).from("default", ["ben", "eve", "kim", "zoe"][n % 4], "agent")).await;
    }
}
