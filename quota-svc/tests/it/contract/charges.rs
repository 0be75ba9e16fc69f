//! Charges: daily quota, burst window, batches, the demo, usage and the event of a pause.

use quota_api::KeyChange;
use quota_api::{Actor, EventKind, Exceeded, KeyState, Outcome, RateLimit, Scope, StateChange, Verdict};
use quota_svc::domain::id::KeyId;
use quota_svc::domain::verdict::{ChargeGroup, GroupOutcome, Subject};
use testkit::quota::{rate_limit, remaining};

use super::harness::{DAY, Harness, NOON, random};

/// The midnight after [`NOON`], in Unix seconds.
const MIDNIGHT: u64 = ((NOON - NOON % DAY + DAY) / 1000) as u64;

pub async fn unknown_key_is_denied(harness: &Harness) {
    let unknown = KeyId::from_hex(&(random() + &random())).unwrap();
    assert_eq!(harness.charge_key(unknown, 1).await, [Verdict::UnknownKey]);
}

pub async fn request_301_in_a_minute_pauses_the_key(harness: &Harness) {
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Geo, None).await.unwrap();
    assert_eq!(harness.charge_and_count(key, 300, Outcome::Allowed).await, 300);
    let seconds = (harness.now() / 1000) as u64;
    let exceeded = Exceeded { limit: 300, reset: seconds + 60, retry_after: 60 };
    assert_eq!(harness.charge_key(key, 1).await, [Verdict::BurstExceeded(exceeded)]);
    harness.advance(3_600_000);
    let later = Exceeded { reset: seconds + 3_660, ..exceeded };
    let verdicts = harness.charge_key(key, 1).await;
    assert_eq!(verdicts, [Verdict::Paused(later)], "a key is never resumed automatically");
    let stored = harness.store.key(key, None).await.unwrap().value.record;
    assert_eq!((stored.state, stored.state_since, stored.used), (KeyState::Paused, NOON, 300));
}

pub async fn burst_window_slides_by_the_millisecond(harness: &Harness) {
    let key = harness.key().await;
    harness.charge_key(key, 1).await;
    harness.advance(1);
    assert_eq!(harness.charge_and_count(key, 299, Outcome::Allowed).await, 299);
    harness.set_time(NOON + 60_000);
    assert_eq!(harness.outcome(key).await, Outcome::Allowed, "the first arrival has left the window");
    assert_eq!(
        harness.outcome(key).await,
        Outcome::BurstExceeded,
        "the second arrival stays for one more millisecond"
    );
    let steady = harness.key().await;
    for _ in 0..5 {
        assert_eq!(harness.charge_and_count(steady, 300, Outcome::Allowed).await, 300);
        harness.advance(60_000);
    }
}

pub async fn ring_growth_after_wraparound_keeps_arrival_order(harness: &Harness) {
    let key = harness.key().await;
    // The ring starts with room for eight arrivals. So the third group of four overwrites the expired first group, and
    // the oldest arrival is in the middle of the ring.
    for at in [0, 30_000, 60_000] {
        harness.set_time(NOON + at);
        assert_eq!(harness.charge_and_count(key, 4, Outcome::Allowed).await, 4);
    }
    harness.advance(1);
    assert_eq!(
        harness.charge_and_count(key, 292, Outcome::Allowed).await,
        292,
        "292 plus the last eight make 300"
    );
    harness.set_time(NOON + 90_000);
    assert_eq!(
        harness.charge_and_count(key, 4, Outcome::Allowed).await,
        4,
        "the arrivals at 30 s have expired"
    );
    assert_eq!(harness.outcome(key).await, Outcome::BurstExceeded);
}

