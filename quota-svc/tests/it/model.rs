//! Replays random histories of a key on both stores (embedded and Redis), and on two replicas with different limits on
//! one Redis, and compares the results with a short model of the quota rules.
//!
//! `IP_LOOKUP_HISTORIES=1000000 cargo test -p quota-svc --release --test it model::` replays a million
//! histories per store and set of limits.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use crate::contract::harness::{DAY, Harness, NOON};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quota_api::{Actor, Limits, Outcome, Scope, StateChange};
use quota_api::{KeyChange, Rejection};
use quota_svc::domain::verdict::Subject;
use quota_svc::store::StoreError;
use testkit::quota::remaining;

/// Small, so that a short history reaches every edge case. The ring that stores a burst window starts with room for 8
/// arrivals, or for as many as the burst limit if that is lower. With the first set of limits the ring never grows;
/// with the second it grows twice, to 16 and to 19.
const LIMITS: [Limits; 2] =
    [Limits { daily: 25, burst: 7, demo: 9 }, Limits { daily: 70, burst: 19, demo: 9 }];

#[derive(Debug, Clone)]
enum Step {
    Charge(u32),
    /// Moves the clock by this many milliseconds: back, if negative.
    Wait(i64),
    /// Sets the clock to the next midnight plus this many milliseconds.
    Midnight(i64),
    Change(KeyChange),
    /// Makes this many charges of the demo.
    Demo(u32),
    /// Continues on the next replica, which has other limits.
    NextReplica,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop_oneof![6 => 1u32..4, 2 => 4u32..10, 1 => 10u32..20].prop_map(Step::Charge),
        2 => (0i64..20_000).prop_map(Step::Wait),
        // Sums of these waits are exactly as long as the burst window, or a millisecond shorter or longer.
        6 => prop_oneof![Just(29_999), Just(30_000), Just(59_999), Just(60_000), Just(1)].prop_map(Step::Wait),
        1 => (-90_000i64..0).prop_map(Step::Wait),
        // The longest step back after which the burst window stays, and the shortest with which it moves back.
        1 => prop_oneof![Just(-1_000), Just(-1_001)].prop_map(Step::Wait),
        1 => prop_oneof![Just(DAY), Just(3 * DAY), Just(40 * DAY), Just(1i64 << 32)].prop_map(Step::Wait),
        // A wrong clock is corrected.
        1 => prop_oneof![Just(-DAY), Just(-2 * DAY), Just(-3 * DAY), Just(-40 * DAY)].prop_map(Step::Wait),
        1 => (-2i64..3).prop_map(Step::Midnight),
        1 => prop_oneof![
            3 => Just(KeyChange::State(StateChange::Resume)),
            1 => Just(KeyChange::State(StateChange::Deactivate)),
            2 => Just(KeyChange::State(StateChange::Reactivate)),
            1 => proptest::option::of(1u32..40).prop_map(KeyChange::DailyLimit),
        ].prop_map(Step::Change),
        1 => (1u32..5).prop_map(Step::Demo),
        2 => Just(Step::NextReplica),
    ]
}

/// The quota rules for one key in their simplest form: no ring, no packed times, no batches.
struct Model {
    limits: Limits,
    paused: bool,
    inactive: bool,
    /// The key's own daily limit, if it has one.
    daily_limit: Option<u32>,
    arrivals: Vec<i64>,
    /// The latest day so far: if the clock steps back, charges still count for this day.
    day: i64,
    /// Allowed requests by day.
    used: HashMap<i64, u32>,
}

impl Model {
    fn new(limits: Limits, day: i64) -> Self {
        let (arrivals, used) = (Vec::new(), HashMap::new());
        Self { limits, paused: false, inactive: false, daily_limit: None, arrivals, day, used }
    }

    /// Returns the outcome and the remaining requests.
    fn charge(&mut self, now: i64) -> (Outcome, Option<u32>) {
        if self.inactive {
            return (Outcome::Inactive, None);
        }
        if self.paused {
            return (Outcome::Paused, Some(0));
        }
        let today = now / DAY;
        if self.day > today + 1 {
            self.move_to_today(today);
        }
        self.day = self.day.max(today);
        if let Some(last) = self.arrivals.last().copied().filter(|last| last - now > 1_000) {
            self.arrivals.retain(|arrival| last - arrival < 60_000);
            self.arrivals.iter_mut().for_each(|arrival| *arrival = now.min(*arrival));
        }
        let now = self.arrivals.last().map_or(now, |last| now.max(*last));
        let burst = usize::from(self.limits.burst);
        if self.arrivals.len() >= burst && now - self.arrivals[self.arrivals.len() - burst] < 60_000 {
            self.paused = true;
            return (Outcome::BurstExceeded, Some(0));
        }
        self.arrivals.push(now);
        let (used, limit) =
            (self.used.entry(self.day).or_default(), self.daily_limit.unwrap_or(self.limits.daily));
        if *used >= limit {
            return (Outcome::DailyExceeded, Some(0));
        }
        *used += 1;
        (Outcome::Allowed, Some(limit - *used))
    }

