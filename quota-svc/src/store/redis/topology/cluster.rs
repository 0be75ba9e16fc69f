//! A Redis Cluster: one managed connection per master, and a slot map that follows failovers and redirections.
//!
//! The redis crate's cluster client is not used, because it resends a command whose reply was lost, which would
//! count a charge twice. This one resends only after a redirection: a server that redirects has executed nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use redis::{Cmd, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::super::call::SPANS_SLOTS;
use super::super::managed_connection::{ManagedConnection, restart_after_panic};
use super::super::redis_keys::{RedisKey, RedisKeys};
use super::super::target::{ConnectOptions, Node, ServerTarget};
use super::slots::{self, Range};
use super::{CallError, Part, Reply, Result, is, reply, send_on};

const SLOTS: u16 = 16_384;
/// Interval of slot map refreshes while everything is connected.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Interval while a master is disconnected or a slot has no master.
const DEGRADED_INTERVAL: Duration = Duration::from_millis(200);
/// Attempts per call, the first one included.
const MAX_ATTEMPTS: usize = 3;

/// First slot, last slot and connection to the master of each range.
type SlotMap = Vec<(u16, u16, Arc<ManagedConnection>)>;

pub struct Cluster {
    seeds: Vec<Node>,
    options: ConnectOptions,
    redis_keys: RedisKeys,
    timeout: Duration,
    slot_map: ArcSwap<SlotMap>,
    connections: Mutex<HashMap<Node, Arc<ManagedConnection>>>,
    refresh_requested: Notify,
}

impl Cluster {
    /// Starts reading the slot map from the seed nodes, in a background task that ends when the `JoinSet` is dropped.
    pub fn start(seeds: Vec<Node>, options: ConnectOptions, timeout: Duration) -> (Arc<Self>, JoinSet<()>) {
        let cluster = Arc::new(Self {
            redis_keys: RedisKeys::new(&options.args.key_prefix),
            seeds,
            options,
            timeout,
            slot_map: ArcSwap::default(),
            connections: Mutex::default(),
            refresh_requested: Notify::new(),
        });
        let refreshed = cluster.clone();
        let mut task = JoinSet::new();
        task.spawn(async move { restart_after_panic("slot map", || refreshed.refresh_slot_map()).await });
        (cluster, task)
    }

    /// `None` if every slot is served by a connected master.
    pub fn unavailable_reason(&self) -> Option<String> {
        let slot_map = self.slot_map.load();
        let served: u32 = slot_map.iter().map(|(first, last, _)| u32::from(last - first) + 1).sum();
        if let Some((_, _, managed)) = slot_map.iter().find(|(_, _, managed)| !managed.is_connected()) {
            return Some(format!("no connection to {}", managed.label()));
        }
        (served < u32::from(SLOTS)).then(|| format!("only {served} of {SLOTS} slots are served"))
    }

    /// The connection to the master of a slot; `None` if the slot has no master.
    pub fn master(&self, slot: u16) -> Option<Arc<ManagedConnection>> {
        master_in(&self.slot_map.load(), slot).cloned()
    }

    /// Divides Redis keys into those of a master, or of a slot if the master's scripts may not access several.
    pub fn divide(&self, redis_keys: &[RedisKey]) -> Vec<Part> {
        let slot_map = self.slot_map.load();
        let mut parts: Vec<(_, u16, Part)> = Vec::new();
        for (position, redis_key) in redis_keys.iter().enumerate() {
            let slot = redis_key.slot();
            let master = master_in(&slot_map, slot).filter(|managed| managed.spans_slots());
            let master_or_slot = master.map(Arc::as_ptr).ok_or(slot);
            match parts.iter_mut().find(|(other, ..)| *other == master_or_slot) {
                Some((_, first, part)) => {
                    part.spans_slots |= *first != slot;
                    part.positions.push(position);
                }
                None => {
                    let part = Part { positions: vec![position], spans_slots: false };
                    parts.push((master_or_slot, slot, part));
                }
            }
        }
        parts.into_iter().map(|(.., part)| part).collect()
    }

    pub fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Sends a command to the master of a slot. The caller enforces the timeout.
    pub async fn send(&self, slot: u16, command: &Cmd) -> Result<Reply> {
        let managed = self.master(slot).ok_or_else(|| {
            self.request_refresh();
            CallError::Down(format!("a master of slot {slot}"))
        })?;
        let result = send_on(&managed, command).await;
        self.follow_redirections(slot, command, managed, result).await
    }

