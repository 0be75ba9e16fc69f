//! From what the store judged to what the caller is told.

use quota_client::wire::{Outcome, Scope, Verdict};

use super::limits::Limits;
use super::time::{day_of, midnight_after, seconds_until};

/// How long a paused key is told to wait.
const PAUSE_SECONDS: u32 = 60;

/// Who is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// One API key.
    Key(super::id::KeyId),
    /// All anonymous callers together.
    Demo,
}

/// Several charges of one subject at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Who is charged.
    pub subject: Subject,
    /// How often: at most 256, the API's bound on a batch.
    pub count: u32,
}

/// What the store says to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// No such key.
    Unknown,
    /// Deactivated.
    Inactive,
    /// Paused before; `now` by the store's clock.
    Paused {
        /// The store's time in milliseconds.
        now: i64,
    },
    /// Judged one by one.
    Tally(Tally),
    /// The store, or this record, could not be read.
    Unavailable,
}

/// The outcome of an entry's charges: first the allowed, then the refused ones, then the one that paused the key,
/// then those that found it paused. No other order is possible within one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// The store's time in milliseconds.
    pub now: i64,
    /// The key's scope; the demo has none.
    pub scope: Option<Scope>,
    /// The daily limit in force.
    pub limit: u32,
    /// The day's count after these charges.
    pub used: u32,
    /// How many were allowed.
    pub allowed: u32,
    /// How many exceeded the day.
    pub refused: u32,
    /// Whether the next one exceeded the burst and paused the key.
    pub paused: bool,
}

impl Judged {
    /// The verdict of the entry's `index`-th charge.
    pub fn verdict(&self, index: u32, limits: &Limits) -> Verdict {
        match self {
            Self::Unknown => bare(Outcome::UnknownKey),
            Self::Inactive => bare(Outcome::Inactive),
            Self::Unavailable => bare(Outcome::Unavailable),
            Self::Paused { now } => paused(Outcome::Paused, *now, limits),
            Self::Tally(tally) => tally.verdict(index, limits),
        }
    }
}

impl Tally {
    fn verdict(&self, index: u32, limits: &Limits) -> Verdict {
        let reset = midnight_after(day_of(self.now));
        let daily = |outcome, remaining, retry_after| Verdict {
            outcome,
            scope: self.scope,
            limit: Some(self.limit),
            remaining: Some(remaining),
            reset: Some(reset),
            retry_after,
        };
        if index < self.allowed {
            let used = self.used - (self.allowed - index - 1);
            daily(Outcome::Allowed, self.limit.saturating_sub(used), None)
        } else if index < self.allowed + self.refused {
            daily(Outcome::DailyExceeded, 0, Some(seconds_until(self.now, reset)))
        } else if self.paused && index == self.allowed + self.refused {
            paused(Outcome::BurstExceeded, self.now, limits)
        } else {
            paused(Outcome::Paused, self.now, limits)
        }
    }

    /// Whether the subject's day is used up.
    pub fn is_exhausted(&self) -> bool {
        self.used >= self.limit
    }

    /// The tally of a demo charge.
    pub fn demo(now: i64, limit: u32, used: u32, allowed: u32, refused: u32) -> Self {
        Self { now, scope: None, limit, used, allowed, refused, paused: false }
    }
}

fn paused(outcome: Outcome, now: i64, limits: &Limits) -> Verdict {
    let seconds = u64::try_from(now.max(0) / 1000).unwrap_or(0);
    Verdict {
        outcome,
        scope: None,
        limit: Some(u32::from(limits.burst)),
        remaining: Some(0),
        reset: Some(seconds + u64::from(PAUSE_SECONDS)),
        retry_after: Some(PAUSE_SECONDS),
    }
}

fn bare(outcome: Outcome) -> Verdict {
    Verdict { outcome, scope: None, limit: None, remaining: None, reset: None, retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_gives_each_charge_its_own_verdict_in_order() {
        let limits = Limits::default();
        let tally = Tally {
            now: 86_399_000,
            scope: Some(Scope::Geo),
            limit: 10,
            used: 10,
            allowed: 2,
            refused: 1,
            paused: true,
        };
        let verdicts: Vec<_> = (0..5).map(|i| Judged::Tally(tally).verdict(i, &limits)).collect();
        let seen: Vec<_> = verdicts.iter().map(|v| (v.outcome, v.remaining, v.retry_after)).collect();
        assert_eq!(
            seen,
            [
                (Outcome::Allowed, Some(1), None),
                (Outcome::Allowed, Some(0), None),
                (Outcome::DailyExceeded, Some(0), Some(1)),
                (Outcome::BurstExceeded, Some(0), Some(60)),
                (Outcome::Paused, Some(0), Some(60)),
            ]
        );
        assert_eq!(verdicts[0].reset, Some(86_400));
        assert_eq!(verdicts[3].reset, Some(86_459));
        assert_eq!(verdicts[3].limit, Some(300));
    }
}
