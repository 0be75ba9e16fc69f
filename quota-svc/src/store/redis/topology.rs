//! The servers of a store: a single one or, in a Cluster, the masters, with a slot map that follows failovers and redirections.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use redis::{RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::managed_connection::{ManagedConnection, restart_after_panic};
use super::redis_keys::{RedisKey, SLOTS, unused_record};
use super::target::{ConnectOptions, Node, RedisTarget};
use crate::store::lock;

/// Interval of slot map refreshes while everything is connected.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Interval while a master is disconnected or a slot has no master.
const DEGRADED_INTERVAL: Duration = Duration::from_millis(200);
/// The script that finds out whether calls may have Redis keys of several slots.
const SPANS_SLOTS: &str = include_str!("../../../lua/spans_slots.lua");

/// First slot, last slot, and the master of each range or the connection to it.
type SlotMap<T> = Vec<(u16, u16, T)>;

/// Redis keys that one call can have, by their positions in a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    pub positions: Vec<usize>,
    /// Whether they are in several slots of a Cluster's master. Then the call must not declare them.
    pub spans_slots: bool,
}

pub struct Topology {
    /// The first nodes that are asked for the slot map of a Cluster; none for a single server.
    seeds: Vec<Node>,
    options: ConnectOptions,
    slot_map: ArcSwap<SlotMap<Arc<ManagedConnection>>>,
    /// To the masters of a Cluster, and to targets of redirections.
    connections: Mutex<HashMap<Node, Arc<ManagedConnection>>>,
    refresh_requested: Notify,
}

impl Topology {
    /// Starts connecting in the background. In a Cluster, one of `tasks` refreshes the slot map.
    pub fn start(target: RedisTarget, options: ConnectOptions, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let (seeds, slot_map) = match target {
            RedisTarget::Single(server) => {
                let connection = Arc::new(ManagedConnection::start(server, options.clone()));
                (Vec::new(), vec![(0, SLOTS - 1, connection)])
            }
            RedisTarget::Cluster(seeds) => (seeds, Vec::new()),
        };
        let (connections, refresh_requested) = Default::default();
        let slot_map = ArcSwap::from_pointee(slot_map);
        let topology = Arc::new(Self { seeds, options, slot_map, connections, refresh_requested });
        if topology.is_cluster() {
            let topology = topology.clone();
            tasks.spawn(async move { restart_after_panic("slot map", || topology.refresh_slot_map()).await });
        }
        topology
    }

    pub fn is_cluster(&self) -> bool {
        !self.seeds.is_empty()
    }

    /// For /readyz; `None` if every slot is served by a connected master.
    pub fn unavailable_reason(&self) -> Option<String> {
        let slot_map = self.slot_map.load();
        if let Some((_, _, managed)) = slot_map.iter().find(|(_, _, managed)| !managed.is_connected()) {
            return Some(format!("no connection to {}", managed.label));
        }
        let served: u32 = slot_map.iter().map(|(first, last, _)| u32::from(last - first) + 1).sum();
        (served < u32::from(SLOTS)).then(|| format!("only {served} of {SLOTS} slots are served"))
    }

    /// The connection to the server of a Redis key; `None` if, in a Cluster, its slot has no master.
    pub fn server_of(&self, redis_key: &RedisKey) -> Option<Arc<ManagedConnection>> {
        let slot = if self.is_cluster() { redis_key.slot() } else { 0 };
        master_of(&self.slot_map.load(), slot).cloned()
    }

