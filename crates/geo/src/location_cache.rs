//! Caches the JSON of locations by network: a client sends many requests, and its neighbors mostly have the same location.
//! A miss searches the databases' trees, which are too large for the CPU's caches.

use std::mem;
use std::net::IpAddr;
use std::ops::Range;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::location::LocationJson;

/// Maximum number of cached locations. At 0.6 KiB each, as with GeoLite2-City, a full cache takes 40 MiB.
const LOCATIONS: usize = 65_536;

/// Locations per set.
const WAYS: usize = 4;

const SETS: usize = LOCATIONS / WAYS;

/// Longer JSON is not cached, so that a database with very long strings can't use up memory: at most 128 MiB in all.
const MAX_JSON_LEN: usize = 2048;

/// A network by which locations are cached. The default, of length 0, marks an unused way: no lookup has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    bits: u64,
    pub(crate) prefix_len: u8,
}

impl Network {
    /// The networks by which the location of an address may be cached, the larger one first: its /24 or /32, or its /48
    /// or /64.
    pub(crate) fn of(ip: IpAddr) -> [Self; 2] {
        match ip {
            IpAddr::V4(ip) => [24, 32]
                .map(|prefix_len| Self { bits: u64::from(ip.to_bits() >> (32 - prefix_len)), prefix_len }),
            IpAddr::V6(ip) => [48, 64]
                .map(|prefix_len| Self { bits: (ip.to_bits() >> (128 - prefix_len)) as u64, prefix_len }),
        }
    }

    /// Fibonacci hashing: the upper bits of the product depend on all bits of the network.
    fn set(self) -> usize {
        let hash = (self.bits ^ u64::from(self.prefix_len) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (u64::BITS - SETS.ilog2())) as usize
    }
}

/// A set-associative cache: a hash of the network selects the set.
pub(crate) struct LocationCache(Box<[LockedSet]>);

/// Aligned, so that a set takes four cache lines and not parts of five.
#[derive(Default)]
#[repr(align(64))]
struct LockedSet(Mutex<Set>);

#[derive(Default)]
struct Set {
    locations: [CachedLocation; WAYS],
    /// Which of them were used since `hand` last passed them (the CLOCK algorithm).
    used: [bool; WAYS],
    /// The next one to be evicted, unless it was used.
    hand: usize,
}

#[derive(Default)]
struct CachedLocation {
    network: Network,
    /// Unix seconds during which the timezone offset is valid.
    valid: Range<i64>,
    json: LocationJson,
}

impl LocationCache {
    pub(crate) fn new() -> Self {
        Self((0..SETS).map(|_| LockedSet::default()).collect())
    }

    /// The location of a network, if it is cached and valid. Never blocks: a locked set is a miss. The result holds the lock.
    pub(crate) fn get(&self, network: Network, now: i64) -> Option<MappedMutexGuard<'_, LocationJson>> {
        let cached = MutexGuard::try_map(self.0[network.set()].0.try_lock()?, |set| {
            let way = set.way_of(network).filter(|way| set.locations[*way].valid.contains(&now))?;
            set.used[way] = true;
            Some(&mut set.locations[way].json)
        });
        cached.ok()
    }

    /// Caches a location in place of that of the same network, or of one that was not used recently.
    pub(crate) fn insert(&self, network: Network, valid: Range<i64>, json: LocationJson) {
        if json.len() <= MAX_JSON_LEN
            && let Some(mut set) = self.0[network.set()].0.try_lock()
        {
            let way = set.way_of(network).unwrap_or_else(|| set.evict());
            set.locations[way] = CachedLocation { network, valid, json };
        }
    }
}

impl Set {
    fn way_of(&self, network: Network) -> Option<usize> {
        self.locations.iter().position(|cached| cached.network == network)
    }

    /// Selects the location to be replaced.
    fn evict(&mut self) -> usize {
        loop {
            let way = self.hand;
            self.hand = (way + 1) % WAYS;
            if !mem::take(&mut self.used[way]) {
                return way;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use super::*;
    use crate::location::Location;

    fn network(ip: &str) -> Network {
        Network::of(ip.parse().expect("IP address"))[0]
    }

    fn json(city: &str) -> LocationJson {
        LocationJson::new(&Location { city: Some(city), ..Location::default() })
    }

    /// Looks a network up like a request. Returns whether its location was cached.
    fn request(cache: &LocationCache, network: Network) -> bool {
        let json = json(&format!("{network:?}"));
        if let Some(cached) = cache.get(network, 0) {
            assert_eq!(cached.geo_fields(), json.geo_fields());
            return true;
        }
        cache.insert(network, 0..1, json);
        false
    }

    #[test]
    fn unused_location_is_replaced_before_a_used_one() {
        let cache = LocationCache::new();
        let first = network("20.0.0.1");
        let mut same_set =
            (0..).map(|n| Network { bits: first.bits + n, ..first }).filter(|n| n.set() == first.set());
        let [a, b, c, d, e, f] = array::from_fn(|_| same_set.next().expect("endless"));
        let cached = |networks: &[Network]| networks.iter().map(|n| request(&cache, *n)).collect::<Vec<_>>();
        assert_eq!(cached(&[a, b, c, d]), [false; WAYS]);
        assert_eq!(cached(&[a, b, c, d]), [true; 4]);
        assert_eq!(cached(&[e]), [false], "in place of a: all of them were used");
        assert_eq!(cached(&[c, d, e]), [true; 3]);
        assert_eq!(cached(&[f]), [false], "in place of b, which was not used since");
        assert_eq!(cached(&[c, d, e, f]), [true; 4]);
        assert_eq!(cached(&[b]), [false]);
    }

    #[test]
    fn location_is_cached_while_its_timezone_offset_is_valid() {
        let (cache, network) = (LocationCache::new(), network("81.2.69.1"));
        cache.insert(network, 10..20, json("Berlin"));
        let is_cached = |now| cache.get(network, now).is_some();
        assert_eq!([9, 10, 19, 20].map(is_cached), [false, true, true, false]);
        cache.insert(network, 20..30, json("Berlin"));
        assert_eq!([10, 20].map(is_cached), [false, true], "one location per network");
    }

    #[test]
    fn oversized_json_is_not_cached() {
        let (cache, network) = (LocationCache::new(), network("81.2.69.1"));
        cache.insert(network, 0..1, json(&"x".repeat(MAX_JSON_LEN)));
        assert!(cache.get(network, 0).is_none());
    }

    #[test]
    fn addresses_in_the_same_24_or_48_have_the_same_network() {
        let same = |a, b| network(a) == network(b);
        assert!(same("81.2.69.0", "81.2.69.255"));
        assert!(!same("81.2.69.255", "81.2.70.0"));
        assert!(same("2a02:cf40:1::", "2a02:cf40:1:ffff::1"));
        assert!(!same("2a02:cf40:1::", "2a02:cf40:2::"));
        assert!(!same("0.0.0.1", "::1"));
    }

    #[test]
    fn set_takes_four_cache_lines() {
        assert_eq!(size_of::<LockedSet>(), 4 * 64);
    }
}
