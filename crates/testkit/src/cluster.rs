//! A real Redis Cluster: several masters, each with replicas.

use std::time::Duration;

use crate::ports::ReservedPort;
use crate::redis::{Redis, RedisOptions};
use crate::wait::eventually_ok;

const SLOTS: usize = 16384;
const FORMATION_TIMEOUT: Duration = Duration::from_secs(30);

/// A running cluster whose nodes can be killed, frozen and restarted one by one.
#[derive(Debug)]
pub struct RedisCluster {
    /// The masters first, then the first replica of each, then the second, and so on.
    pub nodes: Vec<Redis>,
    masters: usize,
    // The cluster bus ports of the nodes, reserved even while a node is down.
    bus: Vec<ReservedPort>,
}

impl RedisCluster {
    /// Starts `masters` masters with `replicas` replicas each, all with an append-only file, and waits until every node
    /// reports the cluster as healthy. The cluster considers a node failed after one second without contact.
    pub async fn start(masters: usize, replicas: usize) -> Self {
        Self::start_with(&Redis::options(), masters, replicas).await
    }

    /// Like [`RedisCluster::start`], with other servers.
    pub async fn start_with(options: &RedisOptions, masters: usize, replicas: usize) -> Self {
        let bus: Vec<_> = (0..masters * (1 + replicas)).map(|_| ReservedPort::new()).collect();
        let nodes = start_nodes(options, &bus).await;
        let cluster = Self { nodes, masters, bus };
        cluster.assign_slots().await;
        cluster.meet_nodes().await;
        cluster.attach_replicas().await;
        cluster.wait_healthy().await;
        cluster
    }

    /// `redis+cluster://h1,h2,...` with every node.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// The index in `nodes` of the master that currently serves the slot of `redis_key`, according to the first
    /// reachable node.
    ///
    /// # Panics
    /// If no node is reachable, or the slot has no master.
    pub async fn master_of(&self, redis_key: &str) -> usize {
        eventually_ok(FORMATION_TIMEOUT, format!("a master for the slot of {redis_key}"), async || {
            let first = self.first_reachable_node().await.ok_or("no node is reachable")?;
            let slot = first.try_cli(&["CLUSTER", "KEYSLOT", redis_key]).await?;
            let nodes = first.try_cli(&["CLUSTER", "NODES"]).await?;
            let port = master_port(&nodes, slot.parse().map_err(|_| format!("invalid slot: {slot}"))?);
            self.nodes.iter().position(|node| Some(node.port()) == port).ok_or_else(|| nodes.clone())
        })
        .await
    }

    /// Waits until every running node reports the cluster as healthy and every replica is in sync.
    pub async fn wait_healthy(&self) {
        for node in self.nodes.iter().filter(|node| node.is_started()) {
            eventually_ok(FORMATION_TIMEOUT, "node reports a healthy cluster and is in sync", async || {
                check_node(node, self.nodes.len()).await
            })
            .await;
        }
    }

    async fn first_reachable_node(&self) -> Option<&Redis> {
        for node in &self.nodes {
            if node.try_cli(&["PING"]).await.is_ok() {
                return Some(node);
            }
        }
        None
    }

    /// Gives each master its share of the slots. Also gives each node its own epoch, so that the nodes need not resolve
    /// epoch conflicts.
    async fn assign_slots(&self) {
        for (i, node) in self.nodes.iter().enumerate() {
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]).await;
        }
        for (i, node) in self.nodes[..self.masters].iter().enumerate() {
            let (first, next) = (SLOTS * i / self.masters, SLOTS * (i + 1) / self.masters);
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(next - 1).to_string()]).await;
        }
    }

    async fn meet_nodes(&self) {
        for (node, bus) in self.nodes.iter().zip(&self.bus).skip(1) {
            let (port, bus) = (node.port().to_string(), bus.number().to_string());
            self.nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
        }
    }

    async fn attach_replicas(&self) {
        for (i, replica) in self.nodes.iter().enumerate().skip(self.masters) {
            let master = self.nodes[i % self.masters].cli(&["CLUSTER", "MYID"]).await;
            eventually_ok(FORMATION_TIMEOUT, "replica accepts its master", async || {
                replica.try_cli(&["CLUSTER", "REPLICATE", &master]).await
            })
            .await;
        }
    }
}

async fn start_nodes(options: &RedisOptions, bus: &[ReservedPort]) -> Vec<Redis> {
    let mut nodes = Vec::new();
    for port in bus {
        let options = options
            .clone()
            .appendonly()
            .directive("cluster-enabled yes")
            .directive("cluster-node-timeout 1000")
            // A replica may take over no matter how long it was disconnected: the test decides when a failover happens.
            .directive("cluster-replica-validity-factor 0")
            .directive(&format!("cluster-port {}", port.number()));
        nodes.push(options.start().await);
    }
    nodes
}

async fn check_node(node: &Redis, size: usize) -> Result<(), String> {
    let info = node.try_cli(&["CLUSTER", "INFO"]).await?;
    let has = |line: &str| info.lines().any(|l| l.trim() == line);
    let in_sync = node.info("role").await? == "master" || node.info("master_link_status").await? == "up";
    let healthy = has("cluster_state:ok") && has(&format!("cluster_known_nodes:{size}"));
    if healthy && in_sync { Ok(()) } else { Err(info) }
}

/// The port of the master that serves `slot`, from the reply to CLUSTER NODES.
fn master_port(nodes: &str, slot: usize) -> Option<u16> {
    let line = nodes.lines().find(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        fields.get(2).is_some_and(|flags| flags.contains("master") && !flags.contains("fail"))
            && fields.iter().skip(8).any(|range| contains_slot(range, slot))
    })?;
    let address = line.split(' ').nth(1)?.split('@').next()?;
    address.rsplit(':').next()?.parse().ok()
}

fn contains_slot(range: &str, slot: usize) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    matches!((first.parse::<usize>(), last.parse::<usize>()), (Ok(f), Ok(l)) if (f..=l).contains(&slot))
}
