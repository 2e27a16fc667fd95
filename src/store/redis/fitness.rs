//! What the server must be, looked at when the store is opened, every ten seconds, and whenever
//! readiness is asked: a server that forgets is no store. Until it is what it must be, nothing is written and readiness says no.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use redis::Value;

use crate::base::digest::Digest;
use crate::base::id::Partition;
use crate::store::observer::StoreObserver;

use super::key;
use super::link::{DAMAGED, Failure, Link};
use super::queries::{self, Fingerprint};
use super::reply::{Reply, pairs, text};
use super::script::SCRIPTS;

/// The oldest version of Redis, and of Valkey.
const REDIS_MIN: u32 = 7;
const VALKEY_MIN: u32 = 8;

/// What an operator vouches for where the server does not let itself be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Assumed {
    /// It never evicts: `maxmemory-policy noeviction`.
    pub noeviction: bool,
    /// What it has answered survives its own restart: an append-only file, or replicas.
    pub durable: bool,
}

/// What is asked of a server, and what was wrong with it when it was last looked at.
pub(super) struct Fitness {
    acks_wanted: u32,
    assumed: Assumed,
    observer: Arc<dyn StoreObserver>,
    /// The keys whose drafts are here, once they were compared.
    fingerprint: OnceLock<Digest>,
    /// While there is something, nothing is written.
    faults: RwLock<Vec<String>>,
    /// How many replicas followed a server at the last look.
    followers: AtomicU32,
}

impl Fitness {
    pub(super) fn new(acks_wanted: u32, assumed: Assumed, observer: Arc<dyn StoreObserver>) -> Self {
        Self {
            acks_wanted,
            assumed,
            observer,
            fingerprint: OnceLock::new(),
            faults: RwLock::default(),
            followers: AtomicU32::new(0),
        }
    }

    /// From now on the server must be of these keys.
    pub(super) fn must_have(&self, fingerprint: Digest) {
        let _known = self.fingerprint.set(fingerprint);
    }

    /// Looks at the server and remembers what is wrong with it.
    ///
    /// A server that was emptied is told again whose it is, before a guard with other keys takes it
    /// for new.
    pub(super) async fn look(&self, link: &Link) -> Result<(), Failure> {
        let mut found = faults(link, self.acks_wanted, self.assumed).await?;
        if self.acks_wanted > 0 {
            self.count_followers(link).await?;
        }
        if let (true, Some(own)) = (found.is_empty(), self.fingerprint.get()) {
            match queries::fingerprint(link, own).await {
                Ok(Fingerprint::Other) => found.push(
                    "it holds drafts of guards with other keys: give every guard the same keys file, or a server of its own"
                        .to_owned(),
                ),
                Ok(Fingerprint::OtherLayout) => found.push(queries::OTHER_LAYOUT.to_owned()),
                Ok(Fingerprint::Written) => {
                    self.observer.step("look", Duration::ZERO, Some("emptied"));
                    tracing::error!(
                        "the Redis server came back without what these guards had stored: every draft that waited is gone, and what \
                         had been sent is no longer known there; put its data back, or look at the services and ask again"
                    );
                }
                // A server that takes no writes is told by every step.
                Ok(Fingerprint::Same) | Err(_) => {}
            }
        }
        let mut known = self.faults.write().unwrap_or_else(PoisonError::into_inner);
        if *known != found {
            if found.is_empty() {
                tracing::info!("the Redis server is fit again; drafts are written");
            } else {
                tracing::error!(faults = found.join("; "), "the Redis server is not fit; nothing is written");
            }
            *known = found;
        }
        Ok(())
    }

    /// Warns where more replicas follow than are waited for: after a failover that left the old primary alive, one
    /// that still follows it would acknowledge what the new primary never gets.
    async fn count_followers(&self, link: &Link) -> Result<(), Failure> {
        let follow =
            |info: &String| info.lines().find_map(|line| line.strip_prefix("connected_slaves:")?.trim().parse().ok());
        let followers = info(link, "replication").await?.iter().filter_map(follow).max().unwrap_or(0);
        if self.followers.swap(followers, Ordering::Relaxed) != followers && followers > self.acks_wanted {
            tracing::warn!(
                followers,
                min_replica_acks = self.acks_wanted,
                "more replicas follow the Redis server than a step waits for: a failover while the old primary still runs can lose \
                 what was answered, and send it twice; set store.min_replica_acks to the number of replicas"
            );
        }
        Ok(())
    }

