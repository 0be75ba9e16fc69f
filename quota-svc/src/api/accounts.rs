//! Accounts, their credentials and sessions.

use std::sync::Arc;

use poem_openapi::param::{Path, Query};
use poem_openapi::{ApiResponse, OpenApi};
use quota_api::{
    Account, AccountChange, AccountDeletion, AccountPage, Actor, Credential, EventList, NewAccount,
    NewSession, SetCredential, StoredAccount,
};
use service_kit::SerdeJson;

use super::Context;
use super::charges::Tag;
use super::error::{RequestError, Result};
use crate::domain::account::{Login, MAX_CREDENTIAL, MAX_SESSION_TTL, checked_change};
use crate::domain::id::AccountId;
use crate::domain::rejection::Rejection;
use crate::store::StoreError;

const MAX_PAGE: u32 = 500;

pub struct AccountsApi(pub Arc<Context>);

#[derive(ApiResponse)]
enum Created {
    /// The new account.
    #[oai(status = 201)]
    Account(SerdeJson<Account>),
}

#[derive(ApiResponse)]
pub(super) enum Done {
    /// Done.
    #[oai(status = 204)]
    Done,
}

#[OpenApi(tag = "Tag::Accounts")]
impl AccountsApi {
    /// Create an account
    ///
    /// An account without a credential can be used only by the operator.
    #[oai(path = "/accounts", method = "post", operation_id = "createAccount")]
    async fn create(&self, account: SerdeJson<NewAccount>) -> Result<Created> {
        let NewAccount { login, credential } = account.0;
        let login = Login::parse(&login).map_err(RequestError::Login)?;
        credential.as_deref().map_or(Ok(()), check_credential)?;
        let created = self.0.accounts.create_account(&login, credential.as_deref()).await?;
        Ok(Created::Account(SerdeJson(view(created))))
    }

    /// List accounts, or find one by its login
    ///
    /// Pages can be slightly larger or smaller than `limit`. The last one has no `next`.
    #[oai(path = "/accounts", method = "get", operation_id = "listAccounts")]
    async fn list(
        &self,
        /// Returns only the account with this login.
        login: Query<Option<String>>,
        /// `next` of the previous page.
        cursor: Query<Option<String>>,
        /// Approximate number of accounts per page. Default and maximum: 500.
        limit: Query<Option<u32>>,
    ) -> Result<SerdeJson<AccountPage>> {
        if let Some(login) = &login.0 {
            return self.find_by_login(login).await;
        }
        let limit = limit.0.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE) as usize;
        let page = self.0.accounts.page(cursor.0.as_deref(), limit).await?;
        let accounts = page.accounts.into_iter().map(|value| view(value.account)).collect();
        let unreadable = page.unreadable.iter().map(AccountId::to_string).collect();
        Ok(SerdeJson(AccountPage { accounts, total: page.total, next: page.next, unreadable }))
    }

    /// Show an account
    ///
    /// Without its credential and its keys, which have their own operations.
    #[oai(path = "/accounts/:id", method = "get", operation_id = "getAccount")]
    async fn show(&self, id: Path<String>) -> Result<SerdeJson<Account>> {
        Ok(SerdeJson(view(self.0.accounts.account(account_id(&id)?).await?)))
    }

    /// Suspend, restore or sign out an account, or change its role
    ///
    /// A change without an effect adds no event.
    #[oai(path = "/accounts/:id/changes", method = "post", operation_id = "changeAccount")]
    async fn change(
        &self,
        id: Path<String>,
        /// Who makes the change, for its event.
        actor: ActorParam,
        change: SerdeJson<AccountChange>,
    ) -> Result<SerdeJson<Account>> {
        let (id, actor) = (account_id(&id)?, parse_actor(&actor)?);
        let change = checked_change(&change.0).ok_or(RequestError::Reason)?;
        let accounts = self.0.accounts.clone();
        let changed = async move { accounts.change_account(id, &change, &actor).await };
        let value = self.0.complete(changed).await?;
        value.keys.keys().for_each(|key| self.0.invalidate(*key));
        Ok(SerdeJson(view(value.account)))
    }

    /// List an account's events
    ///
    /// What admins and the operator did with the account in the last 31 days, newest first.
    #[oai(path = "/accounts/:id/events", method = "get", operation_id = "listAccountEvents")]
    async fn events(&self, id: Path<String>) -> Result<SerdeJson<EventList>> {
        let events = self.0.accounts.account_events(account_id(&id)?).await?;
        Ok(SerdeJson(EventList { events }))
    }

    /// Delete an account with its keys and sessions
    ///
    /// Can be repeated if it was interrupted.
    #[oai(path = "/accounts/:id/deletion", method = "post", operation_id = "deleteAccount")]
    async fn delete(&self, id: Path<String>, deletion: SerdeJson<AccountDeletion>) -> Result<Done> {
        let AccountDeletion { expected_credential } = deletion.0;
        expected_credential.as_deref().map_or(Ok(()), check_credential)?;
        let (accounts, id) = (self.0.accounts.clone(), account_id(&id)?);
        let deletion = async move { accounts.delete_account(id, expected_credential.as_deref()).await };
        for key in self.0.complete(deletion).await? {
            self.0.invalidate(key);
        }
        Ok(Done::Done)
    }

    /// Show an account's credential
    ///
    /// With its version, which a change must name to detect a concurrent one.
    #[oai(path = "/accounts/:id/credential", method = "get", operation_id = "getCredential")]
    async fn credential(&self, id: Path<String>) -> Result<SerdeJson<Credential>> {
        let account = self.0.accounts.account(account_id(&id)?).await?;
        Ok(SerdeJson(Credential { credential: account.credential, version: account.credential_version }))
    }

    /// Replace an account's credential
    ///
    /// Revokes every session of the account except `keep_session`, unless `keep_all_sessions` is set.
    #[oai(path = "/accounts/:id/credential", method = "put", operation_id = "setCredential")]
    async fn set_credential(
        &self,
        id: Path<String>,
        change: SerdeJson<SetCredential>,
    ) -> Result<SerdeJson<Credential>> {
        let change = change.0;
        check_credential(&change.credential)?;
        change.keep_session.as_deref().map_or(Ok(()), check_session)?;
        change.expected_credential.as_deref().map_or(Ok(()), check_credential)?;
        let version = self.0.accounts.set_credential(account_id(&id)?, &change).await?;
        Ok(SerdeJson(Credential { credential: Some(change.credential), version }))
    }

    /// Create a session
    ///
    /// An account has at most 10 active sessions. Beyond that, the one that expires first is revoked.
    #[oai(path = "/accounts/:id/sessions", method = "post", operation_id = "createSession")]
    async fn add_session(&self, id: Path<String>, session: SerdeJson<NewSession>) -> Result<Done> {
        check_session(&session.0.id_sha256)?;
        session.0.expected_credential.as_deref().map_or(Ok(()), check_credential)?;
        if !(1..=MAX_SESSION_TTL).contains(&session.0.ttl_seconds) {
            return Err(RequestError::SessionTtl.into());
        }
        self.0.accounts.add_session(account_id(&id)?, &session.0).await?;
        Ok(Done::Done)
    }

    /// Show the account of an active session
    ///
    /// 404 if the session has expired, was revoked or does not exist.
    #[oai(path = "/accounts/:id/sessions/:session", method = "get", operation_id = "getSession")]
    async fn session(
        &self,
        id: Path<String>,
        /// SHA-256 of the session ID: 64 lowercase hexadecimal digits.
        session: Path<String>,
    ) -> Result<SerdeJson<Account>> {
        Ok(SerdeJson(view(self.0.accounts.account_of_session(account_id(&id)?, &session).await?)))
    }

    /// Revoke a session
    ///
    /// Also succeeds if the session has already ended.
    #[oai(path = "/accounts/:id/sessions/:session", method = "delete", operation_id = "deleteSession")]
    async fn revoke_session(
        &self,
        id: Path<String>,
        /// SHA-256 of the session ID: 64 lowercase hexadecimal digits.
        session: Path<String>,
    ) -> Result<Done> {
        self.0.accounts.revoke_session(account_id(&id)?, &session).await?;
        Ok(Done::Done)
    }
}

