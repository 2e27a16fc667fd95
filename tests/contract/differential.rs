//! Random commands over a handful of drafts: the twin, SQLite and Redis, on one clock, answer alike; and
//! whatever happens, no draft is confirmed or marked twice, and ends are ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign::base::digest::Digest;
use countersign::base::id::{DraftId, NodeId, StepId};
use countersign::base::time::{Clock as _, ManualClock};
use countersign::draft::decision::{Channel, DeciderKind};
use countersign::draft::outcome::Failure;
use countersign::draft::state::{Status, Verdict};
use countersign::store::conformance::Harness;
use countersign::store::contract::{Decide, Filter, Hold, Reject, Settle, Store};
use countersign::store::cursor::Cursor;
use countersign::store::redis::RedisStore;
use countersign::store::row::Stored;
use countersign::store::sqlite::{SqliteOptions, SqliteStore};
use countersign::store::twin::Twin;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::redis::Redis;

/// What to do, by small numbers: drafts by their place in the order in which they were made.
#[derive(Debug, Clone)]
enum Command {
    Hold {
        args: u8,
        key: Option<u8>,
        session: u8,
        pending_max: u32,
    },
    Decide {
        draft: usize,
        who: u8,
        quorum: u32,
        key: Option<u8>,
        stale: bool,
    },
    Reject {
        draft: usize,
        who: u8,
        guard: bool,
        key: Option<u8>,
    },
    Withdraw {
        draft: usize,
    },
    Expire {
        draft: usize,
    },
    Renew {
        draft: usize,
        stale: bool,
    },
    Mark {
        draft: usize,
        stale: bool,
    },
    End {
        draft: usize,
        how: End,
        verdict: Verdict,
        not_sent: bool,
        stale: bool,
    },
    TakeOver {
        draft: usize,
        node: u8,
        dead: bool,
    },
    Collect {
        draft: usize,
    },
    Seen {
        draft: usize,
    },
    Again {
        draft: usize,
        keyed: bool,
    },
    Delete {
        draft: usize,
    },
    Advance {
        ms: u64,
    },
    /// The last command once more, with the same step id.
    Repeat,
    /// Redis forgets its scripts.
    Forget,
    Look {
        status: Option<usize>,
        limit: usize,
    },
}

#[derive(Debug, Clone, Copy)]
enum End {
    Settle,
    Late,
    Resolve,
}

/// A command made concrete: both stores get exactly the same request.
#[derive(Debug, Clone)]
enum Request {
    Hold(Box<Hold>),
    Again(DraftId, Box<Hold>),
    Decide(Box<Decide>),
    Reject(Box<Reject>),
    Withdraw(DraftId, StepId),
    Expire(DraftId),
    Renew(DraftId, u64, StepId),
    Mark(DraftId, u64, StepId),
    End(End, Box<Settle>),
    TakeOver(DraftId, StepId, NodeId, Vec<NodeId>),
    Collect(DraftId),
    Seen(DraftId),
    Delete(DraftId),
    Look(Filter),
}

