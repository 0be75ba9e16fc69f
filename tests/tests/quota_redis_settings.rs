//! quota-svc reads the server's settings at connect. Settings that endanger the data keep it from becoming ready, but do
//! not stop a process that was ready before.

use std::time::Duration;

use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use testkit::wait::eventually_ok;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

async fn wait_not_ready(quota: &Quota, reason: &str) {
    eventually_ok(WAIT_TIMEOUT, "not ready, with the reason", async || match quota.readiness().await {
        (503, body) if body.contains(reason) => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    })
    .await;
}

async fn wait_for_log(quota: &Quota, level: &str, text: &str) {
    eventually_ok(WAIT_TIMEOUT, format!("{level} with {text:?} in the log"), async || {
        let logs = quota.service.logs();
        let found = logs.lines().any(|line| line.contains(level) && line.contains(text));
        if found { Ok(()) } else { Err(logs) }
    })
    .await;
}

#[tokio::test]
async fn evicting_redis_is_not_ready_until_its_policy_changes() {
    let redis =
        Redis::options().directive("maxmemory 100mb").directive("maxmemory-policy allkeys-lru").start().await;
    let quota = Quota::start(&redis).await;
    wait_not_ready(&quota, "allkeys-lru").await;
    wait_for_log(&quota, "ERROR", "allkeys-lru").await;
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    quota.new_key().await;
    // Found later: the process stays ready.
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"]).await;
    assert_eq!(quota.metric("quota_store_unsafe_settings", "").await, 0.0);
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    wait_for_log(&quota, "ERROR", "allkeys-lfu").await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    eventually_ok(WAIT_TIMEOUT, "the metric is 1", async || {
        let value = quota.metric("quota_store_unsafe_settings", "").await;
        if value == 1.0 { Ok(()) } else { Err(value) }
    })
    .await;
    quota.new_key().await;
}

#[tokio::test]
async fn read_only_replica_is_not_ready_until_promoted() {
    let master = Redis::start().await;
    let replica_of = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Redis::options().directive(&replica_of).start().await;
    let quota = Quota::start(&replica).await;
    wait_not_ready(&quota, "read-only replica").await;
    replica.cli(&["REPLICAOF", "NO", "ONE"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
}

#[tokio::test]
async fn volatile_eviction_and_unreadable_settings_only_give_a_warning() {
    let volatile = Redis::options()
        .directive("maxmemory 100mb")
        .directive("maxmemory-policy volatile-lru")
        .start()
        .await;
    let quota = Quota::start(&volatile).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    wait_for_log(&quota, "WARN", "volatile-lru").await;
    let secured =
        Redis::options().user("quota", "secret", "~secured:* resetchannels +@all -info").start().await;
    let url = secured.url().replace("redis://", "redis://quota:secret@");
    let quota = Quota::start(StoreChoice::Redis { url, prefix: "secured:".to_owned() }).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    wait_for_log(&quota, "WARN", "can't read the settings").await;
    let unlimited = Redis::options().directive("maxmemory-policy allkeys-lru").start().await;
    let quota = Quota::start(&unlimited).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    assert!(!quota.service.logs().contains("settings"), "no memory limit: nothing is evicted");
}
