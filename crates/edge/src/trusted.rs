//! The set of trusted proxies, and the holder that replaces it without blocking requests.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use ipnet::{IpNet, Ipv4Net};
use tokio::sync::watch;

use crate::colo::Iata;

/// Why an address is a trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedBy {
    /// It is in this network of `--trusted-proxies`.
    Network(IpNet),
    /// Discovery has found it.
    Discovery,
}

impl fmt::Display for TrustedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => write!(f, "{network} in --trusted-proxies"),
            Self::Discovery => f.write_str("found by --discover-proxies"),
        }
    }
}

/// Networks from the flags and addresses from discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedSet {
    networks: Arc<[IpNet]>,
    /// Sorted for binary search: an ingress controller can have many pods.
    hosts: Box<[IpAddr]>,
}

impl TrustedSet {
    /// Creates a set of networks without discovered addresses.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let networks = networks.into_iter().map(canonical_network).collect();
        Self { networks, hosts: Box::default() }
    }

    /// Returns a set with the same networks and these addresses instead of the previous ones.
    pub fn with_hosts(&self, hosts: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut hosts: Vec<IpAddr> = hosts.into_iter().map(|ip| ip.to_canonical()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        Self { networks: Arc::clone(&self.networks), hosts: hosts.into() }
    }

    /// Returns whether the address is a trusted proxy. An IPv4-mapped address counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.find(ip).is_some()
    }

    /// Returns why the address is a trusted proxy, or `None` if it is not.
    pub(crate) fn find(&self, ip: IpAddr) -> Option<TrustedBy> {
        let ip = ip.to_canonical();
        let network = self.networks.iter().find(|net| net.contains(&ip));
        let discovered = || self.hosts.binary_search(&ip).is_ok().then_some(TrustedBy::Discovery);
        network.map(|network| TrustedBy::Network(*network)).or_else(discovered)
    }
}

/// Converts a network within `::ffff:0:0/96` to IPv4: `contains` compares IPv4-mapped addresses as IPv4.
pub(crate) fn canonical_network(net: IpNet) -> IpNet {
    let net = net.trunc();
    let mapped = match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => v6.addr().to_ipv4_mapped(),
        _ => None,
    };
    mapped.and_then(|v4| Ipv4Net::new(v4, net.prefix_len() - 96).ok()).map_or(net, IpNet::V4)
}

/// The current trusted set: read by each request, replaced by discovery.
#[derive(Debug, Default)]
pub struct TrustedProxies(ArcSwap<TrustedSet>);

impl TrustedProxies {
    /// Creates a holder with an initial set.
    pub fn new(set: TrustedSet) -> Self {
        Self(ArcSwap::from_pointee(set))
    }

    /// Returns the current set without locking.
    pub fn load(&self) -> Guard<Arc<TrustedSet>> {
        self.0.load()
    }

    /// Returns whether the address is currently a trusted proxy.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.load().contains(ip)
    }

    /// Atomically replaces the discovered addresses. The networks from the flags stay.
    pub fn publish(&self, hosts: impl IntoIterator<Item = IpAddr>) {
        let next = self.0.load().with_hosts(hosts);
        self.0.store(Arc::new(next));
    }
}

/// State that requests share with the tasks that read from Kubernetes. Clones refer to the same state.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) trusted: Arc<TrustedProxies>,
    pub(crate) node_colo: Arc<OnceLock<Iata>>,
    pub(crate) status: watch::Sender<DiscoveryStatus>,
}

impl Shared {
    /// Trusts these networks.
    pub(crate) fn new(networks: &[IpNet]) -> Self {
        Self {
            trusted: Arc::new(TrustedProxies::new(TrustedSet::new(networks.iter().copied()))),
            node_colo: Arc::default(),
            status: watch::Sender::new(DiscoveryStatus::Off),
        }
    }
}

/// Status of discovery. Readiness depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryStatus {
    /// Discovery is not configured.
    Off,
    /// No list has been received yet. Not ready, because proxies would be treated as clients.
    Waiting,
    /// The set of proxies is current.
    Following {
        /// Number of trusted addresses, including recently removed ones.
        proxies: usize,
    },
    /// The Kubernetes API is unavailable. The last known set stays trusted.
    Stale {
        /// Number of trusted addresses.
        proxies: usize,
    },
}

impl DiscoveryStatus {
    /// Returns whether the process may get traffic: false only before the first list. A later outage of the Kubernetes
    /// API does not affect readiness.
    pub const fn is_ready(self) -> bool {
        !matches!(self, Self::Waiting)
    }

    /// Returns the detail for the readiness report, or the reason why the process is not ready: before the first list, a
    /// proxy's address would be taken for the address of every client behind it.
    pub fn readiness(&self) -> Result<String, String> {
        match self.is_ready() {
            true => Ok(format!("proxy discovery: {}", self.label())),
            false => Err("the proxies have not been listed yet".to_owned()),
        }
    }

    /// Returns the metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Waiting => "waiting",
            Self::Following { .. } => "following",
            Self::Stale { .. } => "stale",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_waiting_is_not_ready() {
        assert!(!DiscoveryStatus::Waiting.is_ready());
        for status in [
            DiscoveryStatus::Off,
            DiscoveryStatus::Following { proxies: 0 },
            DiscoveryStatus::Stale { proxies: 2 },
        ] {
            assert!(status.is_ready(), "{status:?}");
        }
    }

    #[test]
    fn set_contains_networks_and_hosts() {
        let set = TrustedSet::new(["10.1.2.3/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()]);
        let set = set.with_hosts([ip("192.0.2.9"), ip("192.0.2.9"), ip("::ffff:192.0.2.3")]);
        assert_eq!(set.hosts.len(), 2);
        for inside in ["10.255.0.1", "::ffff:10.0.0.1", "2001:db8::1", "192.0.2.9", "192.0.2.3"] {
            assert!(set.contains(ip(inside)), "{inside}");
        }
        assert_eq!(set.find(ip("10.255.0.1")), Some(TrustedBy::Network("10.0.0.0/8".parse().unwrap())));
        assert_eq!(set.find(ip("192.0.2.9")), Some(TrustedBy::Discovery));
        for outside in ["11.0.0.1", "192.0.2.4", "2001:db9::1", "::10.0.0.1", "::1"] {
            assert!(!set.contains(ip(outside)), "{outside}");
        }
    }

    #[test]
    fn mapped_network_matches_ipv4() {
        let set = TrustedSet::new(["::ffff:10.0.0.0/104".parse().unwrap()]);
        assert!(set.contains(ip("10.9.9.9")));
        assert!(!set.contains(ip("11.9.9.9")));
    }

    #[test]
    fn publish_replaces_hosts_and_keeps_networks() {
        let proxies = TrustedProxies::new(TrustedSet::new(["10.0.0.0/8".parse().unwrap()]));
        proxies.publish([ip("192.0.2.1")]);
        proxies.publish([ip("192.0.2.2")]);
        let set = proxies.load();
        assert!(set.contains(ip("10.0.0.1")) && set.contains(ip("192.0.2.2")));
        assert!(!set.contains(ip("192.0.2.1")));
    }
}