pub async fn resume_and_reactivate_clear_the_burst_window(harness: &Harness) {
    let key = harness.key().await;
    for changes in [
        vec![KeyChange::State(StateChange::Resume)],
        vec![KeyChange::State(StateChange::Deactivate), KeyChange::State(StateChange::Reactivate)],
    ] {
        assert_eq!(harness.charge_key(key, 302).await[301].outcome(), Outcome::Paused);
        for change in changes {
            harness.store.change_key(key, None, &change, &Actor::Operator).await.unwrap();
        }
        assert_eq!(harness.charge_and_count(key, 300, Outcome::Allowed).await, 300);
        assert_eq!(harness.outcome(key).await, Outcome::BurstExceeded);
        harness
            .store
            .change_key(key, None, &KeyChange::State(StateChange::Resume), &Actor::Operator)
            .await
            .unwrap();
    }
}

pub async fn quota_resets_at_utc_midnight_and_denials_count_toward_the_burst_limit(harness: &Harness) {
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Full, Some(10)).await.unwrap();
    let midnight = NOON - NOON % DAY + DAY;
    harness.set_time(midnight - 1_500);
    let verdicts = harness.charge_key(key, 12).await;
    let reset = (midnight / 1000) as u64;
    let allowed = |remaining, reset| {
        let rate_limit = RateLimit { limit: 10, remaining, reset };
        Verdict::Allowed { scope: Some(Scope::Full), rate_limit }
    };
    let mut expected: Vec<_> = (0..10).rev().map(|remaining| allowed(remaining, reset)).collect();
    expected.extend([Verdict::DailyExceeded(Exceeded { limit: 10, reset, retry_after: 2 }); 2]);
    assert_eq!(verdicts, expected);
    harness.set_time(midnight - 1);
    assert_eq!(harness.outcome(key).await, Outcome::DailyExceeded);
    harness.set_time(midnight);
    assert_eq!(harness.charge_key(key, 1).await, [allowed(9, reset + 86_400)]);
    assert_eq!(
        harness.charge_and_count(key, 286, Outcome::DailyExceeded).await,
        277,
        "14 earlier requests and these 286 fill the window; 9 of the 286 are allowed"
    );
    assert_eq!(harness.outcome(key).await, Outcome::BurstExceeded);
}

pub async fn clock_stepping_back_resets_nothing(harness: &Harness) {
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Full, Some(5)).await.unwrap();
    let midnight = NOON - NOON % DAY + DAY;
    harness.set_time(midnight + 10);
    assert_eq!(harness.charge_and_count(key, 5, Outcome::Allowed).await, 5);
    harness.set_time(midnight - 3_600_000);
    assert_eq!(harness.charge_and_count(key, 5, Outcome::DailyExceeded).await, 5);
    harness.set_time(midnight + 20);
    assert_eq!(harness.outcome(key).await, Outcome::DailyExceeded, "no second reset");
}

pub async fn burst_window_moves_back_when_a_clock_ahead_is_corrected(harness: &Harness) {
    for ahead in [1_001, 59_000, 23 * 3_600_000, 2 * DAY, 60 * DAY] {
        harness.set_time(NOON + ahead);
        let key = harness.key().await;
        assert_eq!(harness.charge_and_count(key, 100, Outcome::Allowed).await, 100);
        harness.set_time(NOON);
        assert_eq!(harness.charge_and_count(key, 100, Outcome::Allowed).await, 100);
        harness.advance(59_999);
        assert_eq!(harness.charge_and_count(key, 100, Outcome::Allowed).await, 100);
        harness.advance(1);
        assert_eq!(
            harness.charge_and_count(key, 200, Outcome::Allowed).await,
            200,
            "{ahead} ms ahead: the first 200 arrivals expire 60 s after the correction"
        );
        assert_eq!(harness.outcome(key).await, Outcome::BurstExceeded, "{ahead} ms ahead: the others count");
    }
}

pub async fn arrivals_before_a_clock_correction_keep_their_time(harness: &Harness) {
    let key = harness.key().await;
    for at in [0, 30_000, 10_000] {
        harness.set_time(NOON + at);
        assert_eq!(harness.charge_and_count(key, 100, Outcome::Allowed).await, 100);
    }
    harness.set_time(NOON + 60_000);
    assert_eq!(harness.charge_and_count(key, 100, Outcome::Allowed).await, 100, "those at 0 ms have expired");
    harness.set_time(NOON + 70_000);
    assert_eq!(harness.charge_and_count(key, 200, Outcome::Allowed).await, 200, "30,000 became 10,000 ms");
    assert_eq!(harness.outcome(key).await, Outcome::BurstExceeded);
}