const LEASE: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_secs(2);

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let draft = 0..6usize;
    let key = proptest::option::of(0..3u8);
    let stale = proptest::bool::weighted(0.15);
    let verdict = prop_oneof![Just(Verdict::Succeeded), Just(Verdict::Failed), Just(Verdict::Unverifiable)];
    let how = prop_oneof![3 => Just(End::Settle), 2 => Just(End::Late), 1 => Just(End::Resolve)];
    let times =
        prop_oneof![Just(1u64), Just(1_000), Just(29_000), Just(30_000), Just(120_000), Just(600_000), Just(900_000)];
    let one = prop_oneof![
        6 => (0..3u8, key.clone(), 0..3u8, prop_oneof![4 => Just(100u32), 1 => Just(2)])
            .prop_map(|(args, key, session, pending_max)| Command::Hold { args, key, session, pending_max }),
        5 => (draft.clone(), 0..3u8, 1..3u32, key.clone(), stale)
            .prop_map(|(draft, who, quorum, key, stale)| Command::Decide { draft, who, quorum, key, stale }),
        2 => (draft.clone(), 0..3u8, any::<bool>(), key)
            .prop_map(|(draft, who, guard, key)| Command::Reject { draft, who, guard, key }),
        1 => draft.clone().prop_map(|draft| Command::Withdraw { draft }),
        1 => draft.clone().prop_map(|draft| Command::Expire { draft }),
        1 => (draft.clone(), stale).prop_map(|(draft, stale)| Command::Renew { draft, stale }),
        4 => (draft.clone(), stale).prop_map(|(draft, stale)| Command::Mark { draft, stale }),
        5 => (draft.clone(), how, verdict, any::<bool>(), stale)
            .prop_map(|(draft, how, verdict, not_sent, stale)| Command::End { draft, how, verdict, not_sent, stale }),
        2 => (draft.clone(), 0..3u8, any::<bool>()).prop_map(|(draft, node, dead)| Command::TakeOver { draft, node, dead }),
        2 => draft.clone().prop_map(|draft| Command::Collect { draft }),
        1 => draft.clone().prop_map(|draft| Command::Seen { draft }),
        2 => (draft.clone(), any::<bool>()).prop_map(|(draft, keyed)| Command::Again { draft, keyed }),
        1 => draft.prop_map(|draft| Command::Delete { draft }),
        3 => times.prop_map(|ms| Command::Advance { ms }),
        3 => Just(Command::Repeat),
        1 => Just(Command::Forget),
        1 => (proptest::option::of(0..9usize), 0..4usize).prop_map(|(status, limit)| Command::Look { status, limit }),
    ];
    vec(one, 1..60)
}

struct Trio {
    twin: Harness,
    sqlite: SqliteStore,
    redis: RedisStore,
    clock: Arc<ManualClock>,
    made: Vec<DraftId>,
    last: Option<Request>,
    _folder: tempfile::TempDir,
    server: Redis,
}

