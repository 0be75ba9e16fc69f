//! A log line about an outage: one now and then, however many requests it costs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quota_client::ChargeError;

/// How long it stays quiet after a line.
const QUIET: Duration = Duration::from_secs(10);

/// Tells the operator that charges get no verdict.
#[derive(Debug)]
pub struct Alarm {
    start: Instant,
    /// Milliseconds after the start until which it is quiet.
    quiet_until: AtomicU64,
    lost: AtomicU64,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { start: Instant::now(), quiet_until: AtomicU64::new(0), lost: AtomicU64::new(0) }
    }
}

impl Alarm {
    /// A charge got no verdict.
    pub fn ring(&self, error: ChargeError) {
        if let Some(lost) = self.due(self.start.elapsed()) {
            tracing::warn!(%error, lost, "requests are answered 500: quota-svc gives no verdict");
        }
    }

    /// How many were lost since the last line, if it is time for another.
    fn due(&self, now: Duration) -> Option<u64> {
        self.lost.fetch_add(1, Relaxed);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let until = self.quiet_until.load(Relaxed);
        if millis(now) < until {
            return None;
        }
        // Of several at the same moment one wins.
        let next = millis(now + QUIET);
        self.quiet_until.compare_exchange(until, next, Relaxed, Relaxed).ok()?;
        Some(self.lost.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_many_losses() {
        let alarm = Alarm::default();
        assert_eq!(alarm.due(Duration::from_secs(1)), Some(1));
        assert_eq!(alarm.due(Duration::from_secs(2)), None);
        assert_eq!(alarm.due(Duration::from_secs(10)), None);
        assert_eq!(alarm.due(Duration::from_secs(11)), Some(3));
    }
}
