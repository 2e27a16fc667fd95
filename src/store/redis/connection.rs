//! One connection, to a server or to all of a Cluster.

use futures_util::future::try_join_all;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};

/// A connection that many may use at once.
#[derive(Clone)]
pub(super) enum Connection {
    /// To one server.
    One(MultiplexedConnection),
    /// To every server of a Cluster; follows slots that move.
    Cluster(ClusterConnection),
}

impl Connection {
    /// One command. The library hands an error of the server over as a value; here it is an error.
    pub(super) async fn command(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(command).await?.extract_error(),
            Self::Cluster(connection) => connection.req_packed_command(command).await?.extract_error(),
        }
    }

    /// Commands that belong together and go to one server, each with its own answer or error.
    pub(super) async fn together(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = commands.cmd_iter().count();
        match self {
            Self::One(connection) => connection.req_packed_commands(commands, 0, count).await,
            Self::Cluster(connection) => connection.req_packed_commands(commands, 0, count).await,
        }
    }

    /// Commands that only share a moment: in a Cluster each goes to where its key is.
    pub(super) async fn each(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Self::One(_) => {
                let answers = self.together(commands).await?;
                answers.into_iter().map(Value::extract_error).collect()
            }
            Self::Cluster(connection) => {
                let one = |command: &Cmd| {
                    let (mut connection, command) = (connection.clone(), command.clone());
                    async move { connection.req_packed_command(&command).await?.extract_error() }
                };
                try_join_all(commands.cmd_iter().map(one)).await
            }
        }
    }

    /// Whether it finds its way by itself after a failure.
    pub(super) const fn heals(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}
