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

use crate::client_ip::{Decision, parse_entry, resolve};
use crate::config::{EdgeArgs, EdgePolicy};
use crate::explain::{Explained, Explanation, join};
use crate::facts::ConnectionFacts;
#[cfg(feature = "kubernetes")]
use crate::kubernetes;
use crate::trusted::{DiscoveryStatus, TrustedProxies};

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

/// Identifies the clients of a running service according to its edge policy. Dropping it ends discovery.
#[derive(Debug)]
pub struct Edge {
    policy: EdgePolicy,
    trusted: Arc<TrustedProxies>,
    _discovery: JoinSet<()>,
}

impl Edge {
    /// Checks the flags and, if they require it, starts discovery. An unreachable Kubernetes API is not an error: see
    /// [`Edge::status`].
    pub async fn start(args: &EdgeArgs) -> anyhow::Result<Self> {
        let policy = EdgePolicy::from_args(args)?;
        tracing::info!(%policy, "edge policy");
        if policy.discover.is_none() {
            return Ok(Self::new(policy));
        }
        #[cfg(feature = "kubernetes")]
        {
            let retry = Box::new(DefaultBackoff::default());
            Ok(Self::with_client(policy, kubernetes::client().await?, REMOVAL_GRACE, retry))
        }
        #[cfg(not(feature = "kubernetes"))]
        anyhow::bail!(
            "--discover-proxies requires Kubernetes support, but this program was built without it"
        );
    }

    /// Does not start discovery.
    fn new(policy: EdgePolicy) -> Self {
        let trusted = Arc::new(TrustedProxies::new(policy.networks.iter().copied()));
        Self { policy, trusted, _discovery: JoinSet::new() }
    }

    /// Like [`Edge::start`], with a given Kubernetes client, removal grace and retry delays.
    #[cfg(feature = "kubernetes")]
    pub fn with_client(
        policy: EdgePolicy,
        client: kube::Client,
        removal_grace: Duration,
        retry: Box<dyn Backoff>,
    ) -> Self {
        let mut edge = Self::new(policy);
        if let Some(service) = edge.policy.discover.clone() {
            let trusted = edge.trusted.clone();
            trusted.status.send_replace(DiscoveryStatus::Waiting);
            let discover =
                kubernetes::discover_proxies(client, service, trusted.clone(), removal_grace, retry);
            edge._discovery.spawn(kubernetes::notice_panic(trusted, discover));
        }
        edge
    }

    /// Identifies the client of a request. `own` are the facts of the TCP connection to this process. Does not allocate or
    /// lock.
    pub fn identify<'h>(
        &self,
        peer: Peer,
        headers: &'h HeaderMap,
        own: ConnectionFacts<'h>,
    ) -> ClientInfo<'h> {
        self.identify_explained(peer, headers, own, &mut Explanation::default())
    }

    /// Like [`Edge::identify`], and explains the result.
    #[must_use]
    pub fn explain<'h>(
        &self,
        peer: IpAddr,
        headers: &'h HeaderMap,
        own: ConnectionFacts<'h>,
    ) -> (ClientInfo<'h>, Vec<Explained>) {
        let mut explanation = Explanation::collect();
        let mut add = |text: String| explanation.add("ip", || text);
        match *self.status().borrow() {
            DiscoveryStatus::Off => {}
            DiscoveryStatus::Waiting => add(
                "The proxies of --discover-proxies are not known yet, so none of them is trusted. Check the access to the \
                 Kubernetes API."
                    .to_owned(),
            ),
            DiscoveryStatus::Following { proxies } | DiscoveryStatus::Stale { proxies } => {
                add(format!("--discover-proxies has found this number of proxies: {proxies}."));
            }
        }
        let client = self.identify_explained(Peer::Address(peer), headers, own, &mut explanation);
        let mut add = |text: String| explanation.add("ip", || text);
        let (known, unknown): (Vec<_>, Vec<_>) = headers.keys().partition(|name| self.policy.reads(name));
        if client.decision == Decision::PeerUntrusted && !known.is_empty() {
            add(format!("Ignored, because the peer is not trusted: {}.", join(&known)));
        }
        if !unknown.is_empty() {
            add(format!("Not used for the address or the connection facts: {}.", join(&unknown)));
        }
        let has_address = |name: &&&HeaderName| parse_entry(headers[**name].as_bytes()).is_some();
        if let (Decision::Missing, Some(name)) = (client.decision, unknown.iter().find(has_address)) {
            add(format!(
                "{name} has an address. Let your proxy send it in X-Forwarded-For. lookup-svc can also read {name}, if \
                 your proxy always replaces it: --client-ip-from header:{name}."
            ));
        }
        (client, explanation.into_texts())
    }

    fn identify_explained<'h>(
        &self,
        peer: Peer,
        headers: &'h HeaderMap,
        own: ConnectionFacts<'h>,
        explain: &mut Explanation,
    ) -> ClientInfo<'h> {
        let Self { policy, trusted, .. } = self;
        let (ip, decision, mut facts) = match peer {
            Peer::Address(peer) => {
                let (ip, decision) = resolve(peer, headers, &policy.client_ip_from, trusted, explain);
                (ip, decision, policy.fact_headers.select(decision, own, headers, explain))
            }
            Peer::Balancer(ip) => (ip.to_canonical(), Decision::Missing, own),
        };
        if facts.colo.is_none() {
            explain.add("colo", || {
                let source = match policy.colo {
                    Some(_) => "--colo, or the zone of this node",
                    None => "no flag of this service has it",
                };
                source.to_owned()
            });
            facts.colo = policy.colo;
        }
        ClientInfo { ip, decision, facts }
    }

    /// Returns the policy that the flags define.
    pub fn policy(&self) -> &EdgePolicy {
        &self.policy
    }

    /// Checks that at least one proxy is trusted: with the PROXY protocol, only trusted proxies can connect.
    pub fn require_trusted_proxies(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.policy.networks.is_empty() || self.policy.discover.is_some(),
            "--proxy-protocol requires --trusted-proxies or --discover-proxies: PROXY headers are accepted only from \
             trusted proxies, and all other connections are closed"
        );
        Ok(())
    }

    /// Returns the trusted proxies, which discovery keeps current.
    pub fn trusted(&self) -> Arc<TrustedProxies> {
        Arc::clone(&self.trusted)
    }

    /// Returns the status of discovery, for readiness and metrics.
    pub fn status(&self) -> watch::Receiver<DiscoveryStatus> {
        self.trusted.status.subscribe()
    }
}
