//! Replicas of quota-svc that share a Redis.

use futures_util::future::join_all;
use quota_api::{Limits, Outcome, Rejection, Scope};
use quota_svc::store::StoreError;
use testkit::redis::Redis;

use super::harness::Harness;

#[tokio::test]
async fn replicas_with_different_burst_limits_share_the_window() {
    let redis = Redis::start().await;
    let high = Harness::redis(&redis.url()).await;
    let low = high.other_replica(&redis.url(), Limits { burst: 20, ..Limits::default() }).await;
    let key = high.key().await;
    for turn in 0..20 {
        let replica = if turn % 2 == 0 { &high } else { &low };
        assert_eq!(replica.outcome(key).await, Outcome::Allowed);
    }
    assert_eq!(high.outcome(key).await, Outcome::Allowed, "21 of 300");
    assert_eq!(low.outcome(key).await, Outcome::BurstExceeded, "22 of 20");
}

/// Within a process, changes of an account queue, so only those of different replicas conflict.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_of_two_replicas_are_all_kept_and_stop_at_ten_keys() {
    let redis = Redis::start().await;
    let first = Harness::redis(&redis.url()).await;
    let second = first.other_replica(&redis.url(), Limits::default()).await;
    let account = first.account().await;
    let creations = (0..30).map(|n| [&first, &second][n % 2].key_in(account, Scope::Full, None));
    let mut created = Vec::new();
    for result in join_all(creations).await {
        match result {
            Ok(key) => created.push(key),
            Err(error) => {
                assert!(matches!(error, StoreError::Rejected(Rejection::KeyLimitReached)), "{error}")
            }
        }
    }
    let mut listed: Vec<_> =
        second.store.keys(account).await.unwrap().keys.iter().map(|key| key.meta.id()).collect();
    listed.sort_unstable();
    created.sort_unstable();
    assert_eq!(created.len(), 10);
    assert_eq!(listed, created);
}
