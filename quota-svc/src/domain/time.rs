//! UTC days, the next midnight, and the clock that a store uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Unix time has no leap seconds, so every day has the same length.
pub const MS_PER_DAY: i64 = 86_400_000;

/// The UTC day of `now` (Unix time in milliseconds), counted from 1970-01-01.
pub fn day_of(now: i64) -> u32 {
    u32::try_from(now.max(0) / MS_PER_DAY).unwrap_or(u32::MAX)
}

/// Start of the day after `day`, in Unix seconds.
pub fn midnight_after(day: u32) -> u64 {
    (u64::from(day) + 1) * 86_400
}

/// Seconds from `now` (milliseconds) to `then` (seconds). Rounded up, so that a client that waits this long never
/// retries before `then`.
pub fn seconds_until(now: i64, then: u64) -> u32 {
    let then_ms = i64::try_from(then.saturating_mul(1000)).unwrap_or(i64::MAX);
    let wait = u64::try_from(then_ms - now).unwrap_or(0);
    u32::try_from(wait.div_ceil(1000)).unwrap_or(u32::MAX)
}

/// Formats a day as `YYYY-MM-DD`.
pub fn date_of(day: u32) -> String {
    let epoch = jiff::civil::date(1970, 1, 1);
    epoch.saturating_add(jiff::Span::new().days(i64::from(day.min(2_900_000)))).to_string()
}

/// Parses `YYYY-MM-DD`.
pub fn day_of_date(text: &str) -> Option<u32> {
    let date: jiff::civil::Date = text.parse().ok()?;
    let days = jiff::civil::date(1970, 1, 1).until(date).ok()?.get_days();
    u32::try_from(days).ok()
}

#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// Redis `TIME`, or the system clock for the embedded store.
    #[default]
    Store,
    /// Unix time in milliseconds, set by tests that cross midnight.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The time of a manual clock; `None` for the store's clock.
    pub fn manual(&self) -> Option<i64> {
        match self {
            Self::Store => None,
            Self::Manual(now) => Some(now.load(Ordering::SeqCst)),
        }
    }

    /// The current time for the embedded store: the manual clock's, or the system's if there is no manual clock.
    pub fn now(&self) -> i64 {
        self.manual().unwrap_or_else(|| jiff::Timestamp::now().as_millisecond())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_convert_both_ways() {
        for (day, date) in [(0, "1970-01-01"), (19_782, "2024-02-29"), (20_772, "2026-11-15")] {
            assert_eq!(date_of(day), date);
            assert_eq!(day_of_date(date), Some(day));
        }
        assert_eq!(day_of_date("1969-12-31"), None);
        assert_eq!(day_of_date("tomorrow"), None);
    }

    #[test]
    fn seconds_until_midnight_are_rounded_up() {
        let midnight = midnight_after(0);
        assert_eq!(seconds_until(0, midnight), 86_400);
        assert_eq!(seconds_until(MS_PER_DAY - 1, midnight), 1);
        assert_eq!(seconds_until(MS_PER_DAY, midnight), 0);
        assert_eq!(seconds_until(1, midnight), 86_400);
    }
}
