//! Caches which records belong to a network. The trees of large databases don't fit into the CPU's caches, so finding the
//! records of an address waits for memory several times per database.

use std::net::IpAddr;
use std::sync::Mutex;

use crate::database::FoundRecord;
use crate::location_cache::RecordOffsets;

/// Maximum number of cached networks. At 64 bytes each, they take 2 MiB.
const SLOTS: usize = 32_768;

/// A network whose addresses usually have the same records: a /24 of IPv4 or a /48 of IPv6.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(u64);

impl Network {
    const V4_PREFIX: u8 = 24;
    const V6_PREFIX: u8 = 48;

    pub(crate) fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self(1 << 48 | u64::from(ip.to_bits() >> (32 - Self::V4_PREFIX))),
            IpAddr::V6(ip) => Self(2 << 48 | (ip.to_bits() >> (128 - Self::V6_PREFIX)) as u64),
        }
    }

    /// Whether a lookup has this result for the whole /24 or /48 of its address.
    pub(crate) fn is_covered_by(result: &FoundRecord<'_>) -> bool {
        result.network().is_ok_and(|network| {
            network.prefix() <= if network.is_ipv4() { Self::V4_PREFIX } else { Self::V6_PREFIX }
        })
    }

    /// Fibonacci hashing: the upper bits of the product depend on all bits of the network.
    fn slot(self) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2())) as usize
    }
}

/// A direct-mapped cache: a hash of the network selects the slot, and a newer network replaces an older one.
pub(crate) struct NetworkCache(Box<[Slot]>);

/// Takes exactly one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<(Network, RecordOffsets)>>);

impl NetworkCache {
    pub(crate) fn new() -> Self {
        Self((0..SLOTS).map(|_| Slot::default()).collect())
    }

    /// Never blocks: a locked slot is a miss.
    pub(crate) fn get(&self, network: Network) -> Option<RecordOffsets> {
        let slot = self.0[network.slot()].0.try_lock().ok()?;
        slot.filter(|(cached, _)| *cached == network).map(|(_, offsets)| offsets)
    }

    pub(crate) fn insert(&self, network: Network, offsets: RecordOffsets) {
        if let Ok(mut slot) = self.0[network.slot()].0.try_lock() {
            *slot = Some((network, offsets));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_the_same_24_or_48_have_the_same_network() {
        let same = |a: &str, b: &str| {
            let network = |ip: &str| Network::of(ip.parse().expect("IP address"));
            network(a) == network(b)
        };
        assert!(same("81.2.69.0", "81.2.69.255"));
        assert!(!same("81.2.69.255", "81.2.70.0"));
        assert!(same("2a02:cf40:1::", "2a02:cf40:1:ffff::1"));
        assert!(!same("2a02:cf40:1::", "2a02:cf40:2::"));
        assert!(!same("0.0.0.1", "::1"));
    }

    #[test]
    fn slot_takes_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