    /// Sends a command again as long as the server redirects it. `result` is that of the first attempt, on `managed`.
    /// The caller enforces the timeout.
    pub async fn follow_redirections(
        &self,
        slot: u16,
        command: &Cmd,
        mut managed: Arc<ManagedConnection>,
        mut result: Result<Reply>,
    ) -> Result<Reply> {
        let mut attempts = 1;
        loop {
            let error = match result {
                Err(CallError::Failed(error)) => error,
                Err(error) => {
                    self.request_refresh();
                    return Err(error);
                }
                Ok(reply) => return Ok(reply),
            };
            let Some(node) = redirection(&error, managed.label()) else {
                self.request_refresh();
                return Err(error.into());
            };
            let asking = is(&error, ServerErrorKind::Ask);
            if !asking {
                self.request_refresh();
            }
            if attempts == MAX_ATTEMPTS {
                return Err(CallError::Down(format!("the master of slot {slot} (too many redirections)")));
            }
            attempts += 1;
            managed = self.connection_to(&node);
            managed.wait_connected().await;
            result =
                if asking { send_asking(&managed, command).await } else { send_on(&managed, command).await };
        }
    }

    fn connection_to(&self, node: &Node) -> Arc<ManagedConnection> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            ManagedConnection::start(ServerTarget::Server(node.clone()), self.options.clone(), self.timeout)
        };
        connections.entry(node.clone()).or_insert_with(|| Arc::new(start())).clone()
    }

    /// Replaces the slot map and closes connections to nodes that are no longer in it.
    fn apply_slot_map(&self, ranges: Vec<Range>) {
        let entries =
            ranges.iter().map(|(first, last, node)| (*first, *last, self.connection_to(node))).collect();
        self.slot_map.store(Arc::new(entries));
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|node, _| ranges.iter().any(|(_, _, master)| master == node));
        self.options
            .settings
            .retain(|server| connections.values().any(|managed| &**managed.label() == server));
    }

    /// Queries the connected masters, then the seed nodes, until one returns a slot map.
    async fn read_slot_map(&self) -> Option<Vec<Range>> {
        let connected: Vec<Node> = {
            let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            let connected = connections.iter().filter(|(_, managed)| managed.is_connected());
            connected.map(|(node, _)| node.clone()).collect()
        };
        for node in connected.iter().chain(&self.seeds) {
            let timeout = self.timeout.max(DEGRADED_INTERVAL);
            match tokio::time::timeout(timeout, self.query_slots(node)).await {
                Ok(Ok(ranges)) if !ranges.is_empty() => return Some(ranges),
                other => {
                    tracing::debug!(node = node.0, port = node.1, ?other, "can't read the cluster's slot map")
                }
            }
        }
        None
    }

    async fn query_slots(&self, node: &Node) -> redis::RedisResult<Vec<Range>> {
        let mut connection = self.options.connect(node).await?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let reply: Value = command.query_async(&mut connection).await?;
        Ok(slots::parse(&reply, &node.0))
    }

    async fn refresh_slot_map(&self) -> Infallible {
        loop {
            if let Some(ranges) = self.read_slot_map().await {
                self.apply_slot_map(ranges);
            }
            let interval =
                if self.unavailable_reason().is_some() { DEGRADED_INTERVAL } else { REFRESH_INTERVAL };
            self.probe_masters().await;
            let _ = tokio::time::timeout(interval, self.refresh_requested.notified()).await;
            // Debounces refresh requests.
            tokio::time::sleep(DEGRADED_INTERVAL / 4).await;
        }
    }

    /// Asks the masters that have not allowed it yet whether scripts may access several of their slots. Not tried with charges:
    /// the error of a whole call would not tell whether they were counted.
    async fn probe_masters(&self) {
        let slot_map = self.slot_map.load_full();
        let not_known =
            slot_map.iter().filter(|(first, last, managed)| first < last && !managed.spans_slots());
        let probes = not_known.map(async |(first, last, managed)| {
            let Some(mut live) = managed.connection() else { return };
            let middle = first.midpoint(*last);
            let mut probe = redis::cmd("EVAL");
            probe.arg(SPANS_SLOTS).arg(0);
            for slots in [*first..=middle, middle + 1..=*last] {
                probe.arg(self.redis_keys.unused_record(slots).as_str());
            }
            match probe.query_async::<()>(&mut live.connection).await {
                Ok(()) => live.spans_slots.store(true, Ordering::Relaxed),
                Err(error) => {
                    tracing::debug!(server = %managed.label(), %error, "scripts may access one slot only")
                }
            }
        });
        join_all(probes).await;
    }
}

fn master_in(slot_map: &SlotMap, slot: u16) -> Option<&Arc<ManagedConnection>> {
    let range = slot_map.iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
    Some(&range.2)
}

/// The target of a MOVED or ASK error. `sender` is the address of the server that sent it.
fn redirection(error: &RedisError, sender: &str) -> Option<Node> {
    let (address, _) = error.redirect_node()?;
    let host = sender.rsplit_once(':').map_or(sender, |(host, _)| host);
    slots::parse_address(address, host)
}

