//! Error replies from Redis and damaged records: typed errors, no panic, automatic recovery.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::slice::from_ref;
use std::time::Duration;

use quota_client::ClientError;
use quota_client::wire::{Charge, NewAccount, Outcome, SettingsChange, StateChange};
use testkit::quota::{Quota, StoreChoice, TestKey, first_outcome, remaining};
use testkit::redis::Redis;
use testkit::wait::{eventually, eventually_ok};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);

async fn start(store: impl Into<StoreChoice>) -> Quota {
    let quota = Quota::start(store).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    quota
}

async fn wait_for_outcome(quota: &Quota, key: &TestKey, expected: &str) {
    let client = quota.client();
    eventually_ok(RECOVERY_TIMEOUT, format!("outcome {expected}"), async || {
        let outcome = first_outcome(&client.charge(&key.charges(1)).await);
        if outcome == expected { Ok(()) } else { Err(outcome) }
    })
    .await;
}

async fn create_account(quota: &Quota) -> Result<(), ClientError> {
    let account = NewAccount { login: "new-account".to_owned(), credential: None };
    quota.client().create_account(&account).await.map(drop)
}

/// While the store can't accept writes, charges are `unavailable` and changes get 503.
async fn check_unavailable(quota: &Quota, key: &TestKey) {
    wait_for_outcome(quota, key, "Unavailable").await;
    let error = create_account(quota).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(503), Some("store_unavailable")));
    assert!(quota.metric("quota_charges_total", "unavailable").await > 0.0);
}

/// Waits until the log has a text: the program writes it before it responds, but it is read by another thread.
async fn wait_for_log(quota: &Quota, text: &str) {
    let find = async || quota.service.logs().contains(text).then_some(());
    eventually(RECOVERY_TIMEOUT, text, find).await;
}

async fn check_recovered(mut quota: Quota, key: &TestKey) {
    wait_for_outcome(&quota, key, "Allowed").await;
    eventually_ok(RECOVERY_TIMEOUT, "changes succeed again", async || create_account(&quota).await).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn redis_oom_is_unavailable_until_memory_is_free() {
    let redis = Redis::start().await;
    let quota = start(&redis).await;
    let key = quota.new_key().await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    check_unavailable(&quota, &key).await;
    wait_for_log(&quota, "OOM").await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]).await;
    check_recovered(quota, &key).await;
}

#[tokio::test]
async fn redis_replica_is_unavailable_until_promoted() {
    let redis = Redis::start().await;
    let quota = start(&redis).await;
    let key = quota.new_key().await;
    // No master listens on port 1. Writes get READONLY, or MASTERDOWN with `replica-serve-stale-data no`.
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]).await;
    check_unavailable(&quota, &key).await;
    wait_for_log(&quota, "ReadOnly").await;
    redis.cli(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    check_unavailable(&quota, &key).await;
    redis.cli(&["REPLICAOF", "NO", "ONE"]).await;
    check_recovered(quota, &key).await;
}

#[tokio::test]
async fn loading_redis_is_unavailable_until_loaded() {
    let options = Redis::options().appendonly().directive("loading-process-events-interval-bytes 1024");
    let mut redis = options.start().await;
    let quota = start(&redis).await;
    let key = quota.new_key().await;
    let fill = "for i = 1, 15000 do redis.call('SET', 'filler' .. i, i) end";
    redis.cli(&["EVAL", fill, "0"]).await;
    redis.cli(&["CONFIG", "SET", "key-load-delay", "100"]).await;
    redis.cli(&["CONFIG", "REWRITE"]).await;
    let log = redis.dir().join("redis.log");
    redis.stop();
    let loading = async {
        eventually(WAIT_TIMEOUT, "quota-svc has no connection while Redis loads", async || {
            let _ = quota.client().charge(&key.charges(1)).await;
            quota.readiness().await.1.contains("no connection").then_some(())
        })
        .await;
        check_unavailable(&quota, &key).await;
    };
    tokio::join!(redis.restart(), loading);
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("DB loaded"), "{log}");
    check_recovered(quota, &key).await;
}