    /// What was wrong at the last look.
    pub(super) fn faults(&self) -> Vec<String> {
        self.faults.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses to write to a server that would lose it.
    pub(super) fn fit(&self) -> Result<(), Failure> {
        let faults = self.faults.read().unwrap_or_else(PoisonError::into_inner);
        match faults.first() {
            None => Ok(()),
            Some(_) => Err(Failure::unavailable("unfit", format!("the server is not fit: {}", faults.join("; ")))),
        }
    }
}

/// What is wrong with the servers that take writes, each with what to do.
async fn faults(link: &Link, acks_wanted: u32, assumed: Assumed) -> Result<Vec<String>, Failure> {
    let mut found: Vec<String> = versions(link).await?;
    found.extend(settings(link, "maxmemory-policy").await?.into_iter().filter_map(|policy| match policy.as_deref() {
        Some("noeviction") => None,
        Some(other) => Some(format!(
            "its maxmemory-policy is {other}, so it may forget drafts: set `maxmemory-policy noeviction` in redis.conf"
        )),
        None if assumed.noeviction => None,
        None => Some(unknown("maxmemory-policy", "noeviction")),
    }));
    if acks_wanted == 0 {
        found.extend(settings(link, "appendonly").await?.into_iter().filter_map(|appends| {
            match appends.as_deref() {
                Some("yes") => None,
                Some(_) => Some(
                    "it keeps no append-only file, so a restart loses confirmed drafts: set `appendonly yes`, or \
                 `store.min_replica_acks: 1` with a replica"
                        .to_owned(),
                ),
                None if assumed.durable => None,
                None => Some(unknown("appendonly", "durable")),
            }
        }));
    }
    found.extend(stray_lines(link).await?);
    found.extend(rights(link).await?);
    // Servers of a Cluster are often wrong in the same way.
    found.dedup();
    Ok(found)
}

/// Whether an index has lines that no step wrote: all of ours have the score 0, and one with another can make
/// the server find none of them.
async fn stray_lines(link: &Link) -> Result<Option<String>, Failure> {
    let mut ask = redis::pipe();
    for partition in Partition::all() {
        for (from, to) in [("-inf", "(0"), ("(0", "+inf")] {
            ask.cmd("ZCOUNT").arg(key(partition, "ix")).arg(from).arg(to);
        }
    }
    let counts = match link.ask(&ask, true).await {
        Ok(counts) => counts,
        // An index that is none is told by every step of its partition.
        Err(failure) if failure.kind == "server_error" => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let stray =
        counts.chunks(2).zip(Partition::all()).find(|(counts, _)| counts.iter().any(|count| *count != Value::Int(0)));
    Ok(stray.map(|(_, partition)| {
        let index = key(partition, "ix");
        format!(
            "somebody else has written into {index}, and drafts may not be found there: look with \
             `ZRANGEBYSCORE {index} -inf (0` and `ZRANGEBYSCORE {index} (0 +inf`, give lines that name a draft their score \
             back (`ZADD {index} 0 LINE`) and take the others out (`ZREM {index} LINE`)"
        )
    }))
}

/// Which commands of the steps the user may not run.
async fn rights(link: &Link) -> Result<Option<String>, Failure> {
    let script = &SCRIPTS.rights;
    // The servers of a Cluster have users of their own.
    for partition in Partition::all().take(if link.is_cluster() { Partition::COUNT } else { 1 }) {
        let keys = ["meta", "ix", "ev"].map(|name| key(partition, name));
        let missing = match link.step(script, &keys, &[Vec::new()]).await {
            Ok(answer) => match Reply::read(script, answer)? {
                reply if reply.word == "allowed" => continue,
                reply => reply.one().to_owned(),
            },
            // Told by every step of this partition, which stops no other.
            Err(failure) if failure.kind == DAMAGED => continue,
            Err(failure) if asks_forbidden(&failure) => failure.error.to_string(),
            Err(failure) => return Err(failure),
        };
        let todo = "give it the rights that deploy/users.acl.example names";
        return Ok(Some(format!("its user may not run what the guard's steps consist of ({missing}): {todo}")));
    }
    Ok(None)
}

fn unknown(setting: &str, word: &str) -> String {
    format!(
        "it does not say its {setting} (CONFIG is forbidden): allow `CONFIG GET`, or vouch for it with `store.assume: [{word}]`"
    )
}

fn asks_forbidden(failure: &Failure) -> bool {
    matches!(failure.kind, "forbidden" | "server_error")
}

/// A setting of each server; `None` where it does not let itself be asked.
async fn settings(link: &Link, name: &str) -> Result<Vec<Option<String>>, Failure> {
    let mut ask = redis::pipe();
    ask.cmd("CONFIG").arg("GET").arg(name);
    let mut settings = Vec::new();
    for answer in link.ask_all(&ask).await? {
        let found: HashMap<Vec<u8>, Vec<u8>> = match answer {
            Ok(mut found) => pairs(found.pop().unwrap_or(Value::Nil)).unwrap_or_default(),
            Err(failure) if asks_forbidden(&failure) => HashMap::new(),
            Err(failure) => return Err(failure),
        };
        settings.push(found.get(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned()));
    }
    Ok(settings)
}

/// What is wrong with the servers' versions; one that does not tell is judged by whether scripts run.
async fn versions(link: &Link) -> Result<Vec<String>, Failure> {
    Ok(info(link, "server").await?.iter().filter_map(|info| version(info)).collect())
}

/// A section of what each server says of itself; nothing of one that keeps it to itself.
async fn info(link: &Link, section: &str) -> Result<Vec<String>, Failure> {
    let mut ask = redis::pipe();
    ask.cmd("INFO").arg(section);
    let mut found = Vec::new();
    for answer in link.ask_all(&ask).await? {
        match answer {
            Ok(mut answer) => found.push(text(answer.pop().unwrap_or_default())?),
            Err(failure) if asks_forbidden(&failure) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

fn version(info: &str) -> Option<String> {
    let major = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().split('.').next()?.parse::<u32>().ok()
    };
    // Valkey says a Redis version too, for clients that look for it.
    let (name, found, least) = match major("valkey_version:") {
        Some(found) => ("Valkey", found, VALKEY_MIN),
        None => ("Redis", major("redis_version:")?, REDIS_MIN),
    };
    (found < least).then(|| format!("it is {name} {found}; scripts need {name} {least} or later"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_told() {
        assert_eq!(version("redis_version:7.0.15\r\n"), None);
        assert_eq!(version("redis_version:7.2.4\r\nvalkey_version:8.1.0\r\n"), None);
        assert!(version("redis_version:6.2.0\r\n").is_some_and(|fault| fault.contains("Redis 6")));
        assert!(
            version("redis_version:7.2.4\r\nvalkey_version:7.2.5\r\n").is_some_and(|fault| fault.contains("Valkey 7"))
        );
        // Who says nothing is judged by whether scripts run.
        assert_eq!(version(""), None);
    }
}
