//! Charging: the table of DESIGN.md section 3, at its edges.

use quota_client::wire::{EventKind, KeyState, Outcome, Scope};
use quota_svc::domain::id::KeyId;
use quota_svc::domain::key::Change;
use quota_svc::domain::verdict::{Entry, Subject};

use crate::bench::{Bench, DAY, NOON, random};

pub async fn an_unknown_key_is_refused(bench: &Bench) {
    let nobody = KeyId::from_hex(&(random() + &random())).unwrap();
    let verdict = bench.charge_key(nobody, 1).await[0];
    assert_eq!((verdict.outcome, verdict.limit, verdict.scope), (Outcome::UnknownKey, None, None));
}

pub async fn three_hundred_in_a_minute_pass_and_the_next_pauses(bench: &Bench) {
    let account = bench.account().await;
    let key = bench.key_in(account, Scope::Geo, None).await.unwrap();
    assert_eq!(bench.count(key, 300, Outcome::Allowed).await, 300);
    let verdict = bench.charge_key(key, 1).await[0];
    let seconds = (bench.now() / 1000) as u64;
    assert_eq!(verdict.outcome, Outcome::BurstExceeded);
    assert_eq!((verdict.limit, verdict.remaining), (Some(300), Some(0)));
    assert_eq!((verdict.retry_after, verdict.reset), (Some(60), Some(seconds + 60)));
    bench.step(3_600_000);
    let verdict = bench.charge_key(key, 1).await[0];
    assert_eq!(verdict.outcome, Outcome::Paused, "no time resumes a key");
    assert_eq!((verdict.limit, verdict.retry_after), (Some(300), Some(60)));
    assert_eq!(verdict.reset, Some(seconds + 3_660));
    let stored = bench.store.key(key, None).await.unwrap().record;
    assert_eq!((stored.state, stored.state_since, stored.used), (KeyState::Paused, NOON, 300));
}

pub async fn the_window_slides_to_the_millisecond(bench: &Bench) {
    let key = bench.key().await;
    bench.charge_key(key, 1).await;
    bench.step(1);
    assert_eq!(bench.count(key, 299, Outcome::Allowed).await, 299);
    bench.set_time(NOON + 60_000);
    assert_eq!(bench.outcome(key).await, Outcome::Allowed, "the first left the window");
    assert_eq!(
        bench.outcome(key).await,
        Outcome::BurstExceeded,
        "the second is in it for one more millisecond"
    );
    let patient = bench.key().await;
    for _ in 0..5 {
        assert_eq!(bench.count(patient, 300, Outcome::Allowed).await, 300);
        bench.step(60_000);
    }
}

pub async fn arrivals_keep_their_order_in_a_ring_that_grows_in_the_middle_of_a_turn(bench: &Bench) {
    let key = bench.key().await;
    // The third four take the places of the first, which are over: the oldest arrival is now in the ring's middle.
    for at in [0, 30_000, 60_000] {
        bench.set_time(NOON + at);
        assert_eq!(bench.count(key, 4, Outcome::Allowed).await, 4);
    }
    bench.step(1);
    assert_eq!(bench.count(key, 292, Outcome::Allowed).await, 292, "with the last eight as many as may be");
    bench.set_time(NOON + 90_000);
    assert_eq!(bench.count(key, 4, Outcome::Allowed).await, 4, "the four of half a minute are over");
    assert_eq!(bench.outcome(key).await, Outcome::BurstExceeded);
}

pub async fn resuming_and_reactivating_empty_the_window(bench: &Bench) {
    let key = bench.key().await;
    for change in [vec![Change::Resume], vec![Change::Deactivate, Change::Reactivate]] {
        assert_eq!(bench.charge_key(key, 302).await[301].outcome, Outcome::Paused);
        for change in change {
            bench.store.change_key(key, None, &change).await.unwrap();
        }
        assert_eq!(bench.count(key, 300, Outcome::Allowed).await, 300);
        assert_eq!(bench.outcome(key).await, Outcome::BurstExceeded);
        bench.store.change_key(key, None, &Change::Resume).await.unwrap();
    }
}

pub async fn a_day_ends_at_midnight_utc_and_refusals_still_count_as_burst(bench: &Bench) {
    let account = bench.account().await;
    let key = bench.key_in(account, Scope::Full, Some(10)).await.unwrap();
    let midnight = NOON - NOON % DAY + DAY;
    bench.set_time(midnight - 1_500);
    let verdicts = bench.charge_key(key, 12).await;
    let left: Vec<_> = verdicts.iter().map(|verdict| verdict.remaining.unwrap()).collect();
    assert_eq!(left, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]);
    assert_eq!(verdicts[0].scope, Some(Scope::Full));
    assert_eq!(verdicts[0].reset, Some((midnight / 1000) as u64));
    assert_eq!(verdicts[9].outcome, Outcome::Allowed);
    assert_eq!((verdicts[10].outcome, verdicts[10].retry_after), (Outcome::DailyExceeded, Some(2)));
    bench.set_time(midnight - 1);
    assert_eq!(bench.outcome(key).await, Outcome::DailyExceeded);
    bench.set_time(midnight);
    let verdict = bench.charge_key(key, 1).await[0];
    assert_eq!((verdict.outcome, verdict.remaining), (Outcome::Allowed, Some(9)));
    assert_eq!(verdict.reset, Some(((midnight + DAY) / 1000) as u64));
    assert_eq!(
        bench.count(key, 286, Outcome::DailyExceeded).await,
        277,
        "300 in the window with those before"
    );
    assert_eq!(bench.outcome(key).await, Outcome::BurstExceeded);
}

