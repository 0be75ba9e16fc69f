//! Rate-limits a repeated log line: one per interval, with the number of occurrences since the last one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The default of the minimum time between two log lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Counts occurrences of an event and decides when to log them.
#[derive(Debug)]
pub struct LogThrottle {
    start: Instant,
    interval: Duration,
    /// End of the current interval, in milliseconds since `start`.
    suppressed_until: AtomicU64,
    occurrences: AtomicU64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::every(INTERVAL)
    }
}

impl LogThrottle {
    /// Allows one line per interval.
    pub fn every(interval: Duration) -> Self {
        let [suppressed_until, occurrences] = [AtomicU64::new(0), AtomicU64::new(0)];
        Self { start: Instant::now(), interval, suppressed_until, occurrences }
    }

    /// Counts one occurrence. Returns the number of occurrences since the last log line if a line is due now.
    pub fn allow(&self) -> Option<u64> {
        self.allow_at(self.start.elapsed())
    }

    fn allow_at(&self, now: Duration) -> Option<u64> {
        self.occurrences.fetch_add(1, Relaxed);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let until = self.suppressed_until.load(Relaxed);
        if millis(now) < until {
            return None;
        }
        // Only one of several concurrent callers logs.
        let next = millis(now + self.interval);
        self.suppressed_until.compare_exchange(until, next, Relaxed, Relaxed).ok()?;
        Some(self.occurrences.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_occurrences_are_logged_once_per_interval() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.allow_at(Duration::from_secs(1)), Some(1));
        assert_eq!(throttle.allow_at(Duration::from_secs(2)), None);
        assert_eq!(throttle.allow_at(Duration::from_secs(10)), None);
        assert_eq!(throttle.allow_at(Duration::from_secs(11)), Some(3));
    }
}
