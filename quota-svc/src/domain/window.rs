//! The burst window: a sliding window over the arrivals of a key, exact to the millisecond.
//!
//! A request exceeds the limit if and only if the request `limit` positions earlier arrived less than 60,000 ms before
//! it. So the ring needs only the last `limit` arrivals, and of these only those less than 60,000 ms old. A full ring
//! drops its oldest arrival if that has expired; otherwise it grows, up to `limit`. While replicas with different limits
//! are running, each applies its own limit to the same arrivals: a lower one first shrinks the ring to its last `limit`
//! arrivals. That loses nothing: if the limit is not exceeded, all older arrivals have expired.
//!
//! If the clock steps back by up to a second, the window stays at its latest arrival until the clock has caught up. If
//! it steps back further, it was wrong before: the window moves back with it, and arrivals after `now` become `now`.
//!
//! `lua/charge.lua` implements these rules in Redis. The script drops up to 16 expired arrivals at once, because there
//! each read of the ring is a Redis command.

pub const WINDOW_MS: i64 = 60_000;

/// If the latest arrival is further ahead of the clock than this, the clock was wrong when it was stored.
const MAX_AHEAD_MS: i64 = 1_000;

const INITIAL_CAPACITY: u16 = 8;

/// The arrivals of one key in a ring buffer. An arrival is stored as the low 32 bits of its Unix time in
/// milliseconds, which wrap every 50 days. `last` has all 64 bits, so it shows when all arrivals have expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BurstWindow {
    /// The latest arrival as 64 bits. May belong to a request that was not admitted.
    pub(crate) last: i64,
    /// The burst limit of the last charge. The ring's capacity is never higher.
    pub(crate) limit: u16,
    pub(crate) len: u16,
    /// Index of the oldest arrival.
    pub(crate) head: u16,
    /// The arrivals. The length of the vector is the ring's capacity.
    pub(crate) ring: Vec<u32>,
}

impl BurstWindow {
    /// Adds an arrival at `now`. Returns false, without adding it, if it exceeds the limit.
    pub fn try_admit(&mut self, now: i64, limit: u16) -> bool {
        let now = self.advance(now, limit);
        if self.len == self.capacity() && !self.make_room(now) {
            return false;
        }
        let index = (usize::from(self.head) + usize::from(self.len)) % self.ring.len();
        self.ring[index] = low_bits(now);
        self.len += 1;
        true
    }

    /// Arrivals within the 60 seconds before `now`.
    pub fn used(&self, now: i64) -> u16 {
        let now = now.max(self.last);
        if now - self.last >= WINDOW_MS {
            return 0;
        }
        let arrivals =
            (0..usize::from(self.len)).map(|n| self.ring[(usize::from(self.head) + n) % self.ring.len()]);
        let recent = arrivals.filter(|at| i64::from(low_bits(now).wrapping_sub(*at)) < WINDOW_MS);
        u16::try_from(recent.count()).unwrap_or(u16::MAX)
    }

    /// Moves the window to `now`, or keeps it at the latest arrival if that is at most [`MAX_AHEAD_MS`] ahead. Returns
    /// the window's time.
    fn advance(&mut self, now: i64, limit: u16) -> i64 {
        let ahead = self.last.saturating_sub(now);
        if ahead > MAX_AHEAD_MS {
            self.move_back(now, ahead);
        }
        let now = now.max(self.last);
        if now.saturating_sub(self.last) >= WINDOW_MS {
            (self.len, self.head) = (0, 0);
        }
        self.last = now;
        if self.capacity() > limit {
            self.shrink(limit);
        }
        self.limit = limit;
        now
    }

    /// Moves the window from its latest arrival back to `now`, by `ahead`. An arrival becomes `now` if it was later. One
    /// that had expired stays expired: some rings have already dropped theirs, and all must give the same result.
    fn move_back(&mut self, now: i64, ahead: i64) {
        let last = low_bits(self.last);
        for arrival in &mut self.ring {
            let age = i64::from(last.wrapping_sub(*arrival));
            let new_age = if age < WINDOW_MS { age.saturating_sub(ahead).max(0) } else { WINDOW_MS };
            *arrival = low_bits(now - new_age);
        }
        self.last = now;
    }

    /// Keeps the last `capacity` arrivals.
    fn shrink(&mut self, capacity: u16) {
        self.ring.rotate_left(usize::from(self.head));
        let dropped = self.len.saturating_sub(capacity);
        self.ring.drain(..usize::from(dropped));
        self.ring.truncate(usize::from(capacity));
        (self.len, self.head) = (self.len - dropped, 0);
    }

