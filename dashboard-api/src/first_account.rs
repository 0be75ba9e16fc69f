//! The first account and its API key, from files such as those of a mounted Secret: so that an installation needs no
//! commands.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use api_key::ApiKey;
use quota_client::QuotaClient;
use quota_client::wire::{ExportedAccount, ExportedKey, ImportRequest, KeyState, Scope};
use secrecy::SecretString;

use crate::password;
use crate::session::unix_now;

pub struct FirstAccount {
    login: String,
    password: SecretString,
    key: ApiKey,
}

impl FirstAccount {
    /// Reads the files `login`, `password` and `api-key` of a directory.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let text = fs::read_to_string(dir.join(name));
            let text =
                text.with_context(|| format!("can't read {name} in --first-account-dir {}", dir.display()))?;
            anyhow::Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        };
        let key = ApiKey::parse(&read("api-key")?)
            .context("api-key in --first-account-dir; create one with: quota-svc key generate")?;
        Ok(Self { login: read("login")?, password: read("password")?.into(), key })
    }

    /// Creates the account and its key, unless an account has this login. That one is not changed: its owner may have
    /// changed the password or deleted the key.
    pub async fn create(&self, quota: &QuotaClient) -> anyhow::Result<()> {
        if quota.find_account(&self.login).await?.is_some() {
            return Ok(());
        }
        let (password, login) = (self.password.clone(), self.login.clone());
        let credential = tokio::task::spawn_blocking(move || password::hash_new(&password, &login)).await??;
        let created_at = i64::try_from(unix_now() * 1000)?;
        let key = ExportedKey {
            sha256: self.key.digest().to_hex(),
            name: "first key".to_owned(),
            hint: self.key.hint(),
            scope: Scope::Full,
            state: KeyState::Active,
            state_since: created_at,
            created_at,
            daily_limit: None,
            usage: Vec::new(),
        };
        let account = ExportedAccount {
            login: self.login.clone(),
            created_at,
            credential: Some(credential),
            credential_version: 0,
            keys: vec![key],
        };
        let report = quota.import(&ImportRequest { accounts: vec![account] }).await?;
        ensure!(report.keys_refused == 0, "the API key belongs to another account");
        tracing::info!(login = self.login, "first account created");
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
