//! What the server must be, looked at when the store is opened and every ten seconds: a server that
//! forgets is no store. Until it is what it must be, nothing is written and readiness says no.

use std::collections::HashMap;

use redis::Value;

use super::link::{Failure, Link};
use super::reply::{pairs, text};

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

/// What is wrong with a server, each with what to do.
pub(super) async fn faults(link: &Link, acks_wanted: u32, assumed: Assumed) -> Result<Vec<String>, Failure> {
    let mut ask = redis::pipe();
    ask.cmd("INFO").arg("server");
    let mut faults = Vec::new();
    match link.ask(&ask, true).await {
        Ok(mut found) => faults.extend(version(&text(found.pop().unwrap_or_default())?)),
        Err(failure) if asks_forbidden(&failure) => {}
        Err(failure) => return Err(failure),
    }
    let policy = setting(link, "maxmemory-policy").await?;
    faults.extend(match policy.as_deref() {
        Some("noeviction") => None,
        Some(other) => Some(format!(
            "its maxmemory-policy is {other}, so it may forget drafts: set `maxmemory-policy noeviction` in redis.conf"
        )),
        None if assumed.noeviction => None,
        None => Some(unknown("maxmemory-policy", "noeviction")),
    });
    if acks_wanted == 0 {
        let appends = setting(link, "appendonly").await?;
        faults.extend(match appends.as_deref() {
            Some("yes") => None,
            Some(_) => Some(
                "it keeps no append-only file, so a restart loses confirmed drafts: set `appendonly yes`, or \
                 `store.min_replica_acks: 1` with a replica"
                    .to_owned(),
            ),
            None if assumed.durable => None,
            None => Some(unknown("appendonly", "durable")),
        });
    }
    Ok(faults)
}

fn unknown(setting: &str, word: &str) -> String {
    format!(
        "it does not say its {setting} (CONFIG is forbidden): allow `CONFIG GET`, or vouch for it with `store.assume: [{word}]`"
    )
}

fn asks_forbidden(failure: &Failure) -> bool {
    matches!(failure.kind, "forbidden" | "server_error")
}

/// A setting; `None` where the server does not let itself be asked.
async fn setting(link: &Link, name: &str) -> Result<Option<String>, Failure> {
    let mut ask = redis::pipe();
    ask.cmd("CONFIG").arg("GET").arg(name);
    let found: HashMap<Vec<u8>, Vec<u8>> = match link.ask(&ask, true).await {
        Ok(mut found) => pairs(found.pop().unwrap_or(Value::Nil)).unwrap_or_default(),
        Err(failure) if asks_forbidden(&failure) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    Ok(found.get(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned()))
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
