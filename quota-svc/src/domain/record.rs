//! A key's record: the state, counters and burst window that a charge reads and updates atomically.

mod codec;

pub use codec::{CodecError, HEAD_BYTES, USAGE_DAYS, account_of, decode, encode, encode_head};
use quota_api::{DayUsage, KeySettings, KeyState, Limits, NoticeKind, Outcome, Scope, Verdict, origin_hash};

use super::id::AccountId;
use super::time::{date_of, day_of};
use super::window::BurstWindow;

/// The log line about a record that was written under a wrong clock.
pub const CORRECTED_FUTURE: &str = "a counter was more than a day ahead of the store's clock, so the clock was wrong; the count moves to today";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRecord {
    pub scope: Scope,
    pub state: KeyState,
    /// Unix time in milliseconds.
    pub state_since: i64,
    /// Whether the last pause could not be announced, because its slot migrated. The next charge or load announces it.
    pub unannounced: bool,
    /// Time of the last pause, ms; 0 if there was none. Unlike `state_since`, other changes keep it.
    pub paused_at: i64,
    /// The key's own limit; `None` for the default.
    pub daily_limit: Option<u32>,
    /// When the key expires: Unix time in seconds.
    pub expires_at: Option<u32>,
    /// Hashes of the origins whose web pages may use the key; if there are none, it may be used from anywhere.
    pub origins: Vec<u128>,
    /// The account that has the key.
    pub account: AccountId,
    /// Whether the key's account is suspended.
    pub suspended: bool,
    /// The day that `used` and `level` refer to.
    pub day: u32,
    /// The level of the daily limit that was announced: 0, 1 for 80 % or 2 for 100 %; 4 more if it could not be announced yet.
    pub level: u8,
    /// Number of requests that were allowed on `day`.
    pub used: u32,
    /// Requests allowed on earlier days, indexed by day modulo 31.
    pub past: [u32; USAGE_DAYS],
    pub window: BurstWindow,
}

impl KeyRecord {
    pub fn new(scope: Scope, daily_limit: Option<u32>, now: i64) -> Self {
        Self { scope, state_since: now, daily_limit, day: day_of(now), ..Self::default() }
    }

    /// Copies what charges need of the settings.
    pub fn copy_settings(&mut self, settings: &KeySettings) {
        self.scope = settings.scope;
        self.expires_at = settings.expires_at;
        self.origins = settings.allowed_origins.iter().map(|origin| origin_hash(origin.as_bytes())).collect();
    }

    /// Why a request is denied whatever the key's limits are; `None` if they decide. `origin` is the hash of the request's
    /// origin. The same as `denial` in `lua/charge.lua`, except for pauses.
    pub fn denial(&self, now: i64, origin: Option<u128>) -> Option<Verdict> {
        if self.suspended {
            return Some(Verdict::Suspended);
        }
        if self.state == KeyState::Inactive {
            return Some(Verdict::Inactive);
        }
        if let Some(at) = self.expires_at.filter(|at| now >= i64::from(*at) * 1000) {
            return Some(Verdict::Expired { at });
        }
        let is_allowed = origin.is_some_and(|origin| self.origins.contains(&origin));
        (!self.origins.is_empty() && !is_allowed).then_some(Verdict::WrongOrigin)
    }

    /// Charges one request at `now`. The burst limit is checked before the daily limit, so a request over the
    /// daily limit still counts in the burst window.
    pub fn charge(&mut self, now: i64, limits: &Limits) -> Outcome {
        match self.state {
            KeyState::Inactive => return Outcome::Inactive,
            KeyState::Paused => return Outcome::Paused,
            KeyState::Active => {}
        }
        if self.is_ahead_of(now) {
            self.correct_day(day_of(now));
        }
        self.roll_over(day_of(now));
        if !self.window.try_admit(now, limits.burst) {
            self.state = KeyState::Paused;
            (self.state_since, self.paused_at) = (now, now);
            return Outcome::BurstExceeded;
        }
        if self.used >= self.limit(limits) {
            return Outcome::DailyExceeded;
        }
        self.used += 1;
        Outcome::Allowed
    }

