//! The first start: an account and a key, so that the first request works.

use std::time::{Duration, Instant};

use anyhow::Context;
use dashboard_api::password::Passwords;
use quota_client::wire::{NewAccount, NewKey, Scope};
use quota_client::{ClientError, QuotaClient};

/// The login of the account that the first start creates.
pub const LOGIN: &str = "admin";

/// A Redis that was started a moment ago, loads its data or is far away answers within this, or not at all.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// What the first start made, shown this once.
pub struct Made {
    /// The account's password for the dashboard.
    pub password: String,
    /// A key of scope `full`.
    pub key: String,
}

/// Creates an account with a key if there is none yet.
pub async fn create_account(quota: &QuotaClient) -> anyhow::Result<Option<Made>> {
    if accounts(quota).await? > 0 {
        return Ok(None);
    }
    let password = random_password()?;
    let credential = Passwords::new()?.hash(&password.clone().into()).await?;
    let account = NewAccount { login: LOGIN.to_owned(), credential: Some(credential) };
    let account = quota.create_account(&account).await?;
    let key = NewKey { name: "first key".to_owned(), scope: Scope::Full, daily_limit: None };
    Ok(Some(Made { password, key: quota.create_key(&account.id, &key).await?.secret }))
}

/// How many accounts there are, from a store that may still be starting.
async fn accounts(quota: &QuotaClient) -> Result<u64, ClientError> {
    let deadline = Instant::now() + STORE_PATIENCE;
    loop {
        match quota.list_accounts(None, 1).await {
            Err(error) if error.status() == Some(503) && Instant::now() < deadline => {
                tokio::time::sleep(ASK_EVERY).await;
            }
            listed => return Ok(listed?.total),
        }
    }
}

/// 120 random bits in letters and digits that are hard to confuse.
fn random_password() -> anyhow::Result<String> {
    let mut bytes = [0; 15];
    getrandom::fill(&mut bytes).context("the system has no randomness")?;
    Ok(data_encoding::BASE32_NOPAD.encode(&bytes).to_lowercase())
}
