//! Random histories of a key: both stores decide as the rules do, written down once more in a few lines.
//!
//! `IP_LOOKUP_HISTORIES=1000000 cargo test -p quota-svc --release --test store_model` runs a million of them.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "contract/bench.rs"]
#[expect(dead_code, reason = "the contract suite uses the rest")]
mod bench;

use std::collections::HashMap;

use bench::{Bench, DAY, NOON};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quota_client::wire::{Outcome, Scope};
use quota_svc::domain::key::Change;
use quota_svc::domain::limits::Limits;
use quota_svc::domain::verdict::Subject;
use quota_svc::store::StoreError;

/// Small, so that a short history meets every edge. A ring begins with eight places: one of these never grows, the
/// other does so twice.
const LIMITS: [Limits; 2] =
    [Limits { daily: 25, burst: 7, demo: 9 }, Limits { daily: 70, burst: 19, demo: 9 }];

#[derive(Debug, Clone)]
enum Step {
    Charge(u32),
    Wait(i64),
    /// To this many milliseconds before or after the next midnight.
    Midnight(i64),
    Change(Change),
    Demo(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop_oneof![6 => 1u32..4, 2 => 4u32..10, 1 => 10u32..20].prop_map(Step::Charge),
        2 => (0i64..20_000).prop_map(Step::Wait),
        // Sums of these lie on and beside the window's edge.
        6 => prop_oneof![Just(29_999), Just(30_000), Just(59_999), Just(60_000), Just(1)].prop_map(Step::Wait),
        1 => (-90_000i64..0).prop_map(Step::Wait),
        1 => prop_oneof![Just(DAY), Just(3 * DAY), Just(40 * DAY), Just(1i64 << 32)].prop_map(Step::Wait),
        1 => (-2i64..3).prop_map(Step::Midnight),
        1 => prop_oneof![
            3 => Just(Change::Resume),
            1 => Just(Change::Deactivate),
            2 => Just(Change::Reactivate),
            1 => proptest::option::of(1u32..40).prop_map(Change::DailyLimit),
        ].prop_map(Step::Change),
        1 => (1u32..5).prop_map(Step::Demo),
    ]
}

/// The rules. Nothing here knows of rings, offsets or batches.
struct Model {
    limits: Limits,
    paused: bool,
    inactive: bool,
    limit: Option<u32>,
    arrivals: Vec<i64>,
    day: i64,
    used: HashMap<i64, u32>,
}

impl Model {
    fn new(limits: Limits, day: i64) -> Self {
        let (arrivals, used) = (Vec::new(), HashMap::new());
        Self { limits, paused: false, inactive: false, limit: None, arrivals, day, used }
    }

    fn charge(&mut self, now: i64) -> (Outcome, Option<u32>) {
        if self.inactive {
            return (Outcome::Inactive, None);
        }
        if self.paused {
            return (Outcome::Paused, Some(0));
        }
        self.day = self.day.max(now / DAY);
        let now = self.arrivals.last().map_or(now, |last| now.max(*last));
        let burst = usize::from(self.limits.burst);
        if self.arrivals.len() >= burst && now - self.arrivals[self.arrivals.len() - burst] < 60_000 {
            self.paused = true;
            return (Outcome::BurstExceeded, Some(0));
        }
        self.arrivals.push(now);
        let (used, limit) = (self.used.entry(self.day).or_default(), self.limit.unwrap_or(self.limits.daily));
        if *used >= limit {
            return (Outcome::DailyExceeded, Some(0));
        }
        *used += 1;
        (Outcome::Allowed, Some(limit - *used))
    }

    fn change(&mut self, change: &Change) -> bool {
        match change {
            Change::Resume if self.inactive => return false,
            Change::Reactivate if self.paused => return false,
            Change::Resume if self.paused => (self.paused, self.arrivals) = (false, Vec::new()),
            Change::Reactivate if self.inactive => (self.inactive, self.arrivals) = (false, Vec::new()),
            Change::Deactivate => (self.paused, self.inactive) = (false, true),
            Change::DailyLimit(limit) => self.limit = *limit,
            _ => {}
        }
        true
    }
}

/// Plays a history on a new key of the store and on the model.
async fn play(bench: &Bench, steps: &[Step]) {
    bench.set_time(bench.now().max(NOON) + 2 * DAY);
    let account = bench.account().await;
    let key = bench.key_in(account, Scope::Full, None).await.unwrap();
    let mut model = Model::new(bench.limits, bench.now() / DAY);
    let (mut demo, mut demo_day) = (0, bench.now() / DAY);
    bench.step(DAY);
    for step in steps {
        match step {
            Step::Wait(by) => bench.step(*by),
            Step::Midnight(off) => bench.set_time((bench.now() / DAY + 1) * DAY + off),
            Step::Charge(count) => {
                let verdicts = bench.charge_key(key, *count).await;
                let seen: Vec<_> =
                    verdicts.iter().map(|verdict| (verdict.outcome, verdict.remaining)).collect();
                let expected: Vec<_> = (0..*count).map(|_| model.charge(bench.now())).collect();
                assert_eq!(seen, expected);
            }
            Step::Change(change) => {
                let changed = bench.store.change_key(key, None, change).await;
                assert!(matches!(changed, Ok(_) | Err(StoreError::KeyInactive | StoreError::KeyPaused)));
                assert_eq!(changed.is_ok(), model.change(change), "{change:?}");
            }
            Step::Demo(count) => {
                let today = bench.now() / DAY;
                if today > demo_day {
                    (demo_day, demo) = (today, 0);
                }
                let verdicts = bench.charge(Subject::Demo, *count).await;
                let allowed =
                    verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Allowed).count() as u32;
                assert_eq!(allowed, (*count).min(bench.limits.demo - demo));
                demo += allowed;
            }
        }
    }
    let record = bench.store.key(key, None).await.unwrap().record;
    for (day, used) in model.used.iter().filter(|(day, _)| model.day - **day < 31) {
        assert_eq!(record.used_on(*day as u32, model.day as u32), *used, "day {day}");
    }
}

fn histories(bench: &Bench, runtime: &tokio::runtime::Runtime, cases: u32) {
    let cases = std::env::var("IP_LOOKUP_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let history = prop::collection::vec(step(), 1..80);
    let outcome = runner.run(&history, |steps| {
        runtime.block_on(play(bench, &steps));
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn the_embedded_store_decides_as_the_rules_do() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for limits in LIMITS {
        let bench = runtime.block_on(async { Bench::embedded_with(limits) });
        histories(&bench, &runtime, 300);
    }
}

#[test]
fn the_script_in_redis_decides_as_the_rules_do() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(e2e::redis::Redis::start());
    for limits in LIMITS {
        let bench = runtime.block_on(Bench::redis_with(&redis.url(), limits));
        histories(&bench, &runtime, 300);
    }
}