pub async fn burst_window_stays_when_the_clock_steps_back_by_a_second(harness: &Harness) {
    let key = harness.key().await;
    harness.set_time(NOON + 1_000);
    assert_eq!(harness.charge_and_count(key, 150, Outcome::Allowed).await, 150);
    harness.set_time(NOON);
    assert_eq!(harness.charge_and_count(key, 150, Outcome::Allowed).await, 150);
    harness.set_time(NOON + 60_999);
    assert_eq!(harness.outcome(key).await, Outcome::BurstExceeded);
}

pub async fn batched_charges_equal_single_charges(harness: &Harness) {
    let account = harness.account().await;
    let (batched, single) = (
        harness.key_in(account, Scope::Full, Some(200)).await.unwrap(),
        harness.key_in(account, Scope::Full, Some(200)).await.unwrap(),
    );
    let other = harness.key_in(account, Scope::Ip, None).await.unwrap();
    let mut one_by_one = Vec::new();
    for _ in 0..350 {
        one_by_one.extend(harness.charge_key(single, 1).await);
    }
    let mut in_batches = Vec::new();
    for count in [1, 49, 100, 120, 80] {
        let groups = [
            ChargeGroup { subject: Subject::Key(other), origin: None, count: 1 },
            ChargeGroup { subject: Subject::Key(batched), origin: None, count },
        ];
        let outcomes = harness.store.charge(&groups).await;
        assert_eq!(outcomes[0].verdict(0, &harness.limits).outcome(), Outcome::Allowed);
        in_batches.extend((0..count).map(|nth| outcomes[1].verdict(nth, &harness.limits)));
    }
    assert_eq!(in_batches, one_by_one);
}

/// In a Cluster the keys are on different masters, so the store has to restore the order.
pub async fn outcomes_of_a_batch_have_the_order_of_its_groups(harness: &Harness) {
    let (mut account, mut groups) = (harness.account().await, Vec::new());
    for limit in 1..=20 {
        if limit == 11 {
            account = harness.account().await;
        }
        let key = harness.key_in(account, Scope::Full, Some(limit)).await.unwrap();
        groups.push(ChargeGroup { subject: Subject::Key(key), origin: None, count: 1 });
    }
    let outcomes = harness.store.charge(&groups).await;
    let limit = |outcome: &GroupOutcome| rate_limit(&outcome.verdict(0, &harness.limits)).unwrap().limit;
    let limits: Vec<_> = outcomes.iter().map(limit).collect();
    assert_eq!(limits, (1..=20).collect::<Vec<_>>());
}

pub async fn demo_and_keys_of_one_batch_are_counted_separately(harness: &Harness) {
    let (first, second) = (harness.key().await, harness.key().await);
    let mut used = [0; 3];
    for (position, count) in [(0, 1), (1, 1), (2, 1), (0, 3), (1, 2), (2, 5)] {
        let group = |subject, count| ChargeGroup { subject, origin: None, count };
        let mut groups = vec![group(Subject::Key(first), 1), group(Subject::Key(second), 1)];
        groups.insert(position, group(Subject::Demo, count));
        let outcomes = harness.store.charge(&groups).await;
        used = [used[0] + 1, used[1] + 1, used[2] + count];
        for (group, outcome) in groups.iter().zip(outcomes) {
            let (used, limit, scope) = match group.subject {
                Subject::Demo => (used[2], harness.limits.demo, None),
                Subject::Key(key) => {
                    (used[usize::from(key == second)], harness.limits.daily, Some(Scope::Full))
                }
            };
            let verdict = outcome.verdict(group.count - 1, &harness.limits);
            let rate_limit = RateLimit { limit, remaining: limit - used, reset: MIDNIGHT };
            assert_eq!(verdict, Verdict::Allowed { scope, rate_limit }, "{group:?} at {position}");
        }
    }
}

