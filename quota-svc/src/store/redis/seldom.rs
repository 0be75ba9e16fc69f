//! A complaint at most once a second: a fault under load must not flood the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(1);

/// Lets one complaint of a kind through in each second.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether to complain now.
    pub fn may(&self) -> bool {
        self.may_at(Instant::now())
    }

    fn may_at(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may = last.is_none_or(|last| now.duration_since(last) >= PAUSE);
        if may {
            *last = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_complaint_a_second() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        assert!(seldom.may_at(start));
        assert!(!seldom.may_at(start + PAUSE / 2));
        assert!(seldom.may_at(start + PAUSE));
        assert!(!seldom.may_at(start + PAUSE));
    }
}
