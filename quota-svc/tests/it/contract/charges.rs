//! Charges: daily quota, burst window, batches, the demo, usage and the event of a pause.

use quota_api::{Actor, EventKind, KeyState, Outcome, Scope, StateChange};
use quota_svc::domain::id::KeyId;
use quota_svc::domain::key::KeyChange;
use quota_svc::domain::verdict::{ChargeGroup, Subject};

use super::harness::{DAY, Harness, NOON, random};

pub async fn unknown_key_is_denied(harness: &Harness) {
    let unknown = KeyId::from_hex(&(random() + &random())).unwrap();
    let verdict = harness.charge_key(unknown, 1).await[0];
    assert_eq!((verdict.outcome, verdict.limit, verdict.scope), (Outcome::UnknownKey, None, None));
}

pub async fn request_301_in_a_minute_pauses_the_key(harness: &Harness) {
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Geo, None).await.unwrap();
    assert_eq!(harness.charge_and_count(key, 300, Outcome::Allowed).await, 300);
    let verdict = harness.charge_key(key, 1).await[0];
    let seconds = (harness.now() / 1000) as u64;
    assert_eq!(verdict.outcome, Outcome::BurstExceeded);
    assert_eq!((verdict.limit, verdict.remaining), (Some(300), Some(0)));
    assert_eq!((verdict.retry_after, verdict.reset), (Some(60), Some(seconds + 60)));
    harness.advance(3_600_000);
    let verdict = harness.charge_key(key, 1).await[0];
    assert_eq!(verdict.outcome, Outcome::Paused, "a key is never resumed automatically");
    assert_eq!((verdict.limit, verdict.retry_after), (Some(300), Some(60)));
    assert_eq!(verdict.reset, Some(seconds + 3_660));
    let stored = harness.store.key(key, None).await.unwrap().record;
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
        assert_eq!(harness.charge_key(key, 302).await[301].outcome, Outcome::Paused);
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
    let remaining: Vec<_> = verdicts.iter().map(|verdict| verdict.remaining.unwrap()).collect();
    assert_eq!(remaining, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]);
    assert_eq!(verdicts[0].scope, Some(Scope::Full));
    assert_eq!(verdicts[0].reset, Some((midnight / 1000) as u64));
    assert_eq!(verdicts[9].outcome, Outcome::Allowed);
    assert_eq!((verdicts[10].outcome, verdicts[10].retry_after), (Outcome::DailyExceeded, Some(2)));
    harness.set_time(midnight - 1);
    assert_eq!(harness.outcome(key).await, Outcome::DailyExceeded);
    harness.set_time(midnight);
    let verdict = harness.charge_key(key, 1).await[0];
    assert_eq!((verdict.outcome, verdict.remaining), (Outcome::Allowed, Some(9)));
    assert_eq!(verdict.reset, Some(((midnight + DAY) / 1000) as u64));
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
    let verdict = harness.charge_key(key, 1).await[0];
    assert_eq!((verdict.outcome, verdict.remaining), (Outcome::DailyExceeded, Some(0)), "no second reset");
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
        assert_eq!(outcomes[0].verdict(0, &harness.limits).outcome, Outcome::Allowed);
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
    let limits: Vec<_> = outcomes.iter().map(|o| o.verdict(0, &harness.limits).limit.unwrap()).collect();
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
            assert_eq!(verdict.remaining, Some(limit - used), "{group:?} at {position}");
            assert_eq!((verdict.outcome, verdict.scope), (Outcome::Allowed, scope), "{group:?}");
        }
    }
}

pub async fn demo_quota_is_shared_and_resets_daily(harness: &Harness) {
    let verdicts = harness.charge(Subject::Demo, 200).await;
    assert_eq!((verdicts[0].remaining, verdicts[199].remaining), (Some(999), Some(800)));
    assert_eq!((verdicts[0].limit, verdicts[0].scope), (Some(1_000), None));
    for _ in 0..3 {
        harness.charge(Subject::Demo, 250).await;
    }
    let verdicts = harness.charge(Subject::Demo, 51).await;
    assert_eq!((verdicts[49].outcome, verdicts[49].remaining), (Outcome::Allowed, Some(0)));
    assert_eq!((verdicts[50].outcome, verdicts[50].retry_after), (Outcome::DailyExceeded, Some(43_200)));
    harness.advance(DAY / 2);
    assert_eq!(harness.charge(Subject::Demo, 1).await[0].remaining, Some(999));
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
    let record = harness.store.key(key, None).await.unwrap().record;
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

/// `overwrite` gives a Redis key another type.
pub async fn event_list_of_another_type_loses_only_the_event(
    harness: &Harness,
    overwrite: impl AsyncFn(String),
) {
    let (first, paused, last) = (harness.key().await, harness.key().await, harness.key().await);
    let prefix = harness.prefix.as_ref().unwrap();
    overwrite(format!("{prefix}1:{{{paused}}}:e")).await;
    let group = |key, count| ChargeGroup { subject: Subject::Key(key), origin: None, count };
    let outcomes = harness.store.charge(&[group(first, 2), group(paused, 301), group(last, 3)]).await;
    let verdict = |group: usize, nth| outcomes[group].verdict(nth, &harness.limits).outcome;
    assert_eq!(
        [verdict(0, 1), verdict(1, 300), verdict(2, 2)],
        [Outcome::Allowed, Outcome::BurstExceeded, Outcome::Allowed]
    );
    for (key, state, used) in
        [(first, KeyState::Active, 2), (paused, KeyState::Paused, 300), (last, KeyState::Active, 3)]
    {
        let record = harness.store.key(key, None).await.unwrap().record;
        assert_eq!((record.state, record.used), (state, used));
    }
}

pub async fn charges_under_a_future_clock_move_to_today(harness: &Harness) {
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Full, Some(10)).await.unwrap();
    harness.set_time(NOON + 400 * DAY);
    assert_eq!(harness.charge_key(key, 3).await[2].remaining, Some(7));
    assert_eq!(harness.charge(Subject::Demo, 3).await[2].remaining, Some(997));
    harness.set_time(NOON);
    assert_eq!(harness.charge_key(key, 1).await[0].remaining, Some(6), "the count is kept");
    assert_eq!(harness.charge(Subject::Demo, 1).await[0].remaining, Some(996));
    let record = harness.store.key(key, None).await.unwrap().record;
    assert_eq!((i64::from(record.day), record.used), (NOON / DAY, 4));
    assert_eq!(harness.charge_key(key, 296).await[295].outcome, Outcome::DailyExceeded);
    assert_eq!(harness.outcome(key).await, Outcome::BurstExceeded, "all arrivals moved to today");
    harness
        .store
        .change_key(key, None, &KeyChange::State(StateChange::Resume), &Actor::Operator)
        .await
        .unwrap();
    harness.advance(DAY);
    assert_eq!(harness.charge_key(key, 1).await[0].remaining, Some(9), "the next day resets the quota");
    assert_eq!(harness.charge(Subject::Demo, 1).await[0].remaining, Some(999));
}

pub async fn exhausted_demo_under_a_future_clock_resets_the_next_day(harness: &Harness) {
    harness.set_time(NOON + 400 * DAY);
    for _ in 0..4 {
        harness.charge(Subject::Demo, 250).await;
    }
    harness.set_time(NOON);
    assert_eq!(harness.charge(Subject::Demo, 1).await[0].outcome, Outcome::DailyExceeded);
    harness.advance(DAY);
    assert_eq!(harness.charge(Subject::Demo, 1).await[0].remaining, Some(999));
}
