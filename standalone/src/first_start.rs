//! The first start: an account and a key, so that the first request works.

use quota_client::QuotaClient;
use quota_client::wire::{NewAccount, NewKey, Scope};

/// The login of the account that the first start creates.
pub const LOGIN: &str = "admin";

/// Creates an account with a `full` key if there is none yet; the key, which is shown this once.
pub async fn create_key(quota: &QuotaClient) -> anyhow::Result<Option<String>> {
    if quota.list_accounts(None, 1).await?.total > 0 {
        return Ok(None);
    }
    let account = quota.create_account(&NewAccount { login: LOGIN.to_owned(), credential: None }).await?;
    let key = NewKey { name: "first key".to_owned(), scope: Scope::Full, daily_limit: None };
    Ok(Some(quota.create_key(&account.id, &key).await?.secret))
}