    /// Stores the level of the daily limit that the count has reached. Returns the notice of it, unless it was announced today.
    pub fn reach_level(&mut self, limits: &Limits) -> Option<NoticeKind> {
        let (used, limit) = (u64::from(self.used), u64::from(self.limit(limits)));
        let (level, kind) = match () {
            () if used >= limit => (2, NoticeKind::KeyDailyLimit),
            () if used * 5 >= limit * 4 => (1, NoticeKind::KeyDailyLimit80),
            () => return None,
        };
        let is_new = level > self.level;
        self.level = self.level.max(level);
        is_new.then_some(kind)
    }

    /// Whether the key's day is more than one day ahead of `now`, so that the clock was wrong. After a smaller step back
    /// the day stays until the clock has caught up.
    pub fn is_ahead_of(&self, now: i64) -> bool {
        self.day > day_of(now).saturating_add(1)
    }

    /// Corrects the day of a record for which [`Self::is_ahead_of`] holds; otherwise the key would be denied until that
    /// day. The count moves to today, and is added to what was already counted today.
    fn correct_day(&mut self, today: u32) {
        // Today's count was moved to `past`, and is still there unless a later day has the same index.
        if self.day - today <= USAGE_DAYS as u32 {
            self.used = self.used.saturating_add(self.past[past_index(today)]);
        }
        // These entries now stand for days a month ago.
        for day in today + 1..=self.day.min(today + USAGE_DAYS as u32) {
            self.past[past_index(day)] = 0;
        }
        self.day = today;
    }

    /// The daily limit that applies: the key's own or the default.
    pub fn limit(&self, limits: &Limits) -> u32 {
        self.daily_limit.unwrap_or(limits.daily)
    }

    /// Requests allowed on `day`; 0 for a day outside the 31-day history, which ends with `today`.
    pub fn used_on(&self, day: u32, today: u32) -> u32 {
        if day == self.day {
            self.used
        } else if day < self.day && today - day < USAGE_DAYS as u32 && self.day - day < USAGE_DAYS as u32 {
            self.past[past_index(day)]
        } else {
            0
        }
    }

    /// Usage of the last 31 days, oldest first; today is the last.
    pub fn usage(&self, now: i64) -> Vec<DayUsage> {
        let today = day_of(now);
        let days = today.saturating_sub(USAGE_DAYS as u32 - 1)..=today;
        days.map(|day| DayUsage { day: date_of(day), requests: self.used_on(day, today) }).collect()
    }

    /// Sets the usage of a day, for an import. Days outside the 31-day history are ignored.
    pub fn set_used_on(&mut self, day: u32, requests: u32) {
        if day == self.day {
            self.used = requests;
        } else if day < self.day && self.day - day < USAGE_DAYS as u32 {
            self.past[past_index(day)] = requests;
        }
    }

    /// Starts a new day: moves the count of `day` to `past`. No effect if `today` is not later than `day`.
    pub(crate) fn roll_over(&mut self, today: u32) {
        if today <= self.day {
            return;
        }
        let idle = self.day.saturating_add(1).max(today.saturating_sub(USAGE_DAYS as u32))..today;
        self.past[past_index(self.day)] = self.used;
        for day in idle {
            self.past[past_index(day)] = 0;
        }
        (self.day, self.used, self.level) = (today, 0, 0);
    }
}

fn past_index(day: u32) -> usize {
    day as usize % USAGE_DAYS
}

#[cfg(test)]
mod tests {
    use super::super::time::MS_PER_DAY;
    use super::super::window::WINDOW_MS;
    use super::*;

    const LIMITS: Limits = Limits { daily: 3, burst: 5, demo: 1 };

