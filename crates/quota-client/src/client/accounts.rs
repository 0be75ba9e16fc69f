//! Accounts, their credentials and their sessions.

use http::Method;

use super::QuotaClient;
use crate::error::ClientError;
use crate::wire::{Account, AccountPage, Credential, NewAccount, NewSession, SetCredential};

impl QuotaClient {
    /// Creates an account; `account_exists` where the login is taken.
    pub async fn create_account(&self, account: &NewAccount) -> Result<Account, ClientError> {
        self.send(Method::POST, &["accounts"], &[], account).await
    }

    /// The account that signs in with `login`, if there is one.
    pub async fn find_account(&self, login: &str) -> Result<Option<Account>, ClientError> {
        let page: AccountPage = self.get(&["accounts"], &[("login", login)]).await?;
        Ok(page.accounts.into_iter().next())
    }

    /// A page of at most `limit` accounts, from the start or from the last page's `next`.
    pub async fn list_accounts(&self, cursor: Option<&str>, limit: u32) -> Result<AccountPage, ClientError> {
        self.page(&["accounts"], cursor, limit).await
    }

    /// The account with this id; `account_not_found` where there is none.
    pub async fn account(&self, id: &str) -> Result<Account, ClientError> {
        self.get(&["accounts", id], &[]).await
    }

    /// Deletes the account with its keys and sessions.
    pub async fn delete_account(&self, id: &str) -> Result<(), ClientError> {
        self.done(self.call(Method::DELETE, &["accounts", id])?).await
    }

    /// The account's credential with its version.
    pub async fn credential(&self, account: &str) -> Result<Credential, ClientError> {
        self.get(&["accounts", account, "credential"], &[]).await
    }

    /// Replaces the credential and ends the other sessions; `version_conflict` where somebody else was faster.
    pub async fn set_credential(
        &self,
        account: &str,
        change: &SetCredential,
    ) -> Result<Credential, ClientError> {
        self.send(Method::PUT, &["accounts", account, "credential"], &[], change).await
    }

    /// Keeps a session with the account.
    pub async fn create_session(&self, account: &str, session: &NewSession) -> Result<(), ClientError> {
        let call = self.call(Method::POST, &["accounts", account, "sessions"])?.json(session)?;
        self.done(call).await
    }

    /// Whether the account has this session and it lives.
    pub async fn session_lives(&self, account: &str, id_sha256: &str) -> Result<bool, ClientError> {
        let call = self.call(Method::GET, &["accounts", account, "sessions", id_sha256])?;
        match self.done(call).await {
            Ok(()) => Ok(true),
            Err(error) if error.code() == Some("session_not_found") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends a session.
    pub async fn delete_session(&self, account: &str, id_sha256: &str) -> Result<(), ClientError> {
        self.done(self.call(Method::DELETE, &["accounts", account, "sessions", id_sha256])?).await
    }
}
