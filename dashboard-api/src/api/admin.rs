//! Operations of admins on all accounts and keys. They see neither keys nor passwords.

use std::sync::Arc;
use std::time::Duration;

use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use quota_client::wire::{
    self, AccountAction, AccountChange, AccountPage, DayUsage, Event, NewAccount, Overview, OwnedKey,
    SessionKind, SetDailyLimit, StateChange, UsageCount,
};
use quota_client::{ClientError, found};
use serde::{Deserialize, Serialize};
use service_kit::SerdeJson;

use super::Tag;
use super::account::Done;
use super::context::{Admin, Context, SessionRequired};
use super::keys::{KeyList, KeyWithPause};
use crate::error::{Error, Result};
use crate::password_link::{INVITATION_TTL, LinkToken, RESET_TTL};

/// Accounts per page.
const PAGE: u32 = 50;

/// An account with its keys and events, for an admin.
#[derive(Object, Serialize)]
pub struct AccountDetails {
    /// The account.
    pub account: wire::Account,
    /// Its keys.
    pub keys: KeyList,
    /// What admins and the operator did with the account in the last 31 days, newest first.
    pub events: Vec<Event>,
}

/// A key with its usage and events, for an admin.
#[derive(Object, Serialize)]
pub struct KeyDetails {
    /// ID of the key's account.
    pub account: String,
    /// The key.
    pub key: KeyWithPause,
    /// The last 31 days (UTC), oldest first and ending with today, including days without requests.
    pub usage: Vec<DayUsage>,
    /// Up to 100 events of the last 31 days, newest first.
    pub events: Vec<Event>,
}

/// A link with which an owner sets a password, once. Anyone who has it can do so: send it to the owner only.
#[derive(Object, Serialize)]
pub struct PasswordLink {
    /// Login of the account.
    pub login: String,
    /// The link.
    pub link: String,
    /// How long the link is valid, in seconds.
    pub expires_in: u64,
}

/// Which account is meant.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginBody {
    /// Login of the account.
    pub login: String,
}

pub struct AdminApi(pub Arc<Context>);

type LinkResult = Result<SerdeJson<PasswordLink>>;

#[OpenApi(tag = "Tag::Admin")]
impl AdminApi {
    /// Get the service in numbers
    ///
    /// Takes about the same time for any number of accounts.
    #[oai(path = "/admin/overview", method = "get", operation_id = "getOverview")]
    async fn overview(&self, request: SessionRequired) -> Result<SerdeJson<Overview>> {
        let admin = self.0.admin(&request).await?;
        Ok(SerdeJson(admin.quota.overview().await?))
    }

    /// Count keys by state, and the requests of today
    ///
    /// One page of accounts per call, because every key is read. Add up the pages.
    #[oai(path = "/admin/counts", method = "get", operation_id = "countKeys")]
    async fn counts(
        &self,
        request: SessionRequired,
        /// `next` of the previous page.
        cursor: Query<Option<String>>,
    ) -> Result<SerdeJson<UsageCount>> {
        let admin = self.0.admin(&request).await?;
        Ok(SerdeJson(admin.quota.count_keys(cursor.0.as_deref()).await?))
    }

    /// List accounts, or find one
    ///
    /// In no particular order. A page has about 50 accounts.
    #[oai(path = "/admin/accounts", method = "get", operation_id = "listAccounts")]
    async fn accounts(
        &self,
        request: SessionRequired,
        /// Returns only the account with this login.
        login: Query<Option<String>>,
        /// Returns only the account that has the key with this ID.
        key: Query<Option<String>>,
        /// `next` of the previous page.
        cursor: Query<Option<String>>,
    ) -> Result<SerdeJson<AccountPage>> {
        let quota = self.0.admin(&request).await?.quota;
        let found = match (&login.0, &key.0) {
            (None, None) => {
                let page = quota.list_accounts(cursor.0.as_deref(), PAGE).await?;
                return Ok(SerdeJson(page));
            }
            (Some(login), _) => quota.find_account(login).await,
            (None, Some(id)) => match quota.key(id, None).await {
                Ok(key) => Ok(Some(of_other(quota.account(&key.account).await)?)),
                Err(error) if error.code() == Some("key_not_found") => Ok(None),
                Err(error) => Err(error),
            },
        };
        let accounts: Vec<_> = found?.into_iter().collect();
        let (total, unreadable) = (accounts.len() as u64, Vec::new());
        Ok(SerdeJson(AccountPage { accounts, total, next: None, unreadable }))
    }

    /// Get an account
    ///
    /// With its keys and its events.
    #[oai(path = "/admin/accounts/:id", method = "get", operation_id = "getAccountDetails")]
    async fn account(&self, request: SessionRequired, id: Path<String>) -> Result<SerdeJson<AccountDetails>> {
        let quota = self.0.admin(&request).await?.quota;
        let account = of_other(quota.account(&id).await)?;
        let keys = of_other(quota.keys(&id).await)?.into();
        let events = of_other(quota.account_events(&id).await)?.events;
        Ok(SerdeJson(AccountDetails { account, keys, events }))
    }

