//! Creating a key takes several Redis calls. An account deletion in between leaves no key behind that works but is in no
//! listing.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use api_key::ApiKey;
use quota_client::QuotaClient;
use quota_client::wire::{
    Charge, ExportedAccount, ExportedKey, ImportRequest, KeyState, NewAccount, NewKey, Outcome, Scope,
    StoredAccount,
};
use quota_svc::domain::id::AccountId;
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use testkit::wait::eventually_ok;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

async fn account(client: &QuotaClient, login: &str) -> String {
    client.create_account(&NewAccount { login: login.to_owned(), credential: None }).await.unwrap().id
}

fn new_key() -> NewKey {
    NewKey::new("key", Scope::Full)
}

/// An account with one key, as an export contains it.
fn account_with_key(login: &str, key: &ApiKey) -> ImportRequest {
    let key = ExportedKey {
        sha256: key.digest().to_hex(),
        hint: key.hint(),
        settings: NewKey::new("imported", Scope::Full).settings,
        state: KeyState::Active,
        state_since: 0,
        created_at: 0,
        daily_limit: None,
        usage: Vec::new(),
    };
    let account = StoredAccount::new(login.to_owned(), None, 0);
    ImportRequest { accounts: vec![ExportedAccount { account, keys: vec![key] }] }
}

async fn charge(client: &QuotaClient, key: &ApiKey) -> Outcome {
    let charge = Charge::Key { digest: key.digest(), origin: None };
    client.charge(&[charge]).await.unwrap()[0].outcome
}

/// A quota-svc whose replies from Redis are delayed, so that another one can act between two of its calls.
async fn start_slow(store: &StoreChoice, redis: &Redis) -> (FaultProxy, Quota) {
    let proxy = FaultProxy::start(redis.addr());
    let slow = store.with_url(format!("redis://{}", proxy.addr()));
    let quota = Quota::start_with(slow, &["--store-timeout", "5s", "--write-timeout", "8s"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    proxy.set(Fault::Delay(Duration::from_millis(300)));
    (proxy, quota)
}

async fn wait_for_reservation(redis: &Redis, store: &StoreChoice, account: &str) {
    let reservations = format!("{}1:{{{account}}}:p", store.prefix());
    eventually_ok(WAIT_TIMEOUT, "the key slot is reserved", async || {
        match redis.cli(&["HLEN", &reservations]).await.as_str() {
            "0" => Err("not yet"),
            _ => Ok(()),
        }
    })
    .await;
}

async fn records(redis: &Redis, store: &StoreChoice) -> String {
    redis.cli(&["--scan", "--pattern", &format!("{}*:k", store.prefix())]).await
}

#[tokio::test]
async fn key_of_account_deleted_during_creation_gets_404_and_is_removed() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let (_proxy, slow) = start_slow(&store, &redis).await;
    let other = Quota::start(store.clone()).await;
    let id = account(&other.client(), "owner").await;
    let (client, owner) = (slow.client(), id.clone());
    let creation = tokio::spawn(async move { client.create_key(&owner, &new_key()).await });
    wait_for_reservation(&redis, &store, &id).await;
    other.client().delete_account(&id, None).await.unwrap();
    let error = creation.await.unwrap().expect_err("the account is gone");
    assert_eq!((error.status(), error.code()), (Some(404), Some("account_not_found")));
    assert_eq!(records(&redis, &store).await, "", "no record is left");
}

#[tokio::test]
async fn imported_key_of_account_deleted_during_import_is_removed() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let (_proxy, slow) = start_slow(&store, &redis).await;
    let other = Quota::start(store.clone()).await;
    let id = account(&other.client(), "owner").await;
    let key = AccountId::of("owner").generate_key().unwrap();
    let (client, request) = (slow.client(), account_with_key("owner", &key));
    let import = tokio::spawn(async move { client.import(&request).await });
    wait_for_reservation(&redis, &store, &id).await;
    other.client().delete_account(&id, None).await.unwrap();
    import.await.unwrap().expect_err("the account is gone");
    assert_eq!(charge(&other.client(), &key).await, Outcome::UnknownKey);
    assert_eq!(records(&redis, &store).await, "", "no record is left");
}

#[tokio::test]
async fn key_without_reservation_is_removed_by_its_next_reader() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let quota = Quota::start(store.clone()).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    redis.cli(&["HDEL", &format!("{}1:{{{}}}:p", store.prefix(), key.account), &key.key.id]).await;
    let error = client.key(&key.key.id, None).await.expect_err("no account holds the key");
    assert_eq!(error.status(), Some(404));
    assert_eq!(records(&redis, &store).await, "");
}

#[tokio::test]
async fn reservation_of_another_accounts_key_is_not_listed_and_removed() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let quota = Quota::start(store.clone()).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    let other = account(&client, "other").await;
    let reservations = format!("{}1:{{{other}}}:p", store.prefix());
    redis.cli(&["HSET", &reservations, &key.key.id, "1"]).await;
    assert!(client.keys(&other).await.unwrap().keys.is_empty());
    assert_eq!(redis.cli(&["HLEN", &reservations]).await, "0");
    assert_eq!(client.keys(&key.account).await.unwrap().keys.len(), 1);
}

#[tokio::test]
async fn repeated_import_reports_an_unreadable_key_as_existing() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let quota = Quota::start(store.clone()).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), AccountId::of("owner").generate_key().unwrap());
    let request = account_with_key("owner", &key);
    assert_eq!(client.import(&request).await.unwrap().keys_created, 1);
    let record = records(&redis, &store).await;
    redis.cli(&["SETRANGE", &record, "0", "9"]).await;
    let report = client.import(&request).await.unwrap();
    assert_eq!((report.keys_created, report.keys_kept, report.keys_refused), (0, 1, 0));
}
