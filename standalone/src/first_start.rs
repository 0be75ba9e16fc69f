//! The first start: an account and a key, so that the first request works.

use anyhow::Context;
use dashboard_api::password::Passwords;
use quota_client::QuotaClient;
use quota_client::wire::{NewAccount, NewKey, Scope};

/// The login of the account that the first start creates.
pub const LOGIN: &str = "admin";

/// What the first start made, shown this once.
pub struct Made {
    /// The account's password for the dashboard.
    pub password: String,
    /// A key of scope `full`.
    pub key: String,
}

/// Creates an account with a key if there is none yet.
pub async fn create_account(quota: &QuotaClient) -> anyhow::Result<Option<Made>> {
    if quota.list_accounts(None, 1).await?.total > 0 {
        return Ok(None);
    }
    let password = random_password()?;
    let credential = Passwords::new()?.hash(&password.clone().into()).await?;
    let account = NewAccount { login: LOGIN.to_owned(), credential: Some(credential) };
    let account = quota.create_account(&account).await?;
    let key = NewKey { name: "first key".to_owned(), scope: Scope::Full, daily_limit: None };
    Ok(Some(Made { password, key: quota.create_key(&account.id, &key).await?.secret }))
}

/// 120 random bits in letters and digits that are hard to confuse.
fn random_password() -> anyhow::Result<String> {
    let mut bytes = [0; 15];
    getrandom::fill(&mut bytes).context("the system has no randomness")?;
    Ok(data_encoding::BASE32_NOPAD.encode(&bytes).to_lowercase())
}
