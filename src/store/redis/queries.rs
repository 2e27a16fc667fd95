//! Reading: one draft, a page, a sweep's work, counts, the outbox; and the two plain writes that
//! are no step of a draft.
//!
//! Every partition is asked by itself and the answers are merged here. A row that cannot be read
//! is left out of lists; asked for by itself it is an error.

use futures_util::future::try_join_all;
use redis::Value;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, NodeId, Partition};
use crate::base::time::Timestamp;
use crate::draft::state::Status;
use crate::store::contract::{Due, Filter, PAGE_MAX, SWEEP_MAX, page_is_full};
use crate::store::cursor::{Cursor, Page};
use crate::store::row::{Event, Stored};
use crate::store::steps::care::{listed, place};

use super::arguments::{Call, names};
use super::drafts::{Behind, line_range, strange};
use super::link::{DAMAGED, Failure, Link};
use super::reply::{pairs, text, texts};
use super::script::SCRIPTS;
use super::{RedisStore, key};

/// How large the probe of readiness is in each partition: all of them about as much as a usual hold.
const PROBE_BYTES: usize = 256;

/// How many drafts of a list are read at once; a page may turn out to be full before their end.
const READ_AHEAD: usize = 8;

impl RedisStore {
    /// A page, newest first, without responses.
    pub(super) async fn page(&self, filter: &Filter) -> Result<Vec<Stored>, Failure> {
        let limit = filter.limit.clamp(1, PAGE_MAX);
        let partitions: Vec<Partition> = match &filter.owner_hash {
            Some(owner) => vec![Partition::of(owner)],
            None => Partition::all().collect(),
        };
        let (mut page, mut behind, mut from) = (Vec::new(), Behind::default(), filter.clone());
        loop {
            let found = try_join_all(partitions.iter().map(|one| self.readable_ids(*one, &from, limit))).await?;
            // A partition that may have more is known down to its last one only. What is older is looked at with the
            // next ones, so that none is passed over.
            let more = found.iter().filter(|ids| ids.len() >= limit).filter_map(|ids| ids.last());
            let end = more.max_by(|one, other| place(one).cmp(place(other))).cloned();
            let mut ids: Vec<DraftId> = found.into_iter().flatten().collect();
            ids.retain(|id| end.as_ref().is_none_or(|end| place(id) >= place(end)));
            ids.sort_by(|one, other| place(other).cmp(place(one)));
            for some in ids.chunks(READ_AHEAD) {
                for stored in self.read_listed(some, &mut behind).await? {
                    // It may have moved on since its index was read.
                    if !page_is_full(&page, limit) && listed(&stored.row, filter) {
                        page.push(stored);
                    }
                }
                if page_is_full(&page, limit) {
                    return Ok(page);
                }
            }
            if end.is_none() {
                return Ok(page);
            }
            from.before = end;
        }
    }

    /// [`Self::ids`], and none of a partition whose numbers somebody has written over: the others are told.
    async fn readable_ids(&self, partition: Partition, filter: &Filter, limit: usize) -> Result<Vec<DraftId>, Failure> {
        readable(partition, self.ids(partition, filter, limit).await)
    }

    /// The newest ids of a partition that fit. A script looks at a bounded number of drafts, so it is
    /// asked on from where it stopped.
    async fn ids(&self, partition: Partition, filter: &Filter, limit: usize) -> Result<Vec<DraftId>, Failure> {
        let statuses: Vec<&str> = match filter.statuses.as_slice() {
            [] => Status::ALL.map(Status::as_str).to_vec(),
            some => Status::ALL.into_iter().filter(|status| some.contains(status)).map(Status::as_str).collect(),
        };
        let digest = |digest: Option<&Digest>| digest.map(Digest::to_hex).unwrap_or_default();
        let mut before = filter.before.as_ref().map(|id| format!("dr_{}_{}", partition.as_char(), place(id)));
        let mut found = Vec::new();
        loop {
            let call = Call::of(&SCRIPTS.list, partition)
                .with("before", before.unwrap_or_default())
                .with("statuses", statuses.join("\n"))
                .with("tenant", filter.tenant.as_ref().map(|name| name.as_str()).unwrap_or_default())
                .with("owner", digest(filter.owner_hash.as_ref()))
                .with("initiator", filter.initiator.as_ref().map(|name| name.as_str()).unwrap_or_default())
                .with("tool", filter.tool.as_ref().map(|name| name.as_str()).unwrap_or_default())
                .with("risk", filter.risk.map(|risk| risk.as_str()).unwrap_or_default())
                .number("limit", limit - found.len());
            let [ids, next, _] = self.found(call).await?;
            found.extend(texts(ids)?.iter().filter_map(|id| id.parse::<DraftId>().ok()));
            let next = text(next)?;
            if next.is_empty() || found.len() >= limit {
                return Ok(found);
            }
            before = Some(next);
        }
    }

