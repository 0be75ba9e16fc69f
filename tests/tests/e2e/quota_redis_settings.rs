//! quota-svc reads the server's settings at connect. Settings that endanger the data keep it from becoming ready, but do
//! not stop a process that was ready before.

use std::time::Duration;

use testkit::process::Service;
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
async fn redis_without_persistence_gives_a_warning_and_sets_the_metric() {
    let redis = Redis::options().directive("save \"\"").start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    wait_for_log(&quota, "WARN", "no persistence").await;
    eventually_ok(WAIT_TIMEOUT, "the metric is 1", async || {
        let value = quota.metric("quota_store_unsafe_settings", "").await;
        if value == 1.0 { Ok(()) } else { Err(value) }
    })
    .await;
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

/// lookup-svc and dashboard-api become ready only after the store has passed the check of its settings, and then stay
/// ready: a rollout with a wrong store stops, but an outage does not take every pod out of the Service.
#[tokio::test]
async fn clients_become_ready_with_a_safe_store_and_stay_ready() {
    let mut redis =
        Redis::options().directive("maxmemory 100mb").directive("maxmemory-policy allkeys-lru").start().await;
    let quota = Quota::start(&redis).await;
    let local = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--quota-url", quota.url()];
    let dir = tempfile::tempdir().expect("temporary directory");
    let key = dir.path().join("session.key");
    std::fs::write(&key, [7; 32]).expect("the session key is saved");
    let dashboard = ["--insecure-cookies", "--session-key-file", key.to_str().expect("UTF-8")];
    let mut services = Vec::new();
    for (program, flags) in [("lookup-svc", &[][..]), ("dashboard-api", &dashboard)] {
        let mut service = Service::spawn(program, &[&local, flags].concat(), &[]);
        let url = format!("http://{}/readyz", service.listen_addr("admin").await);
        wait_for_readyz(&url, 503, "allkeys-lru").await;
        services.push((service, url));
    }
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    for (_, url) in &services {
        wait_for_readyz(url, 200, "reached at start").await;
    }
    redis.stop();
    wait_not_ready(&quota, "").await;
    for (_, url) in &services {
        wait_for_readyz(url, 200, "reached at start").await;
    }
}

async fn wait_for_readyz(url: &str, status: u16, text: &str) {
    eventually_ok(WAIT_TIMEOUT, format!("{url} responds with {status} and {text:?}"), async || {
        let response = testkit::http::client().get(url).send().await.map_err(|error| error.to_string())?;
        let (current, body) = (response.status().as_u16(), response.text().await.unwrap_or_default());
        if current == status && body.contains(text) { Ok(()) } else { Err(format!("{current} {body}")) }
    })
    .await;
}
