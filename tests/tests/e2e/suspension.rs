//! Suspended accounts: all replicas deny their keys, and an interrupted suspension is complete or absent.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quota_client::QuotaClient;
use quota_client::wire::{AccountAction, AccountChange, NewKey, Scope};
use testkit::lookup::{JsonResponse, Lookup, WAIT_TIMEOUT};
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use tokio::task::JoinSet;

fn suspend() -> AccountChange {
    AccountChange { action: AccountAction::Suspend, reason: Some("abuse".to_owned()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_under_load_denies_all_keys_on_both_replicas() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let quota =
            Quota::start_with(store.clone(), &["--store-timeout", "10s", "--burst-limit", "65535"]).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        pairs.push((Lookup::start_with_long_timeouts(quota.url(), &[]).await, quota));
    }
    let client = pairs[0].1.client();
    let first = pairs[0].1.new_key().await;
    let (account, done) = (first.account.clone(), Arc::new(AtomicBool::new(false)));
    let mut load = JoinSet::new();
    for n in 0..8 {
        let (request, done) = (pairs[n % 2].0.get_ip(&first.secret), done.clone());
        load.spawn(async move {
            let mut responses = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let sent = Instant::now();
                let response = JsonResponse::fetch(request.try_clone().unwrap()).await;
                responses.push((sent, response.status));
            }
            responses
        });
    }
    tokio::time::timeout(WAIT_TIMEOUT, async { while first.fetch(&client).await.used_today < 50 {} })
        .await
        .expect("the load runs");
    // Keys are created while the account is being suspended through the other replica.
    let (new, other) = (NewKey::new("meanwhile", Scope::Ip), pairs[1].1.client());
    let change = suspend();
    let (created, suspended) =
        tokio::join!(client.create_key(&account, &new), other.change_account(&account, &change));
    suspended.unwrap();
    let at = Instant::now();
    let created = created.unwrap().secret;
    for (lookup, _) in &pairs {
        let response = JsonResponse::fetch(lookup.get_ip(&created)).await;
        assert_eq!((response.status, response.header("x-key-reason")), (403, "suspended"));
    }
    let limit = at + Duration::from_secs(2);
    tokio::time::sleep_until((limit + Duration::from_millis(500)).into()).await;
    done.store(true, Ordering::Relaxed);
    let responses = load.join_all().await.concat();
    let allowed_late = responses.iter().filter(|(sent, status)| *sent > limit && *status == 200).count();
    let denied_late = responses.iter().filter(|(sent, status)| *sent > limit && *status == 403).count();
    assert!(allowed_late == 0 && denied_late > 0, "allowed {allowed_late}, denied {denied_late}");
    client.change_account(&account, &AccountChange::new(AccountAction::Restore)).await.unwrap();
    for (lookup, _) in &pairs {
        assert_eq!(JsonResponse::fetch(lookup.get_ip(&created)).await.status, 200);
    }
}

/// Whether the account is suspended, how many of its keys are, and how many it has.
async fn state(client: &QuotaClient, account: &str) -> (bool, usize, usize) {
    let keys = client.keys(account).await.unwrap().keys;
    let suspended = client.account(account).await.unwrap().suspension.is_some();
    (suspended, keys.iter().filter(|key| key.suspended).count(), keys.len())
}

#[tokio::test]
async fn suspension_interrupted_by_a_kill_is_complete_or_absent() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let reader = Quota::start_with(store.clone(), &[]).await;
    reader.wait_ready(WAIT_TIMEOUT).await;
    let client = reader.client();
    let account = reader.new_key().await.account;
    for _ in 0..9 {
        client.create_key(&account, &NewKey::new("more", Scope::Ip)).await.unwrap();
    }
    let mut interrupted = 0;
    for round in 0..12_u64 {
        let quota = Quota::start_with(store.clone(), &[]).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let (writer, id) = (quota.client(), account.clone());
        let change = if round % 2 == 0 { suspend() } else { AccountChange::new(AccountAction::Restore) };
        let change = tokio::spawn(async move { writer.change_account(&id, &change).await });
        // Kills at another point of the change in each round.
        tokio::time::sleep(Duration::from_micros(700 * round)).await;
        drop(quota);
        interrupted += usize::from(change.await.unwrap().is_err());
        let (suspended, of_keys, keys) = state(&client, &account).await;
        assert_eq!((of_keys, keys), (if suspended { 10 } else { 0 }, 10), "round {round}");
    }
    assert!(interrupted > 0, "no change was interrupted");
}
