//! Where the server is: one URL, or Sentinels that are asked anew each time a connection is made.

use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
use redis::{Client, IntoConnectionInfo as _, RedisError, TlsMode};
use tokio::sync::Mutex;

use super::OpenError;

/// The server behind a URL.
pub(super) enum Server {
    /// `redis://`, `rediss://`, `unix://`.
    One(Client),
    /// `redis+sentinel://` and `rediss+sentinel://`.
    Watched {
        sentinels: Mutex<Sentinel>,
        /// The name under which they watch it.
        name: String,
        node: SentinelNodeConnectionInfo,
    },
}

impl Server {
    /// Reads a URL; nothing is reached.
    ///
    /// `redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/DB`: user and password are the
    /// server's, the hosts are Sentinels.
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        let wrong = |error: RedisError| OpenError::Url(error.to_string());
        let Some((scheme, rest)) = url.split_once("+sentinel://") else {
            return Ok(Self::One(Client::open(url).map_err(wrong)?));
        };
        if !matches!(scheme, "redis" | "rediss") {
            return Err(OpenError::Url("Sentinels are named by redis+sentinel:// or rediss+sentinel://".to_owned()));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        let (name, db) = path.split_once('/').unwrap_or((path, "0"));
        if name.is_empty() || hosts.split(',').any(str::is_empty) {
            let why = "write redis+sentinel://HOST:PORT,HOST:PORT/NAME, NAME as the Sentinels have it";
            return Err(OpenError::Url(why.to_owned()));
        }
        let at = if user.is_empty() { String::new() } else { format!("{user}@") };
        // The library reads user, password and database as it does for one server.
        let one = format!("redis://{at}localhost/{db}").into_connection_info().map_err(wrong)?;
        let mut node = SentinelNodeConnectionInfo::default().set_redis_connection_info(one.redis_settings().clone());
        if scheme == "rediss" {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        let sentinels: Vec<String> = hosts.split(',').map(|host| format!("{scheme}://{host}")).collect();
        let sentinels = Sentinel::build(sentinels).map_err(wrong)?;
        Ok(Self::Watched { sentinels: Mutex::new(sentinels), name: name.to_owned(), node })
    }

    /// The server that takes writes now.
    pub(super) async fn primary(&self) -> Result<Client, RedisError> {
        match self {
            Self::One(client) => Ok(client.clone()),
            Self::Watched { sentinels, name, node } => sentinels.lock().await.async_master_for(name, Some(node)).await,
        }
    }
}

/// How many replicas must acknowledge where nobody says: a failover without one that has would lose
/// what was confirmed.
#[must_use]
pub fn acks_by_default(url: &str) -> u32 {
    u32::from(url.split("://").next().is_some_and(|scheme| scheme.ends_with("+sentinel")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        for good in [
            "redis://localhost",
            "rediss://guard:pw@cache.example:6380/2",
            "unix:///run/redis.sock",
            "redis+sentinel://a:26379,b:26379/main",
            "rediss+sentinel://guard:p%40ss@a,b/main/3",
        ] {
            assert!(Server::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "redis://localhost:many",
            "http://localhost",
            "redis+sentinel://a:26379",
            "redis+sentinel://a,,b/main",
            "redis+sentinel:///main",
            "redis+sentinel://a/main/many",
            "unix+sentinel://a/main",
            "localhost",
        ] {
            assert!(Server::parse(bad).is_err(), "{bad}");
        }
        assert_eq!((acks_by_default("redis+sentinel://a/main"), acks_by_default("redis://a")), (1, 0));
    }
}
