//! Rate-limits a repeated log line: one per interval, with the number of occurrences since the last one.

use std::mem::take;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The default of the minimum time between two log lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Counts occurrences of an event and decides when to log them.
#[derive(Debug)]
pub struct LogThrottle {
    interval: Duration,
    /// When the next line is due, and the occurrences since the last one.
    state: Mutex<(Option<Instant>, u64)>,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::every(INTERVAL)
    }
}

impl LogThrottle {
    /// Allows one line per interval.
    pub const fn every(interval: Duration) -> Self {
        Self { interval, state: Mutex::new((None, 0)) }
    }

    /// Counts one occurrence. Returns the number of occurrences since the last log line if a line is due now.
    pub fn allow(&self) -> Option<u64> {
        self.allow_at(Instant::now())
    }

    fn allow_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, occurrences) = &mut *state;
        *occurrences += 1;
        if due.is_some_and(|due| now < due) {
            return None;
        }
        *due = Some(now + self.interval);
        Some(take(occurrences))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_occurrences_are_logged_once_per_interval() {
        let (throttle, start) = (LogThrottle::default(), Instant::now());
        let allow_after = |seconds| throttle.allow_at(start + Duration::from_secs(seconds));
        assert_eq!(allow_after(1), Some(1));
        assert_eq!(allow_after(2), None);
        assert_eq!(allow_after(10), None);
        assert_eq!(allow_after(11), Some(3));
    }
}
