//! Where the server is: one URL, Sentinels that are asked anew each time a connection is made, or
//! the nodes of a Cluster.

use std::time::Duration;

use futures_util::future::select_ok;
use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, RedisError, RedisResult, TlsCertificates,
    TlsMode, Value,
};
use tokio::sync::Mutex;

use super::OpenError;
use super::connection::Connection;
use super::reply::text;

/// Bytes that may wait to be written on one connection before callers wait.
const PIPELINE: usize = 4_096;

/// How long the library waits before it follows a slot that has moved.
const RETRY_WAIT_MS: u64 = 20;

/// The server behind a URL.
pub(super) enum Server {
    /// `redis://`, `rediss://`, `unix://`.
    One(Client),
    /// `redis+sentinel://` and `rediss+sentinel://`.
    Watched {
        /// One each: all are asked at once, so that one that hangs holds nobody up.
        sentinels: Vec<Mutex<SentinelClient>>,
        /// The primary that they named last.
        last: std::sync::Mutex<Option<String>>,
    },
    /// `redis+cluster://` and `rediss+cluster://`.
    Cluster {
        client: Box<ClusterClient>,
        /// The nodes that the URL names.
        seeds: Vec<Client>,
        /// How long one of them may take to tell the others.
        each: Duration,
    },
}

impl Server {
    /// Reads a URL; nothing is reached.
    ///
    /// `redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/DB`: user and password are the
    /// server's, the hosts are Sentinels. `redis+cluster://USER:PASSWORD@HOST:PORT,HOST:PORT` names
    /// nodes of a Cluster, which tell the others. `tls` is for `rediss` in front of any of them.
    pub(super) fn parse(url: &str, patience: Duration, tls: Option<&TlsCertificates>) -> Result<Self, OpenError> {
        let wrong = |error: RedisError| OpenError::Url(error.to_string());
        if url.contains('#') {
            // The library would read `#insecure` as leave to believe any certificate.
            return Err(OpenError::Url(
                "it has a `#`; write %23 in a password, and nothing behind the database".to_owned(),
            ));
        }
        if url.contains("protocol=") {
            return Err(OpenError::Url("it names a protocol; the guard speaks its own".to_owned()));
        }
        let authority = url.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
        let user = authority.rsplit_once('@').map(|(user, _)| user.split_once(':').unwrap_or((user, "")));
        if user.is_some_and(|(name, password)| !name.is_empty() && password.is_empty()) {
            // The library would go in as the default user then.
            return Err(OpenError::Url("it names a user without a password".to_owned()));
        }
        if let Some((scheme, rest)) = url.split_once("+cluster://") {
            return Self::cluster(scheme, rest, patience, tls);
        }
        let Some((scheme, rest)) = url.split_once("+sentinel://") else {
            return Ok(Self::One(client(url, tls).map_err(wrong)?));
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
        let settings = one.redis_settings();
        let addresses = hosts.split(',').map(|host| {
            let sentinel = format!("{scheme}://{host}").into_connection_info()?;
            Ok(sentinel.addr().clone())
        });
        let addresses = addresses.collect::<RedisResult<Vec<_>>>().map_err(wrong)?;
        let client = |address: ConnectionAddr| {
            let mut client = SentinelClientBuilder::new([address], name, SentinelServerType::Master)?
                .set_client_to_redis_db(settings.db());
            if let Some(user) = settings.username() {
                client = client.set_client_to_redis_username(user);
            }
            if let Some(password) = settings.password() {
                client = client.set_client_to_redis_password(password);
            }
            if scheme == "rediss" {
                client = client.set_client_to_redis_tls_mode(TlsMode::Secure);
                if let Some(tls) = tls {
                    client = client
                        .set_client_to_redis_certificates(tls.clone())
                        .set_client_to_sentinel_certificates(tls.clone());
                }
            }
            client.build().map(Mutex::new)
        };
        let sentinels = addresses.into_iter().map(client).collect::<RedisResult<_>>().map_err(wrong)?;
        Ok(Self::Watched { sentinels, last: std::sync::Mutex::default() })
    }

    fn cluster(scheme: &str, rest: &str, patience: Duration, tls: Option<&TlsCertificates>) -> Result<Self, OpenError> {
        let wrong = |error: RedisError| OpenError::Url(error.to_string());
        let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(user, hosts)| (user, hosts));
        let hosts = hosts.trim_end_matches('/');
        if !matches!(scheme, "redis" | "rediss") || hosts.contains('/') || hosts.split(',').any(str::is_empty) {
            let why = "write redis+cluster://HOST:PORT,HOST:PORT; a Cluster has no databases";
            return Err(OpenError::Url(why.to_owned()));
        }
        let at = if user.is_empty() { String::new() } else { format!("{user}@") };
        let nodes: Vec<String> = hosts.split(',').map(|host| format!("{scheme}://{at}{host}")).collect();
        let seeds: Vec<Client> =
            nodes.iter().map(|node| client(node, tls)).collect::<RedisResult<_>>().map_err(wrong)?;
        // It sends a command once more where the slot has moved and where a connection broke: harmless, because
        // every step has an id; what it is told then is taken as said in link.rs.
        let mut client = ClusterClient::builder(nodes)
            // Less than the caller has, so that the library learns of a node that hangs and asks the others. More
            // than replicas are waited for.
            .connection_timeout(patience / 4)
            .response_timeout(patience / 2)
            .retries(1)
            .min_retry_wait(RETRY_WAIT_MS)
            .max_retry_wait(RETRY_WAIT_MS);
        if let Some(tls) = tls {
            client = client.certs(tls.clone());
        }
        // A node that does not answer leaves time for the others.
        let each = patience / u32::try_from(seeds.len() + 1).unwrap_or(u32::MAX);
        Ok(Self::Cluster { client: Box::new(client.build().map_err(wrong)?), seeds, each })
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> RedisResult<Connection> {
        match self {
            Self::One(client) => connect_to(client).await.map(Connection::One),
            Self::Watched { .. } => {
                let primaries = self.primaries().await?;
                let primary = primaries.first().ok_or_else(nobody)?;
                connect_to(primary).await.map(Connection::One)
            }
            Self::Cluster { client, .. } => client.get_async_connection().await.map(Connection::Cluster),
        }
    }

    /// Whether the Sentinels name another primary than they did when this was last asked.
    pub(super) fn has_moved(&self, primaries: &[Client]) -> bool {
        let (Self::Watched { last, .. }, [primary]) = (self, primaries) else { return false };
        let now = primary.get_connection_info().addr().to_string();
        let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let moved = last.as_ref().is_some_and(|last| *last != now);
        *last = Some(now);
        moved
    }

    /// The servers that take writes now.
    pub(super) async fn primaries(&self) -> RedisResult<Vec<Client>> {
        match self {
            Self::One(client) => Ok(vec![client.clone()]),
            Self::Watched { sentinels, .. } => {
                let asked = sentinels.iter().map(|one| Box::pin(async { one.lock().await.async_get_client().await }));
                let (primary, _others) = select_ok(asked).await?;
                Ok(vec![primary])
            }
            Self::Cluster { seeds, each, .. } => {
                let mut failed = nobody();
                for seed in seeds {
                    match tokio::time::timeout(*each, slots(seed)).await {
                        Ok(Ok(primaries)) => return Ok(primaries),
                        Ok(Err(error)) => failed = error,
                        Err(_) => {}
                    }
                }
                Err(failed)
            }
        }
    }
}

/// A client of one server; `tls` is for a URL that asks for it.
fn client(url: &str, tls: Option<&TlsCertificates>) -> RedisResult<Client> {
    match tls {
        Some(tls) if is_tls(url) => Client::build_with_tls(url, tls.clone()),
        _ => Client::open(url),
    }
}

/// Whether a URL asks for TLS, in front of whatever it names.
#[must_use]
pub fn is_tls(url: &str) -> bool {
    url.starts_with("rediss") || url.starts_with("valkeys")
}

/// A connection to one server. Bounded by the caller's clock: the library's own time would end a
/// call without telling whether it was sent.
pub(super) async fn connect_to(client: &Client) -> RedisResult<redis::aio::MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE);
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn nobody() -> RedisError {
    RedisError::from((redis::ErrorKind::ClusterConnectionNotFound, "no server takes writes"))
}