impl Trio {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(crate::START));
        let folder = tempfile::tempdir().expect("a folder");
        let sqlite =
            SqliteStore::open(&folder.path().join("store.db"), clock.clone(), SqliteOptions::default()).expect("opens");
        let twin = Harness::new(Arc::new(Twin::new(clock.clone())), clock.clone(), Box::new(()));
        let server = Redis::start(&["--appendonly", "yes"]);
        let redis = crate::redis_store(&server, clock.clone()).await;
        Self { twin, sqlite, redis, clock, made: Vec::new(), last: None, _folder: folder, server }
    }

    /// The draft as the twin has it, if there is one.
    async fn draft(&self, place: usize) -> Option<Stored> {
        let id = self.made.get(place % self.made.len().max(1))?;
        self.twin.store().get(id).await.expect("reads")
    }

    async fn request(&self, command: &Command) -> Option<Request> {
        let h = &self.twin;
        let node = |n: u8| NodeId::new(format!("n{n}")).expect("a name");
        Some(match *command {
            Command::Hold { args, key, session, pending_max } => {
                let mut call = h.call(&args.to_string()).session(&format!("s{session}"));
                call.limits.pending_max = pending_max;
                let call = if let Some(key) = key { call.key(&key.to_string()) } else { call };
                Request::Hold(Box::new(h.hold_of(&call)))
            }
            Command::Decide { draft, who, quorum, key, stale } => {
                let mut ask = h.yes(&self.draft(draft).await?, &format!("p{who}"));
                ask.vote.epoch += u64::from(stale);
                (ask.quorum, ask.decision_key) = (quorum, key.map(|key| key.to_string()));
                Request::Decide(Box::new(ask))
            }
            Command::Reject { draft, who, guard, key } => {
                let kind = if guard { DeciderKind::Guard } else { DeciderKind::Approver };
                let mut ask = h.no(&self.draft(draft).await?, h.decider(&format!("p{who}"), kind, Channel::Api));
                ask.decision_key = key.map(|key| key.to_string());
                Request::Reject(Box::new(ask))
            }
            Command::Withdraw { draft } => Request::Withdraw(self.draft(draft).await?.row.id, h.step()),
            Command::Expire { draft } => Request::Expire(self.draft(draft).await?.row.id),
            Command::Renew { draft, stale } => {
                let row = self.draft(draft).await?.row;
                Request::Renew(row.id, row.epoch + u64::from(stale), h.step())
            }
            Command::Mark { draft, stale } => {
                let row = self.draft(draft).await?.row;
                Request::Mark(row.id, row.epoch + u64::from(stale), h.step())
            }
            Command::End { draft, how, verdict, not_sent, stale } => {
                let draft = self.draft(draft).await?;
                let failure = if not_sent { Failure::NotSent } else { Failure::Refused };
                let mut end = h.end(&draft, verdict, (verdict == Verdict::Failed).then_some(failure));
                end.epoch += u64::from(stale);
                Request::End(how, Box::new(end))
            }
            Command::TakeOver { draft, node: n, dead } => {
                let row = self.draft(draft).await?.row;
                let own_dead = if dead { vec![node(1)] } else { Vec::new() };
                Request::TakeOver(row.id, h.step(), node(n), own_dead)
            }
            Command::Collect { draft } => Request::Collect(self.draft(draft).await?.row.id),
            Command::Seen { draft } => Request::Seen(self.draft(draft).await?.row.id),
            Command::Delete { draft } => Request::Delete(self.draft(draft).await?.row.id),
            Command::Again { draft, keyed } => {
                let row = self.draft(draft).await?.row;
                let mut ask = h.hold_of(&h.call("again"));
                (ask.args_hash, ask.join_key) = (row.args_hash, row.join_key);
                ask.caller_key = row.caller_key.filter(|_| keyed);
                Request::Again(row.id, Box::new(ask))
            }
            Command::Look { status, limit } => {
                let statuses = status.map(|n| Status::ALL[n]).into_iter().collect();
                Request::Look(Filter { statuses, limit, before: self.made.last().cloned(), ..Filter::default() })
            }
            Command::Forget => {
                self.server.command(&["SCRIPT", "FLUSH"]);
                return None;
            }
            Command::Repeat => self.last.clone()?,
            Command::Advance { .. } => return None,
        })
    }

    async fn run(&mut self, command: &Command) {
        if let Command::Advance { ms } = command {
            self.clock.advance(Duration::from_millis(*ms));
        }
        let Some(request) = self.request(command).await else { return };
        let one = answer(self.twin.store(), request.clone()).await;
        let other = answer(&self.sqlite, request.clone()).await;
        assert_eq!(one, other, "{request:?}");
        let third = answer(&self.redis, request.clone()).await;
        assert_eq!(one, third, "on Redis: {request:?}");
        if let Request::Hold(hold) | Request::Again(_, hold) = &request
            && self.twin.store().get(&hold.id).await.expect("reads").is_some()
            && !self.made.contains(&hold.id)
        {
            self.made.push(hold.id.clone());
        }
        self.last = Some(request);
    }

    async fn compare(&self) {
        self.compare_with(&self.sqlite).await;
        self.compare_with(&self.redis).await;
        self.promises().await;
    }

    async fn compare_with(&self, other: &dyn Store) {
        let all = Filter { limit: 200, ..Filter::default() };
        let one = self.twin.store();
        assert_eq!(one.list(&all).await, other.list(&all).await);
        // One owner's events have one sequence in every store; the cursors are each store's own.
        let (mut here, mut there) = (Cursor::default(), Cursor::default());
        loop {
            let page = one.events(&here, 7).await.expect("reads");
            let theirs = other.events(&there, 7).await.expect("reads");
            assert_eq!(page.events, theirs.events);
            if page.events.is_empty() {
                break;
            }
            (here, there) = (page.next(), theirs.next());
        }
        assert_eq!(one.counts().await, other.counts().await);
        let now = self.clock.now();
        let (one, other) =
            (one.due(now, &[], 100).await.expect("reads"), other.due(now, &[], 100).await.expect("reads"));
        let sorted = |mut ids: Vec<DraftId>| {
            ids.sort();
            ids
        };
        assert_eq!(sorted(one.expired), sorted(other.expired));
        assert_eq!(sorted(one.orphaned), sorted(other.orphaned));
        assert_eq!(sorted(one.deletable), sorted(other.deletable));
    }

    /// What holds whatever was asked for.
    async fn promises(&self) {
        let mut lives: BTreeMap<DraftId, Vec<(String, String)>> = BTreeMap::new();
        for event in self.twin.events().await {
            lives.entry(event.draft_id).or_default().push((event.kind, event.status));
        }
        for (id, life) in lives {
            let times = |kind: &str| life.iter().filter(|(of, _)| of == kind).count();
            assert_eq!(times("draft.held"), 1, "{id}: {life:?}");
            assert!(times("draft.confirmed") <= 1, "promise 3: {id}: {life:?}");
            assert!(times("draft.sending") <= times("draft.confirmed"), "promise 4: {id}: {life:?}");
            for pair in life.windows(2) {
                let ended = ["succeeded", "failed", "rejected", "expired", "withdrawn"].contains(&pair[0].1.as_str());
                assert!(!ended || pair[0].1 == pair[1].1, "promise 9: {id}: {life:?}");
            }
        }
    }
}

