//! Caches, for 1.8 s, denials that change no counter. A change of a key through this process drops its cached denial.
//!
//! Cached outcomes: a paused key, an unknown key, the demo's daily quota used up. A key over its daily limit is not
//! cached, because its requests still count toward the burst limit. `allowed` is never cached, nor is a wrong origin.
//!
//! A pause that requests with an origin have shown is cached for that origin only: if the key is restricted, other origins
//! get another denial. A key that is paused for requests without an origin is not restricted, so all others may know it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;
use quota_api::Verdict;

use crate::domain::time::{day_of, midnight_after};
use crate::domain::verdict::{ChargeGroup, GroupCounts, GroupOutcome, Subject};

/// How long a denial is cached. A resume made through another replica of quota-svc must take effect here within 2 s;
/// this TTL leaves 200 ms of them for the store call.
const TTL: Duration = Duration::from_millis(1_800);

/// Maximum number of entries; about 10 MB.
const CAPACITY: usize = 100_000;

pub struct DenialCache {
    entries: Cache<Subject, CachedDenial>,
    /// Counts the changes made through this process. An outcome read from the store before a change must not be
    /// inserted after it.
    generation: AtomicU64,
}

#[derive(Clone, Copy)]
struct CachedDenial {
    outcome: GroupOutcome,
    /// The denial is for requests with this origin; `None`: for all.
    origin: Option<u128>,
    inserted: Instant,
    expires: Instant,
}

impl DenialCache {
    /// Must be called before the store call, and its result passed to [`DenialCache::insert`] after the call.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the cached denial, with its time advanced to `now`.
    pub fn get(&self, subject: &Subject, origin: Option<u128>, now: Instant) -> Option<GroupOutcome> {
        let applies = |denial: &CachedDenial| denial.origin.is_none() || denial.origin == origin;
        let denial = self.entries.get(subject).filter(|denial| now < denial.expires && applies(denial))?;
        let age_ms = i64::try_from(now.duration_since(denial.inserted).as_millis()).unwrap_or(0);
        Some(match denial.outcome {
            GroupOutcome::Paused { now } => GroupOutcome::Paused { now: now + age_ms },
            GroupOutcome::Counted(counts) => {
                GroupOutcome::Counted(GroupCounts { now: counts.now + age_ms, ..counts })
            }
            other => other,
        })
    }

    /// Caches the outcome, if it is cacheable and nothing has changed since `generation` was read.
    pub fn insert(&self, group: &ChargeGroup, outcome: &GroupOutcome, generation: u64, now: Instant) {
        let ChargeGroup { subject, origin, .. } = *group;
        let Some((outcome, ttl)) = cacheable(subject, outcome) else { return };
        let origin = origin.filter(|_| outcome != GroupOutcome::Denied(Verdict::UnknownKey));
        if self.generation.load(Ordering::Acquire) == generation {
            self.entries.insert(subject, CachedDenial { outcome, origin, inserted: now, expires: now + ttl });
            // A change may have happened between the check and the insert.
            if self.generation.load(Ordering::Acquire) != generation {
                self.entries.remove(&subject);
            }
        }
    }

    /// Must be called after every change made through this process.
    pub fn invalidate(&self, subject: &Subject) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.entries.remove(subject);
    }
}

impl Default for DenialCache {
    fn default() -> Self {
        Self { entries: Cache::new(CAPACITY), generation: AtomicU64::new(0) }
    }
}