/// The primaries of a Cluster, as one of its nodes has them.
async fn slots(seed: &Client) -> RedisResult<Vec<Client>> {
    let mut connection = connect_to(seed).await?;
    let found: Vec<Value> = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
    let own = seed.get_connection_info();
    let mut addresses: Vec<(String, u16)> = Vec::new();
    for range in found {
        let Value::Array(range) = range else { continue };
        let Some(Value::Array(node)) = range.into_iter().nth(2) else { continue };
        let mut parts = node.into_iter();
        let host = parts.next().and_then(|host| text(host).ok()).filter(|host| !host.is_empty());
        let port = parts.next().and_then(|port| text(port).ok()?.parse().ok());
        // A node that does not know its own address is the one that was asked.
        let host = host.or_else(|| host_of(own.addr()));
        if let (Some(host), Some(port)) = (host, port)
            && !addresses.contains(&(host.clone(), port))
        {
            addresses.push((host, port));
        }
    }
    if addresses.is_empty() {
        return Err(nobody());
    }
    let client = |(host, port)| {
        let address = match own.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(own.clone().set_addr(address))
    };
    addresses.into_iter().map(client).collect()
}

fn host_of(address: &ConnectionAddr) -> Option<String> {
    match address {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host.clone()),
        _ => None,
    }
}

/// How many replicas must acknowledge where nobody says: a failover without one that has would lose
/// what was confirmed.
#[must_use]
pub fn acks_by_default(url: &str) -> u32 {
    u32::from(
        url.split("://").next().is_some_and(|scheme| scheme.ends_with("+sentinel") || scheme.ends_with("+cluster")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    #[test]
    fn addresses_are_told_apart() {
        for good in [
            "redis://localhost",
            "rediss://guard:pw@cache.example:6380/2",
            "unix:///run/redis.sock",
            "redis+sentinel://a:26379,b:26379/main",
            "rediss+sentinel://guard:p%40ss@a,b/main/3",
            "redis+cluster://a:7000,b:7001",
            "rediss+cluster://guard:p%40ss@a/",
        ] {
            assert!(Server::parse(good, PATIENCE, None).is_ok(), "{good}");
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
            "redis://guard@localhost",
            "redis://guard:@localhost",
            "rediss://localhost#insecure",
            "redis://localhost?protocol=resp3",
            "rediss+sentinel://localhost/main#insecure",
            "redis+cluster://",
            "redis+cluster://a,,b",
            "redis+cluster://a/1",
        ] {
            assert!(Server::parse(bad, PATIENCE, None).is_err(), "{bad}");
        }
        assert_eq!((acks_by_default("redis+sentinel://a/main"), acks_by_default("redis://a")), (1, 0));
    }
}
