//! Caches the JSON of locations by database record. Many requests need the same record: it covers many addresses, and a
//! client sends many requests. A location is cached only on its second miss, because inserting it costs as much as
//! serializing it.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::location::{Location, LocationJson};
use crate::timezone::Timezones;

/// With more databases than this, locations are not cached.
pub(crate) const MAX_DATABASES: usize = 8;

/// Maximum number of cached locations. At 0.7 KiB each, as with GeoLite2-City, a full cache takes 22 MiB.
const SLOTS: usize = 32_768;

/// Longer JSON is not cached, so that a database with very long strings can't use up memory.
const MAX_JSON_LEN: usize = 2048;

/// The offset of an address's record in each database plus 1, the built-in data last; 0 if the database has no record for
/// the address or was not consulted, or if there are fewer databases. A file has at most 2 GiB.
pub(crate) type RecordOffsets = [u32; MAX_DATABASES + 1];

/// A direct-mapped cache: a hash of the record offsets selects the slot.
pub(crate) struct LocationCache {
    slots: Box<[CacheSlot]>,
    /// For each slot, the hash of the record offsets that missed most recently.
    last_miss: Box<[AtomicU64]>,
}

/// Boxed, so that an empty slot is small.
type CacheSlot = Mutex<Option<Box<CachedLocation>>>;

struct CachedLocation {
    offsets: RecordOffsets,
    /// Unix seconds during which the timezone offset is valid.
    valid: Range<i64>,
    json: LocationJson,
}

impl LocationCache {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| CacheSlot::default()).collect(),
            last_miss: (0..SLOTS).map(|_| AtomicU64::default()).collect(),
        }
    }

    /// Passes the cached JSON to `use_json`, or on a miss the JSON of `location()`, which also returns whether the location
    /// depends on nothing but the records and may be cached.
    /// Never blocks: a locked slot is a miss.
    pub(crate) fn with_json<'l, R>(
        &self,
        offsets: RecordOffsets,
        now: i64,
        timezones: &Timezones,
        location: impl FnOnce() -> (Location<'l>, bool),
        use_json: impl FnOnce(&LocationJson) -> R,
    ) -> R {
        let hash = hash(&offsets);
        let index = (hash >> (u64::BITS - SLOTS.ilog2())) as usize;
        let slot = &self.slots[index];
        if let Ok(cached) = slot.try_lock()
            && let Some(cached) = cached.as_ref().filter(|cached| cached.matches(&offsets, now))
        {
            return use_json(&cached.json);
        }
        let (location, cacheable) = location();
        let json = LocationJson::new(&location);
        let result = use_json(&json);
        let second_miss = self.last_miss[index].swap(hash, Ordering::Relaxed) == hash;
        if cacheable
            && second_miss
            && json.len() <= MAX_JSON_LEN
            && let Ok(mut cached) = slot.try_lock()
        {
            let changes = location.offset_timezone.map(|zone| timezones.next_change(zone, now));
            let valid = now..changes.unwrap_or(i64::MAX);
            *cached = Some(Box::new(CachedLocation { offsets, valid, json }));
        }
        result
    }
}

impl CachedLocation {
    fn matches(&self, offsets: &RecordOffsets, now: i64) -> bool {
        self.offsets == *offsets && self.valid.contains(&now)
    }
}

/// Multiplying by a large odd number (Fibonacci hashing) spreads neighboring offsets over the upper bits, which select
/// the slot.
fn hash(offsets: &RecordOffsets) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    offsets
        .iter()
        .filter(|offset| **offset > 0)
        .fold(MULTIPLIER, |hash, offset| (hash.rotate_left(5) ^ u64::from(*offset)).wrapping_mul(MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: RecordOffsets = [7, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Which of four lookups of the same location are misses.
    fn misses(city: &str, cacheable: bool) -> [bool; 4] {
        let (cache, timezones) = (LocationCache::new(), Timezones::built_in());
        [0; 4].map(|now| {
            let mut missed = false;
            let location = || {
                missed = true;
                (Location { city: Some(city), ..Location::default() }, cacheable)
            };
            let json = cache.with_json(OFFSETS, now, &timezones, location, |json| json.geo_fields().to_vec());
            assert!(String::from_utf8(json).expect("UTF-8").starts_with(&format!(r#","city":"{city}""#)));
            missed
        })
    }

    #[test]
    fn location_is_cached_after_second_miss() {
        assert_eq!(misses("Berlin", true), [true, true, false, false]);
    }

    #[test]
    fn location_that_depends_on_more_than_the_records_is_not_cached() {
        assert_eq!(misses("Berlin", false), [true; 4]);
    }

    #[test]
    fn oversized_json_is_not_cached() {
        assert_eq!(misses(&"x".repeat(MAX_JSON_LEN), true), [true; 4]);
    }
}