    /// The three parts of a reading script's answer.
    async fn found(&self, call: Call) -> Result<[Value; 3], Failure> {
        let Value::Array(parts) = self.run_raw(call).await? else { return Err(strange("no list").into()) };
        let parts = <[Value; 4]>::try_from(parts).map_err(|_| strange("not four parts"))?;
        let [_, one, two, three] = parts;
        Ok([one, two, three])
    }

    /// Work for the sweeper, oldest first.
    pub(super) async fn work(
        &self,
        ended_before: Timestamp,
        own_dead: &[NodeId],
        limit: usize,
    ) -> Result<Due, Failure> {
        let limit = limit.clamp(1, SWEEP_MAX);
        let asked = Partition::all().map(|partition| {
            let call = Call::of(&SCRIPTS.due, partition)
                .number("ended_before", ended_before.as_millis())
                .with("own_dead", names(own_dead))
                .number("limit", limit);
            async move { readable(partition, self.found(call).await.map(Some)) }
        });
        let mut kinds: [Vec<(f64, DraftId)>; 3] = Default::default();
        for parts in try_join_all(asked).await?.into_iter().flatten() {
            for (kind, part) in kinds.iter_mut().zip(parts) {
                let flat = texts(part)?;
                for pair in flat.chunks_exact(2) {
                    if let (Ok(id), Ok(at)) = (pair[0].parse(), pair[1].parse()) {
                        kind.push((at, id));
                    }
                }
            }
        }
        let [expired, orphaned, deletable] = kinds.map(|mut kind| {
            kind.sort_by(|one, other| one.0.total_cmp(&other.0));
            kind.into_iter().take(limit).map(|(_, id)| id).collect()
        });
        Ok(Due { expired, orphaned, deletable })
    }

    /// How many drafts stand in each status.
    pub(super) async fn count(&self) -> Result<Vec<(Status, u64)>, Failure> {
        let mut ask = redis::pipe();
        for partition in Partition::all() {
            for status in Status::ALL {
                let (from, to) = line_range(&format!("st {status} "));
                ask.cmd("ZLEXCOUNT").arg(key(partition, "ix")).arg(from).arg(to);
            }
        }
        let mut counts = Status::ALL.map(|status| (status, 0_u64));
        for (place, value) in self.link.ask(&ask, true).await?.into_iter().enumerate() {
            let count = text(value)?.parse::<u64>().map_err(|_| strange("a count"))?;
            counts[place % Status::ALL.len()].1 += count;
        }
        Ok(counts.to_vec())
    }

    /// Events after a position in each partition; one that cannot be read is left out and read past:
    /// its number shows the gap.
    pub(super) async fn outbox(&self, after: &Cursor, limit: usize) -> Result<Page, Failure> {
        let limit = limit.clamp(1, SWEEP_MAX);
        let mut from = after.each();
        loop {
            let begun = from;
            let mut ask = redis::pipe();
            for (partition, after) in Partition::all().zip(begun) {
                let from = after.saturating_add(1).to_string();
                ask.cmd("XRANGE").arg(key(partition, "ev")).arg(from).arg("+").arg("COUNT").arg(limit);
            }
            let mut found: [Vec<Event>; Partition::COUNT] = Default::default();
            for (partition, entries) in Partition::all().zip(self.link.ask(&ask, true).await?) {
                let Value::Array(entries) = entries else { return Err(strange("a stream").into()) };
                for (seq, event) in entries.into_iter().filter_map(numbered) {
                    let own = &mut found[partition.index()];
                    // What names another partition would move the reader there.
                    match event.filter(|event| event.draft_id.partition() == partition) {
                        Some(event) => own.push(event),
                        None if own.is_empty() => from[partition.index()] = seq,
                        None => {}
                    }
                }
            }
            let page = Page::merged(from, found, limit);
            if !page.events.is_empty() || from == begun {
                return Ok(page);
            }
        }
    }