/// SHA-1 of a record, because redis-cli can't print its bytes.
async fn fingerprint(redis: &Redis, redis_key: &str) -> String {
    redis.cli(&["EVAL", "return redis.sha1hex(redis.call('GET', KEYS[1]))", "1", redis_key]).await
}

/// Charges a batch of a good and a broken key: only the broken key is `unavailable`, and a warning names it.
async fn check_only_broken_key_fails(quota: &Quota, broken: &TestKey, good: &TestKey) {
    let mut batch = good.charges(1);
    batch.extend(broken.charges(1));
    batch.extend(good.charges(1));
    let verdicts = quota.client().charge(&batch).await.unwrap();
    let outcomes: Vec<_> = verdicts.iter().map(|verdict| verdict.outcome()).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Unavailable, Outcome::Allowed]);
    let logged = async || {
        let logs = quota.service.logs();
        logs.lines().any(|line| line.contains("WARN") && line.contains(&broken.key.id)).then_some(())
    };
    eventually(RECOVERY_TIMEOUT, "a warning with the key's ID", logged).await;
}

#[tokio::test]
async fn newer_record_version_is_unavailable_and_not_rewritten() {
    let redis = Redis::start().await;
    let quota = start(&redis).await;
    let (newer, good) = (quota.new_key().await, quota.new_key().await);
    let redis_key = newer.record(from_ref(&redis)).await;
    redis.cli(&["EVAL", "return redis.call('SETRANGE', KEYS[1], 0, string.char(2))", "1", &redis_key]).await;
    let before = fingerprint(&redis, &redis_key).await;
    check_only_broken_key_fails(&quota, &newer, &good).await;
    let (client, id) = (quota.client(), newer.key.id.as_str());
    let rename = SettingsChange::rename("other");
    for result in [
        client.change_state(id, None, StateChange::Deactivate).await,
        client.change_state(id, None, StateChange::Resume).await,
        client.change_key(id, None, &rename).await,
        client.key(id, None).await,
    ] {
        assert_eq!(result.unwrap_err().status(), Some(500));
    }
    assert_eq!(newer.charge(&client, 3).await, [Outcome::Unavailable; 3]);
    assert_eq!(fingerprint(&redis, &redis_key).await, before, "the record is unchanged");
}

#[tokio::test]
async fn truncated_record_or_wrong_type_fails_only_its_key() {
    let redis = Redis::start().await;
    for (i, setup) in
        [&["SET", "KEY", "\u{1}truncated"][..], &["SET", "KEY", "\u{1}"], &["LPUSH", "KEY", "a list"]]
            .into_iter()
            .enumerate()
    {
        // A new process per case, because a process logs the warning about a broken key only once per 10 s.
        let quota = start(&redis).await;
        let (broken, good) = (quota.new_key().await, quota.new_key().await);
        let redis_key = broken.record(from_ref(&redis)).await;
        redis.cli(&["DEL", &redis_key]).await;
        let command: Vec<_> =
            setup.iter().map(|part| if *part == "KEY" { redis_key.as_str() } else { part }).collect();
        redis.cli(&command).await;
        check_only_broken_key_fails(&quota, &broken, &good).await;
        let error = quota.client().key(&broken.key.id, None).await.unwrap_err();
        assert_eq!((error.status(), error.code()), (Some(500), Some("unreadable_key")), "case {i}");
        quota.client().delete_key(&broken.key.id, None).await.unwrap();
        assert_eq!(broken.charge(&quota.client(), 1).await, [Outcome::UnknownKey]);
        assert!(!quota.service.logs().contains("panic"));
    }
}

