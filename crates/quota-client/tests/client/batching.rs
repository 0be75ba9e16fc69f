//! Tests which charges share a call, which result each caller gets, and the queue limit.

use std::sync::Arc;

use quota_client::wire::Charge;
use quota_client::{BatchConfig, CallOutcome, ChargeError, Charger};
use tokio::task::JoinSet;

use crate::fake::{Fake, Log, begin, key, verdict};

fn one_call_at_a_time() -> BatchConfig {
    BatchConfig { in_flight: 1, deadline: std::time::Duration::from_secs(10), ..BatchConfig::default() }
}

#[tokio::test]
async fn charges_queued_during_call_form_next_batch() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(&fake.client(), one_call_at_a_time(), log.clone());

    let first = begin(&charger, 0);
    let first_call = fake.next().await;
    assert_eq!(first_call.numbers(), [0], "a single charge is sent immediately");
    let others: Vec<_> = (1..=100).map(|number| begin(&charger, number)).collect();
    first_call.allow();
    assert_eq!(first.await, Ok(verdict(0)));

    let full = fake.next().await;
    assert_eq!(full.numbers(), (1..=64).collect::<Vec<_>>());
    full.allow();
    let rest = fake.next().await;
    assert_eq!(rest.numbers(), (65..=100).collect::<Vec<_>>());
    rest.allow();
    for (charge, number) in others.into_iter().zip(1..) {
        assert_eq!(charge.await, Ok(verdict(number)));
    }
    let calls = log.calls.lock().unwrap();
    assert_eq!(calls.iter().map(|call| call.charges).collect::<Vec<_>>(), [1, 64, 36]);
    assert!(calls.iter().all(|call| call.outcome == CallOutcome::Answered));
}

#[tokio::test]
async fn calls_in_flight_stay_within_limit() {
    let mut fake = Fake::start().await;
    let config = BatchConfig { in_flight: 2, max_batch: 1, ..one_call_at_a_time() };
    let charger = fake.charger(config);
    let charges: Vec<_> = (0..3).map(|number| begin(&charger, number)).collect();
    let (one, two) = (fake.next().await, fake.next().await);
    assert!(!fake.has_more());
    one.allow();
    fake.next().await.allow();
    two.allow();
    for (charge, number) in charges.into_iter().zip(0..) {
        assert_eq!(charge.await, Ok(verdict(number)));
    }
}

#[tokio::test]
async fn extra_calls_are_made_with_full_batches_up_to_their_limit() {
    let mut fake = Fake::start().await;
    let config = BatchConfig { extra_in_flight: 2, max_batch: 3, ..one_call_at_a_time() };
    let charger = fake.charger(config);
    let mut charges = vec![begin(&charger, 0)];
    let first = fake.next().await;
    charges.extend((1..=14).map(|number| begin(&charger, number)));
    first.allow();
    // One regular call and two extra ones. They arrive on different connections, in any order.
    let mut calls = vec![fake.next().await, fake.next().await, fake.next().await];
    calls.sort_by_key(|call| call.numbers());
    assert_eq!(
        calls.iter().map(|call| call.numbers()).collect::<Vec<_>>(),
        [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    );
    // The regular call is the first one. When it ends, a full batch is queued, but all extra calls are in flight.
    calls.remove(0).allow();
    let next = fake.next().await;
    assert_eq!(next.numbers(), [10, 11, 12]);
    // Now extra calls are free again, but two charges are no full batch: they wait for the regular call.
    calls.into_iter().for_each(|call| call.allow());
    for charge in charges.drain(..10) {
        assert!(charge.await.is_ok());
    }
    assert!(!fake.has_more());
    next.allow();
    let last = fake.next().await;
    assert_eq!(last.numbers(), [13, 14]);
    last.allow();
    for (charge, number) in charges.into_iter().zip(10..) {
        assert_eq!(charge.await, Ok(verdict(number)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_callers_get_their_own_verdicts() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(BatchConfig { in_flight: 4, ..one_call_at_a_time() });
    tokio::spawn(async move {
        loop {
            fake.next().await.allow();
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
async fn canceled_queued_charge_is_not_sent() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(one_call_at_a_time());
    let first = begin(&charger, 0);
    let first_call = fake.next().await;
    let (one, two, three) = (begin(&charger, 1), begin(&charger, 2), begin(&charger, 3));
    drop(two);
    first_call.allow();
    let next = fake.next().await;
    assert_eq!(next.numbers(), [1, 3]);
    next.allow();
    assert_eq!((first.await, one.await, three.await), (Ok(verdict(0)), Ok(verdict(1)), Ok(verdict(3))));
}

#[tokio::test]
async fn charge_canceled_in_flight_affects_no_other() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(one_call_at_a_time());
    let charges: Vec<_> = (0..3).map(|number| begin(&charger, number)).collect();
    let first_call = fake.next().await;
    assert_eq!(first_call.numbers(), [0, 1, 2]);
    let mut charges = charges.into_iter();
    drop(charges.next());
    first_call.allow();
    for (charge, number) in charges.zip(1..) {
        assert_eq!(charge.await, Ok(verdict(number)));
    }
}

#[tokio::test]
async fn charge_fails_immediately_if_queue_is_full() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let config = BatchConfig { queue_capacity: 2, ..one_call_at_a_time() };
    let charger = Charger::new(&fake.client(), config, log.clone());
    let first = begin(&charger, 0);
    let first_call = fake.next().await;
    let (one, two) = (begin(&charger, 1), begin(&charger, 2));
    assert_eq!(charger.charge(&key(3)).await, Err(ChargeError::Overloaded));
    assert_eq!(*log.errors.lock().unwrap(), [ChargeError::Overloaded]);
    first_call.allow();
    fake.next().await.allow();
    assert_eq!((first.await, one.await, two.await), (Ok(verdict(0)), Ok(verdict(1)), Ok(verdict(2))));
}

#[tokio::test]
async fn demo_charge_sets_demo_field() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(one_call_at_a_time());
    let charge = tokio::spawn(async move { charger.charge_demo().await });
    let exchange = fake.next().await;
    assert_eq!(exchange.charges(), [Charge { key_sha256: None, demo: Some(true) }]);
    exchange.json(200, r#"{"verdicts":[{"outcome":"allowed","limit":1000,"remaining":9,"reset":7}]}"#);
    assert_eq!(charge.await.unwrap().unwrap().remaining, Some(9));
}