/// For a slot in migration: its new master accepts commands only after `ASKING`.
async fn send_asking(managed: &ManagedConnection, command: &Cmd) -> Result<Reply> {
    let mut live = managed.connection().ok_or_else(|| CallError::Down(managed.label().to_string()))?;
    let mut pipeline = redis::pipe();
    // With `ignore_errors` an error reply is a value. Otherwise it would become an error of the pipeline, which has
    // neither the target of a redirection nor, for most errors, the code.
    pipeline.cmd("ASKING").ignore().add_command(command.clone()).ignore_errors();
    let replies: RedisResult<(Value,)> = pipeline.query_async(&mut live.connection).await;
    reply(managed, live, replies.and_then(|(value,)| value.extract_error()))
}

#[cfg(test)]
mod tests {
    use testkit::redis::Redis;
    use testkit::wait::eventually;

    use super::*;
    use crate::store::StoreArgs;
    use crate::store::redis::target;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn redis_keys_are_divided_by_master_once_it_allows_it() {
        let redis = Redis::start().await;
        let connect = async || Arc::new(ManagedConnection::connect_to(&redis.url(), TIMEOUT).await);
        let (first, second) = (connect().await, connect().await);
        let (_, options) = target::parse(&redis.url(), &StoreArgs::default(), TIMEOUT).unwrap();
        let (cluster, _refresh) = Cluster::start(Vec::new(), options, TIMEOUT);
        let ranges = vec![(0, 99, first.clone()), (100, 199, second), (200, 299, first.clone())];
        cluster.slot_map.store(Arc::new(ranges));
        let in_slot = |slot| RedisKeys::new("ipl:").unused_record(slot..=slot);
        let redis_keys = [10, 110, 250, 120, 10, 300, 300].map(in_slot);
        let divide = |redis_keys: &[RedisKey]| {
            let parts = cluster.divide(redis_keys).into_iter();
            parts.map(|part| (part.positions, part.spans_slots)).collect::<Vec<_>>()
        };
        let single = |positions: &[usize]| (positions.to_vec(), false);
        let by_slot = [&[0, 4][..], &[1], &[2], &[3], &[5, 6]].map(single);
        assert_eq!(divide(&redis_keys), by_slot);
        first.connection().unwrap().spans_slots.store(true, Ordering::Relaxed);
        let by_master = [(vec![0, 2, 4], true), single(&[1]), single(&[3]), single(&[5, 6])];
        assert_eq!(divide(&redis_keys), by_master);
        let in_one_slot = [redis_keys[0].clone(), redis_keys[4].clone()];
        assert_eq!(divide(&in_one_slot), [single(&[0, 1])]);
    }

    #[tokio::test]
    async fn only_valkey_9_0_refuses_scripts_that_access_several_slots() {
        let redis = Redis::start().await;
        for (version, is_allowed) in
            [("nil", true), ("0x080100", true), ("0x090000", false), ("0x0900ff", false), ("0x090100", true)]
        {
            let server =
                format!("{{VALKEY_VERSION_NUM={version}, error_reply=redis.error_reply, call=redis.call}}");
            let script = format!("local redis = {server}\n{SPANS_SLOTS}");
            let reply = redis.try_cli(&["EVAL", &script, "0", "a", "b"]).await;
            assert_eq!(reply.is_ok(), is_allowed, "{version}: {reply:?}");
        }
    }

    /// The server is not part of a Cluster, so it replies to `ASKING` with an error, which must not matter.
    async fn error_of(managed: &ManagedConnection, command: &Cmd) -> RedisError {
        match send_asking(managed, command).await {
            Err(CallError::Failed(error)) => error,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("no error"),
        }
    }

    #[tokio::test]
    async fn redirection_after_asking_has_its_target() {
        let redis = Redis::start().await;
        let managed = ManagedConnection::connect_to(&redis.url(), TIMEOUT).await;
        let mut command = redis::cmd("EVAL");
        command.arg("return redis.error_reply('MOVED 7 192.0.2.1:7000')").arg(0);
        let error = error_of(&managed, &command).await;
        assert_eq!(redirection(&error, managed.label()), Some(("192.0.2.1".to_owned(), 7000)));
    }

    #[tokio::test]
    async fn error_after_asking_is_reported_to_the_connection() {
        let redis = Redis::start().await;
        let managed = ManagedConnection::connect_to(&redis.url(), TIMEOUT).await;
        redis.cli(&["REPLICAOF", "127.0.0.1", "1"]).await;
        let error = error_of(&managed, redis::cmd("SET").arg("a").arg("b")).await;
        assert!(is(&error, ServerErrorKind::ReadOnly), "{error}");
        eventually(TIMEOUT, "the connection is replaced", async || (!managed.is_connected()).then_some(()))
            .await;
    }
}
