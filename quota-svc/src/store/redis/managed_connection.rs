//! A connection that a background task opens, checks and re-establishes.
//!
//! While disconnected, calls fail immediately. After a failed call the connection is unavailable until the server
//! replies to PING. Otherwise a server that hangs would get charges whose callers time out; it would apply them later,
//! and that could pause a key.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::settings::{Assessment, info_field};
use super::target::{ConnectOptions, ServerTarget};

const INITIAL_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// Interval of the PINGs that check a connection. They detect a lost server before the next call does.
const PING_INTERVAL: Duration = Duration::from_millis(250);
/// Delay before reconnecting, if the last connection lasted less than `PING_INTERVAL`. A replica, for example, accepts
/// connections but rejects every write; without the delay, each rejected write would open a new connection.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);
/// Bounds the CPU time and the log lines of a task that panics again and again.
const RESTART_DELAY: Duration = Duration::from_millis(500);

/// A connection and its generation. A connection that is published again after a check has a new generation.
#[derive(Clone)]
pub struct LiveConnection {
    pub connection: MultiplexedConnection,
    pub generation: Generation,
    /// Whether a script may access several slots of the server, with Redis keys that are not declared. Not known of a new
    /// connection: the server may have another version.
    pub spans_slots: Arc<AtomicBool>,
}

/// Increases with each published connection of the process. Reports about an earlier one are outdated: a call that failed
/// because of an outage must not make the connection suspect that was opened after the outage.
pub type Generation = u64;

/// Of the connection that was published last.
static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

pub struct ManagedConnection {
    connection: watch::Receiver<Option<LiveConnection>>,
    health: Arc<HealthSignal>,
    /// The background task, which ends when this is dropped.
    _task: JoinSet<()>,
    label: Arc<str>,
}

/// Reports from callers to the background task.
#[derive(Default)]
struct HealthSignal {
    reported: Notify,
    /// The latest generation for which a call failed: check the connection.
    suspect: AtomicU64,
    /// The latest generation whose server replies but is not the master: reconnect, since the address may now lead to
    /// another server.
    not_master: AtomicU64,
}

impl ManagedConnection {
    /// Starts connecting in the background. `timeout` is for the PINGs that check the connection.
    pub fn start(target: ServerTarget, options: ConnectOptions, timeout: Duration) -> Self {
        let (publish, connection) = watch::channel(None);
        let health = Arc::new(HealthSignal::default());
        let label = target.label().into();
        let task = ConnectionTask { target, options, timeout, publish, health: health.clone() };
        let mut running = JoinSet::new();
        running.spawn(async move { restart_after_panic("store connection", || task.run()).await });
        Self { connection, health, _task: running, label }
    }

    /// `None` while disconnected.
    pub fn connection(&self) -> Option<LiveConnection> {
        self.connection.borrow().clone()
    }

    /// The generation of the current connection; `None` while disconnected.
    pub fn generation(&self) -> Option<Generation> {
        self.connection.borrow().as_ref().map(|live| live.generation)
    }

    /// Whether [`LiveConnection::spans_slots`] is known to be true.
    pub fn spans_slots(&self) -> bool {
        self.connection.borrow().as_ref().is_some_and(|live| live.spans_slots.load(Ordering::Relaxed))
    }

    pub fn is_connected(&self) -> bool {
        self.connection.borrow().is_some()
    }

    pub async fn wait_connected(&self) {
        // Fails only if the task has dropped the sender, and the task runs as long as `self` exists.
        let _ = self.connection.clone().wait_for(Option::is_some).await;
    }

    pub fn report_suspect(&self, generation: Generation) {
        self.health.suspect.fetch_max(generation, Ordering::AcqRel);
        self.health.reported.notify_one();
    }

    /// Reports that the server of this generation is not, or no longer, the master.
    pub fn report_not_master(&self, generation: Generation) {
        self.health.not_master.fetch_max(generation, Ordering::AcqRel);
        self.report_suspect(generation);
    }

    pub fn label(&self) -> &Arc<str> {
        &self.label
    }
}

struct ConnectionTask {
    target: ServerTarget,
    options: ConnectOptions,
    timeout: Duration,
    publish: watch::Sender<Option<LiveConnection>>,
    health: Arc<HealthSignal>,
}

impl ConnectionTask {
    async fn run(&self) -> Infallible {
        // After a panic, nothing checks the published connection.
        self.publish.send_replace(None);
        loop {
            let connection = self.connect_with_retry().await;
            let since = Instant::now();
            self.monitor(connection).await;
            self.publish.send_replace(None);
            if since.elapsed() < PING_INTERVAL {
                tokio::time::sleep(RECONNECT_DELAY).await;
            }
        }
    }

