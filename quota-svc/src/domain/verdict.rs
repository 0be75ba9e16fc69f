//! Converts the store's outcome for a charge group into one verdict per charge.

use quota_api::{Exceeded, Limits, RateLimit, Scope, Verdict};

use super::id::KeyId;
use super::time::{day_of, midnight_after, seconds_until};

/// `retry_after` of a paused key, which stays paused until its owner resumes it.
const PAUSE_RETRY_SECONDS: u32 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    Key(KeyId),
    /// All callers without a key, together.
    Demo,
}

/// The charges of one subject and origin within a batch. All of them count as made at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChargeGroup {
    pub subject: Subject,
    /// Hash of the origin of the requests, if each has exactly one. `None` for the demo.
    pub origin: Option<u128>,
    /// Number of charges: at most 256, the API's limit on a batch.
    pub count: u32,
}

/// The store's outcome for a charge group. Times are the store's, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupOutcome {
    /// The verdict of all charges, whatever the limits are.
    Denied(Verdict),
    /// The key was paused before these charges.
    Paused {
        now: i64,
    },
    Counted(GroupCounts),
    /// The store is unavailable, or the subject's record is invalid.
    Unavailable,
}

/// How many charges of a group had each outcome. All have the same time, so the order can only be: allowed, over
/// the daily limit, the one that exceeds the burst limit, paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCounts {
    /// The store's time in milliseconds.
    pub now: i64,
    /// The key's scope; `None` for the demo.
    pub scope: Option<Scope>,
    /// The daily limit that applies.
    pub limit: u32,
    /// Requests of the subject allowed today, including those of this group.
    pub used: u32,
    pub allowed: u32,
    pub over_daily: u32,
    /// Whether the charge after the `allowed` and `over_daily` ones exceeded the burst limit and paused the key.
    pub burst_exceeded: bool,
}

impl GroupOutcome {
    /// The verdict of the group's `index`-th charge.
    pub fn verdict(&self, index: u32, limits: &Limits) -> Verdict {
        match self {
            Self::Denied(verdict) => *verdict,
            Self::Paused { now } => Verdict::Paused(burst_exceeded(*now, limits)),
            Self::Counted(counts) => counts.verdict(index, limits),
            Self::Unavailable => Verdict::Unavailable,
        }
    }
}

impl GroupCounts {
    fn verdict(&self, index: u32, limits: &Limits) -> Verdict {
        let Self { now, scope, limit, .. } = *self;
        let reset = midnight_after(day_of(now));
        if index < self.allowed {
            let used = self.used - (self.allowed - index - 1);
            let rate_limit = RateLimit { limit, remaining: limit.saturating_sub(used), reset };
            Verdict::Allowed { scope, rate_limit }
        } else if index < self.allowed + self.over_daily {
            Verdict::DailyExceeded(Exceeded { limit, reset, retry_after: seconds_until(now, reset) })
        } else if self.burst_exceeded && index == self.allowed + self.over_daily {
            Verdict::BurstExceeded(burst_exceeded(now, limits))
        } else {
            Verdict::Paused(burst_exceeded(now, limits))
        }
    }
}

fn burst_exceeded(now: i64, limits: &Limits) -> Exceeded {
    let seconds = u64::try_from(now.max(0) / 1000).unwrap_or(0);
    Exceeded {
        limit: limits.burst.into(),
        reset: seconds + u64::from(PAUSE_RETRY_SECONDS),
        retry_after: PAUSE_RETRY_SECONDS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_counts_yield_one_verdict_per_charge_in_order() {
        let limits = Limits::default();
        let counts = GroupCounts {
            now: 86_399_000,
            scope: Some(Scope::Geo),
            limit: 10,
            used: 10,
            allowed: 2,
            over_daily: 1,
            burst_exceeded: true,
        };
        let verdicts: Vec<_> = (0..5).map(|i| GroupOutcome::Counted(counts).verdict(i, &limits)).collect();
        let allowed = |remaining| {
            let rate_limit = RateLimit { limit: 10, remaining, reset: 86_400 };
            Verdict::Allowed { scope: Some(Scope::Geo), rate_limit }
        };
        let burst = Exceeded { limit: 300, reset: 86_459, retry_after: 60 };
        assert_eq!(
            verdicts,
            [
                allowed(1),
                allowed(0),
                Verdict::DailyExceeded(Exceeded { limit: 10, reset: 86_400, retry_after: 1 }),
                Verdict::BurstExceeded(burst),
                Verdict::Paused(burst),
            ]
        );
    }
}
