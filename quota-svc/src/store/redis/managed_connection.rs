//! A connection that a background task opens, checks and re-establishes.
//!
//! While disconnected, calls fail immediately. After a failed call the connection is unavailable until the server
//! replies to PING. Otherwise a server that hangs would get charges whose callers time out; it would apply them later,
//! and that could pause a key.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisResult};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::settings;
use super::target::{ConnectOptions, ServerTarget};

const INITIAL_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// Interval of the PINGs that check a connection. They detect a lost server before the next call does.
const PING_INTERVAL: Duration = Duration::from_millis(250);
/// Delay before reconnecting, if the last connection lasted less than `PING_INTERVAL`. A replica, for example, accepts
/// connections but rejects every write; without the delay, each rejected write would open a new connection.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// A connection to a server, and what its callers report about it.
#[derive(Debug, Clone)]
pub struct LiveConnection {
    pub connection: MultiplexedConnection,
    pub status: Arc<Status>,
}

/// A connection that is published again after a check has a new status, so that reports about the earlier one are outdated: a
/// call that failed because of an outage must not make the connection suspect that is used after the outage.
#[derive(Debug, Default)]
pub struct Status {
    pub server: Arc<str>,
    /// Another one in each status of the process.
    pub generation: u64,
    /// Whether a script may access several slots of the server, with Redis keys that are not declared. Not known of a new
    /// connection: the server may have another version.
    pub spans_slots: AtomicBool,
    /// A call has failed: check the connection.
    suspect: AtomicBool,
    /// The server replies but is not the master: reconnect, since the address may now lead to another server.
    not_master: AtomicBool,
    reported: Notify,
}

impl LiveConnection {
    fn new(connection: MultiplexedConnection, server: &Arc<str>, spans_slots: bool) -> Self {
        static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);
        let generation = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
        let (server, spans_slots) = (server.clone(), spans_slots.into());
        let status = Status { server, generation, spans_slots, ..Status::default() };
        Self { connection, status: Arc::new(status) }
    }

    pub fn report_suspect(&self) {
        self.status.suspect.store(true, Ordering::Release);
        self.status.reported.notify_one();
    }

    /// Reports that the server is not, or no longer, the master.
    pub fn report_not_master(&self) {
        self.status.not_master.store(true, Ordering::Release);
        self.report_suspect();
    }
}

pub struct ManagedConnection {
    connection: watch::Receiver<Option<LiveConnection>>,
    /// The background task, which ends when this is dropped.
    _task: JoinSet<()>,
    pub label: Arc<str>,
}

impl ManagedConnection {
    /// Starts connecting in the background.
    pub fn start(target: ServerTarget, options: ConnectOptions) -> Self {
        let (publish, connection) = watch::channel(None);
        let label: Arc<str> = target.label().into();
        let task = ConnectionTask { target, options, publish, label: label.clone() };
        let mut running = JoinSet::new();
        running.spawn(async move { restart_after_panic("store connection", || task.run()).await });
        Self { connection, _task: running, label }
    }

    /// `None` while disconnected.
    pub fn connection(&self) -> Option<LiveConnection> {
        self.connection.borrow().clone()
    }

    pub fn is_connected(&self) -> bool {
        self.connection.borrow().is_some()
    }

    /// Whether [`Status::spans_slots`] is known to be true.
    pub fn spans_slots(&self) -> bool {
        self.connection.borrow().as_ref().is_some_and(|live| live.status.spans_slots.load(Ordering::Relaxed))
    }

    pub async fn wait_connected(&self) {
        // Fails only if the task has dropped the sender, and the task runs as long as `self` exists.
        let _ = self.connection.clone().wait_for(Option::is_some).await;
    }
}

struct ConnectionTask {
    target: ServerTarget,
    options: ConnectOptions,
    publish: watch::Sender<Option<LiveConnection>>,
    label: Arc<str>,
}

