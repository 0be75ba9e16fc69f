//! What Redis answers when it can't serve, and records that are not what they should be: typed errors, no panic.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use e2e::quota::{Quota, StoreChoice, TestKey, outcome_of};
use e2e::redis::Redis;
use e2e::wait::{eventually, eventually_ok};
use quota_client::ClientError;
use quota_client::wire::{NewAccount, Outcome, Rename};

const PATIENCE: Duration = Duration::from_secs(20);
const RECOVERED_WITHIN: Duration = Duration::from_secs(2);

async fn ready(store: impl Into<StoreChoice>) -> Quota {
    let quota = Quota::start(store).await;
    quota.wait_ready(PATIENCE).await;
    quota
}

async fn outcome_becomes(quota: &Quota, key: &TestKey, wanted: &str) {
    let client = quota.client();
    eventually_ok(RECOVERED_WITHIN, format!("the outcome {wanted}"), async || {
        let outcome = outcome_of(&client.charge(&key.charges(1)).await);
        if outcome == wanted { Ok(()) } else { Err(outcome) }
    })
    .await;
}

async fn create_account(quota: &Quota) -> Result<(), ClientError> {
    let account = NewAccount { login: "somebody".to_owned(), credential: None };
    quota.client().create_account(&account).await.map(drop)
}

/// Charges and changes are refused as they should be while the store can't take writes.
async fn check_refused(quota: &Quota, key: &TestKey) {
    outcome_becomes(quota, key, "Unavailable").await;
    let refused = create_account(quota).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(503), Some("store_unavailable")));
    assert!(quota.metric("quota_charges_total", "unavailable").await > 0.0);
}

async fn check_recovered(mut quota: Quota, key: &TestKey) {
    outcome_becomes(&quota, key, "Allowed").await;
    eventually_ok(RECOVERED_WITHIN, "changes are taken again", async || create_account(&quota).await).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn redis_out_of_memory_refuses_and_recovers() {
    let redis = Redis::start().await;
    let quota = ready(&redis).await;
    let key = quota.new_key().await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    check_refused(&quota, &key).await;
    assert!(quota.service.logs().contains("OOM"), "{}", quota.service.logs());
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]).await;
    check_recovered(quota, &key).await;
}

#[tokio::test]
async fn a_server_that_became_a_replica_refuses_and_recovers() {
    let redis = Redis::start().await;
    let quota = ready(&redis).await;
    let key = quota.new_key().await;
    // Nobody listens on port 1: READONLY. Without stale data it answers MASTERDOWN instead.
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]).await;
    check_refused(&quota, &key).await;
    assert!(quota.service.logs().contains("ReadOnly"), "{}", quota.service.logs());
    redis.cli(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    check_refused(&quota, &key).await;
    redis.cli(&["REPLICAOF", "NO", "ONE"]).await;
    check_recovered(quota, &key).await;
}

#[tokio::test]
async fn redis_that_is_loading_its_data_refuses_and_recovers() {
    let options = Redis::options().appendonly().directive("loading-process-events-interval-bytes 1024");
    let mut redis = options.start().await;
    let quota = ready(&redis).await;
    let key = quota.new_key().await;
    let fill = "for i = 1, 15000 do redis.call('SET', 'filler' .. i, i) end";
    redis.cli(&["EVAL", fill, "0"]).await;
    redis.cli(&["CONFIG", "SET", "key-load-delay", "100"]).await;
    redis.cli(&["CONFIG", "REWRITE"]).await;
    let log = redis.dir().join("redis.log");
    redis.stop();
    let loading = async {
        eventually(PATIENCE, "quota-svc is told that Redis is loading", async || {
            let _ = quota.client().charge(&key.charges(1)).await;
            quota.readiness().await.1.contains("no connection").then_some(())
        })
        .await;
        check_refused(&quota, &key).await;
    };
    tokio::join!(redis.restart(), loading);
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("DB loaded"), "{log}");
    check_recovered(quota, &key).await;
}

/// The record's bytes, as a digest: redis-cli can't print them.
async fn fingerprint(redis: &Redis, name: &str) -> String {
    redis.cli(&["EVAL", "return redis.sha1hex(redis.call('GET', KEYS[1]))", "1", name]).await
}

