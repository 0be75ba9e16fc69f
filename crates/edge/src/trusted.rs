//! The trusted proxies, which discovery replaces without blocking requests, and the status of discovery.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ipnet::{IpNet, Ipv4Net};
use tokio::sync::watch;

/// Networks from the flags and addresses from discovery.
#[derive(Debug)]
pub struct TrustedProxies {
    networks: Box<[IpNet]>,
    /// Read by requests without locking. An ingress controller can have many pods.
    discovered: ArcSwap<BTreeSet<IpAddr>>,
    pub(crate) status: watch::Sender<DiscoveryStatus>,
}

impl TrustedProxies {
    /// Trusts networks. No address has been discovered.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let networks = networks.into_iter().map(canonical_network).collect();
        Self { networks, discovered: ArcSwap::default(), status: watch::Sender::new(DiscoveryStatus::Off) }
    }

    /// Returns whether the address is a trusted proxy. An IPv4-mapped address counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.networks.iter().any(|network| network.contains(&ip)) || self.discovered.load().contains(&ip)
    }

    /// Why the address is a trusted proxy, for explanations.
    pub(crate) fn reason(&self, ip: IpAddr) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.networks.iter().find(|network| network.contains(&ip)) {
            Some(network) => write!(f, "{network} in --trusted-proxies"),
            None => f.write_str("found by --discover-proxies"),
        })
    }

    /// Atomically replaces the discovered addresses. The networks from the flags stay.
    pub fn publish(&self, addresses: BTreeSet<IpAddr>) {
        self.discovered.store(Arc::new(addresses));
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

    /// Returns the detail for the readiness report, or the reason why the process is not ready.
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
    fn set_contains_networks_and_discovered_addresses() {
        let set = TrustedProxies::new(["10.1.2.3/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()]);
        set.publish([ip("192.0.2.9"), ip("192.0.2.3")].into());
        for inside in ["10.255.0.1", "::ffff:10.0.0.1", "2001:db8::1", "192.0.2.9", "::ffff:192.0.2.3"] {
            assert!(set.contains(ip(inside)), "{inside}");
        }
        assert_eq!(set.reason(ip("10.255.0.1")).to_string(), "10.0.0.0/8 in --trusted-proxies");
        assert_eq!(set.reason(ip("192.0.2.9")).to_string(), "found by --discover-proxies");
        for outside in ["11.0.0.1", "192.0.2.4", "2001:db9::1", "::10.0.0.1", "::1"] {
            assert!(!set.contains(ip(outside)), "{outside}");
        }
    }

    #[test]
    fn mapped_network_matches_ipv4() {
        let set = TrustedProxies::new(["::ffff:10.0.0.0/104".parse().unwrap()]);
        assert!(set.contains(ip("10.9.9.9")));
        assert!(!set.contains(ip("11.9.9.9")));
    }

    #[test]
    fn publish_replaces_discovered_addresses_and_keeps_networks() {
        let set = TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]);
        set.publish([ip("192.0.2.1")].into());
        set.publish([ip("192.0.2.2")].into());
        assert!(set.contains(ip("10.0.0.1")) && set.contains(ip("192.0.2.2")));
        assert!(!set.contains(ip("192.0.2.1")));
    }
}