    /// Writes something small in each partition, so that a server that takes no writes shows.
    pub(super) async fn probe(&self) -> Result<(), Failure> {
        let mut ask = redis::pipe();
        for partition in Partition::all() {
            ask.cmd("SET").arg(key(partition, "probe")).arg(vec![0_u8; PROBE_BYTES]);
        }
        self.link.ask(&ask, false).await?;
        // A user may be kept from scripts alone.
        let nothing = Filter { limit: 1, statuses: vec![Status::Pending], ..Filter::default() };
        readable(Partition::first(), self.ids(Partition::first(), &nothing, 1).await)?;
        let Some(acks) = self.acks() else { return Ok(()) };
        // The partitions of a Cluster have primaries of their own.
        let asked = if self.link.is_cluster() { Partition::COUNT } else { 1 };
        let keys: Vec<String> = Partition::all().take(asked).map(|partition| key(partition, "told")).collect();
        // A few at a time: decisions wait on connections of the same number.
        for some in keys.chunks(4) {
            try_join_all(some.iter().map(|key| self.link.caught_up(key, acks))).await?;
        }
        Ok(())
    }
}

/// What one partition answers; nothing, told in the log, where its numbers are damaged.
fn readable<T: Default>(partition: Partition, answer: Result<T, Failure>) -> Result<T, Failure> {
    match answer {
        Err(failure) if failure.kind == DAMAGED => {
            tracing::error!(partition = %partition.as_char(), error = %failure.error, "a partition is left out");
            Ok(T::default())
        }
        answer => answer,
    }
}

/// Which layout of keys this version has: docs/lifecycle.md, "Redis". A draft that stands under others would not be
/// found by an equal call.
const LAYOUT: &str = "2";

/// What the server says of the key-set fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fingerprint {
    /// It had none; it has this one now.
    Written,
    Same,
    Other,
    /// It has what another version of the guard wrote.
    OtherLayout,
}

/// What to do about [`Fingerprint::OtherLayout`].
pub(super) const OTHER_LAYOUT: &str = "it holds what another version of the guard wrote, under other keys than this one's: end \
     its drafts with that version, and start this one on an emptied server or on another database";

/// Compares the key-set fingerprint with the first node's; writes it if there is none.
pub(super) async fn fingerprint(link: &Link, own: &Digest) -> Result<Fingerprint, Failure> {
    let own = format!("{LAYOUT} {}", own.to_hex());
    let mut ask = redis::pipe();
    ask.cmd("SET").arg(key(Partition::first(), "keys")).arg(&own).arg("NX").arg("GET");
    // Asked twice it does what it does once, so it may be asked again as what only reads.
    let known = match link.ask(&ask, true).await?.pop().unwrap_or_default() {
        Value::Nil => return Ok(Fingerprint::Written),
        known => text(known)?,
    };
    Ok(match known.split_once(' ') {
        _ if known == own => Fingerprint::Same,
        Some((LAYOUT, _)) => Fingerprint::Other,
        _ => Fingerprint::OtherLayout,
    })
}

/// An entry of a stream, `[id, [name, value, …]]`: the number in its id, and the event if it is one.
fn numbered(entry: Value) -> Option<(u64, Option<Event>)> {
    let Value::Array(parts) = entry else { return None };
    let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
    let id = text(id).ok()?;
    let (seq, rest) = id.split_once('-')?;
    let seq = seq.parse().ok()?;
    Some((seq, if rest == "0" { event(seq, fields) } else { None }))
}

/// What `emit` in lua/lib/begin.lua writes: one field of nine lines, and two that need not be there.
fn event(seq: u64, fields: Value) -> Option<Event> {
    let fields = pairs(fields).ok()?;
    let field = |name: &str| fields.get(name.as_bytes()).and_then(|value| std::str::from_utf8(value).ok());
    let some = |name: &str| field(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let lines: Vec<&str> = field("e")?.split('\n').collect();
    let [at, kind, draft, tenant, owner, tool, status, epoch, args] = <[&str; 9]>::try_from(lines).ok()?;
    Some(Event {
        seq,
        at: Timestamp::from_millis(at.parse().ok()?),
        kind: kind.to_owned(),
        draft_id: draft.parse().ok()?,
        tenant: tenant.to_owned().try_into().ok()?,
        owner_hash: owner.parse().ok()?,
        tool: tool.to_owned().try_into().ok()?,
        status: status.to_owned(),
        epoch: epoch.parse().ok()?,
        args_hash: args.parse().ok()?,
        by: some("by"),
        reason: some("reason"),
    })
}
