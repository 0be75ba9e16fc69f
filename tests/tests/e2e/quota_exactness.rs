//! Many clients charge the same key through two replicas of quota-svc: limits are exact, and the key is paused once.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quota_client::wire::{Charge, EventKind, KeyState, Outcome, Verdict};
use quota_client::{BatchConfig, Charger, QuotaClient};
use testkit::quota::{Quota, StoreChoice, TestKey, rate_limit};
use testkit::redis::Redis;
use tokio::task::JoinSet;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts two replicas on one Redis. The long timeout keeps charges from failing on a busy machine.
async fn start_replicas(redis: &Redis, flags: &[&str]) -> [Quota; 2] {
    let store = StoreChoice::from(redis);
    let flags = [&["--store-timeout", "10s"], flags].concat();
    let pair = [Quota::start_with(store.clone(), &flags).await, Quota::start_with(store, &flags).await];
    for quota in &pair {
        quota.wait_ready(WAIT_TIMEOUT).await;
    }
    pair
}

/// Eight clients, four per replica, each send `calls` batches of `size` charges.
async fn charge_from_eight_clients(
    pair: &[Quota; 2],
    key: &TestKey,
    calls: usize,
    size: usize,
) -> Vec<Verdict> {
    let mut clients = JoinSet::new();
    for i in 0..8 {
        clients.spawn(send_batches(pair[i % 2].client(), key.clone(), calls, size));
    }
    clients.join_all().await.into_iter().flatten().collect()
}

async fn send_batches(client: QuotaClient, key: TestKey, calls: usize, size: usize) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for _ in 0..calls {
        verdicts.extend(client.charge(&key.charges(size)).await.unwrap());
    }
    verdicts
}

fn count(verdicts: &[Verdict], outcome: Outcome) -> usize {
    verdicts.iter().filter(|verdict| verdict.outcome() == outcome).count()
}

async fn check_one_pause(pair: &[Quota; 2], key: &TestKey, verdicts: &[Verdict]) {
    assert_eq!(count(verdicts, Outcome::Allowed), 300, "the burst limit is 300");
    assert_eq!(count(verdicts, Outcome::BurstExceeded), 1, "one request paused the key");
    assert_eq!(count(verdicts, Outcome::Paused), verdicts.len() - 301, "all later requests find it paused");
    let client = pair[0].client();
    let now = key.fetch(&client).await;
    assert_eq!((now.state, now.used_today), (KeyState::Paused, 300));
    assert_eq!(key.events(&client, EventKind::Paused).await, 1, "one pause event");
}

#[tokio::test]
async fn burst_limit_is_exact_across_two_replicas() {
    let redis = Redis::start().await;
    let pair = start_replicas(&redis, &[]).await;
    let key = pair[0].new_key().await;
    let verdicts = charge_from_eight_clients(&pair, &key, 40, 7).await;
    check_one_pause(&pair, &key, &verdicts).await;
}

#[tokio::test]
async fn burst_limit_is_exact_for_batching_clients() {
    let redis = Redis::start().await;
    let pair = start_replicas(&redis, &[]).await;
    let key = pair[0].new_key().await;
    let mut workers = JoinSet::new();
    for quota in &pair {
        let config = BatchConfig { deadline: WAIT_TIMEOUT, ..BatchConfig::default() };
        let charger = Charger::new(quota.client().charge_service(), config, Arc::new(()));
        for _ in 0..64 {
            let (charger, charge) = (charger.clone(), key.charges(1)[0]);
            workers.spawn(async move {
                let mut verdicts = Vec::new();
                for _ in 0..20 {
                    verdicts.push(charger.charge(charge).await.unwrap());
                }
                verdicts
            });
        }
    }
    let verdicts: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(verdicts.len(), 2560);
    check_one_pause(&pair, &key, &verdicts).await;
}

#[tokio::test]
async fn daily_limit_is_exact_across_two_replicas() {
    const DAILY_LIMIT: usize = 500;
    let redis = Redis::start().await;
    let pair = start_replicas(&redis, &["--burst-limit", "60000", "--daily-limit", "500"]).await;
    let key = pair[0].new_key().await;
    let verdicts = charge_from_eight_clients(&pair, &key, 40, 9).await;
    let denied = count(&verdicts, Outcome::DailyExceeded);
    assert_eq!(count(&verdicts, Outcome::Allowed) + denied, verdicts.len());
    let mut allowed: BTreeMap<_, usize> = BTreeMap::new();
    let limits =
        verdicts.iter().filter(|verdict| verdict.outcome() == Outcome::Allowed).filter_map(rate_limit);
    for limit in limits.clone() {
        *allowed.entry(limit.reset).or_default() += 1;
    }
    // One entry per day: two only if midnight UTC passed during the test.
    assert!(allowed.values().all(|allowed| *allowed <= DAILY_LIMIT), "{allowed:?}");
    if allowed.len() == 1 {
        assert_eq!(count(&verdicts, Outcome::Allowed), DAILY_LIMIT);
        assert_eq!(key.fetch(&pair[1].client()).await.used_today as usize, DAILY_LIMIT);
        let mut remaining: Vec<_> = limits.map(|limit| limit.remaining).collect();
        remaining.sort_unstable();
        let expected: Vec<_> = (0..500).collect();
        assert_eq!(remaining, expected, "each value of `remaining` occurs once");
    }
}

#[tokio::test]
async fn demo_limit_is_exact_across_two_replicas() {
    let redis = Redis::start().await;
    let pair = start_replicas(&redis, &["--demo-limit", "100"]).await;
    let mut clients = JoinSet::new();
    for i in 0..8 {
        let charger = pair[i % 2].charger();
        clients.spawn(async move {
            let mut allowed = Vec::new();
            for _ in 0..25 {
                if let Verdict::Allowed { rate_limit, .. } = charger.charge(Charge::Demo).await.unwrap() {
                    allowed.push(rate_limit.reset);
                }
            }
            allowed
        });
    }
    let allowed: Vec<_> = clients.join_all().await.into_iter().flatten().collect();
    let one_day = allowed.iter().all(|reset| *reset == allowed[0]);
    assert!(!one_day || allowed.len() == 100, "{} allowed", allowed.len());
}