    /// Drops the oldest arrival if it has expired, else grows the ring. Returns false if it has to grow but can't,
    /// because its capacity is already the limit.
    fn make_room(&mut self, now: i64) -> bool {
        let oldest = self.ring.get(usize::from(self.head));
        if oldest.is_some_and(|at| i64::from(low_bits(now).wrapping_sub(*at)) >= WINDOW_MS) {
            self.head = (self.head + 1) % self.capacity();
            self.len -= 1;
            return true;
        }
        if self.capacity() >= self.limit {
            return false;
        }
        self.ring.rotate_left(usize::from(self.head));
        self.head = 0;
        let capacity = self.capacity().saturating_mul(2).clamp(INITIAL_CAPACITY, u16::MAX).min(self.limit);
        self.ring.resize(usize::from(capacity), 0);
        true
    }

    fn capacity(&self) -> u16 {
        u16::try_from(self.ring.len()).unwrap_or(u16::MAX)
    }
}

fn low_bits(ms: i64) -> u32 {
    (ms & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::time::MS_PER_DAY;
    use super::*;

    /// The rule, implemented directly. Contains all arrivals, and the latest time.
    #[derive(Default)]
    struct Model(VecDeque<i64>, i64);

    impl Model {
        fn try_admit(&mut self, now: i64, limit: usize) -> bool {
            if self.1 - now > 1_000 {
                self.0.retain(|arrival| self.1 - arrival < WINDOW_MS);
                self.0.iter_mut().for_each(|arrival| *arrival = now.min(*arrival));
                self.1 = now;
            }
            self.1 = self.1.max(now);
            if self.0.len() >= limit && self.1 - self.0[self.0.len() - limit] < WINDOW_MS {
                return false;
            }
            self.0.push_back(self.1);
            true
        }
    }

    #[test]
    fn burst_limit_slides_by_the_millisecond() {
        let mut window = BurstWindow::default();
        assert!((0..300).all(|at| window.try_admit(at, 300)));
        assert!(!window.try_admit(59_999, 300));
        assert!(window.try_admit(60_000, 300));
        assert!(!window.try_admit(60_000, 300));
        assert!(window.try_admit(60_001, 300));
    }

    #[test]
    fn ring_of_rarely_used_key_stays_small() {
        let mut window = BurstWindow::default();
        assert!((0..10_000).all(|i| window.try_admit(i * 30_000, 300)));
        assert_eq!(window.ring.len(), 8);
    }

    #[test]
    fn timestamp_wraparound_is_not_a_burst() {
        let mut window = BurstWindow::default();
        assert!((0..300).all(|_| window.try_admit(1_000, 300)));
        assert!(window.try_admit(1_000 + (1 << 32), 300));
    }

    #[test]
    fn arrivals_are_kept_when_the_limit_changes() {
        let mut window = BurstWindow::default();
        assert!((0..20).all(|at| window.try_admit(at, 20 + at as u16 % 5)));
        assert!(!window.clone().try_admit(20, 20));
        assert!(window.try_admit(20, 21));
        assert!(!window.clone().try_admit(20, 3), "a lower limit counts the same arrivals");
        assert!(window.clone().try_admit(60_018, 3), "the third to last arrival was at 18 ms");
        assert!(!window.try_admit(60_017, 3));
    }

    #[test]
    fn window_moves_back_if_its_latest_arrival_is_more_than_a_second_ahead() {
        for (ahead, expires_at) in [(1_000, 61_000), (1_001, 60_000), (MS_PER_DAY, 60_000), (1 << 33, 60_000)]
        {
            let mut window = BurstWindow::default();
            assert!(window.try_admit(ahead, 2) && window.try_admit(0, 2));
            assert!(!window.clone().try_admit(expires_at - 1, 2), "{ahead} ms ahead");
            assert!(window.try_admit(expires_at, 2), "{ahead} ms ahead");
        }
    }

    proptest! {
        #[test]
        fn window_matches_the_model(
            limits in prop::collection::vec(1u16..40, 1..4),
            steps in prop::collection::vec((-5_000i64..30_000, 1usize..12, any::<usize>()), 1..200),
        ) {
            let (mut window, mut model) = (BurstWindow::default(), Model::default());
            let mut now = 1i64 << 32;
            for (step, times, replica) in steps {
                now += step;
                let limit = limits[replica % limits.len()];
                for _ in 0..times {
                    let admitted = window.try_admit(now, limit);
                    prop_assert_eq!(admitted, model.try_admit(now, usize::from(limit)));
                    // A denial pauses the key, and resuming it clears the window. A lower limit may have dropped
                    // arrivals that a higher one would still count.
                    if !admitted && limits.len() > 1 {
                        (window, model) = Default::default();
                    }
                }
            }
        }
    }
}