#[tokio::test]
async fn damaged_header_or_ring_fails_only_its_key() {
    let redis = Redis::start().await;
    let truncated = "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 170))";
    // More arrivals than the ring's capacity: a check for equality would never find this ring full.
    let overfull = "redis.call('SETRANGE', KEYS[1], 42, struct.pack('<I2', 9))";
    // The index of the oldest arrival is outside the ring.
    let bad_index = "redis.call('SETRANGE', KEYS[1], 44, struct.pack('<I2', 8))";
    // The latest arrival is ahead of the clock, so the next charge moves the window back.
    let ahead = "redis.call('SETRANGE', KEYS[1], 28, struct.pack('<I8', 4e12))";
    let damaged_and_ahead = [truncated, bad_index].map(|damage| format!("{ahead} {damage}"));
    let cut_header = "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 47))";
    // The script's reply has two bits for the scope, so these would be read as another outcome or limit.
    let bad_scopes = [3, 8, 200].map(|n| format!("redis.call('SETRANGE', KEYS[1], 1, string.char({n}))"));
    let bad_state = "redis.call('SETRANGE', KEYS[1], 2, string.char(3))";
    let bad_version = "redis.call('SETRANGE', KEYS[1], 0, string.char(0))";
    let paused_with_bad_scope = "redis.call('SETRANGE', KEYS[1], 1, string.char(3, 1))";
    let paused_and_overfull = format!("redis.call('SETRANGE', KEYS[1], 2, string.char(1)) {overfull}");
    let damages = [
        truncated,
        overfull,
        bad_index,
        cut_header,
        bad_state,
        bad_version,
        paused_with_bad_scope,
        &paused_and_overfull,
    ];
    let more = bad_scopes.iter().chain(&damaged_and_ahead).map(String::as_str);
    for damage in damages.into_iter().chain(more) {
        let quota = start(&redis).await;
        let (broken, good) = (quota.new_key().await, quota.new_key().await);
        // Fills the ring's initial capacity, so that the next charge reads the oldest arrival.
        assert_eq!(broken.charge(&quota.client(), 8).await, [Outcome::Allowed; 8]);
        let redis_key = broken.record(from_ref(&redis)).await;
        redis.cli(&["EVAL", damage, "1", &redis_key]).await;
        let before = fingerprint(&redis, &redis_key).await;
        check_only_broken_key_fails(&quota, &broken, &good).await;
        assert_eq!(fingerprint(&redis, &redis_key).await, before, "an invalid record is not rewritten");
        let error = quota.client().key(&broken.key.id, None).await.unwrap_err();
        assert_eq!((error.status(), error.code()), (Some(500), Some("unreadable_key")), "{damage}");
    }
}

#[tokio::test]
async fn unused_flags_of_a_record_are_ignored_and_kept() {
    let redis = Redis::start().await;
    let quota = start(&redis).await;
    let key = quota.new_key().await;
    let redis_key = key.record(from_ref(&redis)).await;
    redis.cli(&["SETRANGE", &redis_key, "3", "x"]).await;
    assert_eq!(key.charge(&quota.client(), 2).await, [Outcome::Allowed; 2]);
    assert_eq!(redis.cli(&["GETRANGE", &redis_key, "3", "3"]).await.trim(), "x");
    redis.cli(&["EVAL", "redis.call('SETRANGE', KEYS[1], 2, string.char(1))", "1", &redis_key]).await;
    assert_eq!(key.charge(&quota.client(), 1).await, [Outcome::Paused]);
}

#[tokio::test]
async fn damaged_demo_counter_does_not_affect_keys() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let quota = start(store.clone()).await;
    let key = quota.new_key().await;
    let redis_key = format!("{}2:{{demo}}:d", store.prefix());
    for (damage, expected) in [
        // Not 8 bytes: the count starts again.
        (&["SET", &redis_key, "short"][..], (Outcome::Allowed, Some(999))),
        (&["SET", &redis_key, "longer than eight bytes"], (Outcome::Allowed, Some(999))),
        (&["LPUSH", &redis_key, "a list"], (Outcome::Unavailable, None)),
    ] {
        redis.cli(&["DEL", &redis_key]).await;
        redis.cli(damage).await;
        let mut batch = key.charges(1);
        batch.push(Charge::Demo);
        batch.extend(key.charges(1));
        let verdicts = quota.client().charge(&batch).await.unwrap();
        assert_eq!((verdicts[1].outcome(), remaining(&verdicts[1])), expected, "{damage:?}");
        assert_eq!([verdicts[0].outcome(), verdicts[2].outcome()], [Outcome::Allowed; 2], "{damage:?}");
    }
}
