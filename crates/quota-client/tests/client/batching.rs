//! Tests which charges share a call, which result each caller gets, and the queue limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quota_client::wire::Charge;
use quota_client::{BatchConfig, CallOutcome, ChargeError, Charger};
use tokio::task::JoinSet;

use crate::fake::{ChargeFuture, Exchange, Fake, Log, begin, charge, verdict};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

fn one_call_at_a_time() -> BatchConfig {
    BatchConfig { in_flight: 1, deadline: Duration::from_secs(10), ..BatchConfig::default() }
}

#[tokio::test]
async fn charges_queued_during_call_form_next_batch() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(fake.client().charge_service(), one_call_at_a_time(), log.clone());

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

fn calls_at_a_time(in_flight: usize, max_wait: Duration) -> BatchConfig {
    BatchConfig { in_flight, max_wait, ..one_call_at_a_time() }
}

/// Starts a call with the charges 0 and 1.
async fn call_with_two_charges(charger: &Charger, fake: &mut Fake) -> (Vec<ChargeFuture>, Exchange) {
    let charges = vec![begin(charger, 0), begin(charger, 1)];
    let call = fake.next().await;
    assert_eq!(call.numbers(), [0, 1]);
    (charges, call)
}

/// Lets the charger's task take what is queued. A runtime with one thread runs all tasks before this returns; a call that
/// begins may not have arrived yet.
async fn let_charger_run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn second_call_waits_until_it_has_as_many_charges_as_first() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(calls_at_a_time(2, LONG));
    let (mut charges, first) = call_with_two_charges(&charger, &mut fake).await;
    charges.push(begin(&charger, 2));
    let_charger_run().await;
    charges.push(begin(&charger, 3));
    let second = fake.next().await;
    assert_eq!(second.numbers(), [2, 3]);
    first.allow();
    second.allow();
    for (charge, number) in charges.into_iter().zip(0..) {
        assert_eq!(charge.await, Ok(verdict(number)));
    }
}

#[tokio::test]
async fn waiting_call_begins_when_all_other_calls_have_ended() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(calls_at_a_time(3, LONG));
    let (mut charges, first) = call_with_two_charges(&charger, &mut fake).await;
    charges.extend([begin(&charger, 2), begin(&charger, 3)]);
    let second = fake.next().await;
    assert_eq!(second.numbers(), [2, 3]);
    let waiting = begin(&charger, 4);
    first.allow();
    for (charge, number) in charges.drain(..2).zip(0..) {
        assert_eq!(charge.await, Ok(verdict(number)));
    }
    let_charger_run().await;
    assert!(!fake.has_more());
    second.allow();
    let third = fake.next().await;
    assert_eq!(third.numbers(), [4]);
    third.allow();
    for (charge, number) in charges.into_iter().chain([waiting]).zip(2..) {
        assert_eq!(charge.await, Ok(verdict(number)));
    }
}

#[tokio::test]
async fn waiting_call_takes_more_charges_than_it_waited_for() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(BatchConfig { max_batch: 4, ..calls_at_a_time(2, LONG) });
    let (_charges, _first) = call_with_two_charges(&charger, &mut fake).await;
    let _waiting = begin(&charger, 2);
    let_charger_run().await;
    let _more: Vec<_> = (3..=6).map(|number| begin(&charger, number)).collect();
    assert_eq!(fake.next().await.numbers(), [2, 3, 4, 5]);
}

#[tokio::test]
async fn canceled_charge_of_waiting_call_is_not_sent() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(calls_at_a_time(2, LONG));
    let (_charges, _first) = call_with_two_charges(&charger, &mut fake).await;
    let canceled = begin(&charger, 2);
    let_charger_run().await;
    drop(canceled);
    let _other = begin(&charger, 3);
    assert_eq!(fake.next().await.numbers(), [3]);
}

#[tokio::test]
async fn calls_wait_at_most_max_wait_if_another_call_hangs() {
    let mut fake = Fake::start().await;
    let max_wait = Duration::from_millis(500);
    let charger = fake.charger(calls_at_a_time(3, max_wait));
    let (_charges, _hanging) = call_with_two_charges(&charger, &mut fake).await;
    let started = Instant::now();
    let alone = begin(&charger, 2);
    let second = fake.next().await;
    assert_eq!(second.numbers(), [2]);
    assert!((max_wait..max_wait * 10).contains(&started.elapsed()), "{:?}", started.elapsed());
    second.allow();
    assert_eq!(alone.await, Ok(verdict(2)));
    // The next call has more charges than the second one, so it does not wait. The one after it waits again, although
    // the timer has already fired once.
    let _two = (begin(&charger, 3), begin(&charger, 4));
    let _third = fake.next().await;
    let _waiting = begin(&charger, 5);
    let_charger_run().await;
    let _other = begin(&charger, 6);
    assert_eq!(fake.next().await.numbers(), [5, 6]);
}

#[tokio::test]
async fn call_does_not_wait_if_no_other_is_in_flight() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(calls_at_a_time(2, LONG));
    let (charges, first) = call_with_two_charges(&charger, &mut fake).await;
    first.allow();
    for charge in charges {
        assert!(charge.await.is_ok());
    }
    let alone = begin(&charger, 2);
    let second = fake.next().await;
    assert_eq!(second.numbers(), [2]);
    second.allow();
    assert_eq!(alone.await, Ok(verdict(2)));
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
                assert_eq!(charger.charge(charge(number)).await, Ok(verdict(number)));
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
    let charger = Charger::new(fake.client().charge_service(), config, log.clone());
    let first = begin(&charger, 0);
    let first_call = fake.next().await;
    let (one, two) = (begin(&charger, 1), begin(&charger, 2));
    assert_eq!(charger.charge(charge(3)).await, Err(ChargeError::Overloaded));
    assert_eq!(*log.errors.lock().unwrap(), [ChargeError::Overloaded]);
    first_call.allow();
    fake.next().await.allow();
    assert_eq!((first.await, one.await, two.await), (Ok(verdict(0)), Ok(verdict(1)), Ok(verdict(2))));
}

#[tokio::test]
async fn demo_charge_is_sent_as_demo() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(one_call_at_a_time());
    let charge = tokio::spawn(async move { charger.charge(Charge::Demo).await });
    let exchange = fake.next().await;
    assert_eq!(exchange.charges(), [Charge::Demo]);
    exchange.verdicts(&[verdict(1000)]);
    assert_eq!(charge.await.unwrap(), Ok(verdict(1000)));
}