pub async fn demo_quota_is_shared_and_resets_daily(harness: &Harness) {
    let verdicts = harness.charge(Subject::Demo, 200).await;
    let allowed = |remaining| {
        let rate_limit = RateLimit { limit: 1_000, remaining, reset: MIDNIGHT };
        Verdict::Allowed { scope: None, rate_limit }
    };
    assert_eq!((verdicts[0], verdicts[199]), (allowed(999), allowed(800)));
    for _ in 0..3 {
        harness.charge(Subject::Demo, 250).await;
    }
    let verdicts = harness.charge(Subject::Demo, 51).await;
    let exceeded = Exceeded { limit: 1_000, reset: MIDNIGHT, retry_after: 43_200 };
    assert_eq!(verdicts[49..], [allowed(0), Verdict::DailyExceeded(exceeded)]);
    harness.advance(DAY / 2);
    assert_eq!(remaining(&harness.charge(Subject::Demo, 1).await[0]), Some(999));
}

pub async fn usage_covers_31_days(harness: &Harness) {
    let key = harness.key().await;
    let mut expected = Vec::new();
    for day in 0..40u32 {
        let requests = if day % 3 == 0 { 0 } else { day % 7 + 1 };
        if requests > 0 {
            harness.charge_key(key, requests).await;
        }
        expected.push(requests);
        harness.advance(DAY);
    }
    let record = harness.store.key(key, None).await.unwrap().value.record;
    let today = (harness.now() / DAY) as u32;
    let usage: Vec<_> = (today - 30..=today).map(|day| record.used_on(day, today)).collect();
    let mut last_month = expected[10..].to_vec();
    last_month.push(0);
    assert_eq!(usage, last_month);
}

pub async fn pause_adds_one_event_with_reason(harness: &Harness) {
    let key = harness.key().await;
    harness.charge_key(key, 350).await;
    harness.charge_key(key, 50).await;
    let events = harness.store.events(key, None).await.unwrap();
    let paused: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Paused).collect();
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].at, NOON);
    assert_eq!(paused[0].reason, "more than 300 requests within 60 seconds (by the system)");
}

pub async fn charges_under_a_future_clock_move_to_today(harness: &Harness) {
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Full, Some(10)).await.unwrap();
    harness.set_time(NOON + 400 * DAY);
    assert_eq!(remaining(&harness.charge_key(key, 3).await[2]), Some(7));
    assert_eq!(remaining(&harness.charge(Subject::Demo, 3).await[2]), Some(997));
    harness.set_time(NOON);
    assert_eq!(remaining(&harness.charge_key(key, 1).await[0]), Some(6), "the count is kept");
    assert_eq!(remaining(&harness.charge(Subject::Demo, 1).await[0]), Some(996));
    let record = harness.store.key(key, None).await.unwrap().value.record;
    assert_eq!((i64::from(record.day), record.used), (NOON / DAY, 4));
    assert_eq!(harness.charge_key(key, 296).await[295].outcome(), Outcome::DailyExceeded);
    assert_eq!(harness.outcome(key).await, Outcome::BurstExceeded, "all arrivals moved to today");
    harness
        .store
        .change_key(key, None, &KeyChange::State(StateChange::Resume), &Actor::Operator)
        .await
        .unwrap();
    harness.advance(DAY);
    assert_eq!(remaining(&harness.charge_key(key, 1).await[0]), Some(9), "the next day resets the quota");
    assert_eq!(remaining(&harness.charge(Subject::Demo, 1).await[0]), Some(999));
}

pub async fn exhausted_demo_under_a_future_clock_resets_the_next_day(harness: &Harness) {
    harness.set_time(NOON + 400 * DAY);
    for _ in 0..4 {
        harness.charge(Subject::Demo, 250).await;
    }
    harness.set_time(NOON);
    assert_eq!(harness.charge(Subject::Demo, 1).await[0].outcome(), Outcome::DailyExceeded);
    harness.advance(DAY);
    assert_eq!(remaining(&harness.charge(Subject::Demo, 1).await[0]), Some(999));
}
