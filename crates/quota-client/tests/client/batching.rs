//! What travels together, who gets which answer, and the bound on what waits.

use std::sync::Arc;

use quota_client::wire::Charge;
use quota_client::{BatchConfig, CallOutcome, ChargeError, Charger};
use tokio::task::JoinSet;

use crate::fake::{Fake, Log, begin, key, verdict};

fn one_call_at_a_time() -> BatchConfig {
    BatchConfig { in_flight: 1, deadline: std::time::Duration::from_secs(10), ..BatchConfig::default() }
}

#[tokio::test]
async fn what_gathers_during_a_call_travels_in_the_next() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(fake.client(), one_call_at_a_time(), log.clone());

    let first = begin(&charger, 0);
    let under_way = fake.next().await;
    assert_eq!(under_way.numbers(), [0], "a charge alone does not wait for company");
    let others: Vec<_> = (1..=100).map(|number| begin(&charger, number)).collect();
    under_way.judge();
    assert_eq!(first.await, Ok(verdict(0)));

    let full = fake.next().await;
    assert_eq!(full.numbers(), (1..=64).collect::<Vec<_>>());
    full.judge();
    let rest = fake.next().await;
    assert_eq!(rest.numbers(), (65..=100).collect::<Vec<_>>());
    rest.judge();
    for (charging, number) in others.into_iter().zip(1..) {
        assert_eq!(charging.await, Ok(verdict(number)));
    }
    let calls = log.calls.lock().unwrap();
    assert_eq!(calls.iter().map(|call| call.charges).collect::<Vec<_>>(), [1, 64, 36]);
    assert!(calls.iter().all(|call| call.outcome == CallOutcome::Answered));
}

#[tokio::test]
async fn no_more_calls_are_under_way_than_allowed() {
    let mut fake = Fake::start().await;
    let config = BatchConfig { in_flight: 2, batch: 1, ..one_call_at_a_time() };
    let charger = fake.charger(config);
    let charging: Vec<_> = (0..3).map(|number| begin(&charger, number)).collect();
    let (one, two) = (fake.next().await, fake.next().await);
    assert!(!fake.has_more());
    one.judge();
    fake.next().await.judge();
    two.judge();
    for (charging, number) in charging.into_iter().zip(0..) {
        assert_eq!(charging.await, Ok(verdict(number)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_callers_gets_its_own_verdict() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(BatchConfig { in_flight: 4, ..one_call_at_a_time() });
    tokio::spawn(async move {
        loop {
            fake.next().await.judge();
        }
    });
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let charger = charger.clone();
        callers.spawn(async move {
            for number in (caller * 1000)..(caller * 1000 + 50) {
                assert_eq!(charger.charge(&key(number)).await, Ok(verdict(number)));
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
}

#[tokio::test]
async fn a_caller_that_leaves_the_queue_is_not_charged_and_disturbs_nobody() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(one_call_at_a_time());
    let first = begin(&charger, 0);
    let under_way = fake.next().await;
    let (one, two, three) = (begin(&charger, 1), begin(&charger, 2), begin(&charger, 3));
    drop(two);
    under_way.judge();
    let next = fake.next().await;
    assert_eq!(next.numbers(), [1, 3]);
    next.judge();
    assert_eq!((first.await, one.await, three.await), (Ok(verdict(0)), Ok(verdict(1)), Ok(verdict(3))));
}

#[tokio::test]
async fn a_caller_that_leaves_during_the_call_disturbs_nobody() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(one_call_at_a_time());
    let charging: Vec<_> = (0..3).map(|number| begin(&charger, number)).collect();
    let under_way = fake.next().await;
    assert_eq!(under_way.numbers(), [0, 1, 2]);
    let mut charging = charging.into_iter();
    drop(charging.next());
    under_way.judge();
    for (charging, number) in charging.zip(1..) {
        assert_eq!(charging.await, Ok(verdict(number)));
    }
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let config = BatchConfig { queue: 2, ..one_call_at_a_time() };
    let charger = Charger::new(fake.client(), config, log.clone());
    let first = begin(&charger, 0);
    let under_way = fake.next().await;
    let (one, two) = (begin(&charger, 1), begin(&charger, 2));
    assert_eq!(charger.charge(&key(3)).await, Err(ChargeError::Overloaded));
    assert_eq!(*log.lost.lock().unwrap(), [ChargeError::Overloaded]);
    under_way.judge();
    fake.next().await.judge();
    assert_eq!((first.await, one.await, two.await), (Ok(verdict(0)), Ok(verdict(1)), Ok(verdict(2))));
}

#[tokio::test]
async fn without_batching_each_charge_is_a_call_and_the_bound_holds() {
    let mut fake = Fake::start().await;
    let config = BatchConfig { batching: false, queue: 2, ..one_call_at_a_time() };
    let charger = fake.charger(config);
    let one = tokio::spawn(begin(&charger, 1));
    let first = fake.next().await;
    let two = tokio::spawn(begin(&charger, 2));
    let second = fake.next().await;
    assert_eq!((first.numbers(), second.numbers()), (vec![1], vec![2]));
    assert_eq!(charger.charge(&key(3)).await, Err(ChargeError::Overloaded));
    second.judge();
    first.judge();
    assert_eq!((one.await.unwrap(), two.await.unwrap()), (Ok(verdict(1)), Ok(verdict(2))));
}

#[tokio::test]
async fn the_demo_quota_is_charged_as_such() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(one_call_at_a_time());
    let charging = tokio::spawn(async move { charger.charge_demo().await });
    let exchange = fake.next().await;
    assert_eq!(exchange.charges(), [Charge { key_sha256: None, demo: Some(true) }]);
    exchange.json(200, r#"{"verdicts":[{"outcome":"allowed","limit":1000,"remaining":9,"reset":7}]}"#);
    assert_eq!(charging.await.unwrap().unwrap().remaining, Some(9));
}
