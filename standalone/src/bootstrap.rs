//! The first start: creates an account and an API key if the store has no account.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use dashboard_api::config::Switch;
use dashboard_api::password::{hash_new, random_password};
use quota_client::wire::{ExportedAccount, ImportRequest, NewKey, Role, Scope, Standing, StoredAccount};
use quota_client::{ClientError, QuotaClient};
use tokio::time::{Instant, sleep, timeout_at};

/// Login of the account that the first start creates.
pub const LOGIN: &str = "admin";

/// Maximum wait for an unavailable store: Redis may still be starting or loading its data.
const STORE_WAIT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// What the first start has created.
pub enum FirstStart {
    /// An account with this password and an API key of scope `full`. They are printed once; the store has only their hashes.
    Credentials { password: String, key: String },
    /// An account without a password (`--print-credentials off`).
    NoPassword,
}

/// Creates the first account. It has a password and a key only if they are printed: unprinted ones could never be used.
pub async fn create_account(quota: &QuotaClient, print_credentials: Switch) -> anyhow::Result<FirstStart> {
    let password = match print_credentials {
        Switch::On => Some(random_password()?),
        Switch::Off => None,
    };
    let credential = password.clone().map(|password| hash_new(&password.into(), LOGIN)).transpose()?;
    let created_at = i64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?;
    let account = StoredAccount {
        standing: Standing { role: Role::Admin, ..Standing::default() },
        ..StoredAccount::new(LOGIN.to_owned(), credential, created_at)
    };
    // An import, because it creates the account and its role in one step.
    let accounts = vec![ExportedAccount { account, keys: Vec::new() }];
    quota.import(&ImportRequest { accounts }).await?;
    let Some(password) = password else { return Ok(FirstStart::NoPassword) };
    let account = quota.find_account(LOGIN).await?.context("the first account is missing")?;
    let key = NewKey::new("first key", Scope::Full);
    let key = quota.create_key(&account.id, &key).await?.secret;
    Ok(FirstStart::Credentials { password, key })
}

/// Whether the store has an account. Waits while the store is unavailable.
pub async fn has_account(quota: &QuotaClient) -> Result<bool, ClientError> {
    let deadline = Instant::now() + STORE_WAIT;
    loop {
        // Asks for the state of the store before the first operation: quota-svc logs every operation that fails.
        let waiting = quota.wait_for_store(|reason| {
            let seconds = STORE_WAIT.as_secs();
            tracing::warn!(reason, "the store is not available yet; retrying for up to {seconds} s");
        });
        let _ = timeout_at(deadline, waiting).await;
        match quota.list_accounts(None, 1).await {
            Err(error) if error.status() == Some(503) && Instant::now() < deadline => {
                sleep(RETRY_INTERVAL).await;
            }
            result => return Ok(result?.total > 0),
        }
    }
}
