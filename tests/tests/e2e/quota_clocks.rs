//! Replicas whose clocks are wrong by five minutes count correctly, because only the store's clock is used.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quota_client::wire::{EventKind, Outcome};
use testkit::quota::{Quota, StoreChoice, rate_limit};
use testkit::redis::Redis;
use testkit::tools;

async fn start_with_clock_offset(offset: &str, store: &StoreChoice) -> Option<Quota> {
    let wrapper = tools::faketime(offset)?;
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    let quota = Quota::start_under(&wrapper, store.clone(), &["--store-timeout", "5s"]).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    Some(quota)
}

/// The next midnight UTC, in Unix seconds.
fn next_midnight() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    (now / 86_400 + 1) * 86_400
}

#[tokio::test]
async fn replicas_with_clocks_ten_minutes_apart_agree() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let Some(behind) = start_with_clock_offset("-5m", &store).await else { return };
    let Some(ahead) = start_with_clock_offset("+5m", &store).await else { return };
    let (behind_log, ahead_log) = (behind.service.logs(), ahead.service.logs());
    // The first log line's timestamp, to the minute.
    assert_ne!(behind_log.get(14..30), ahead_log.get(14..30), "the clocks differ: {behind_log}{ahead_log}");
    let (reset, key) = (next_midnight(), behind.new_key().await);
    let clients = [behind.client(), ahead.client()];
    let mut verdicts = Vec::new();
    for turn in 0..61 {
        verdicts.extend(clients[turn % 2].charge(&key.charges(5)).await.unwrap());
    }
    let allowed = verdicts.iter().filter(|verdict| verdict.outcome() == Outcome::Allowed);
    let limits: Vec<_> = allowed.filter_map(rate_limit).collect();
    // Not checked if midnight UTC passed during the test, because the quota was reset then.
    if next_midnight() == reset {
        let expected: Vec<u32> = (9_700..10_000).rev().collect();
        let remaining: Vec<_> = limits.iter().map(|limit| limit.remaining).collect();
        assert_eq!(remaining, expected, "no second reset, no gap, never negative");
        assert!(limits.iter().all(|limit| limit.reset == reset), "the reset is the store's midnight");
    }
    let denials: Vec<_> = verdicts[300..].iter().map(|verdict| verdict.outcome()).collect();
    assert_eq!((denials[0], denials.len()), (Outcome::BurstExceeded, 5));
    assert!(denials[1..].iter().all(|outcome| *outcome == Outcome::Paused), "{denials:?}");
    assert_eq!(key.events(&clients[1], EventKind::Paused).await, 1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let pause_reset = rate_limit(&verdicts[300]).unwrap().reset;
    assert!(
        pause_reset.abs_diff(now + 60) < 20,
        "the pause's reset uses the store's clock: {pause_reset} at {now}"
    );
}
