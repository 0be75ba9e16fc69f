//! Many keys in a store: fewer than 20,000 and a load test measures refusals, for 300 a minute are 5 a second.

use anyhow::{Context, ensure};
use api_key::ApiKey;
use quota_client::wire::{KEYS_PER_ACCOUNT, Scope};
use quota_svc::domain::account::{Account, Login};
use quota_svc::domain::key::{KeyMeta, KeyName, StoredKey};
use quota_svc::domain::limits::Limits;
use quota_svc::domain::record::Record;
use quota_svc::store::{ImportAccount, Store};

/// As many accounts travel in one import.
const ACCOUNTS_AT_ONCE: usize = 100;

/// Writes `count` keys of scope `full`, ten to an account, and gives them back. Each was used once under `limits`: the
/// first charge of a key lays its ring, which is not what a store in use spends its time on.
pub async fn keys(store: &dyn Store, count: usize, limits: &Limits) -> anyhow::Result<Vec<ApiKey>> {
    let now = store.now().await?;
    let keys = (0..count).map(|_| ApiKey::generate()).collect::<Result<Vec<_>, _>>()?;
    let chunks = keys.chunks(KEYS_PER_ACCOUNT).enumerate();
    let accounts =
        chunks.map(|(n, keys)| account(n, keys, now, limits)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut created = 0;
    for accounts in accounts.chunks(ACCOUNTS_AT_ONCE) {
        created += store.import(accounts).await.context("seeding")?.keys_created as usize;
    }
    ensure!(created == count, "seeded {created} keys instead of {count}");
    Ok(keys)
}

fn account(number: usize, keys: &[ApiKey], now: i64, limits: &Limits) -> anyhow::Result<ImportAccount> {
    let login = Login::parse(&format!("bench-{number}"))?;
    let account = Account { login, created_at: now, credential: None, credential_version: 0 };
    let keys = keys.iter().map(|key| stored(&account, key, now, limits)).collect::<anyhow::Result<_>>()?;
    Ok(ImportAccount { account, keys })
}

fn stored(account: &Account, key: &ApiKey, now: i64, limits: &Limits) -> anyhow::Result<StoredKey> {
    let name = KeyName::parse("bench")?;
    let meta =
        KeyMeta { account: account.id(), name, hint: key.hint(), digest: key.digest(), created_at: now };
    let mut record = Record::new(Scope::Full, None, now);
    record.charge(now, limits);
    Ok(StoredKey { meta, record })
}
