//! Fills a store with API keys. The burst limit allows each key 300 requests per minute, or 5 per second, so 20,000
//! keys allow 100,000 requests per second. With too few keys, a load test would measure denials.

use std::collections::HashMap;
use std::io;

use anyhow::{Context, ensure};
use api_key::{ApiKey, RandomError};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use quota_client::wire::{Limits, NewKey, Scope, StoredAccount};
use quota_svc::accounts::Accounts;
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::key::{KeyMeta, StoredKey};
use quota_svc::domain::transfer::ImportAccount;

/// Accounts per import call.
const ACCOUNTS_PER_IMPORT: usize = 100;

/// Import calls at the same time, so that Redis works while the next keys are made.
const IMPORTS_IN_FLIGHT: usize = 4;

/// Creates `count` keys of scope `full` and passes each to `each`; only those of a few import calls are in memory. Each is
/// charged once under `limits`, so that a benchmark does not measure the first charge of a key, which costs more than a
/// later one.
pub async fn keys(
    accounts: &Accounts,
    count: usize,
    per_account: usize,
    limits: &Limits,
    mut each: impl FnMut(&ApiKey) -> io::Result<()>,
) -> anyhow::Result<()> {
    let now = accounts.now().await?;
    let mut unused = UnusedKeys::default();
    let mut new_account = |number: usize| -> anyhow::Result<_> {
        let size = per_account.min(count - number * per_account);
        let login = format!("bench-{number}");
        let id = AccountId::of(&login);
        let keys = (0..size).map(|_| unused.take(id.shard())).collect::<Result<Vec<_>, _>>()?;
        keys.iter().try_for_each(&mut each)?;
        let keys = keys.iter().map(|key| stored_key(id, key, now, limits)).collect();
        Ok(ImportAccount { account: StoredAccount::new(login, None, now), keys })
    };
    let end = count.div_ceil(per_account);
    let imports = (0..end).step_by(ACCOUNTS_PER_IMPORT).map(|first| {
        let numbers = first..end.min(first + ACCOUNTS_PER_IMPORT);
        let imported = numbers.map(&mut new_account).collect::<anyhow::Result<Vec<_>>>();
        async move { accounts.import(&imported?).await.context("can't import the keys") }
    });
    let reports = stream::iter(imports).buffer_unordered(IMPORTS_IN_FLIGHT);
    let created = reports.try_fold(0, async |sum, report| Ok(sum + report.keys_created as usize)).await?;
    ensure!(created == count, "created {created} keys instead of {count}");
    Ok(())
}

/// Generated keys that no account has needed yet, by shard. Generating each key for its account would discard 63 of 64.
#[derive(Default)]
struct UnusedKeys(HashMap<u8, Vec<ApiKey>>);

impl UnusedKeys {
    fn take(&mut self, shard: u8) -> Result<ApiKey, RandomError> {
        loop {
            if let Some(key) = self.0.entry(shard).or_default().pop() {
                return Ok(key);
            }
            let key = ApiKey::generate()?;
            self.0.entry(KeyId::of(&key.digest()).shard()).or_default().push(key);
        }
    }
}

fn stored_key(account: AccountId, key: &ApiKey, now: i64, limits: &Limits) -> StoredKey {
    let settings = NewKey::new("bench", Scope::Full).settings;
    let meta = KeyMeta::new(account, key.digest(), key.hint(), now, settings);
    let mut key = StoredKey::new(meta, None, now);
    key.record.charge(now, limits);
    key
}