pub async fn a_clock_that_steps_back_gives_nothing_away(bench: &Bench) {
    let account = bench.account().await;
    let key = bench.key_in(account, Scope::Full, Some(5)).await.unwrap();
    let midnight = NOON - NOON % DAY + DAY;
    bench.set_time(midnight + 10);
    assert_eq!(bench.count(key, 5, Outcome::Allowed).await, 5);
    bench.set_time(midnight - 3_600_000);
    assert_eq!(bench.count(key, 5, Outcome::DailyExceeded).await, 5);
    bench.set_time(midnight + 20);
    let verdict = bench.charge_key(key, 1).await[0];
    assert_eq!((verdict.outcome, verdict.remaining), (Outcome::DailyExceeded, Some(0)), "no second reset");
    assert_eq!(bench.count(key, 289, Outcome::DailyExceeded).await, 289);
    assert_eq!(bench.outcome(key).await, Outcome::BurstExceeded, "time stood still in the window");
}

pub async fn a_batch_is_judged_as_the_same_charges_one_by_one(bench: &Bench) {
    let account = bench.account().await;
    let (batched, single) = (
        bench.key_in(account, Scope::Full, Some(200)).await.unwrap(),
        bench.key_in(account, Scope::Full, Some(200)).await.unwrap(),
    );
    let other = bench.key_in(account, Scope::Ip, None).await.unwrap();
    let mut one_by_one = Vec::new();
    for _ in 0..350 {
        one_by_one.extend(bench.charge_key(single, 1).await);
    }
    let mut together = Vec::new();
    for count in [1, 49, 100, 120, 80] {
        let entries = [
            Entry { subject: Subject::Key(other), count: 1 },
            Entry { subject: Subject::Key(batched), count },
        ];
        let judged = bench.store.charge(&entries).await;
        assert_eq!(judged[0].verdict(0, &bench.limits).outcome, Outcome::Allowed);
        together.extend((0..count).map(|nth| judged[1].verdict(nth, &bench.limits)));
    }
    assert_eq!(together, one_by_one);
}

pub async fn the_demo_is_shared_and_starts_anew_each_day(bench: &Bench) {
    let verdicts = bench.charge(Subject::Demo, 200).await;
    assert_eq!((verdicts[0].remaining, verdicts[199].remaining), (Some(999), Some(800)));
    assert_eq!((verdicts[0].limit, verdicts[0].scope), (Some(1_000), None));
    for _ in 0..3 {
        bench.charge(Subject::Demo, 250).await;
    }
    let verdicts = bench.charge(Subject::Demo, 51).await;
    assert_eq!((verdicts[49].outcome, verdicts[49].remaining), (Outcome::Allowed, Some(0)));
    assert_eq!((verdicts[50].outcome, verdicts[50].retry_after), (Outcome::DailyExceeded, Some(43_200)));
    bench.step(DAY / 2);
    assert_eq!(bench.charge(Subject::Demo, 1).await[0].remaining, Some(999));
}

pub async fn usage_is_kept_for_31_days(bench: &Bench) {
    let key = bench.key().await;
    let mut expected = Vec::new();
    for day in 0..40u32 {
        let requests = if day % 3 == 0 { 0 } else { day % 7 + 1 };
        if requests > 0 {
            bench.charge_key(key, requests).await;
        }
        expected.push(requests);
        bench.step(DAY);
    }
    let record = bench.store.key(key, None).await.unwrap().record;
    let today = (bench.now() / DAY) as u32;
    let seen: Vec<_> = (today - 30..=today).map(|day| record.used_on(day, today)).collect();
    let mut last_month = expected[10..].to_vec();
    last_month.push(0);
    assert_eq!(seen, last_month);
}

pub async fn a_pause_is_one_event_with_its_reason(bench: &Bench) {
    let key = bench.key().await;
    bench.charge_key(key, 350).await;
    bench.charge_key(key, 50).await;
    let events = bench.store.events(key, None).await.unwrap();
    let paused: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Paused).collect();
    assert_eq!(paused.len(), 1);
    assert_eq!((paused[0].at, paused[0].reason.as_str()), (NOON, "more than 300 requests within 60 seconds"));
}