/// The answer as text: rows, rights and refusals print all that they hold.
async fn answer(store: &dyn Store, request: Request) -> String {
    match request {
        Request::Hold(ask) => format!("{:?}", store.hold(*ask).await),
        Request::Again(old, ask) => format!("{:?}", store.again(&old, *ask).await),
        Request::Decide(ask) => format!("{:?}", store.decide(*ask).await),
        Request::Reject(ask) => format!("{:?}", store.reject(*ask).await),
        Request::Withdraw(id, step) => {
            format!("{:?}", store.withdraw(&id, step, "agent", Digest::of(b"withdrawn")).await)
        }
        Request::Expire(id) => format!("{:?}", store.expire(&id).await),
        Request::Renew(id, epoch, step) => format!("{:?}", store.renew(&id, epoch, step, LEASE).await),
        Request::Mark(id, epoch, step) => format!("{:?}", store.mark_sending(&id, epoch, step, WINDOW).await),
        Request::End(End::Settle, ask) => format!("{:?}", store.settle(*ask).await),
        Request::End(End::Late, ask) => format!("{:?}", store.late_answer(*ask).await),
        Request::End(End::Resolve, ask) => {
            let by = countersign::draft::decision::Decider {
                kind: DeciderKind::Approver,
                id: countersign::base::id::Principal::new("ada").expect("a name"),
                auth_method: "bearer".to_owned(),
                channel: Channel::Api,
                at: crate::START,
            };
            format!("{:?}", store.resolve(*ask, &by).await)
        }
        Request::TakeOver(id, step, node, dead) => {
            format!("{:?}", store.take_over(&id, step, &node, LEASE, &dead).await)
        }
        Request::Collect(id) => format!("{:?}", store.collect(&id).await),
        Request::Seen(id) => format!("{:?}", store.note_seen(&id).await),
        Request::Delete(id) => {
            let before = store.now();
            format!("{:?}", store.delete(&id, before).await)
        }
        Request::Look(filter) => format!("{:?}", store.list(&filter).await),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_three_stores_answer_alike(commands in commands()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut trio = Trio::new().await;
            for command in &commands {
                trio.run(command).await;
            }
            trio.compare().await;
        });
    }
}
