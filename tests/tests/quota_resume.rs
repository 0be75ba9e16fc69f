//! A resumed key works at once where it was resumed, and within two seconds on every other replica.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use e2e::quota::{Quota, StoreChoice, outcome_of};
use e2e::redis::Redis;
use e2e::wait::eventually_ok;
use quota_client::wire::{EventKind, Outcome};

/// How long a denial is remembered at most, and what a busy machine may add.
const SEEN_WITHIN: Duration = Duration::from_millis(2_300);
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_resume_is_seen_at_once_on_the_same_replica_and_within_two_seconds_on_another() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let flags = ["--burst-limit", "5", "--store-timeout", "5s"];
    let here = Quota::start_with(store.clone(), &flags).await;
    let there = Quota::start_with(store, &flags).await;
    here.wait_ready(PATIENCE).await;
    there.wait_ready(PATIENCE).await;
    let key = here.new_key().await;
    let (client, other) = (here.client(), there.client());
    assert_eq!(key.charge(&client, 6).await[5], Outcome::BurstExceeded);
    // Both have a denial in memory now.
    assert_eq!(key.charge(&client, 1).await, [Outcome::Paused]);
    assert_eq!(key.charge(&other, 1).await, [Outcome::Paused]);
    client.resume_key(&key.key.id, None).await.unwrap();
    let resumed = Instant::now();
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed], "at once where it was resumed");
    eventually_ok(SEEN_WITHIN, "the other replica sees it", async || {
        // Asked without a pause: asking must not keep the denial alive.
        match outcome_of(&other.charge(&key.charges(1)).await).as_str() {
            "Allowed" => Ok(()),
            outcome => Err(outcome.to_owned()),
        }
    })
    .await;
    eprintln!("seen on the other replica after {:?}", resumed.elapsed());
    assert!(there.metric("quota_denials_known_total", "").await > 0.0, "the denial came from memory");
    assert_eq!(key.events(&client, EventKind::Resumed).await, 1);
    // The window was emptied: two of five are used.
    assert_eq!(key.charge(&client, 3).await, [Outcome::Allowed; 3]);
    assert_eq!(key.charge(&client, 1).await, [Outcome::BurstExceeded]);
}

#[tokio::test]
async fn an_unknown_key_that_is_asked_for_while_it_is_created_works_at_once_on_that_replica() {
    let redis = Redis::start().await;
    let quota = Quota::start_with(&redis, &["--store-timeout", "5s"]).await;
    quota.wait_ready(PATIENCE).await;
    let key = quota.new_key().await;
    let client = quota.client();
    client.delete_key(&key.key.id, None).await.unwrap();
    assert_eq!(key.charge(&client, 2).await, [Outcome::UnknownKey; 2]);
    client.import(&import_of(&key)).await.unwrap();
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
}

fn import_of(key: &e2e::quota::TestKey) -> quota_client::wire::ImportRequest {
    let charge = key.charges(1).charges.remove(0);
    let exported = quota_client::wire::ExportedKey {
        sha256: charge.key_sha256.unwrap(),
        name: key.key.name.clone(),
        hint: key.key.hint.clone(),
        scope: key.key.scope,
        state: quota_client::wire::KeyState::Active,
        state_since: key.key.created_at,
        created_at: key.key.created_at,
        daily_limit: None,
        usage: Vec::new(),
    };
    let account = quota_client::wire::ExportedAccount {
        login: "imported".to_owned(),
        created_at: key.key.created_at,
        credential: None,
        credential_version: 0,
        keys: vec![exported],
    };
    quota_client::wire::ImportRequest { accounts: vec![account] }
}