/// The broken key alone is refused, in a batch with a good one too, and the log says so.
async fn check_only_refused(quota: &Quota, broken: &TestKey, good: &TestKey) {
    let mut batch = good.charges(1);
    batch.charges.extend(broken.charges(1).charges);
    batch.charges.extend(good.charges(1).charges);
    let verdicts = quota.client().charge(&batch).await.unwrap().verdicts;
    let outcomes: Vec<_> = verdicts.iter().map(|verdict| verdict.outcome).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Unavailable, Outcome::Allowed]);
    let logged = async || {
        let logs = quota.service.logs();
        logs.lines().any(|line| line.contains("WARN") && line.contains(&broken.key.id)).then_some(())
    };
    eventually(RECOVERED_WITHIN, "a log line about that key", logged).await;
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_unavailable_and_never_rewritten() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let quota = ready(store.clone()).await;
    let (newer, good) = (quota.new_key().await, quota.new_key().await);
    let name = newer.redis_name(store.prefix(), "k");
    redis.cli(&["EVAL", "return redis.call('SETRANGE', KEYS[1], 0, string.char(2))", "1", &name]).await;
    let before = fingerprint(&redis, &name).await;
    check_only_refused(&quota, &newer, &good).await;
    let (client, id) = (quota.client(), newer.key.id.as_str());
    let rename = Rename { name: "other".to_owned() };
    for refused in [
        client.deactivate_key(id, None).await,
        client.resume_key(id, None).await,
        client.rename_key(id, None, &rename).await,
        client.key(id, None).await,
    ] {
        assert_eq!(refused.unwrap_err().status(), Some(500));
    }
    assert_eq!(newer.charge(&client, 3).await, [Outcome::Unavailable; 3]);
    assert_eq!(fingerprint(&redis, &name).await, before, "not one byte was changed");
}

#[tokio::test]
async fn a_short_record_and_one_of_another_type_refuse_that_key_only() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    for (i, setup) in
        [&["SET", "NAME", "\u{1}cut off"][..], &["SET", "NAME", "\u{1}"], &["LPUSH", "NAME", "a list"]]
            .into_iter()
            .enumerate()
    {
        // Each case in a process of its own: complaints are bounded to one a second.
        let quota = ready(store.clone()).await;
        let (broken, good) = (quota.new_key().await, quota.new_key().await);
        let name = broken.redis_name(store.prefix(), "k");
        redis.cli(&["DEL", &name]).await;
        let command: Vec<_> =
            setup.iter().map(|part| if *part == "NAME" { name.as_str() } else { part }).collect();
        redis.cli(&command).await;
        check_only_refused(&quota, &broken, &good).await;
        let refused = quota.client().key(&broken.key.id, None).await.unwrap_err();
        assert_eq!((refused.status(), refused.code()), (Some(500), Some("internal_error")), "case {i}");
        quota.client().delete_key(&broken.key.id, None).await.unwrap();
        assert_eq!(broken.charge(&quota.client(), 1).await, [Outcome::UnknownKey]);
        assert!(!quota.service.logs().contains("panic"));
    }
}

#[tokio::test]
async fn a_damaged_ring_refuses_that_key_only() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let cut_off = "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 170))";
    // More arrivals than places: such a ring would never be full.
    let overfull = "redis.call('SETRANGE', KEYS[1], 38, struct.pack('<I2', 9))";
    let astray = "redis.call('SETRANGE', KEYS[1], 40, struct.pack('<I2', 8))";
    for damage in [cut_off, overfull, astray] {
        let quota = ready(store.clone()).await;
        let (broken, good) = (quota.new_key().await, quota.new_key().await);
        // As many as the ring has places at first, so that the next one looks at the oldest.
        assert_eq!(broken.charge(&quota.client(), 8).await, [Outcome::Allowed; 8]);
        let name = broken.redis_name(store.prefix(), "k");
        let record = ["EVAL", "return redis.sha1hex(redis.call('GET', KEYS[1]))", "1", &name];
        redis.cli(&["EVAL", damage, "1", &name]).await;
        let damaged = redis.cli(&record).await;
        check_only_refused(&quota, &broken, &good).await;
        assert_eq!(redis.cli(&record).await, damaged, "what can't be read is not written");
        let refused = quota.client().key(&broken.key.id, None).await.unwrap_err();
        assert_eq!((refused.status(), refused.code()), (Some(500), Some("internal_error")), "{damage}");
    }
}