    fn day(n: i64) -> i64 {
        n * MS_PER_DAY
    }

    #[test]
    fn requests_over_the_daily_limit_count_toward_the_burst_limit() {
        let mut record = KeyRecord::new(Scope::Full, None, 0);
        let outcomes: Vec<_> = (0..8).map(|_| record.charge(0, &LIMITS)).collect();
        use Outcome::{Allowed, BurstExceeded, DailyExceeded, Paused};
        let expected =
            [Allowed, Allowed, Allowed, DailyExceeded, DailyExceeded, BurstExceeded, Paused, Paused];
        assert_eq!(outcomes, expected);
        assert_eq!(record.used, 3);
    }

    #[test]
    fn clock_stepping_back_over_midnight_does_not_reset_quota() {
        let mut record = KeyRecord::new(Scope::Full, None, day(10));
        for _ in 0..3 {
            assert_eq!(record.charge(day(10), &LIMITS), Outcome::Allowed);
        }
        assert_eq!(record.charge(day(10) - 1, &LIMITS), Outcome::DailyExceeded);
        assert_eq!(record.charge(day(10) + 60_000, &LIMITS), Outcome::DailyExceeded);
        assert_eq!(record.charge(day(11), &LIMITS), Outcome::Allowed);
    }

    #[test]
    fn day_charged_under_a_future_clock_becomes_today() {
        for ahead in [2, 30, 31, 32, 4_000] {
            let mut record = KeyRecord::new(Scope::Full, None, day(100));
            record.charge(day(100), &LIMITS);
            assert_eq!(record.charge(day(100 + ahead), &LIMITS), Outcome::Allowed);
            assert!(record.is_ahead_of(day(100)) && !record.is_ahead_of(day(100 + ahead)));
            assert_eq!(record.charge(day(100), &LIMITS), Outcome::Allowed, "{ahead} days ahead");
            // Beyond the history, what was counted before the clock was wrong is unknown.
            let expected = if ahead <= 31 { 3 } else { 2 };
            assert_eq!((record.day, record.used), (100, expected), "{ahead} days ahead");
            assert!((70..100).all(|day| record.used_on(day, 100) == 0), "{ahead} days ahead");
            record.charge(day(101), &LIMITS);
            assert_eq!([100, 101].map(|day| record.used_on(day, 101)), [expected, 1]);
        }
    }

    #[test]
    fn day_charged_one_day_ahead_stays_when_the_window_moves_back() {
        let limits = Limits { daily: 100, burst: 5, demo: 1 };
        let mut record = KeyRecord::new(Scope::Full, None, 0);
        for now in [2 * MS_PER_DAY - 1, 0, 0, 0, 0, WINDOW_MS] {
            assert_eq!(record.charge(now, &limits), Outcome::Allowed);
        }
        assert_eq!((record.day, record.used), (1, 6));
    }

    #[test]
    fn idle_days_are_zero_and_old_days_are_dropped() {
        let mut record = KeyRecord::new(Scope::Ip, None, day(100));
        record.charge(day(100), &LIMITS);
        record.charge(day(103), &LIMITS);
        assert_eq!([100, 101, 102, 103].map(|d| record.used_on(d, 103)), [1, 0, 0, 1]);
        record.charge(day(131), &LIMITS);
        assert_eq!([100, 103, 130, 131].map(|d| record.used_on(d, 131)), [0, 1, 0, 1]);
        record.charge(day(500), &LIMITS);
        assert!((470..500).all(|d| record.used_on(d, 500) == 0));
    }

    #[test]
    fn idle_key_has_no_usage_after_its_last_day() {
        let mut record = KeyRecord::new(Scope::Ip, None, day(100));
        record.charge(day(100), &LIMITS);
        assert_eq!(record.used_on(100, 120), 1);
        assert_eq!(record.used_on(120, 120), 0);
        assert_eq!(record.used_on(131, 131), 0);
    }
}
