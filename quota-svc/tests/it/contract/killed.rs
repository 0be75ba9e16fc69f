//! A connection cut at each message between the store and Redis: a change is whole or absent, whatever its result, and the result
//! says nothing else. What Redis sees of a killed process is the same.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use quota_api::Event;
use quota_svc::store::StoreError;
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::redis::Redis;

use super::harness::Harness;
use super::write_faults::{LIMITS, STEPS, Snapshot, Step, Subjects};

/// The account with its keys, their events, and the names of all Redis keys, without the store's prefix.
type State = (Snapshot, Vec<Vec<Event>>, BTreeSet<String>);

async fn state(redis: &Redis, subjects: &Subjects, harness: &Harness) -> State {
    let (snapshot, events) = subjects.full_snapshot(&harness.store).await;
    let prefix = harness.prefix.as_deref().unwrap();
    let names = redis.cli(&["KEYS", &format!("{prefix}*")]).await;
    (snapshot, events, names.lines().map(|name| name.replacen(prefix, "", 1)).collect())
}

/// Makes the steps before `index`, and then that step while the connection is cut at a message. Returns whether
/// the step is applied and whether it failed; `None` if it had fewer messages. `states`: before each step, and after the last.
async fn cut_one(
    redis: &Redis,
    subjects: &Subjects,
    states: &[State],
    index: usize,
    message: u64,
) -> Option<(bool, bool)> {
    let step = STEPS[index];
    let context = format!("{step:?}, cut at message {message}");
    let direct = Harness::redis_with(&redis.url(), LIMITS).await;
    for earlier in &STEPS[..index] {
        subjects.run(*earlier, &direct).await.unwrap();
    }
    let proxy = FaultProxy::start(redis.addr());
    let other = direct.other_replica(&format!("redis://{}", proxy.addr()), LIMITS).await;
    proxy.set(Fault::CutAt(message));
    let result = subjects.run(step, &other).await;
    let is_cut = proxy.messages() > message;
    let state = state(redis, subjects, &direct).await;
    let is_applied = state == states[index + 1];
    assert!(
        is_applied || state == states[index],
        "{context}: {result:?} between {:?}\n{state:?}",
        &states[index..index + 2]
    );
    match &result {
        Ok(()) => assert!(is_applied, "{context}: confirmed"),
        Err(StoreError::Unavailable(_)) => assert!(!is_applied, "{context}: {result:?}"),
        Err(StoreError::Unconfirmed(_)) => {}
        Err(error) => panic!("{context}: {error:?}"),
    }
    assert!(is_cut || result.is_ok(), "{context}: {result:?} without a cut");
    is_cut.then_some((is_applied, result.is_err()))
}

/// Cuts a connection at each message of a step: the request and the reply of the load, those of the commit, and those of its
/// confirmation.
async fn cut_each(redis: &Redis, subjects: &Subjects, states: &[State], index: usize, confirms: bool) {
    let mut seen = Vec::new();
    while let Some(result) = cut_one(redis, subjects, states, index, seen.len() as u64).await {
        seen.push(result);
    }
    let (absent, hidden) = ((false, true), (true, true));
    let messages = if confirms && STEPS[index] != Step::AddSession { 6 } else { 4 };
    let expected: Vec<_> = (0..messages).map(|message| if message < 3 { absent } else { hidden }).collect();
    assert_eq!(seen, expected, "{:?}", STEPS[index]);
}

async fn check(redis: Redis, confirms: bool) {
    let subjects = Subjects::new();
    let reference = Harness::redis_with(&redis.url(), LIMITS).await;
    let mut states = vec![state(&redis, &subjects, &reference).await];
    for step in STEPS {
        subjects.run(step, &reference).await.unwrap();
        states.push(state(&redis, &subjects, &reference).await);
        assert_ne!(states[states.len() - 1], states[states.len() - 2], "{step:?}");
    }
    // A charge is no change of the account.
    let steps = (0..STEPS.len()).filter(|index| STEPS[*index] != Step::Pause);
    join_all(steps.map(|index| cut_each(&redis, &subjects, &states, index, confirms))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_cut_off_at_any_message_is_whole_or_absent_in_redis() {
    check(Redis::start().await, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_cut_off_at_any_message_is_whole_or_absent_in_valkey() {
    let Some(valkey) = Redis::valkey() else { return };
    check(valkey.start().await, true).await;
}
