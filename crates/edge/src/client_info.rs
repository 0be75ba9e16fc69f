//! [`Edge`]: returns the client's address, connection facts and colo for each request.

use std::net::IpAddr;
use std::sync::Arc;
#[cfg(feature = "kubernetes")]
use std::time::Duration;

use http::HeaderMap;
#[cfg(feature = "kubernetes")]
use kube::runtime::{utils::Backoff, watcher::DefaultBackoff};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client_ip::{ClientIp, Decision, resolve};
use crate::colo::Iata;
use crate::config::EdgeArgs;
use crate::error::EdgeError;
use crate::fact_sources;
use crate::facts::ConnectionFacts;
#[cfg(feature = "kubernetes")]
use crate::kubernetes;
use crate::policy::EdgePolicy;
use crate::shared::{DiscoveryStatus, Shared};
use crate::trusted::TrustedProxies;

/// How long a removed proxy stays trusted.
#[cfg(feature = "kubernetes")]
const REMOVAL_GRACE: Duration = Duration::from_secs(60);

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The TCP peer, or the client in the PROXY header of a trusted load balancer.
    Address(IpAddr),
    /// A trusted load balancer whose PROXY header names no client, as in health checks. Forwarding headers are not
    /// read: they may come from anybody.
    Balancer(IpAddr),
}

impl From<IpAddr> for Peer {
    fn from(ip: IpAddr) -> Self {
        Self::Address(ip)
    }
}

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
    shared: Shared,
    /// Read from Kubernetes.
    _tasks: JoinSet<()>,
}

impl Edge {
    /// Checks the flags and, if they require it, starts reading from Kubernetes.
    ///
    /// # Errors
    /// A flag is invalid, or Kubernetes is required but not configured. An unreachable Kubernetes API is not an error:
    /// see [`Edge::status`].
    pub async fn start(args: &EdgeArgs) -> Result<Self, EdgeError> {
        let policy = EdgePolicy::from_args(args)?;
        tracing::info!(%policy, "edge policy");
        #[cfg(feature = "kubernetes")]
        if policy.needs_kube() {
            let retry = || -> Box<dyn Backoff> { Box::new(DefaultBackoff::default()) };
            return Ok(Self::with_client(policy, kubernetes::client().await?, REMOVAL_GRACE, retry));
        }
        #[cfg(not(feature = "kubernetes"))]
        if policy.needs_kube() {
            return Err(EdgeError::NoKubernetes);
        }
        Ok(Self::new(policy))
    }

    /// Reads nothing from Kubernetes.
    fn new(policy: EdgePolicy) -> Self {
        Self { shared: Shared::new(&policy.networks), policy, _tasks: JoinSet::new() }
    }

    /// Like [`Edge::start`], with a given Kubernetes client, removal grace and retry delays.
    #[cfg(feature = "kubernetes")]
    #[must_use]
    pub fn with_client(
        policy: EdgePolicy,
        client: kube::Client,
        removal_grace: Duration,
        retry: impl Fn() -> Box<dyn Backoff>,
    ) -> Self {
        let edge = Self::new(policy);
        let _tasks = kubernetes::spawn_readers(&edge.policy, &edge.shared, client, removal_grace, retry);
        Self { _tasks, ..edge }
    }

    /// Identifies the client of a request. `own` are the facts of the TCP connection to this process. Does not allocate or
    /// lock.
    #[must_use]
    pub fn identify<'h>(
        &self,
        peer: impl Into<Peer>,
        headers: &'h HeaderMap,
        own: ConnectionFacts<'h>,
    ) -> ClientInfo<'h> {
        let (client, facts) = match peer.into() {
            Peer::Address(peer) => {
                let client = resolve(peer, headers, &self.policy.client_ip_from, &self.shared.trusted.load());
                let sent = || self.policy.fact_headers.read(headers);
                (client, fact_sources::select(client.decision, own, sent))
            }
            Peer::Balancer(ip) => (ClientIp { ip: ip.to_canonical(), decision: Decision::Missing }, own),
        };
        let facts = ConnectionFacts { colo: facts.colo.or_else(|| self.colo()), ..facts };
        ClientInfo { ip: client.ip, decision: client.decision, facts }
    }

    /// Checks that at least one proxy is trusted: with the PROXY protocol, only trusted proxies can connect.
    ///
    /// # Errors
    /// Neither `--trusted-proxies` nor `--discover-proxies` is given.
    pub fn require_trusted_proxies(&self) -> Result<(), EdgeError> {
        let none = self.policy.networks.is_empty() && self.policy.discover.is_none();
        if none { Err(EdgeError::NoTrustedProxies) } else { Ok(()) }
    }

    /// Returns the colo of this process: from the node's label, else from the node's zone, else `--colo`.
    #[must_use]
    pub fn colo(&self) -> Option<Iata> {
        self.shared.node_colo.get().copied().or(self.policy.colo)
    }

    /// Returns the trusted proxies, which discovery keeps current.
    #[must_use]
    pub fn trusted(&self) -> Arc<TrustedProxies> {
        Arc::clone(&self.shared.trusted)
    }

    /// Returns the status of discovery, for readiness and metrics.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<DiscoveryStatus> {
        self.shared.status.subscribe()
    }
}