    /// Divides Redis keys into those that one call can have: those of a master, or of a slot if the master's scripts may not
    /// access several.
    pub fn divide(&self, redis_keys: &[RedisKey]) -> Vec<Part> {
        if !self.is_cluster() {
            return vec![Part { positions: (0..redis_keys.len()).collect(), spans_slots: false }];
        }
        let slot_map = self.slot_map.load();
        let mut parts: Vec<(_, u16, Part)> = Vec::new();
        for (position, redis_key) in redis_keys.iter().enumerate() {
            let slot = redis_key.slot();
            let master = master_of(&slot_map, slot).filter(|managed| managed.spans_slots());
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

    pub fn connection_to(&self, node: &Node) -> Arc<ManagedConnection> {
        let start = || ManagedConnection::start(self.options.server(node), self.options.clone());
        lock(&self.connections).entry(node.clone()).or_insert_with(|| Arc::new(start())).clone()
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

    /// Queries the connected masters, then the seed nodes, until one returns a slot map.
    async fn read_slot_map(&self) -> Option<SlotMap<Node>> {
        let mut nodes: Vec<Node> = {
            let connections = lock(&self.connections);
            let connected = connections.iter().filter(|(_, managed)| managed.is_connected());
            connected.map(|(node, _)| node.clone()).collect()
        };
        nodes.extend_from_slice(&self.seeds);
        for node in nodes {
            let query = async {
                let mut connection = self.options.connect(&self.options.server(&node)).await?;
                redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await
            };
            let reply: Result<RedisResult<Vec<Value>>, _> =
                tokio::time::timeout(self.options.timeout.max(DEGRADED_INTERVAL), query).await;
            if let Ok(Ok(ranges)) = &reply {
                let ranges: Vec<_> = ranges.iter().filter_map(|range| parse_range(range, &node.0)).collect();
                if !ranges.is_empty() {
                    return Some(ranges);
                }
            }
            tracing::debug!(node = node.0, port = node.1, ?reply, "can't read the cluster's slot map");
        }
        None
    }

    /// Replaces the slot map and closes connections to nodes that are no longer in it.
    fn apply_slot_map(&self, ranges: SlotMap<Node>) {
        let entries =
            ranges.iter().map(|(first, last, node)| (*first, *last, self.connection_to(node))).collect();
        self.slot_map.store(Arc::new(entries));
        let mut connections = lock(&self.connections);
        connections.retain(|node, _| ranges.iter().any(|(_, _, master)| master == node));
        let in_use = |server: &str| connections.values().any(|managed| &*managed.label == server);
        self.options.server_log.retain(in_use);
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
                probe.arg(unused_record(&self.options.key_prefix, slots).as_str());
            }
            match probe.query_async::<()>(&mut live.connection).await {
                Ok(()) => live.status.spans_slots.store(true, Ordering::Relaxed),
                Err(error) => {
                    tracing::debug!(server = %managed.label, %error, "scripts may access one slot only")
                }
            }
        });
        join_all(probes).await;
    }
}

fn master_of(slot_map: &SlotMap<Arc<ManagedConnection>>, slot: u16) -> Option<&Arc<ManagedConnection>> {
    let range = slot_map.iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
    Some(&range.2)
}

/// Parses a range in the reply to `CLUSTER SLOTS`. `sender` is the host that sent it, which a node may leave out of its address.
fn parse_range(range: &Value, sender: &str) -> Option<(u16, u16, Node)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => String::from_utf8_lossy(host),
        _ => sender.into(),
    };
    let node = (host.into_owned(), u16::try_from(*port).ok()?);
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, node))
}

#[cfg(test)]
mod tests {
    use testkit::redis::Redis;

    use super::*;
    use crate::store::StoreArgs;
    use crate::store::redis::target;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn redis_keys_are_divided_by_master_once_it_allows_it() {
        let redis = Redis::start().await;
        let connect = async || Arc::new(ManagedConnection::connect_to(&redis.url(), TIMEOUT).await);
        let (first, second) = (connect().await, connect().await);
        let (_, options) = target::parse(&redis.url(), &StoreArgs::default()).unwrap();
        let seeds = RedisTarget::Cluster(vec![("unused".to_owned(), 1)]);
        let cluster = Topology::start(seeds, options, &mut JoinSet::new());
        let ranges = vec![(0, 99, first.clone()), (100, 199, second), (200, 299, first.clone())];
        cluster.slot_map.store(Arc::new(ranges));
        let in_slot = |slot| unused_record("ipl:", slot..=slot);
        let redis_keys = [10, 110, 250, 120, 10, 300, 300].map(in_slot);
        let divide = |redis_keys: &[RedisKey]| {
            let parts = cluster.divide(redis_keys).into_iter();
            parts.map(|part| (part.positions, part.spans_slots)).collect::<Vec<_>>()
        };
        let single = |positions: &[usize]| (positions.to_vec(), false);
        let by_slot = [&[0, 4][..], &[1], &[2], &[3], &[5, 6]].map(single);
        assert_eq!(divide(&redis_keys), by_slot);
        first.connection().unwrap().status.spans_slots.store(true, Ordering::Relaxed);
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

    fn text(s: &str) -> Value {
        Value::BulkString(s.as_bytes().to_vec())
    }

    #[test]
    fn masters_are_parsed_and_replicas_ignored() {
        let master = Value::Array(vec![text("10.0.0.1"), Value::Int(6379), text("id"), Value::Array(vec![])]);
        let replica = Value::Array(vec![text("10.0.0.2"), Value::Int(6379)]);
        let without_host = Value::Array(vec![text(""), Value::Int(7000)]);
        let reply = [
            Value::Array(vec![Value::Int(0), Value::Int(5460), master, replica]),
            Value::Array(vec![Value::Int(5461), Value::Int(16_383), without_host]),
            Value::Nil,
        ];
        let expected =
            vec![(0, 5460, ("10.0.0.1".to_owned(), 6379)), (5461, 16_383, ("seed".to_owned(), 7000))];
        assert_eq!(reply.iter().filter_map(|range| parse_range(range, "seed")).collect::<Vec<_>>(), expected);
    }
}
