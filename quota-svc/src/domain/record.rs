//! A key's record: what a charge reads, judges and writes in one step.

mod codec;

pub use codec::{CodecError, USAGE_DAYS, decode, encode, scope_from_byte};
use quota_client::wire::{KeyState, Scope};

use super::limits::Limits;
use super::time::day_of;
use super::window::Window;

/// The record of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What the key may see.
    pub scope: Scope,
    /// Where it is in its life.
    pub state: KeyState,
    /// Since when, Unix time in milliseconds.
    pub state_since: i64,
    /// A daily limit of its own.
    pub daily_limit: Option<u32>,
    /// The day `used` counts.
    pub day: u32,
    /// Requests charged on `day`.
    pub used: u32,
    /// Requests charged on the days before, each at its day modulo 31.
    pub past: [u32; USAGE_DAYS],
    /// The burst window.
    pub window: Window,
}

/// What one charge came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Charged.
    Allowed,
    /// Deactivated.
    Inactive,
    /// Paused before.
    Paused,
    /// Paused by this request.
    BurstExceeded,
    /// The day's quota is used up.
    DailyExceeded,
}

impl Record {
    /// A new active key.
    pub fn new(scope: Scope, daily_limit: Option<u32>, now: i64) -> Self {
        Self {
            scope,
            state: KeyState::Active,
            state_since: now,
            daily_limit,
            day: day_of(now),
            used: 0,
            past: [0; USAGE_DAYS],
            window: Window::default(),
        }
    }

    /// Judges one request at `now` and writes down what follows from it.
    pub fn charge(&mut self, now: i64, limits: &Limits) -> Judgement {
        match self.state {
            KeyState::Inactive => return Judgement::Inactive,
            KeyState::Paused => return Judgement::Paused,
            KeyState::Active => {}
        }
        self.roll_over(day_of(now));
        if !self.window.arrive(now, limits.burst) {
            self.state = KeyState::Paused;
            self.state_since = now;
            return Judgement::BurstExceeded;
        }
        if self.used >= self.limit(limits) {
            return Judgement::DailyExceeded;
        }
        self.used += 1;
        Judgement::Allowed
    }

    /// Makes the key active with an empty window.
    pub fn activate(&mut self, now: i64) {
        self.state = KeyState::Active;
        self.state_since = now;
        self.window = Window::default();
    }

    /// The daily limit in force.
    pub fn limit(&self, limits: &Limits) -> u32 {
        self.daily_limit.unwrap_or(limits.daily)
    }

    /// What was charged on `day`, seen from `today`.
    pub fn used_on(&self, day: u32, today: u32) -> u32 {
        if day == self.day {
            self.used
        } else if day < self.day && today - day < USAGE_DAYS as u32 && self.day - day < USAGE_DAYS as u32 {
            self.past[slot(day)]
        } else {
            0
        }
    }

    /// Sets what was charged on a day, for an import; days that are forgotten by now stay so.
    pub fn set_used_on(&mut self, day: u32, requests: u32) {
        if day == self.day {
            self.used = requests;
        } else if day < self.day && self.day - day < USAGE_DAYS as u32 {
            self.past[slot(day)] = requests;
        }
    }

    /// Moves the count of a day that is over to the past; a day that lies behind changes nothing.
    pub(crate) fn roll_over(&mut self, today: u32) {
        if today <= self.day {
            return;
        }
        let idle = self.day.saturating_add(1).max(today.saturating_sub(USAGE_DAYS as u32))..today;
        self.past[slot(self.day)] = self.used;
        for day in idle {
            self.past[slot(day)] = 0;
        }
        (self.day, self.used) = (today, 0);
    }
}

fn slot(day: u32) -> usize {
    day as usize % USAGE_DAYS
}

#[cfg(test)]
mod tests {
    use super::super::time::MS_PER_DAY;
    use super::*;

    const LIMITS: Limits = Limits { daily: 3, burst: 5, demo: 1 };

    fn day(n: i64) -> i64 {
        n * MS_PER_DAY
    }

    #[test]
    fn the_day_is_judged_after_the_burst_and_refusals_count_in_the_window() {
        let mut record = Record::new(Scope::Full, None, 0);
        let outcomes: Vec<_> = (0..8).map(|_| record.charge(0, &LIMITS)).collect();
        use Judgement::{Allowed, BurstExceeded, DailyExceeded, Paused};
        let expected =
            [Allowed, Allowed, Allowed, DailyExceeded, DailyExceeded, BurstExceeded, Paused, Paused];
        assert_eq!(outcomes, expected);
        assert_eq!(record.used, 3);
    }

    #[test]
    fn a_clock_that_steps_back_over_midnight_does_not_give_the_day_again() {
        let mut record = Record::new(Scope::Full, None, day(10));
        for _ in 0..3 {
            assert_eq!(record.charge(day(10), &LIMITS), Judgement::Allowed);
        }
        assert_eq!(record.charge(day(10) - 1, &LIMITS), Judgement::DailyExceeded);
        assert_eq!(record.charge(day(10) + 60_000, &LIMITS), Judgement::DailyExceeded);
        assert_eq!(record.charge(day(11), &LIMITS), Judgement::Allowed);
    }

    #[test]
    fn usage_of_idle_days_is_zero_and_old_days_are_forgotten() {
        let mut record = Record::new(Scope::Ip, None, day(100));
        record.charge(day(100), &LIMITS);
        record.charge(day(103), &LIMITS);
        assert_eq!([100, 101, 102, 103].map(|d| record.used_on(d, 103)), [1, 0, 0, 1]);
        record.charge(day(131), &LIMITS);
        assert_eq!([100, 103, 130, 131].map(|d| record.used_on(d, 131)), [0, 1, 0, 1]);
        record.charge(day(500), &LIMITS);
        assert!((470..500).all(|d| record.used_on(d, 500) == 0));
    }

    #[test]
    fn an_idle_key_shows_nothing_for_days_it_never_saw() {
        let mut record = Record::new(Scope::Ip, None, day(100));
        record.charge(day(100), &LIMITS);
        assert_eq!(record.used_on(100, 120), 1);
        assert_eq!(record.used_on(120, 120), 0);
        assert_eq!(record.used_on(131, 131), 0);
    }
}
