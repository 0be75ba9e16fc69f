//! Masters of a Cluster with different clocks, and replicas of quota-svc with different limits.

use std::time::Duration;

use quota_api::{Limits, Outcome, Scope};
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::redis::Redis;
use testkit::wait::eventually;

use super::harness::Harness;

const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until a Redis key with this ending exists.
async fn wait_for(redis: &Redis, ending: &str) {
    eventually(WAIT_TIMEOUT, ending, async || {
        let found = redis.cli(&["--scan", "--pattern", &format!("*{ending}")]).await;
        (!found.is_empty()).then_some(())
    })
    .await;
}

/// The clock is set to another time between the calls, as if the record were on a master whose clock is 45 s ahead.
#[tokio::test]
async fn key_is_created_on_a_master_whose_clock_is_ahead() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.addr());
    let harness = Harness::redis(&format!("redis://{}", proxy.addr())).await;
    let account = harness.account().await;
    proxy.set(Fault::Delay(Duration::from_millis(700)));
    let adjust_clock = async {
        wait_for(&redis, ":p").await;
        harness.advance(45_000);
        wait_for(&redis, ":k").await;
        harness.advance(-45_000);
    };
    let (created, ()) = tokio::join!(harness.key_in(account, Scope::Full, None), adjust_clock);
    let created = created.expect("the clocks of the masters don't matter");
    proxy.set(Fault::None);
    let listed = harness.store.keys(account).await.unwrap();
    assert_eq!(listed.keys.iter().map(|key| key.meta.id()).collect::<Vec<_>>(), [created]);
}

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
