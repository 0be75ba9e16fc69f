//! Creates the first account and its API key from files, such as a mounted Secret, so that nobody has to run commands after
//! an installation.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use api_key::ApiKey;
use quota_client::QuotaClient;
use quota_client::wire::{
    ExportedAccount, ExportedKey, ImportRequest, KeySettings, KeyState, Role, Scope, Standing, StoredAccount,
};
use tokio::time::sleep;

use crate::password;
use crate::session::now_ms;

const RETRY_INTERVAL: Duration = Duration::from_secs(2);

pub struct FirstAccount(ImportRequest);

impl FirstAccount {
    /// Reads the files `login`, `password` and `api-key` of a directory. Hashes the password, which blocks the thread.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let text = fs::read_to_string(dir.join(name));
            let text =
                text.with_context(|| format!("can't read {name} in --first-account-dir {}", dir.display()))?;
            anyhow::Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        };
        let key = ApiKey::parse(&read("api-key")?).context(
            "the file api-key in --first-account-dir has no API key; create one with: quota-svc key generate LOGIN",
        )?;
        let (login, password) = (read("login")?, read("password")?.into());
        let credential =
            password::hash_new(&password, &login).context("the password in --first-account-dir")?;
        let created_at = now_ms();
        let key = ExportedKey {
            sha256: key.digest().to_hex(),
            hint: key.hint(),
            settings: KeySettings::new("first key", Scope::Full),
            state: KeyState::Active,
            state_since: created_at,
            created_at,
            daily_limit: None,
            successor: None,
            usage: Vec::new(),
        };
        let standing = Standing { role: Role::Admin, ..Standing::default() };
        let account = StoredAccount { standing, ..StoredAccount::new(login, Some(credential), created_at) };
        Ok(Self(ImportRequest { accounts: vec![ExportedAccount { account, keys: vec![key] }] }))
    }

    /// Creates the account and its key, unless an account with this login exists. An existing account is left unchanged:
    /// its owner may have changed the password or deleted the key. Repeats what fails, and passes the reason to `report`.
    pub async fn create(&self, quota: &QuotaClient, report: impl Fn(String)) {
        let mut was_sent = false;
        while let Err(error) = self.try_create(quota, &mut was_sent).await {
            let reason = format!("can't create the first account: {error:#}");
            tracing::warn!("{reason}");
            report(reason);
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// An import that was sent is repeated even if the account exists: it may have failed before the key was created, and an
    /// import changes nothing that exists.
    async fn try_create(&self, quota: &QuotaClient, was_sent: &mut bool) -> anyhow::Result<()> {
        let login = &self.0.accounts[0].account.login;
        if !*was_sent && quota.find_account(login).await?.is_some() {
            return Ok(());
        }
        *was_sent = true;
        if quota.import(&self.0).await?.keys_refused > 0 {
            bail!("the API key was refused: another account has it, or this account has 10 keys");
        }
        tracing::info!(login, "first account created");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_invalid_file_is_named_without_its_content() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let error =
            || FirstAccount::read(dir.path()).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error().contains("can't read api-key in --first-account-dir"), "{}", error());
        fs::write(dir.path().join("api-key"), "ipl_secret").expect("writable");
        assert!(error().contains("quota-svc key generate") && !error().contains("ipl_secret"), "{}", error());
    }
}
