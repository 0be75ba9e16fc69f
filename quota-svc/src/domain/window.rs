//! The burst window: a sliding window over the arrivals of a key, exact to the millisecond.
//!
//! A request exceeds the limit if and only if the request `limit` positions earlier arrived less than 60,000 ms before
//! it. So the ring needs only the last `limit` arrivals, and of these only those less than 60,000 ms old. A full ring
//! drops its oldest arrival if that has expired; otherwise it grows, up to `limit`. `lua/charge.lua` implements this
//! rule in Redis. The script drops up to 16 expired arrivals at once, because there each read of the ring is a Redis
//! command.

pub const WINDOW_MS: i64 = 60_000;

const INITIAL_CAPACITY: u16 = 8;

/// The arrivals of one key in a ring buffer. An arrival is stored as the low 32 bits of its Unix time in
/// milliseconds, which wrap every 50 days. `last` has all 64 bits, so it shows when all arrivals have expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BurstWindow {
    /// The latest arrival as 64 bits. May belong to a request that was not admitted.
    pub(crate) last: i64,
    /// The burst limit when the ring was created. A different limit clears the ring.
    pub(crate) limit: u16,
    /// Number of arrivals in the ring.
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

    /// Moves the window to `now`, or keeps it at the latest arrival if the clock stepped back. Returns the window's
    /// time.
    fn advance(&mut self, now: i64, limit: u16) -> i64 {
        let now = now.max(self.last);
        if self.limit != limit {
            *self = Self { limit, ..Self::default() };
        } else if now.saturating_sub(self.last) >= WINDOW_MS {
            (self.len, self.head) = (0, 0);
        }
        self.last = now;
        now
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

    use super::*;

    /// The rule, implemented directly. Contains all arrivals, and the latest time.
    #[derive(Default)]
    struct Model(VecDeque<i64>, i64);

    impl Model {
        fn try_admit(&mut self, now: i64, limit: usize) -> bool {
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
    fn changed_limit_clears_the_window() {
        let mut window = BurstWindow::default();
        assert!((0..5).all(|_| window.try_admit(0, 5)));
        assert!(window.try_admit(0, 4));
        assert_eq!(window.len, 1);
    }

    proptest! {
        #[test]
        fn window_matches_the_model(
            limit in 1u16..40,
            steps in prop::collection::vec((-5_000i64..30_000, 1usize..12), 1..200),
        ) {
            let (mut window, mut model) = (BurstWindow::default(), Model::default());
            let mut now = 1i64 << 32;
            for (step, times) in steps {
                now += step;
                for _ in 0..times {
                    prop_assert_eq!(window.try_admit(now, limit), model.try_admit(now, usize::from(limit)));
                }
            }
        }
    }
}
