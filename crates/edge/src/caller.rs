//! The service's view: one value that tells, for each request, who is calling and how.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, Version};
use kube::Client;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client_ip::{Decision, resolve};
use crate::colo::{ColoMap, Iata, of_label};
use crate::config::EdgeArgs;
use crate::discovery::{DiscoveryStatus, Pace, discover_proxies, kube_client};
use crate::error::EdgeError;
use crate::facts::Facts;
use crate::node::node_label_at_last;
use crate::policy::EdgePolicy;
use crate::trusted::{TrustedProxies, TrustedSet};

/// Who is calling, by the policy of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller<'h> {
    /// The client's address, never IPv4-mapped.
    pub ip: IpAddr,
    /// How it was found.
    pub decision: Decision,
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` or `HTTP/3`.
    pub http_protocol: Option<&'static str>,
    /// `TLSv1.3` and so on.
    pub tls_version: Option<&'static str>,
    /// The IANA name of the suite, or the proxy's own where it is unknown.
    pub tls_cipher: Option<&'h str>,
    /// Round-trip time to the edge.
    pub rtt_ms: Option<u32>,
    /// The data centre that served the request.
    pub colo: Option<Iata>,
}

/// The edge of a running service; its background tasks end with it.
#[derive(Debug)]
pub struct Edge {
    policy: EdgePolicy,
    trusted: Arc<TrustedProxies>,
    node_colo: Arc<OnceLock<Iata>>,
    status: watch::Sender<DiscoveryStatus>,
    tasks: JoinSet<()>,
}

impl Edge {
    /// Checks the flags and starts following the cluster where they ask for it.
    ///
    /// # Errors
    /// A flag makes no sense, or Kubernetes is needed and not configured. An API that is only
    /// away is no error: see [`Edge::status`].
    pub async fn start(args: &EdgeArgs) -> Result<Self, EdgeError> {
        let policy = EdgePolicy::from_args(args)?;
        let client = match policy.needs_kube() {
            true => Some(kube_client().await?),
            false => None,
        };
        let retry: fn() -> Box<dyn Backoff> = || Box::new(DefaultBackoff::default());
        let edge = Self::with_client(policy, client, Pace::default().grace, retry);
        tracing::info!(policy = %edge.policy, "edge policy");
        Ok(edge)
    }

    /// The same with a given Kubernetes client and pace; without a client nothing is followed.
    #[must_use]
    pub fn with_client(
        policy: EdgePolicy,
        client: Option<Client>,
        grace: Duration,
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
            edge.follow_proxies(client.clone(), Pace { grace, retry: retry() });
            edge.read_node(client, retry());
        }
        edge
    }

    fn follow_proxies(&mut self, client: Client, pace: Pace) {
        let Some(service) = self.policy.discover.clone() else {
            return;
        };
        self.status.send_replace(DiscoveryStatus::Waiting);
        let (trusted, status) = (Arc::clone(&self.trusted), self.status.clone());
        self.tasks.spawn(async move {
            discover_proxies(client, service, trusted, status, pace).await;
        });
    }

    fn read_node(&mut self, client: Client, retry: Box<dyn Backoff>) {
        let Some((node, label)) = self.policy.node_label.clone() else {
            return;
        };
        let (colo, map) = (Arc::clone(&self.node_colo), self.policy.colo_map.clone());
        self.tasks.spawn(async move {
            let value = node_label_at_last(client, &node, &label, retry).await;
            settle_colo(&colo, &map, &label, value.as_deref());
        });
    }

    /// Tells who is calling. Allocates nothing and takes no lock.
    #[must_use]
    pub fn identify<'h>(&self, peer: IpAddr, headers: &'h HeaderMap, version: Version) -> Caller<'h> {
        let client = resolve(peer, headers, &self.policy.client_ip_from, &self.trusted.load());
        let own = Facts::direct(version);
        let facts = match client.decision {
            Decision::PeerUntrusted => own,
            // Nobody was forwarded: the peer is the one who is answered, and this is its own request.
            Decision::Missing => self.policy.facts.read(headers).or_protocol(own.http_protocol),
            _ => self.policy.facts.read(headers),
        };
        Caller {
            ip: client.ip,
            decision: client.decision,
            http_protocol: facts.http_protocol,
            tls_version: facts.tls_version,
            tls_cipher: facts.tls_cipher,
            rtt_ms: facts.rtt_ms,
            colo: facts.colo.or_else(|| self.colo()),
        }
    }

    /// Where this process is: the node's label, else the zone's place, else `--colo`.
    #[must_use]
    pub fn colo(&self) -> Option<Iata> {
        self.node_colo.get().copied().or(self.policy.colo)
    }

    /// How discovery stands, for readiness and metrics.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<DiscoveryStatus> {
        self.status.subscribe()
    }

    /// The effective policy in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        self.policy.to_string()
    }
}

fn settle_colo(colo: &OnceLock<Iata>, map: &ColoMap, label: &str, value: Option<&str>) {
    match value.and_then(|value| of_label(map, value)) {
        Some(found) => {
            tracing::info!(label, colo = %found, "place read from the node");
            // Only this task writes it, so it can't be set already.
            let _ = colo.set(found);
        }
        None => tracing::warn!(label, value, "the node's label names no place"),
    }
}