/// The outcome to return for further charges, and its TTL; `None` if it must not be cached.
fn cacheable(subject: Subject, outcome: &GroupOutcome) -> Option<(GroupOutcome, Duration)> {
    match outcome {
        GroupOutcome::Denied(Verdict::UnknownKey) | GroupOutcome::Paused { .. } => Some((*outcome, TTL)),
        GroupOutcome::Counted(counts) if counts.burst_exceeded => {
            Some((GroupOutcome::Paused { now: counts.now }, TTL))
        }
        GroupOutcome::Counted(counts) if subject == Subject::Demo && counts.used >= counts.limit => {
            let midnight = i64::try_from(midnight_after(day_of(counts.now)) * 1000).unwrap_or(i64::MAX);
            let left = Duration::from_millis(u64::try_from(midnight - counts.now).unwrap_or(0));
            let exhausted = GroupCounts { allowed: 0, over_daily: u32::MAX, ..*counts };
            Some((GroupOutcome::Counted(exhausted), TTL.min(left)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::KeyId;

    const KEY: Subject = Subject::Key(KeyId([7; 16]));
    const UNKNOWN_KEY: GroupOutcome = GroupOutcome::Denied(Verdict::UnknownKey);

    fn group(subject: Subject, origin: Option<u128>) -> ChargeGroup {
        ChargeGroup { subject, origin, count: 1 }
    }

    fn counted(allowed: u32, over_daily: u32, burst_exceeded: bool) -> GroupOutcome {
        GroupOutcome::Counted(GroupCounts {
            now: 1_000,
            scope: None,
            limit: 5,
            used: 5,
            allowed,
            over_daily,
            burst_exceeded,
        })
    }

    #[test]
    fn other_outcomes_are_not_cached() {
        let cache = DenialCache::default();
        let now = Instant::now();
        for outcome in [
            counted(1, 0, false),
            counted(0, 1, false),
            GroupOutcome::Denied(Verdict::Inactive),
            GroupOutcome::Denied(Verdict::Expired { at: 1 }),
            GroupOutcome::Denied(Verdict::WrongOrigin),
            GroupOutcome::Denied(Verdict::Suspended),
            GroupOutcome::Unavailable,
        ] {
            cache.insert(&group(KEY, None), &outcome, cache.generation(), now);
            assert_eq!(cache.get(&KEY, None, now), None, "{outcome:?}");
        }
    }

    #[test]
    fn cached_pause_expires_and_advances_its_time() {
        let cache = DenialCache::default();
        let now = Instant::now();
        cache.insert(&group(KEY, None), &counted(3, 0, true), cache.generation(), now);
        let later = now + Duration::from_millis(1_500);
        assert_eq!(cache.get(&KEY, None, later), Some(GroupOutcome::Paused { now: 2_500 }));
        assert_eq!(cache.get(&KEY, None, now + TTL), None);
    }

    #[test]
    fn pause_shown_to_an_origin_is_cached_for_it_alone() {
        let (cache, now) = (DenialCache::default(), Instant::now());
        let paused = GroupOutcome::Paused { now: 1_000 };
        let cached = |origin| cache.get(&KEY, origin, now).is_some();
        cache.insert(&group(KEY, Some(7)), &paused, cache.generation(), now);
        assert_eq!([Some(7), Some(8), None].map(cached), [true, false, false]);
        cache.insert(&group(KEY, None), &paused, cache.generation(), now);
        assert_eq!([Some(7), Some(8), None].map(cached), [true; 3]);
    }

    #[test]
    fn change_blocks_stale_inserts() {
        let cache = DenialCache::default();
        let now = Instant::now();
        let before = cache.generation();
        cache.invalidate(&KEY);
        cache.insert(&group(KEY, None), &UNKNOWN_KEY, before, now);
        assert_eq!(cache.get(&KEY, None, now), None);
        cache.insert(&group(KEY, None), &UNKNOWN_KEY, cache.generation(), now);
        assert_eq!(cache.get(&KEY, None, now), Some(UNKNOWN_KEY));
        cache.invalidate(&KEY);
        assert_eq!(cache.get(&KEY, None, now), None);
    }

    #[test]
    fn exhausted_demo_expires_at_midnight() {
        let cache = DenialCache::default();
        let now = Instant::now();
        let exhausted = GroupOutcome::Counted(GroupCounts {
            now: 86_399_500,
            scope: None,
            limit: 5,
            used: 5,
            allowed: 1,
            over_daily: 0,
            burst_exceeded: false,
        });
        cache.insert(&group(Subject::Demo, None), &exhausted, cache.generation(), now);
        let Some(GroupOutcome::Counted(cached)) = cache.get(&Subject::Demo, None, now) else {
            panic!("not cached")
        };
        assert_eq!((cached.allowed, cached.over_daily), (0, u32::MAX));
        assert_eq!(cache.get(&Subject::Demo, None, now + Duration::from_millis(500)), None);
    }
}