    async fn connect_with_retry(&self) -> MultiplexedConnection {
        let (mut backoff, server) = (INITIAL_BACKOFF, self.target.label());
        loop {
            match self.connect_and_check().await {
                Ok(connection) => {
                    self.options.outages.end(&server);
                    tracing::info!(server, "connected to the store");
                    return connection;
                }
                Err(error) if self.options.outages.is_new(&server, error.to_string()) => {
                    tracing::warn!(server, %error, "can't connect to the store; retrying");
                }
                Err(error) => tracing::debug!(server, %error, "can't connect to the store"),
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Checks the server's settings, and sends a PING, because a server that is loading its data, or whose disk is full, accepts connections but
    /// replies to PING with an error.
    async fn connect_and_check(&self) -> redis::RedisResult<MultiplexedConnection> {
        let mut connection = self.connect().await?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        self.check_settings(&mut connection).await?;
        Ok(connection)
    }

    async fn check_settings(&self, connection: &mut MultiplexedConnection) -> redis::RedisResult<()> {
        let assessment = match redis::cmd("INFO").query_async::<String>(connection).await {
            Ok(info) => {
                let save = snapshot_setting(&info, connection).await?;
                Assessment::of_info(&info).with_persistence(&info, save.as_deref())
            }
            // For example NOPERM: the ACL user may not read them.
            Err(error) if error.code().is_some() => Assessment::unreadable(error),
            Err(error) => return Err(error),
        };
        let reject = |reason| {
            (redis::ErrorKind::InvalidClientConfig, "the server's settings are unsafe", reason).into()
        };
        self.options.settings.record(&self.target.label(), assessment).map_err(reject)
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        match &self.target {
            ServerTarget::Server(node) => self.options.connect(node).await,
            ServerTarget::Socket(path) => self.options.open(&format!("unix://{path}")).await,
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

    /// Publishes the connection and checks it. Returns when it must be replaced.
    async fn monitor(&self, mut connection: MultiplexedConnection) {
        let spans_slots = Arc::default();
        let mut generation = self.publish(&connection, &spans_slots);
        loop {
            // Ends early after a report, possibly an outdated one.
            let _ = tokio::time::timeout(PING_INTERVAL, self.health.reported.notified()).await;
            let suspect = self.health.suspect.load(Ordering::Acquire) >= generation;
            if suspect {
                self.publish.send_replace(None);
            }
            if self.health.not_master.load(Ordering::Acquire) >= generation {
                return;
            }
            let ping = redis::cmd("PING");
            let reply = tokio::time::timeout(self.timeout, ping.exec_async(&mut connection)).await;
            // A former master that became a replica replies to PING too, so after a failed call a connection found
            // through Sentinels is always replaced.
            let may_keep = !matches!(self.target, ServerTarget::Sentinel { .. });
            match reply {
                Ok(Ok(())) if !suspect => {}
                Ok(Ok(())) if may_keep => generation = self.publish(&connection, &spans_slots),
                _ => return,
            }
        }
    }

    /// Publishes the connection with a new generation.
    fn publish(&self, connection: &MultiplexedConnection, spans_slots: &Arc<AtomicBool>) -> Generation {
        let generation = LAST_GENERATION.fetch_add(1, Ordering::AcqRel) + 1;
        let (connection, spans_slots) = (connection.clone(), spans_slots.clone());
        self.publish.send_replace(Some(LiveConnection { connection, generation, spans_slots }));
        generation
    }
}

/// The setting `save` of a server without an append-only file. `None` if it is not needed, or may not be read.
async fn snapshot_setting(
    info: &str,
    connection: &mut MultiplexedConnection,
) -> redis::RedisResult<Option<String>> {
    if info_field(info, "aof_enabled") != Some("0") {
        return Ok(None);
    }
    let mut command = redis::cmd("CONFIG");
    match command.arg("GET").arg("save").query_async::<HashMap<String, String>>(connection).await {
        Ok(mut settings) => Ok(settings.remove("save")),
        Err(error) if error.code().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs a task that never ends, and starts it again after each panic. Without its task, a connection would neither be
/// checked nor replaced.
pub async fn restart_after_panic<F: Future<Output = Infallible>>(name: &str, task: impl Fn() -> F) {
    loop {
        let Err(_) = AssertUnwindSafe(task()).catch_unwind().await;
        tracing::error!(task = name, "a background task has panicked; restarting it");
        tokio::time::sleep(RESTART_DELAY).await;
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
            let (target, options) = target::parse(url, &StoreArgs::default(), timeout).unwrap();
            let RedisTarget::Single(server) = target else { panic!("not a server: {target:?}") };
            let managed = Self::start(server, options, timeout);
            managed.wait_connected().await;
            managed
        }
    }

    #[tokio::test]
    async fn failures_of_an_outage_leave_the_next_connection_usable() {
        let mut redis = Redis::start().await;
        let managed = ManagedConnection::connect_to(&redis.url(), TIMEOUT).await;
        let mut published = managed.connection.clone();
        let failed = managed.generation().unwrap();
        redis.stop();
        managed.report_suspect(failed);
        published.wait_for(Option::is_none).await.unwrap();
        // These calls failed too, but their callers noticed later.
        managed.report_suspect(failed);
        redis.restart().await;
        published.wait_for(Option::is_some).await.unwrap();
        managed.report_not_master(failed);
        let changed = tokio::time::timeout(3 * PING_INTERVAL, published.changed()).await;
        assert!(changed.is_err(), "the new connection was not suspended");
        managed.report_suspect(managed.generation().unwrap());
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
