//! Converts the store's outcome for a charge group into one verdict per charge.

use quota_api::{Limits, Outcome, Scope, Verdict};

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
    UnknownKey,
    Inactive,
    /// The key has expired at this Unix time in seconds.
    Expired {
        at: u32,
    },
    /// The requests come from a web page that may not use the key, or from no web page.
    WrongOrigin,
    /// The key's account is suspended.
    Suspended,
    /// The key was paused before these charges.
    Paused {
        now: i64,
        /// Time of the pause, if it has not been announced to the owner yet.
        unannounced: Option<i64>,
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
            Self::UnknownKey => without_numbers(Outcome::UnknownKey),
            Self::Inactive => without_numbers(Outcome::Inactive),
            Self::Expired { at } => Verdict { expired_at: Some(*at), ..without_numbers(Outcome::Expired) },
            Self::WrongOrigin => without_numbers(Outcome::WrongOrigin),
            Self::Suspended => without_numbers(Outcome::Suspended),
            Self::Unavailable => without_numbers(Outcome::Unavailable),
            Self::Paused { now, .. } => burst_denial(Outcome::Paused, *now, limits),
            Self::Counted(counts) => counts.verdict(index, limits),
        }
    }
}

impl GroupCounts {
    fn verdict(&self, index: u32, limits: &Limits) -> Verdict {
        let reset = midnight_after(day_of(self.now));
        let daily = |outcome, remaining, retry_after| Verdict {
            outcome,
            scope: self.scope,
            limit: Some(self.limit),
            remaining: Some(remaining),
            reset: Some(reset),
            retry_after,
            expired_at: None,
        };
        if index < self.allowed {
            let used = self.used - (self.allowed - index - 1);
            daily(Outcome::Allowed, self.limit.saturating_sub(used), None)
        } else if index < self.allowed + self.over_daily {
            daily(Outcome::DailyExceeded, 0, Some(seconds_until(self.now, reset)))
        } else if self.burst_exceeded && index == self.allowed + self.over_daily {
            burst_denial(Outcome::BurstExceeded, self.now, limits)
        } else {
            burst_denial(Outcome::Paused, self.now, limits)
        }
    }

    /// The counts of demo charges, which have no scope and no burst limit.
    pub fn demo(now: i64, limit: u32, used: u32, allowed: u32, over_daily: u32) -> Self {
        Self { now, scope: None, limit, used, allowed, over_daily, burst_exceeded: false }
    }
}

/// A verdict with the numbers of the burst limit.
fn burst_denial(outcome: Outcome, now: i64, limits: &Limits) -> Verdict {
    let seconds = u64::try_from(now.max(0) / 1000).unwrap_or(0);
    Verdict {
        limit: Some(u32::from(limits.burst)),
        remaining: Some(0),
        reset: Some(seconds + u64::from(PAUSE_RETRY_SECONDS)),
        retry_after: Some(PAUSE_RETRY_SECONDS),
        ..without_numbers(outcome)
    }
}

fn without_numbers(outcome: Outcome) -> Verdict {
    Verdict { outcome, ..Verdict::default() }
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
        let actual: Vec<_> = verdicts.iter().map(|v| (v.outcome, v.remaining, v.retry_after)).collect();
        assert_eq!(
            actual,
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