impl AccountsApi {
    async fn find_by_login(&self, login: &str) -> Result<SerdeJson<AccountPage>> {
        let login = Login::parse(login).map_err(RequestError::Login)?;
        let accounts = match self.0.accounts.account(login.account_id()).await {
            Ok(account) => vec![view(account)],
            Err(StoreError::Rejected(Rejection::AccountNotFound)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let (total, unreadable) = (accounts.len() as u64, Vec::new());
        Ok(SerdeJson(AccountPage { total, accounts, next: None, unreadable }))
    }
}

/// Parses the account ID in a path. A malformed ID gets 404, like an unknown one.
pub(super) fn account_id(text: &str) -> Result<AccountId> {
    AccountId::from_hex(text).map_err(|_| Rejection::AccountNotFound.into())
}

/// Who makes a change: `owner`, `operator`, `system`, or `admin:LOGIN`.
pub(super) type ActorParam = Query<String>;

pub(super) fn parse_actor(text: &str) -> Result<Actor, RequestError> {
    let known = [Actor::Owner, Actor::Operator, Actor::System];
    match text.strip_prefix("admin:").map(Login::parse) {
        Some(login) => Ok(Actor::Admin(login?.as_str().to_owned())),
        None => known.into_iter().find(|actor| actor.to_string() == text).ok_or(RequestError::Actor),
    }
}

fn view(account: StoredAccount) -> Account {
    let StoredAccount { login, created_at, credential_version, standing, .. } = account;
    let id = AccountId::of(&login).to_string();
    let (role, suspension) = (standing.role, standing.suspension);
    Account { id, login, created_at, credential_version, role, suspension }
}

fn check_credential(credential: &str) -> Result<(), RequestError> {
    match credential.is_empty() || credential.len() > MAX_CREDENTIAL {
        true => Err(RequestError::Credential),
        false => Ok(()),
    }
}

fn check_session(id_sha256: &str) -> Result<(), RequestError> {
    Ok(api_key::KeyDigest::from_hex(id_sha256).map(drop)?)
}
