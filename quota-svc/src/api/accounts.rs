//! Accounts, their credentials and sessions.

use std::sync::Arc;

use poem_openapi::param::{Path, Query};
use poem_openapi::{ApiResponse, OpenApi};
use quota_client::wire::{Account, AccountPage, Credential, NewAccount, NewSession, SetCredential};
use service_kit::SerdeJson;

use super::charges::Tag;
use super::context::Context;
use super::error::ApiError;
use crate::domain::account::{Login, MAX_CREDENTIAL, MAX_SESSION_TTL};
use crate::domain::id::AccountId;
use crate::present;
use crate::store::StoreError;

/// The most accounts on a page.
const PAGE: u32 = 500;

/// Accounts.
pub struct AccountsApi(pub Arc<Context>);

/// An account that was created.
#[derive(ApiResponse)]
enum Created {
    /// The account.
    #[oai(status = 201)]
    Account(SerdeJson<Account>),
}

/// Done; there is nothing to show.
#[derive(ApiResponse)]
pub(super) enum Done {
    /// Done.
    #[oai(status = 204)]
    Done,
}

#[OpenApi(tag = "Tag::Accounts")]
impl AccountsApi {
    /// Create an account
    #[oai(path = "/accounts", method = "post", operation_id = "createAccount")]
    async fn create(&self, account: SerdeJson<NewAccount>) -> Result<Created, ApiError> {
        let NewAccount { login, credential } = account.0;
        let login = parse_login(&login)?;
        if let Some(credential) = &credential {
            check_credential(credential)?;
        }
        let created = self.0.store.create_account(&login, credential.as_deref()).await?;
        Ok(Created::Account(SerdeJson(present::account(&created))))
    }

    /// List accounts, or find one by its login
    #[oai(path = "/accounts", method = "get", operation_id = "listAccounts")]
    async fn list(
        &self,
        /// Only the account with this login.
        login: Query<Option<String>>,
        /// Where to go on: `next` of the page before.
        cursor: Query<Option<String>>,
        /// About how many to show, at most 500.
        limit: Query<Option<u32>>,
    ) -> Result<SerdeJson<AccountPage>, ApiError> {
        if let Some(login) = &login.0 {
            return self.find(login).await;
        }
        let limit = limit.0.unwrap_or(PAGE).clamp(1, PAGE) as usize;
        let page = self.0.store.accounts(cursor.0.as_deref(), limit).await?;
        let accounts = page.items.iter().map(present::account).collect();
        Ok(SerdeJson(AccountPage { accounts, total: page.total, next: page.next }))
    }

    /// Show an account
    #[oai(path = "/accounts/:id", method = "get", operation_id = "getAccount")]
    async fn show(&self, id: Path<String>) -> Result<SerdeJson<Account>, ApiError> {
        let account = self.0.store.account(account_id(&id)?).await?;
        Ok(SerdeJson(present::account(&account)))
    }

    /// Delete an account with its keys and sessions
    #[oai(path = "/accounts/:id", method = "delete", operation_id = "deleteAccount")]
    async fn delete(&self, id: Path<String>) -> Result<Done, ApiError> {
        for key in self.0.store.delete_account(account_id(&id)?).await? {
            self.0.charging.changed(key);
        }
        Ok(Done::Done)
    }

    /// Show an account's credential
    #[oai(path = "/accounts/:id/credential", method = "get", operation_id = "getCredential")]
    async fn credential(&self, id: Path<String>) -> Result<SerdeJson<Credential>, ApiError> {
        let account = self.0.store.account(account_id(&id)?).await?;
        Ok(SerdeJson(Credential { credential: account.credential, version: account.credential_version }))
    }

    /// Replace an account's credential
    ///
    /// Ends every session of the account except `keep_session`.
    #[oai(path = "/accounts/:id/credential", method = "put", operation_id = "setCredential")]
    async fn set_credential(
        &self,
        id: Path<String>,
        change: SerdeJson<SetCredential>,
    ) -> Result<SerdeJson<Credential>, ApiError> {
        let SetCredential { credential, expected_version, keep_session } = change.0;
        check_credential(&credential)?;
        if let Some(session) = &keep_session {
            check_session(session)?;
        }
        let id = account_id(&id)?;
        let keep = keep_session.as_deref();
        let version = self.0.store.set_credential(id, expected_version, &credential, keep).await?;
        Ok(SerdeJson(Credential { credential: Some(credential), version }))
    }

    /// Keep a session with an account
    ///
    /// At most 10 live at once; the one that ends first makes room.
    #[oai(path = "/accounts/:id/sessions", method = "post", operation_id = "createSession")]
    async fn add_session(&self, id: Path<String>, session: SerdeJson<NewSession>) -> Result<Done, ApiError> {
        let NewSession { id_sha256, ttl_seconds } = session.0;
        check_session(&id_sha256)?;
        if !(1..=MAX_SESSION_TTL).contains(&ttl_seconds) {
            let message = format!("ttl_seconds is 1 to {MAX_SESSION_TTL}");
            return Err(ApiError::invalid("invalid_session", message));
        }
        self.0.store.add_session(account_id(&id)?, &id_sha256, ttl_seconds).await?;
        Ok(Done::Done)
    }

    /// Ask whether a session lives
    #[oai(path = "/accounts/:id/sessions/:session", method = "get", operation_id = "getSession")]
    async fn session(&self, id: Path<String>, session: Path<String>) -> Result<Done, ApiError> {
        match self.0.store.has_session(account_id(&id)?, &session).await? {
            true => Ok(Done::Done),
            false => Err(StoreError::SessionNotFound.into()),
        }
    }

    /// End a session
    #[oai(path = "/accounts/:id/sessions/:session", method = "delete", operation_id = "deleteSession")]
    async fn end_session(&self, id: Path<String>, session: Path<String>) -> Result<Done, ApiError> {
        self.0.store.end_session(account_id(&id)?, &session).await?;
        Ok(Done::Done)
    }
}

impl AccountsApi {
    async fn find(&self, login: &str) -> Result<SerdeJson<AccountPage>, ApiError> {
        let accounts = match self.0.store.account(parse_login(login)?.account_id()).await {
            Ok(account) => vec![present::account(&account)],
            Err(StoreError::AccountNotFound) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(SerdeJson(AccountPage { total: accounts.len() as u64, accounts, next: None }))
    }
}

/// The id in a path: what can't be one does not exist.
pub(super) fn account_id(text: &str) -> Result<AccountId, ApiError> {
    AccountId::from_hex(text).map_err(|_| StoreError::AccountNotFound.into())
}

fn parse_login(text: &str) -> Result<Login, ApiError> {
    Login::parse(text).map_err(|error| ApiError::invalid("invalid_login", error))
}

fn check_credential(credential: &str) -> Result<(), ApiError> {
    if credential.is_empty() || credential.len() > MAX_CREDENTIAL {
        let message = format!("a credential has 1 to {MAX_CREDENTIAL} bytes");
        return Err(ApiError::invalid("invalid_credential", message));
    }
    Ok(())
}

fn check_session(id_sha256: &str) -> Result<(), ApiError> {
    match api_key::KeyDigest::from_hex(id_sha256) {
        Ok(_) => Ok(()),
        Err(error) => Err(ApiError::invalid("invalid_session", error)),
    }
}
