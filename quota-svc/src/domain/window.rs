//! The burst window: the last arrivals of a key, exact to the millisecond.
//!
//! A request is one too many if and only if the one `limit` before it arrived less than 60,000 ms ago. So the
//! last `limit` arrivals are all there is to know, and of these only the ones that are not yet 60,000 ms old: the
//! ring grows while it is full of those and reuses the places of older ones. `lua/charge.lua` judges the same in
//! Redis, where it drops older ones by the dozen: there each read has its price.

/// The window's length.
pub const WINDOW_MS: i64 = 60_000;

/// How many places a ring starts with.
const FIRST_PLACES: u16 = 8;

/// The arrivals of one key. Times are the low 32 bits of milliseconds: `last` tells when all are older.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// The latest arrival in full.
    pub(crate) last: i64,
    /// The limit under which the ring was laid; another one empties it.
    pub(crate) limit: u16,
    /// How many arrivals are in the ring.
    pub(crate) len: u16,
    /// Where the oldest is.
    pub(crate) head: u16,
    /// The places; their number is the ring's capacity.
    pub(crate) ring: Vec<u32>,
}

impl Window {
    /// Notes an arrival at `now`. False: it is one too many, and is not noted.
    pub fn arrive(&mut self, now: i64, limit: u16) -> bool {
        let now = self.advance(now, limit);
        if self.len == self.capacity() && !self.make_room(now) {
            return false;
        }
        let place = (usize::from(self.head) + usize::from(self.len)) % self.ring.len();
        self.ring[place] = low_bits(now);
        self.len += 1;
        true
    }

    /// Time never runs backwards here, and a window without arrivals in its 60 s is empty.
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

    /// Drops the oldest arrival if its time is over, else adds places; false if there are as many as the limit.
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
        let places = self.capacity().saturating_mul(2).clamp(FIRST_PLACES, u16::MAX).min(self.limit);
        self.ring.resize(usize::from(places), 0);
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

    /// The rule as it is written down.
    #[derive(Default)]
    struct Model(VecDeque<i64>, i64);

    impl Model {
        fn arrive(&mut self, now: i64, limit: usize) -> bool {
            self.1 = self.1.max(now);
            if self.0.len() >= limit && self.1 - self.0[self.0.len() - limit] < WINDOW_MS {
                return false;
            }
            self.0.push_back(self.1);
            true
        }
    }

    #[test]
    fn three_hundred_in_a_minute_pass_and_one_more_does_not() {
        let mut window = Window::default();
        assert!((0..300).all(|at| window.arrive(at, 300)));
        assert!(!window.arrive(59_999, 300));
        assert!(window.arrive(60_000, 300));
        assert!(!window.arrive(60_000, 300));
        assert!(window.arrive(60_001, 300));
    }

    #[test]
    fn a_slow_key_keeps_a_small_ring() {
        let mut window = Window::default();
        assert!((0..10_000).all(|i| window.arrive(i * 30_000, 300)));
        assert_eq!(window.ring.len(), 8);
    }

    #[test]
    fn fifty_days_of_silence_do_not_look_like_a_moment() {
        let mut window = Window::default();
        assert!((0..300).all(|_| window.arrive(1_000, 300)));
        assert!(window.arrive(1_000 + (1 << 32), 300));
    }

    #[test]
    fn another_limit_empties_the_window() {
        let mut window = Window::default();
        assert!((0..5).all(|_| window.arrive(0, 5)));
        assert!(window.arrive(0, 4));
        assert_eq!(window.len, 1);
    }

    proptest! {
        #[test]
        fn it_decides_as_the_rule_does(
            limit in 1u16..40,
            steps in prop::collection::vec((-5_000i64..30_000, 1usize..12), 1..200),
        ) {
            let (mut window, mut model) = (Window::default(), Model::default());
            let mut now = 1i64 << 32;
            for (step, times) in steps {
                now += step;
                for _ in 0..times {
                    prop_assert_eq!(window.arrive(now, limit), model.arrive(now, usize::from(limit)));
                }
            }
        }
    }
}
