//! A change is one commit: what another process does between its load and its commit leaves no half of it behind.
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
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The same account as the export of [`account_with_key`].
async fn account(client: &QuotaClient) -> String {
    let account = NewAccount { login: "owner".to_owned(), credential: None };
    client.create_account(&account).await.unwrap().id
}

/// An account with one key, as an export contains it.
fn account_with_key() -> (ApiKey, ImportRequest) {
    let secret = AccountId::of("owner").generate_key().unwrap();
    let key = ExportedKey {
        sha256: secret.digest().to_hex(),
        hint: secret.hint(),
        settings: NewKey::new("imported", Scope::Full).settings,
        state: KeyState::Active,
        state_since: 0,
        created_at: 0,
        daily_limit: None,
        successor: None,
        usage: Vec::new(),
    };
    let account = StoredAccount::new("owner".to_owned(), None, 0);
    (secret, ImportRequest { accounts: vec![ExportedAccount { account, keys: vec![key] }] })
}

async fn charge(client: &QuotaClient, key: &ApiKey) -> Outcome {
    let charge = Charge::Key { digest: key.digest(), origin: None };
    client.charge(&[charge]).await.unwrap()[0].outcome()
}

/// Starts a change and deletes its account after the change has loaded it and before the change is committed: the process that
/// makes the change gets its replies from Redis late. Returns the result of the change.
async fn delete_during<T>(
    redis: &Redis,
    other: &QuotaClient,
    store: &StoreChoice,
    change: impl AsyncFnOnce(QuotaClient, String) -> T,
) -> T {
    let proxy = FaultProxy::start(redis.addr());
    let slow = store.with_url(format!("redis://{}", proxy.addr()));
    let slow = Quota::start_with(slow, &["--store-timeout", "5s", "--write-timeout", "8s"]).await;
    slow.wait_ready(WAIT_TIMEOUT).await;
    let id = account(other).await;
    let before = redis.calls("evalsha").await;
    proxy.set(Fault::Delay(Duration::from_millis(500)));
    let delete = async {
        let loaded = async || (redis.calls("evalsha").await > before).then_some(());
        eventually(WAIT_TIMEOUT, "the change has loaded the account", loaded).await;
        other.delete_account(&id, None).await.unwrap();
    };
    tokio::join!(change(slow.client(), id.clone()), delete).0
}

async fn start() -> (Redis, StoreChoice, Quota) {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let quota = Quota::start(store.clone()).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    (redis, store, quota)
}

#[tokio::test]
async fn key_of_account_deleted_during_creation_gets_404_and_is_not_stored() {
    let (redis, store, quota) = start().await;
    let create = async |client: QuotaClient, owner: String| {
        client.create_key(&owner, &NewKey::new("key", Scope::Full)).await
    };
    let error =
        delete_during(&redis, &quota.client(), &store, create).await.expect_err("the account is gone");
    assert_eq!((error.status(), error.code()), (Some(404), Some("account_not_found")));
    assert_eq!(redis.find(":k").await, None, "no record is left");
}

#[tokio::test]
async fn import_of_account_deleted_meanwhile_creates_it_with_its_keys() {
    let (redis, store, quota) = start().await;
    let (key, request) = account_with_key();
    let import = async |client: QuotaClient, _| client.import(&request).await;
    let report = delete_during(&redis, &quota.client(), &store, import).await.unwrap();
    assert_eq!((report.accounts_created, report.keys_created), (1, 1));
    assert_eq!(charge(&quota.client(), &key).await, Outcome::Allowed);
    assert_eq!(quota.client().list_accounts(None, 10).await.unwrap().total, 1);
}

#[tokio::test]
async fn repeated_import_reports_an_unreadable_key_as_existing() {
    let (redis, _, quota) = start().await;
    let (client, (_, request)) = (quota.client(), account_with_key());
    assert_eq!(client.import(&request).await.unwrap().keys_created, 1);
    let record = redis.find(":k").await.unwrap();
    redis.cli(&["SETRANGE", &record, "0", "9"]).await;
    let report = client.import(&request).await.unwrap();
    assert_eq!((report.keys_created, report.keys_kept, report.keys_refused), (0, 1, 0));
}