impl ConnectionTask {
    async fn run(&self) -> Infallible {
        // After a panic, nothing checks the published connection.
        self.publish.send_replace(None);
        let (mut backoff, server, log) = (INITIAL_BACKOFF, &*self.label, &self.options.server_log);
        loop {
            match self.connect().await {
                Ok(connection) => {
                    log.end_outage(server);
                    tracing::info!(server, "connected to the store");
                    let since = Instant::now();
                    self.monitor(connection).await;
                    self.publish.send_replace(None);
                    backoff = INITIAL_BACKOFF;
                    if since.elapsed() < PING_INTERVAL {
                        tokio::time::sleep(RECONNECT_DELAY).await;
                    }
                    continue;
                }
                Err(error) if log.is_new_error(server, error.to_string()) => {
                    tracing::warn!(server, %error, "can't connect to the store; retrying");
                }
                Err(error) => tracing::debug!(server, %error, "can't connect to the store"),
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Also checks the server's settings, and sends a PING, because a server that is loading its data, or whose disk is full,
    /// accepts connections but replies to PING with an error.
    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let mut connection = self.options.connect(&self.target).await?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        let assessment = settings::read(&mut connection).await?;
        let reject = |reason| (ErrorKind::InvalidClientConfig, "the server's settings are unsafe", reason);
        self.options.server_log.record(&self.label, assessment).map_err(reject)?;
        Ok(connection)
    }

    /// Publishes the connection and checks it. Returns when it must be replaced.
    async fn monitor(&self, mut connection: MultiplexedConnection) {
        let mut live = LiveConnection::new(connection.clone(), &self.label, false);
        self.publish.send_replace(Some(live.clone()));
        loop {
            // Ends early after a report.
            let _ = tokio::time::timeout(PING_INTERVAL, live.status.reported.notified()).await;
            let is_suspect = live.status.suspect.load(Ordering::Acquire);
            if is_suspect {
                self.publish.send_replace(None);
            }
            if live.status.not_master.load(Ordering::Acquire) {
                return;
            }
            let ping = redis::cmd("PING");
            let reply = tokio::time::timeout(self.options.timeout, ping.exec_async(&mut connection)).await;
            // A former master that became a replica replies to PING too, so after a failed call a connection found
            // through Sentinels is always replaced.
            let may_keep = !matches!(self.target, ServerTarget::Sentinel { .. });
            match reply {
                Ok(Ok(())) if !is_suspect => {}
                Ok(Ok(())) if may_keep => {
                    let spans_slots = live.status.spans_slots.load(Ordering::Relaxed);
                    live = LiveConnection::new(connection.clone(), &self.label, spans_slots);
                    self.publish.send_replace(Some(live.clone()));
                }
                _ => return,
            }
        }
    }
}

/// Runs a task that never ends, and starts it again after each panic. Without its task, a connection would neither be
/// checked nor replaced.
pub async fn restart_after_panic<F: Future<Output = Infallible>>(name: &str, task: impl Fn() -> F) {
    loop {
        let Err(_) = AssertUnwindSafe(task()).catch_unwind().await;
        tracing::error!(task = name, "a background task has panicked; restarting it");
        // Bounds the CPU time and the log lines of a task that panics again and again.
        tokio::time::sleep(MAX_BACKOFF).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use testkit::redis::Redis;

    use super::super::target::{self, RedisTarget};
    use super::*;
    use crate::store::StoreArgs;

    const TIMEOUT: Duration = Duration::from_secs(10);

    impl ManagedConnection {
        /// Connects to the server at a URL, for the tests of this module and of others.
        pub async fn connect_to(url: &str, timeout: Duration) -> Self {
            let args = StoreArgs { write_timeout: timeout, ..StoreArgs::default() };
            let (target, options) = target::parse(url, &args).unwrap();
            let RedisTarget::Single(server) = target else { panic!("not a server: {target:?}") };
            let managed = Self::start(server, options);
            managed.wait_connected().await;
            managed
        }
    }

    #[tokio::test]
    async fn failures_of_an_outage_leave_the_next_connection_usable() {
        let mut redis = Redis::start().await;
        let managed = ManagedConnection::connect_to(&redis.url(), TIMEOUT).await;
        let mut published = managed.connection.clone();
        let failed = managed.connection().unwrap();
        redis.stop();
        failed.report_suspect();
        published.wait_for(Option::is_none).await.unwrap();
        // These calls failed too, but their callers noticed later.
        failed.report_suspect();
        redis.restart().await;
        published.wait_for(Option::is_some).await.unwrap();
        failed.report_not_master();
        let changed = tokio::time::timeout(3 * PING_INTERVAL, published.changed()).await;
        assert!(changed.is_err(), "the new connection was not suspended");
        managed.connection().unwrap().report_suspect();
        published.wait_for(Option::is_none).await.unwrap();
        published.wait_for(Option::is_some).await.unwrap();
    }

    #[tokio::test]
    async fn task_is_restarted_after_a_panic() {
        let (starts, restarted) = (AtomicU32::new(0), Notify::new());
        let task = restart_after_panic("test", || async {
            assert_eq!(starts.fetch_add(1, Ordering::SeqCst), 1, "panic of the test");
            restarted.notify_one();
            std::future::pending().await
        });
        tokio::select! {
            () = task => panic!("the task ended"),
            () = restarted.notified() => {}
        }
    }
}
