//! A resumed key works immediately on the replica that resumed it, and within two seconds on the others.

use std::time::{Duration, Instant};

use quota_client::wire::{EventKind, Outcome, StateChange};
use testkit::quota::{Quota, StoreChoice, first_outcome};
use testkit::redis::Redis;
use testkit::wait::eventually_ok;

/// Maximum time that a denial is cached, plus slack for a busy machine.
const DENIAL_TIMEOUT: Duration = Duration::from_millis(2_300);
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn resumed_key_works_on_other_replica_within_2_s() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let flags = ["--burst-limit", "5", "--store-timeout", "5s"];
    let first = Quota::start_with(store.clone(), &flags).await;
    let second = Quota::start_with(store, &flags).await;
    first.wait_ready(WAIT_TIMEOUT).await;
    second.wait_ready(WAIT_TIMEOUT).await;
    let key = first.new_key().await;
    let (client, other) = (first.client(), second.client());
    assert_eq!(key.charge(&client, 6).await[5], Outcome::BurstExceeded);
    // Now both replicas have cached the denial.
    assert_eq!(key.charge(&client, 1).await, [Outcome::Paused]);
    assert_eq!(key.charge(&other, 1).await, [Outcome::Paused]);
    client.change_state(&key.key.id, None, StateChange::Resume).await.unwrap();
    let resumed = Instant::now();
    assert_eq!(
        key.charge(&client, 1).await,
        [Outcome::Allowed],
        "works immediately on the replica that resumed it"
    );
    eventually_ok(DENIAL_TIMEOUT, "the other replica allows the key", async || {
        // Charges every few milliseconds: cache hits must not extend the TTL.
        match first_outcome(&other.charge(&key.charges(1)).await).as_str() {
            "Allowed" => Ok(()),
            outcome => Err(outcome.to_owned()),
        }
    })
    .await;
    eprintln!("allowed by the other replica after {:?}", resumed.elapsed());
    assert!(second.metric("quota_denial_cache_hits_total", "").await > 0.0, "the denial came from the cache");
    assert_eq!(key.events(&client, EventKind::Resumed).await, 1);
    // The resume emptied the window. Since then, two of the five allowed requests were made.
    assert_eq!(key.charge(&client, 3).await, [Outcome::Allowed; 3]);
    assert_eq!(key.charge(&client, 1).await, [Outcome::BurstExceeded]);
}

#[tokio::test]
async fn imported_key_works_despite_cached_denial() {
    let redis = Redis::start().await;
    let quota = Quota::start_with(&redis, &["--store-timeout", "5s"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let key = quota.new_key().await;
    let client = quota.client();
    client.delete_key(&key.key.id, None).await.unwrap();
    assert_eq!(key.charge(&client, 2).await, [Outcome::UnknownKey; 2]);
    let login = client.account(&key.account).await.unwrap().login;
    client.import(&import_of(login, &key)).await.unwrap();
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
}

fn import_of(login: String, key: &testkit::quota::TestKey) -> quota_client::wire::ImportRequest {
    let exported = quota_client::wire::ExportedKey {
        sha256: key.digest.to_hex(),
        hint: key.key.hint.clone(),
        settings: key.key.settings.clone(),
        state: quota_client::wire::KeyState::Active,
        state_since: key.key.created_at,
        created_at: key.key.created_at,
        daily_limit: None,
        successor: None,
        usage: Vec::new(),
    };
    let account = quota_client::wire::StoredAccount::new(login, None, key.key.created_at);
    let account = quota_client::wire::ExportedAccount { account, keys: vec![exported] };
    quota_client::wire::ImportRequest { accounts: vec![account] }
}
