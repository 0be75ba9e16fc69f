//! Routes a call to the connection of the single server or, in a Cluster, to that of the slot's master.

mod cluster;
mod pipelined;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::task::JoinSet;

use super::call::Call;
use super::managed_connection::{Generation, LiveConnection, ManagedConnection};
use super::redis_keys::RedisKey;
use super::target::{ConnectOptions, RedisTarget};

/// The result of a call.
pub type Result<T, E = CallError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Not connected, or redirected too often. Nothing was executed.
    #[error("no connection to {0}")]
    Down(String),
    /// The command may have been executed.
    #[error("no reply in time from {0}")]
    TimedOut(String),
    #[error("{0}")]
    Failed(#[from] RedisError),
}

/// A reply with its connection, which is needed to confirm a write.
pub struct Reply {
    pub value: Value,
    pub connection: MultiplexedConnection,
    pub generation: Generation,
    pub server: Arc<str>,
}

/// Redis keys that one call can have, by their positions in a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    pub positions: Vec<usize>,
    /// Whether they are in several slots of a Cluster's master. Then the call must not declare them.
    pub spans_slots: bool,
}

pub enum Topology {
    /// One server, possibly found through Sentinels.
    Single(Arc<ManagedConnection>),
    /// With the task that refreshes its slot map, which ends when this is dropped.
    Cluster { cluster: Arc<Cluster>, _refresh: JoinSet<()> },
}

impl Topology {
    /// Starts connecting in the background. `timeout` is for the PINGs that check a connection.
    pub fn start(target: RedisTarget, options: ConnectOptions, timeout: Duration) -> Self {
        match target {
            RedisTarget::Single(server) => {
                Self::Single(Arc::new(ManagedConnection::start(server, options, timeout)))
            }
            RedisTarget::Cluster(seeds) => {
                let (cluster, _refresh) = Cluster::start(seeds, options, timeout);
                Self::Cluster { cluster, _refresh }
            }
        }
    }

    /// Divides Redis keys into those that one call can have.
    pub fn divide(&self, redis_keys: &[RedisKey]) -> Vec<Part> {
        match self {
            Self::Single(_) => {
                vec![Part { positions: (0..redis_keys.len()).collect(), spans_slots: false }]
            }
            Self::Cluster { cluster, .. } => cluster.divide(redis_keys),
        }
    }

    /// For /readyz; `None` if everything is connected.
    pub fn unavailable_reason(&self) -> Option<String> {
        match self {
            Self::Single(connection) if connection.is_connected() => None,
            Self::Single(connection) => Some(format!("no connection to {}", connection.label())),
            Self::Cluster { cluster, .. } => cluster.unavailable_reason(),
        }
    }

    /// Makes a call on the server of its Redis key. If the server does not have a script cached, sends its text in a
    /// second attempt. Both attempts share one timeout.
    pub async fn send(&self, call: &Call<'_>, timeout: Duration) -> Result<Reply> {
        let redis_key = call.redis_key;
        let attempts = async {
            let reply = self.attempt(redis_key, &call.command).await;
            self.retry_by_text(call, reply).await
        };
        let used = self.connection_for(redis_key);
        let reply = tokio::time::timeout(timeout, attempts).await;
        reply.unwrap_or_else(|_| Err(self.on_timeout(redis_key, used)))
    }

    /// Sends a script's text if `reply`, that of the first attempt, is NOSCRIPT.
    async fn retry_by_text(&self, call: &Call<'_>, reply: Result<Reply>) -> Result<Reply> {
        if let Err(CallError::Failed(error)) = &reply
            && is(error, ServerErrorKind::NoScript)
            && let Some(by_text) = call.by_text()
        {
            // Nothing was executed, so sending it again is safe. Boxed, because it is rare.
            return Box::pin(self.attempt(call.redis_key, &by_text)).await;
        }
        reply
    }

    /// The connection for `redis_key`, and its generation before a call.
    fn connection_for(&self, redis_key: &RedisKey) -> Option<(Arc<ManagedConnection>, Generation)> {
        let managed = self.server_of(redis_key)?;
        let generation = managed.generation()?;
        Some((managed, generation))
    }

    /// `None` if, in a Cluster, the slot has no master.
    pub fn server_of(&self, redis_key: &RedisKey) -> Option<Arc<ManagedConnection>> {
        match self {
            Self::Single(connection) => Some(connection.clone()),
            Self::Cluster { cluster, .. } => cluster.master(redis_key.slot()),
        }
    }

    /// Reports the connection that was used as suspect.
    fn on_timeout(
        &self,
        redis_key: &RedisKey,
        used: Option<(Arc<ManagedConnection>, Generation)>,
    ) -> CallError {
        if let Self::Cluster { cluster, .. } = self {
            cluster.request_refresh();
        }
        let Some((managed, generation)) = used else {
            return CallError::Down(format!("a master of slot {}", redis_key.slot()));
        };
        managed.report_suspect(generation);
        CallError::TimedOut(managed.label().to_string())
    }

    /// Never resends a command that may have been executed.
    async fn attempt(&self, redis_key: &RedisKey, command: &Cmd) -> Result<Reply> {
        match self {
            Self::Single(connection) => send_on(connection, command).await,
            // Boxed, so that the future of a call on a single server has no space for it.
            Self::Cluster { cluster, .. } => Box::pin(cluster.send(redis_key.slot(), command)).await,
        }
    }
}

async fn send_on(managed: &ManagedConnection, command: &Cmd) -> Result<Reply> {
    let mut live = managed.connection().ok_or_else(|| CallError::Down(managed.label().to_string()))?;
    let result = command.query_async(&mut live.connection).await;
    reply(managed, live, result)
}

/// The reply of a call on the connection `live`. Reports an error to the connection's background task.
fn reply(managed: &ManagedConnection, live: LiveConnection, result: RedisResult<Value>) -> Result<Reply> {
    match result {
        Ok(value) => {
            let LiveConnection { connection, generation, .. } = live;
            Ok(Reply { value, connection, generation, server: managed.label().clone() })
        }
        Err(error) => Err(call_error(managed, live.generation, error)),
    }
}

/// The error of a call. Reports it to the connection's background task if it can mean a broken connection or a wrong
/// server.
fn call_error(managed: &ManagedConnection, generation: Generation, error: RedisError) -> CallError {
    if is(&error, ServerErrorKind::ReadOnly) || is(&error, ServerErrorKind::MasterDown) {
        managed.report_not_master(generation);
    } else if error.is_io_error()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        // In these states the server also replies to PING with an error until it has recovered.
        || is(&error, ServerErrorKind::BusyLoading)
        || error.code() == Some("MISCONF")
    {
        managed.report_suspect(generation);
    }
    if error.is_timeout() { CallError::TimedOut(managed.label().to_string()) } else { error.into() }
}

fn is(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}