    /// Suspend, restore or sign out an account
    ///
    /// A suspended account's keys get 403. Its owner can sign in and sees the reason, but can change nothing. Only the operator
    /// changes roles, on the command line.
    #[oai(path = "/admin/accounts/:id/changes", method = "post", operation_id = "changeAccount")]
    async fn change(
        &self,
        request: SessionRequired,
        id: Path<String>,
        change: SerdeJson<AccountChange>,
    ) -> Result<SerdeJson<wire::Account>> {
        let admin = self.0.admin(&request).await?;
        admin.check_other(&id)?;
        use AccountAction::{EndSessions, Restore, Suspend};
        match change.0.action {
            Suspend | Restore | EndSessions => {
                Ok(SerdeJson(of_other(admin.quota.change_account(&id, &change.0).await)?))
            }
            _ => Err(Error::OperatorOnly),
        }
    }

    /// Invite an owner
    ///
    /// Creates an account, unless it exists without a password, and a link with which its owner sets one.
    #[oai(path = "/admin/invitations", method = "post", operation_id = "invite")]
    async fn invite(&self, request: SessionRequired, invitation: SerdeJson<LoginBody>) -> LinkResult {
        let admin = self.0.admin(&request).await?;
        let login = invitation.0.login;
        let account = match admin.quota.find_account(&login).await? {
            Some(account) if account.credential_version > 0 => {
                return Err(Error::LOGIN_TAKEN);
            }
            Some(account) => account,
            None => {
                let account = NewAccount { login, credential: None };
                admin.quota.create_account(&account).await?
            }
        };
        self.link(&admin, account, INVITATION_TTL).await
    }

    /// Create a link to set an account's password
    ///
    /// Until it is used, the old password is valid.
    #[oai(path = "/admin/accounts/:id/password-link", method = "post", operation_id = "createPasswordLink")]
    async fn password_link(&self, request: SessionRequired, id: Path<String>) -> LinkResult {
        let admin = self.0.admin(&request).await?;
        // A stolen session must not be able to set the password without the current one.
        admin.check_other(&id)?;
        let account = of_other(admin.quota.account(&id).await)?;
        self.link(&admin, account, RESET_TTL).await
    }

    /// Delete an account with its keys
    ///
    /// Permanent. The login must be given, to confirm it.
    #[oai(path = "/admin/accounts/:id/delete", method = "post", operation_id = "deleteAccountOf")]
    async fn delete(
        &self,
        request: SessionRequired,
        id: Path<String>,
        deletion: SerdeJson<LoginBody>,
    ) -> Result<Done> {
        let admin = self.0.admin(&request).await?;
        admin.check_other(&id)?;
        let account = of_other(admin.quota.account(&id).await)?;
        if account.login != deletion.0.login.trim().to_lowercase() {
            return Err(Error::WRONG_LOGIN);
        }
        of_other(admin.quota.delete_account(&id, None).await)?;
        Ok(Done::Done)
    }

    /// Get a key of any account
    ///
    /// With its usage and its events.
    #[oai(path = "/admin/keys/:id", method = "get", operation_id = "getKeyDetails")]
    async fn key(&self, request: SessionRequired, id: Path<String>) -> Result<SerdeJson<KeyDetails>> {
        let quota = self.0.admin(&request).await?.quota;
        let OwnedKey { key, account } = quota.key(&id, None).await?;
        let events = quota.events(&id, None).await?.events;
        let usage = quota.usage(&id, None).await?.days;
        Ok(SerdeJson(KeyDetails { account, key: key.into(), usage, events }))
    }

    /// Set a key's daily limit
    ///
    /// Applies from the next request on.
    #[oai(path = "/admin/keys/:id/daily-limit", method = "put", operation_id = "setDailyLimit")]
    async fn limit(
        &self,
        request: SessionRequired,
        id: Path<String>,
        limit: SerdeJson<SetDailyLimit>,
    ) -> Result<SerdeJson<OwnedKey>> {
        let admin = self.0.admin(&request).await?;
        Ok(SerdeJson(admin.quota.set_daily_limit(&id, &limit.0).await?))
    }

    /// Deactivate a key of any account
    ///
    /// Requests with it get 403 until its owner reactivates it.
    #[oai(path = "/admin/keys/:id/deactivate", method = "post", operation_id = "deactivateKeyOf")]
    async fn deactivate(&self, request: SessionRequired, id: Path<String>) -> Result<SerdeJson<OwnedKey>> {
        let admin = self.0.admin(&request).await?;
        Ok(SerdeJson(admin.quota.change_state(&id, None, StateChange::Deactivate).await?))
    }
}

impl AdminApi {
    async fn link(&self, admin: &Admin, account: wire::Account, ttl: Duration) -> LinkResult {
        let token = LinkToken::generate(&account.id)?;
        of_other(token.store(&admin.quota, SessionKind::Link, ttl).await)?;
        let link = token.link(&self.0.dashboard_url);
        let event = AccountChange::new(AccountAction::PasswordLink);
        of_other(admin.quota.change_account(&account.id, &event).await)?;
        let (login, expires_in) = (account.login, ttl.as_secs());
        Ok(SerdeJson(PasswordLink { login, link, expires_in }))
    }
}

/// Maps a missing account to 404. Elsewhere it means that the session's own account is gone (401).
fn of_other<T>(result: Result<T, ClientError>) -> Result<T> {
    found(result)?.ok_or(Error::NO_SUCH_ACCOUNT)
}
