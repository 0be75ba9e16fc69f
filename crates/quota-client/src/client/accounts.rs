//! Calls for accounts, credentials and sessions.

use http::Method;

use super::QuotaClient;
use crate::error::ClientError;
use quota_api::{Account, AccountDeletion, AccountPage, Credential, NewAccount, NewSession, SetCredential};

impl QuotaClient {
    /// Creates an account. Fails with `account_exists` if the login is taken.
    pub async fn create_account(&self, account: &NewAccount) -> Result<Account, ClientError> {
        self.send_json(Method::POST, &["accounts"], &[], account).await
    }

    /// Finds an account by its login.
    pub async fn find_account(&self, login: &str) -> Result<Option<Account>, ClientError> {
        let page: AccountPage = self.get(&["accounts"], &[("login", login)]).await?;
        Ok(page.accounts.into_iter().next())
    }

    /// Lists a page of about `limit` accounts. `cursor` is the `next` of the previous page.
    pub async fn list_accounts(&self, cursor: Option<&str>, limit: u32) -> Result<AccountPage, ClientError> {
        self.page(&["accounts"], cursor, limit, &[]).await
    }

    /// Returns an account by its ID. Fails with `account_not_found` if there is none.
    pub async fn account(&self, id: &str) -> Result<Account, ClientError> {
        self.get(&["accounts", id], &[]).await
    }

    /// Deletes an account with its keys and sessions.
    pub async fn delete_account(&self, id: &str) -> Result<(), ClientError> {
        self.send_no_content(self.request(Method::DELETE, &["accounts", id], &[])?).await
    }

    /// Like [`Self::delete_account`]. Fails with `version_conflict` if the expected credential is outdated.
    pub async fn confirm_account_deletion(
        &self,
        id: &str,
        deletion: &AccountDeletion,
    ) -> Result<(), ClientError> {
        let request = self.request(Method::POST, &["accounts", id, "deletion"], &[])?;
        self.send_no_content(request.json(deletion)).await
    }

    /// Returns an account's credential and its version.
    pub async fn credential(&self, account: &str) -> Result<Credential, ClientError> {
        self.get(&["accounts", account, "credential"], &[]).await
    }

    /// Replaces the credential and revokes all sessions except `keep_session`. Fails with `version_conflict` after a
    /// concurrent change.
    pub async fn set_credential(
        &self,
        account: &str,
        change: &SetCredential,
    ) -> Result<Credential, ClientError> {
        self.send_json(Method::PUT, &["accounts", account, "credential"], &[], change).await
    }

    /// Stores a session of an account. Fails with `version_conflict` if `expected_credential` is outdated.
    pub async fn create_session(&self, account: &str, session: &NewSession) -> Result<(), ClientError> {
        let request = self.request(Method::POST, &["accounts", account, "sessions"], &[])?;
        self.send_no_content(request.json(session)).await
    }

    /// Returns whether the session exists and has not expired.
    pub async fn session_is_active(&self, account: &str, id_sha256: &str) -> Result<bool, ClientError> {
        let request = self.request(Method::GET, &["accounts", account, "sessions", id_sha256], &[])?;
        match self.send_no_content(request).await {
            Ok(()) => Ok(true),
            Err(error) if error.code() == Some("session_not_found") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Revokes a session.
    pub async fn delete_session(&self, account: &str, id_sha256: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["accounts", account, "sessions", id_sha256], &[])?;
        self.send_no_content(request).await
    }
}
