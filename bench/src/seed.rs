//! Fills a store with API keys. The burst limit allows each key 300 requests per minute, or 5 per second, so 20,000
//! keys allow 100,000 requests per second. With too few keys, a load test would measure denials.

use anyhow::{Context, ensure};
use api_key::ApiKey;
use quota_client::wire::{KEYS_PER_ACCOUNT, Limits, NewKey, Scope, StoredAccount};
use quota_svc::domain::id::AccountId;
use quota_svc::domain::key::{KeyMeta, StoredKey};
use quota_svc::domain::record::KeyRecord;
use quota_svc::domain::transfer::ImportAccount;
use quota_svc::store::Store;

/// Accounts per import call.
const ACCOUNTS_PER_IMPORT: usize = 100;

/// Creates `count` keys of scope `full`, ten per account, and returns them. Each is charged once under `limits`, so
/// that a benchmark does not measure the first charge of a key, which costs more than a later one.
pub async fn keys(store: &dyn Store, count: usize, limits: &Limits) -> anyhow::Result<Vec<ApiKey>> {
    keys_of_accounts(store, count, KEYS_PER_ACCOUNT, limits).await
}

/// Like [`keys`], with another number of keys per account.
pub async fn keys_of_accounts(
    store: &dyn Store,
    count: usize,
    per_account: usize,
    limits: &Limits,
) -> anyhow::Result<Vec<ApiKey>> {
    let now = store.now().await?;
    let keys = (0..count).map(|_| ApiKey::generate()).collect::<Result<Vec<_>, _>>()?;
    let chunks = keys.chunks(per_account).enumerate();
    let accounts: Vec<_> = chunks.map(|(n, keys)| import_account(n, keys, now, limits)).collect();
    let mut created = 0;
    for accounts in accounts.chunks(ACCOUNTS_PER_IMPORT) {
        created += store.import(accounts).await.context("can't import the keys")?.keys_created as usize;
    }
    ensure!(created == count, "created {created} keys instead of {count}");
    Ok(keys)
}

fn import_account(number: usize, keys: &[ApiKey], now: i64, limits: &Limits) -> ImportAccount {
    let login = format!("bench-{number}");
    let id = AccountId::of(&login);
    let account = StoredAccount::new(login, None, now);
    let keys = keys.iter().map(|key| stored_key(id, key, now, limits)).collect();
    ImportAccount { account, keys }
}

fn stored_key(account: AccountId, key: &ApiKey, now: i64, limits: &Limits) -> StoredKey {
    let settings = NewKey::new("bench", Scope::Full).settings;
    let meta = KeyMeta { account, digest: key.digest(), hint: key.hint(), created_at: now, settings };
    let mut record = KeyRecord::new(Scope::Full, None, now);
    record.charge(now, limits);
    StoredKey { meta, record }
}
