//! A log line about trouble: one now and then, however many requests it costs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long it stays quiet after a line.
const QUIET: Duration = Duration::from_secs(10);

/// Counts occurrences and says when a line about them is due.
#[derive(Debug)]
pub struct Alarm {
    start: Instant,
    /// Milliseconds after the start until which it is quiet.
    quiet_until: AtomicU64,
    occurred: AtomicU64,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { start: Instant::now(), quiet_until: AtomicU64::new(0), occurred: AtomicU64::new(0) }
    }
}

impl Alarm {
    /// It occurred once more. If a line is due: how often since the last one.
    pub fn ring(&self) -> Option<u64> {
        self.ring_at(self.start.elapsed())
    }

    fn ring_at(&self, now: Duration) -> Option<u64> {
        self.occurred.fetch_add(1, Relaxed);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let until = self.quiet_until.load(Relaxed);
        if millis(now) < until {
            return None;
        }
        // Of several at the same moment one wins.
        let next = millis(now + QUIET);
        self.quiet_until.compare_exchange(until, next, Relaxed, Relaxed).ok()?;
        Some(self.occurred.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_many_occurrences() {
        let alarm = Alarm::default();
        assert_eq!(alarm.ring_at(Duration::from_secs(1)), Some(1));
        assert_eq!(alarm.ring_at(Duration::from_secs(2)), None);
        assert_eq!(alarm.ring_at(Duration::from_secs(10)), None);
        assert_eq!(alarm.ring_at(Duration::from_secs(11)), Some(3));
    }
}
