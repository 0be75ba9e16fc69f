//! The set of proxies whose headers are believed, and the place where it is swapped without stopping a request.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use ipnet::{IpNet, Ipv4Net};

/// Networks from the flags together with the single addresses that discovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedSet {
    networks: Arc<[IpNet]>,
    /// Sorted, so that a large ingress fleet costs a binary search and not a walk.
    hosts: Box<[IpAddr]>,
}

impl TrustedSet {
    /// The networks of the flags, with nothing discovered yet.
    #[must_use]
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let networks = networks.into_iter().map(canonical_network).collect();
        Self { networks, hosts: Box::default() }
    }

    /// The same networks with these single addresses in place of the former ones.
    #[must_use]
    pub fn with_hosts(&self, hosts: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut hosts: Vec<IpAddr> = hosts.into_iter().map(|ip| ip.to_canonical()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        Self { networks: Arc::clone(&self.networks), hosts: hosts.into() }
    }

    /// Whether this address is a trusted proxy; a mapped address counts as IPv4.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.networks.iter().any(|net| net.contains(&ip)) || self.hosts.binary_search(&ip).is_ok()
    }

    /// Whether nobody is trusted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.hosts.is_empty()
    }

    /// How many single addresses discovery contributed.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }
}

/// Rewrites a network inside `::ffff:0:0/96` to the IPv4 network that it means, because peers are compared unmapped.
pub(crate) fn canonical_network(net: IpNet) -> IpNet {
    let net = net.trunc();
    let mapped = match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => v6.addr().to_ipv4_mapped(),
        _ => None,
    };
    mapped.and_then(|v4| Ipv4Net::new(v4, net.prefix_len() - 96).ok()).map_or(net, IpNet::V4)
}

/// The trusted set of the running process: read on every request, replaced by discovery.
#[derive(Debug, Default)]
pub struct TrustedProxies(ArcSwap<TrustedSet>);

impl TrustedProxies {
    /// Starts with this set.
    #[must_use]
    pub fn new(set: TrustedSet) -> Self {
        Self(ArcSwap::from_pointee(set))
    }

    /// The set of this moment, without a lock.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<TrustedSet>> {
        self.0.load()
    }

    /// Replaces the discovered addresses in one step; the flags' networks stay.
    pub fn publish(&self, hosts: impl IntoIterator<Item = IpAddr>) {
        let next = self.0.load().with_hosts(hosts);
        self.0.store(Arc::new(next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_and_hosts_are_united() {
        let set = TrustedSet::new(["10.1.2.3/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()]);
        let set = set.with_hosts([ip("192.0.2.9"), ip("192.0.2.9"), ip("::ffff:192.0.2.3")]);
        assert_eq!(set.hosts(), 2);
        for inside in ["10.255.0.1", "::ffff:10.0.0.1", "2001:db8::1", "192.0.2.9", "192.0.2.3"] {
            assert!(set.contains(ip(inside)), "{inside}");
        }
        for outside in ["11.0.0.1", "192.0.2.4", "2001:db9::1", "::10.0.0.1", "::1"] {
            assert!(!set.contains(ip(outside)), "{outside}");
        }
    }

    #[test]
    fn a_mapped_network_means_ipv4() {
        let set = TrustedSet::new(["::ffff:10.0.0.0/104".parse().unwrap()]);
        assert!(set.contains(ip("10.9.9.9")));
        assert!(!set.contains(ip("11.9.9.9")));
    }

    #[test]
    fn publishing_replaces_hosts_and_keeps_networks() {
        let proxies = TrustedProxies::new(TrustedSet::new(["10.0.0.0/8".parse().unwrap()]));
        proxies.publish([ip("192.0.2.1")]);
        proxies.publish([ip("192.0.2.2")]);
        let set = proxies.load();
        assert!(set.contains(ip("10.0.0.1")) && set.contains(ip("192.0.2.2")));
        assert!(!set.contains(ip("192.0.2.1")));
    }
}