    /// Corrects a clock that was more than a day ahead: the wrong day's count is added to today's, unless a later day has
    /// overwritten today's entry in the history of 31 days.
    fn move_to_today(&mut self, today: i64) {
        let ahead = self.used.remove(&self.day).unwrap_or(0);
        let counted = self.used.remove(&today).filter(|_| self.day - today <= 31).unwrap_or(0);
        // The history covered the 31 days up to the wrong day; earlier days are lost.
        let first = self.day - 30;
        self.used.retain(|day, _| (first..today).contains(day));
        self.used.insert(today, ahead + counted);
        self.day = today;
    }

    /// Returns false if the change is rejected.
    fn change(&mut self, change: &KeyChange) -> bool {
        match change {
            KeyChange::State(StateChange::Resume) if self.inactive => return false,
            KeyChange::State(StateChange::Reactivate) if self.paused => return false,
            KeyChange::State(StateChange::Resume) if self.paused => {
                (self.paused, self.arrivals) = (false, Vec::new())
            }
            KeyChange::State(StateChange::Reactivate) if self.inactive => {
                (self.inactive, self.arrivals) = (false, Vec::new())
            }
            KeyChange::State(StateChange::Deactivate) => (self.paused, self.inactive) = (false, true),
            KeyChange::DailyLimit(limit) => self.daily_limit = *limit,
            _ => {}
        }
        true
    }
}

/// The latest time of a history. When dropped, sets the clock to it.
struct LatestTime<'a>(&'a Harness, i64);

impl Drop for LatestTime<'_> {
    fn drop(&mut self) {
        self.0.set_time(self.1);
    }
}

/// Applies a history to a new key in the store and to the model, and compares the results.
async fn replay(replicas: &[Harness], steps: &[Step]) {
    let (mut harness, mut next) = (&replicas[0], replicas.iter().cycle().skip(1));
    // The histories share the demo's counter, so each starts on a later day than all charges of the one before.
    harness.set_time(harness.now().max(NOON) + 2 * DAY);
    let mut latest = LatestTime(harness, harness.now());
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Full, None).await.unwrap();
    let mut model = Model::new(harness.limits, harness.now() / DAY);
    // Starts the demo's day: the clock may go back to the days of earlier histories.
    harness.charge(Subject::Demo, 1).await;
    let (mut demo_used, mut demo_day) = (1, harness.now() / DAY);
    // After the creation, so that negative waits hardly ever reach back before it.
    harness.advance(DAY);
    for step in steps {
        latest.1 = latest.1.max(harness.now());
        match step {
            Step::NextReplica => {
                harness = next.next().unwrap();
                model.limits = harness.limits;
            }
            Step::Wait(by) => harness.advance(*by),
            Step::Midnight(offset) => harness.set_time((harness.now() / DAY + 1) * DAY + offset),
            Step::Charge(count) => {
                let verdicts = harness.charge_key(key, *count).await;
                let actual: Vec<_> =
                    verdicts.iter().map(|verdict| (verdict.outcome(), remaining(verdict))).collect();
                let expected: Vec<_> = (0..*count).map(|_| model.charge(harness.now())).collect();
                assert_eq!(actual, expected);
            }
            Step::Change(change) => {
                let result = harness.store.change_key(key, None, change, &Actor::Operator).await;
                assert!(matches!(
                    result,
                    Ok(_) | Err(StoreError::Rejected(Rejection::KeyInactive | Rejection::KeyPaused))
                ));
                assert_eq!(result.is_ok(), model.change(change), "{change:?}");
            }
            Step::Demo(count) => {
                let today = harness.now() / DAY;
                if today > demo_day {
                    (demo_day, demo_used) = (today, 0);
                } else if demo_day > today + 1 {
                    demo_day = today;
                }
                let verdicts = harness.charge(Subject::Demo, *count).await;
                let allowed =
                    verdicts.iter().filter(|verdict| verdict.outcome() == Outcome::Allowed).count() as u32;
                assert_eq!(allowed, (*count).min(harness.limits.demo - demo_used));
                demo_used += allowed;
            }
        }
    }
    let record = harness.store.key(key, None).await.unwrap().value.record;
    for (day, used) in model.used.iter().filter(|(day, _)| model.day - **day < 31) {
        assert_eq!(record.used_on(*day as u32, model.day as u32), *used, "day {day}");
    }
}

fn run_histories(replicas: &[Harness], runtime: &tokio::runtime::Runtime, cases: u32) {
    let cases = std::env::var("IP_LOOKUP_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let history = prop::collection::vec(step(), 1..80);
    let result = runner.run(&history, |steps| {
        runtime.block_on(replay(replicas, &steps));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn embedded_store_matches_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for limits in LIMITS {
        let harness = runtime.block_on(async { Harness::embedded_with(limits) });
        run_histories(&[harness], &runtime, 100);
    }
}

#[test]
fn redis_store_matches_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(testkit::redis::Redis::start());
    for limits in LIMITS {
        let harness = runtime.block_on(Harness::redis_with(&redis.url(), limits));
        run_histories(&[harness], &runtime, 100);
    }
}

#[test]
fn redis_replicas_with_different_limits_match_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(testkit::redis::Redis::start());
    let replicas = runtime.block_on(async {
        let first = Harness::redis_with(&redis.url(), LIMITS[0]).await;
        let second = first.other_replica(&redis.url(), LIMITS[1]).await;
        [first, second]
    });
    run_histories(&replicas, &runtime, 100);
}
