//! A connection that a background task opens, checks and re-establishes.
//!
//! While disconnected, calls fail immediately. After a failed call the connection is unavailable until the server
//! replies to PING. Otherwise a server that hangs would get charges whose callers time out; it would apply them later,
//! and that could pause a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};

use super::target::{ConnectOptions, Node};

const INITIAL_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// Interval of the PINGs that check a connection. They detect a lost server before the next call does.
const PING_INTERVAL: Duration = Duration::from_millis(250);
/// Delay before reconnecting, if the last connection lasted less than `PING_INTERVAL`. A replica, for example, accepts
/// connections but rejects every write; without the delay, each rejected write would open a new connection.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// The server of a connection, resolved again on every reconnect.
#[derive(Clone)]
pub enum ServerTarget {
    Server(Node),
    /// Path of a Unix socket.
    Socket(String),
    /// The master named `master`, found through any of the Sentinels.
    Sentinel {
        sentinels: Vec<Node>,
        master: String,
    },
}

/// Dropping it ends the background task.
pub struct ManagedConnection {
    connection: watch::Receiver<Option<MultiplexedConnection>>,
    health: Arc<HealthSignal>,
    task: tokio::task::JoinHandle<()>,
    timeout: Duration,
    label: Arc<str>,
}

/// Reports from callers to the background task.
#[derive(Default)]
struct HealthSignal {
    /// A call failed: check the connection.
    suspect: Notify,
    /// The server replies but is not the master: reconnect, since the address may now lead to another server.
    not_master: AtomicBool,
}

impl ManagedConnection {
    /// Starts connecting in the background.
    pub fn start(target: ServerTarget, options: ConnectOptions, timeout: Duration) -> Self {
        let (publish, connection) = watch::channel(None);
        let health = Arc::new(HealthSignal::default());
        let label = target.label().into();
        let task = ConnectionTask { target, options, timeout, publish, health: health.clone() };
        Self { connection, health, task: tokio::spawn(task.run()), timeout, label }
    }

    /// `None` while disconnected.
    pub fn connection(&self) -> Option<MultiplexedConnection> {
        self.connection.borrow().clone()
    }

    pub fn is_connected(&self) -> bool {
        self.connection.borrow().is_some()
    }

    pub async fn wait_connected(&self) {
        // Fails only if the task has dropped the sender, and the task runs as long as `self` exists.
        let _ = self.connection.clone().wait_for(Option::is_some).await;
    }

    /// Reports a failed call.
    pub fn report_suspect(&self) {
        self.health.suspect.notify_one();
    }

    /// Reports that the server is not, or no longer, the master.
    pub fn report_not_master(&self) {
        self.health.not_master.store(true, Ordering::Release);
        self.health.suspect.notify_one();
    }

    /// Timeout of a call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The server's address, for messages.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }
}

impl Drop for ManagedConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServerTarget {
    fn label(&self) -> String {
        match self {
            Self::Server((host, port)) => format!("{host}:{port}"),
            Self::Socket(path) => path.clone(),
            Self::Sentinel { master, .. } => format!("master {master}"),
        }
    }
}

struct ConnectionTask {
    target: ServerTarget,
    options: ConnectOptions,
    timeout: Duration,
    publish: watch::Sender<Option<MultiplexedConnection>>,
    health: Arc<HealthSignal>,
}

impl ConnectionTask {
    async fn run(self) {
        loop {
            let connection = self.connect_with_retry().await;
            let since = Instant::now();
            self.publish.send_replace(Some(connection.clone()));
            self.monitor(connection).await;
            self.publish.send_replace(None);
            if since.elapsed() < PING_INTERVAL {
                tokio::time::sleep(RECONNECT_DELAY).await;
            }
        }
    }

    async fn connect_with_retry(&self) -> MultiplexedConnection {
        let (mut backoff, mut warned) = (INITIAL_BACKOFF, false);
        loop {
            match self.connect_and_ping().await {
                Ok(connection) => {
                    tracing::info!(server = self.target.label(), "connected to the store");
                    return connection;
                }
                Err(error) if !warned => {
                    warned = true;
                    tracing::warn!(server = self.target.label(), %error, "can't connect to the store; retrying");
                }
                Err(error) => {
                    tracing::debug!(server = self.target.label(), %error, "can't connect to the store")
                }
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Includes a PING, because a server that is loading its data, or whose disk is full, accepts connections but
    /// replies to PING with an error.
    async fn connect_and_ping(&self) -> redis::RedisResult<MultiplexedConnection> {
        let mut connection = self.connect().await?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        Ok(connection)
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        match &self.target {
            ServerTarget::Server(node) => self.options.connect(node).await,
            ServerTarget::Socket(path) => self.options.connect_socket(path).await,
            ServerTarget::Sentinel { sentinels, master } => {
                let node = self.options.resolve_master(sentinels, master).await?;
                let mut connection = self.options.connect(&node).await?;
                // Shortly after a failover a Sentinel may still return the old master.
                let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
                match role.first() {
                    Some(redis::Value::BulkString(role)) if role == b"master" => Ok(connection),
                    _ => {
                        Err((redis::ErrorKind::Io, "the server named by the sentinel is not the master")
                            .into())
                    }
                }
            }
        }
    }

    /// Returns when the connection must be replaced.
    async fn monitor(&self, mut connection: MultiplexedConnection) {
        loop {
            let suspect = tokio::time::timeout(PING_INTERVAL, self.health.suspect.notified()).await.is_ok();
            if suspect {
                self.publish.send_replace(None);
            }
            if self.health.not_master.swap(false, Ordering::AcqRel) {
                return;
            }
            let ping = redis::cmd("PING");
            let reply = tokio::time::timeout(self.timeout, ping.exec_async(&mut connection)).await;
            // A former master that became a replica replies to PING too, so after a failed call a connection found
            // through Sentinels is always replaced.
            let may_keep = !matches!(self.target, ServerTarget::Sentinel { .. });
            match reply {
                Ok(Ok(())) if !suspect => {}
                Ok(Ok(())) if may_keep => {
                    self.publish.send_replace(Some(connection.clone()));
                }
                _ => return,
            }
        }
    }
}
