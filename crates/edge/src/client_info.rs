//! [`Edge`]: returns the client's address, connection facts and colo for each request.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderMap, Version};
use kube::Client;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client_ip::{Decision, resolve};
use crate::colo::{ColoMap, Iata, colo_of_label};
use crate::config::EdgeArgs;
use crate::discovery::{DiscoveryStatus, discover_proxies, kube_client};
use crate::error::EdgeError;
use crate::facts::ConnectionFacts;
use crate::node::wait_for_node_label;
use crate::policy::EdgePolicy;
use crate::trusted::{TrustedProxies, TrustedSet};

/// How long a removed proxy stays trusted.
const REMOVAL_GRACE: Duration = Duration::from_secs(60);

/// The client of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientInfo<'h> {
    /// The client's address, never IPv4-mapped.
    pub ip: IpAddr,
    /// How the address was determined.
    pub decision: Decision,
    /// Facts about the client's connection. The colo is this process's, unless a proxy sends its own.
    pub facts: ConnectionFacts<'h>,
}

/// Identifies the clients of a running service according to its edge policy. Dropping it ends its background tasks.
#[derive(Debug)]
pub struct Edge {
    policy: EdgePolicy,
    trusted: Arc<TrustedProxies>,
    node_colo: Arc<OnceLock<Iata>>,
    status: watch::Sender<DiscoveryStatus>,
    tasks: JoinSet<()>,
}

impl Edge {
    /// Checks the flags and, if they require it, starts reading from Kubernetes.
    ///
    /// # Errors
    /// A flag is invalid, or Kubernetes is required but not configured. An unreachable Kubernetes API is not an error:
    /// see [`Edge::status`].
    pub async fn start(args: &EdgeArgs) -> Result<Self, EdgeError> {
        let policy = EdgePolicy::from_args(args)?;
        let client = match policy.needs_kube() {
            true => Some(kube_client().await?),
            false => None,
        };
        let edge = Self::with_client(policy, client, REMOVAL_GRACE, || Box::new(DefaultBackoff::default()));
        tracing::info!(policy = %edge.policy, "edge policy");
        Ok(edge)
    }

    /// Like [`Edge::start`], with a given Kubernetes client, removal grace and retry delays. Without a client, discovery is off and
    /// no node label is read.
    #[must_use]
    pub fn with_client(
        policy: EdgePolicy,
        client: Option<Client>,
        removal_grace: Duration,
        retry: impl Fn() -> Box<dyn Backoff>,
    ) -> Self {
        let mut edge = Self {
            trusted: Arc::new(TrustedProxies::new(TrustedSet::new(policy.networks.iter().copied()))),
            node_colo: Arc::default(),
            status: watch::Sender::new(DiscoveryStatus::Off),
            tasks: JoinSet::new(),
            policy,
        };
        if let Some(client) = client {
            edge.spawn_discovery(client.clone(), removal_grace, retry());
            edge.spawn_node_label_reader(client, retry());
        }
        edge
    }

    fn spawn_discovery(&mut self, client: Client, removal_grace: Duration, retry: Box<dyn Backoff>) {
        let Some(service) = self.policy.discover.clone() else {
            return;
        };
        self.status.send_replace(DiscoveryStatus::Waiting);
        let (trusted, status) = (Arc::clone(&self.trusted), self.status.clone());
        self.spawn(async move {
            discover_proxies(client, service, trusted, status, removal_grace, retry).await;
        });
    }

    fn spawn_node_label_reader(&mut self, client: Client, retry: Box<dyn Backoff>) {
        let Some((node, label)) = self.policy.node_label.clone() else {
            return;
        };
        let (colo, map) = (Arc::clone(&self.node_colo), self.policy.colo_map.clone());
        self.spawn(async move {
            let value = wait_for_node_label(client, &node, &label, retry).await;
            set_colo(&colo, &map, &label, value.as_deref());
        });
    }

    /// Spawns a background task. If it panics, the process is not ready until it is restarted.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let status = self.status.clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tracing::error!("reading from Kubernetes panicked; not ready until a restart");
                status.send_replace(DiscoveryStatus::Waiting);
            }
        });
    }

    /// Identifies the client of a request. Does not allocate or lock.
    #[must_use]
    pub fn identify<'h>(&self, peer: IpAddr, headers: &'h HeaderMap, version: Version) -> ClientInfo<'h> {
        let client = resolve(peer, headers, &self.policy.client_ip_from, &self.trusted.load());
        let direct = ConnectionFacts::direct(version);
        let facts = match client.decision {
            Decision::PeerUntrusted => direct,
            // Nothing was forwarded: the peer is the client, so this connection is the client's.
            Decision::Missing => self.policy.facts.read(headers).or_protocol(direct.http_protocol),
            _ => self.policy.facts.read(headers),
        };
        let facts = ConnectionFacts { colo: facts.colo.or_else(|| self.colo()), ..facts };
        ClientInfo { ip: client.ip, decision: client.decision, facts }
    }

    /// Returns the colo of this process: from the node's label, else from the node's zone, else `--colo`.
    #[must_use]
    pub fn colo(&self) -> Option<Iata> {
        self.node_colo.get().copied().or(self.policy.colo)
    }

    /// Returns the trusted proxies, which discovery keeps current.
    #[must_use]
    pub fn trusted(&self) -> Arc<TrustedProxies> {
        Arc::clone(&self.trusted)
    }

    /// Returns the status of discovery, for readiness and metrics.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<DiscoveryStatus> {
        self.status.subscribe()
    }
}

fn set_colo(colo: &OnceLock<Iata>, map: &ColoMap, label: &str, value: Option<&str>) {
    match value.and_then(|value| colo_of_label(map, value)) {
        Some(found) => {
            tracing::info!(label, colo = %found, "colo read from the node's label");
            // Can't fail: only this task sets it, once.
            let _ = colo.set(found);
        }
        None => tracing::warn!(label, value, "no colo found for the node's label"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_of_background_task_makes_process_not_ready() {
        let mut edge = Edge::start(&EdgeArgs::default()).await.unwrap();
        let mut status = edge.status();
        assert!(status.borrow().is_ready());
        edge.spawn(async { panic!("expected by this test") });
        assert!(status.wait_for(|status| !status.is_ready()).await.is_ok());
    }
}
