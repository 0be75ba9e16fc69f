//! Service clocks that are five minutes off change nothing: the store's clock counts.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use e2e::quota::{Quota, StoreChoice};
use e2e::redis::Redis;
use e2e::tools;
use quota_client::wire::{EventKind, Outcome};

async fn start_off_by(offset: &str, store: &StoreChoice) -> Option<Quota> {
    let wrapper = tools::faketime(offset)?;
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    let quota = Quota::start_under(&wrapper, store.clone(), &["--store-timeout", "5s"]).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    Some(quota)
}

/// The day's end after now, in Unix seconds.
fn midnight() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    (now / 86_400 + 1) * 86_400
}

#[tokio::test]
async fn replicas_whose_clocks_are_ten_minutes_apart_agree_to_the_last_request() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let Some(early) = start_off_by("-5m", &store).await else { return };
    let Some(late) = start_off_by("+5m", &store).await else { return };
    let behind = early.service.logs();
    let ahead = late.service.logs();
    assert_ne!(behind.get(14..30), ahead.get(14..30), "the clocks are really apart: {behind}{ahead}");
    let (before, key) = (midnight(), early.new_key().await);
    let clients = [early.client(), late.client()];
    let mut verdicts = Vec::new();
    for turn in 0..61 {
        let answer = clients[turn % 2].charge(&key.charges(5)).await.unwrap();
        verdicts.extend(answer.verdicts);
    }
    let allowed = verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Allowed);
    let left: Vec<u32> = allowed.clone().map(|verdict| verdict.remaining.unwrap()).collect();
    if midnight() == before {
        let expected: Vec<u32> = (9_700..10_000).rev().collect();
        assert_eq!(left, expected, "no second reset, no gap, never negative");
        assert!(allowed.clone().all(|verdict| verdict.reset == Some(before)), "the store's midnight");
    }
    let others: Vec<_> = verdicts[300..].iter().map(|verdict| verdict.outcome).collect();
    assert_eq!((others[0], others.len()), (Outcome::BurstExceeded, 5));
    assert!(others[1..].iter().all(|outcome| *outcome == Outcome::Paused), "{others:?}");
    assert_eq!(key.events(&clients[1], EventKind::Paused).await, 1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let reset = verdicts[300].reset.unwrap();
    assert!(reset.abs_diff(now + 60) < 20, "the pause's reset is by the store's clock: {reset} at {now}");
}
