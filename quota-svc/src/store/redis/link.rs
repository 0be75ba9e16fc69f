//! One connection that heals itself: a keeper dials, watches and dials again, callers never wait for it.
//!
//! A call that finds the link down is refused at once. A call that fails on its way puts the link in doubt: it is
//! down until the server answers a PING, so that a server that hangs is not sent charges whose callers have given
//! up (they would be applied later and could pause a key).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};

use super::target::{Access, Node};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How often a quiet link is looked at: a server that went away between two calls must not cost the next one.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Before dialling again after a connection that was of no use: a server that refuses every write (a replica)
/// must not be dialled for each of them.
const USELESS_PAUSE: Duration = Duration::from_millis(100);

/// How a link finds its server, each time anew.
#[derive(Clone)]
pub enum Route {
    /// A fixed address.
    Server(Node),
    /// A Unix socket.
    Socket(String),
    /// The master that sentinels name.
    Sentinel {
        /// Any of them may be asked.
        sentinels: Vec<Node>,
        /// The master's name.
        master: String,
    },
}

/// A connection that heals itself. Dropping it ends its keeper.
pub struct Link {
    connection: watch::Receiver<Option<MultiplexedConnection>>,
    doubt: Arc<Doubt>,
    keeper: tokio::task::JoinHandle<()>,
    timeout: Duration,
    label: Arc<str>,
}

/// How callers tell the keeper what they met.
#[derive(Default)]
struct Doubt {
    met: Notify,
    /// The server answers and is the wrong one: dial anew, the address may lead elsewhere by now.
    wrong_server: AtomicBool,
}

impl Link {
    /// Starts dialling.
    pub fn start(route: Route, access: Access, timeout: Duration) -> Self {
        let (publish, connection) = watch::channel(None);
        let doubt = Arc::new(Doubt::default());
        let label = route.label().into();
        let keeper = Keeper { route, access, timeout, publish, doubt: doubt.clone() };
        Self { connection, doubt, keeper: tokio::spawn(keeper.run()), timeout, label }
    }

    /// The connection, if the link is up.
    pub fn connection(&self) -> Option<MultiplexedConnection> {
        self.connection.borrow().clone()
    }

    /// Whether the link is up.
    pub fn is_up(&self) -> bool {
        self.connection.borrow().is_some()
    }

    /// Waits until the link is up.
    pub async fn up(&self) {
        // The sender lives in the keeper, which ends with this link only.
        let _ = self.connection.clone().wait_for(Option::is_some).await;
    }

    /// Says that a call failed on its way.
    pub fn report_doubt(&self) {
        self.doubt.met.notify_one();
    }

    /// Says that the server is no longer the one to write to.
    pub fn report_wrong_server(&self) {
        self.doubt.wrong_server.store(true, Ordering::Release);
        self.doubt.met.notify_one();
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The server's address for messages.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Route {
    fn label(&self) -> String {
        match self {
            Self::Server((host, port)) => format!("{host}:{port}"),
            Self::Socket(path) => path.clone(),
            Self::Sentinel { master, .. } => format!("master {master}"),
        }
    }
}

struct Keeper {
    route: Route,
    access: Access,
    timeout: Duration,
    publish: watch::Sender<Option<MultiplexedConnection>>,
    doubt: Arc<Doubt>,
}

impl Keeper {
    async fn run(self) {
        loop {
            let connection = self.dial_until_connected().await;
            let since = Instant::now();
            self.publish.send_replace(Some(connection.clone()));
            self.watch_over(connection).await;
            self.publish.send_replace(None);
            if since.elapsed() < LOOK_EVERY {
                tokio::time::sleep(USELESS_PAUSE).await;
            }
        }
    }

    async fn dial_until_connected(&self) -> MultiplexedConnection {
        let (mut pause, mut complained) = (FIRST_PAUSE, false);
        loop {
            match self.dial().await {
                Ok(connection) => {
                    tracing::info!(server = self.route.label(), "connected to the store");
                    return connection;
                }
                Err(error) if !complained => {
                    complained = true;
                    tracing::warn!(server = self.route.label(), %error, "the store can't be reached; trying on");
                }
                Err(error) => {
                    tracing::debug!(server = self.route.label(), %error, "the store can't be reached")
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A connection on which the server says that it can serve: one that is loading its data, or whose disk is
    /// full, takes connections and answers PING with an error.
    async fn dial(&self) -> redis::RedisResult<MultiplexedConnection> {
        let mut connection = self.connect().await?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        Ok(connection)
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        match &self.route {
            Route::Server(node) => self.access.connect(node).await,
            Route::Socket(path) => self.access.connect_socket(path).await,
            Route::Sentinel { sentinels, master } => {
                let node = self.access.ask_sentinels(sentinels, master).await?;
                let mut connection = self.access.connect(&node).await?;
                // A sentinel may name the old master for a moment after a failover.
                let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
                match role.first() {
                    Some(redis::Value::BulkString(role)) if role == b"master" => Ok(connection),
                    _ => {
                        Err((redis::ErrorKind::Io, "the server that the sentinel named is not the master")
                            .into())
                    }
                }
            }
        }
    }

    /// Returns when the connection is lost.
    async fn watch_over(&self, mut connection: MultiplexedConnection) {
        loop {
            let doubted = tokio::time::timeout(LOOK_EVERY, self.doubt.met.notified()).await.is_ok();
            if doubted {
                self.publish.send_replace(None);
            }
            if self.doubt.wrong_server.swap(false, Ordering::AcqRel) {
                return;
            }
            let ping = redis::cmd("PING");
            let answer = tokio::time::timeout(self.timeout, ping.exec_async(&mut connection)).await;
            // A master that became a replica answers PING too, so only a fixed address may be kept.
            let may_keep = !matches!(self.route, Route::Sentinel { .. });
            match answer {
                Ok(Ok(())) if !doubted => {}
                Ok(Ok(())) if may_keep => {
                    self.publish.send_replace(Some(connection.clone()));
                }
                _ => return,
            }
        }
    }
}
