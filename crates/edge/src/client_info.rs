//! [`Edge`]: returns the client's address, connection facts and colo for each request.

use std::net::IpAddr;
use std::sync::Arc;
#[cfg(feature = "kubernetes")]
use std::time::Duration;

use http::{HeaderMap, HeaderName};
#[cfg(feature = "kubernetes")]
use kube::runtime::{utils::Backoff, watcher::DefaultBackoff};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client_ip::{ClientIp, Decision, resolve_observed};
use crate::colo::Iata;
use crate::config::EdgeArgs;
use crate::error::EdgeError;
use crate::fact_sources;
use crate::facts::ConnectionFacts;
#[cfg(feature = "kubernetes")]
use crate::kubernetes;
use crate::policy::EdgePolicy;
use crate::shared::{DiscoveryStatus, Shared};
use crate::steps::{Fact, FactSource, Observer, Step};
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

/// The client of one request, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'h> {
    /// What [`Edge::identify`] returns.
    pub client: ClientInfo<'h>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The headers that would be read if the peer were trusted.
    pub ignored: Vec<HeaderName>,
    /// The headers that are used neither for the address nor for the facts, whatever the peer. Other parts of the service
    /// may read them.
    pub unknown: Vec<HeaderName>,
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
        self.identify_observed(peer.into(), headers, own, &mut ())
    }

    /// Like [`Edge::identify`], and explains the result.
    #[must_use]
    pub fn explain<'h>(
        &self,
        peer: impl Into<Peer>,
        headers: &'h HeaderMap,
        own: ConnectionFacts<'h>,
    ) -> Explanation<'h> {
        let mut steps = Vec::new();
        let client = self.identify_observed(peer.into(), headers, own, &mut steps);
        let (known, unknown) = headers.keys().cloned().partition(|name| self.policy.reads(name));
        let headers_are_read = steps.iter().any(|step| matches!(step, Step::FactHeader { .. }));
        let ignored = if headers_are_read { Vec::new() } else { known };
        Explanation { client, steps, ignored, unknown }
    }

    fn identify_observed<'h, O: Observer>(
        &self,
        peer: Peer,
        headers: &'h HeaderMap,
        own: ConnectionFacts<'h>,
        observer: &mut O,
    ) -> ClientInfo<'h> {
        let (client, facts) = match peer {
            Peer::Address(peer) => {
                let trusted = self.shared.trusted.load();
                let client = resolve_observed(peer, headers, &self.policy.client_ip_from, &trusted, observer);
                let sent = |observer: &mut O| self.policy.fact_headers.read_observed(headers, observer);
                (client, fact_sources::select(client.decision, own, sent, observer))
            }
            Peer::Balancer(ip) => {
                let ip = ip.to_canonical();
                observer.add(|| Step::BalancerWithoutClient { ip });
                (ClientIp { ip, decision: Decision::Missing }, fact_sources::only_own(own, observer))
            }
        };
        observer.add(|| Step::FactSource { fact: Fact::Colo, source: self.colo_source(facts.colo) });
        let facts = ConnectionFacts { colo: facts.colo.or_else(|| self.colo()), ..facts };
        ClientInfo { ip: client.ip, decision: client.decision, facts }
    }

    fn colo_source(&self, sent: Option<Iata>) -> FactSource {
        match (sent, self.shared.node_colo.get(), self.policy.colo) {
            (Some(_), ..) => FactSource::Header,
            (None, Some(_), _) => FactSource::NodeLabel,
            (None, None, Some(_)) => FactSource::Flags,
            (None, None, None) => FactSource::Unknown,
        }
    }

    /// Returns the policy that the flags define.
    #[must_use]
    pub fn policy(&self) -> &EdgePolicy {
        &self.policy
    }

    /// Returns the names of the headers in which a trusted proxy sends a fact.
    #[must_use]
    pub fn fact_headers(&self, fact: Fact) -> &[HeaderName] {
        self.policy.fact_headers.names(fact)
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
