//! API keys: creating, listing, and the changes their owners make.

use std::sync::Arc;

use api_key::ApiKey;
use poem_openapi::param::{Path, Query};
use poem_openapi::{ApiResponse, OpenApi};
use quota_client::wire::{CreatedKey, Event, EventList, Key, KeyList, NewKey, Rename, SetDailyLimit, Usage};
use service_kit::SerdeJson;

use super::accounts::{Done, account_id};
use super::charges::Tag;
use super::context::Context;
use super::error::ApiError;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{Change, KeyName, StoredKey};
use crate::present;
use crate::store::{KeyDraft, StoreError};

/// API keys.
pub struct KeysApi(pub Arc<Context>);

/// A key that was created.
#[derive(ApiResponse)]
enum Created {
    /// The key, shown this once.
    #[oai(status = 201)]
    Key(SerdeJson<CreatedKey>),
}

type Owner = Query<Option<String>>;
type Shown = Result<SerdeJson<Key>, ApiError>;

#[OpenApi(tag = "Tag::Keys")]
impl KeysApi {
    /// List an account's keys
    #[oai(path = "/accounts/:id/keys", method = "get", operation_id = "listKeys")]
    async fn list(&self, id: Path<String>) -> Result<SerdeJson<KeyList>, ApiError> {
        let keys = self.0.store.keys(account_id(&id)?).await?;
        let now = self.0.store.now().await?;
        let keys = keys.iter().map(|key| present::key(key, &self.0.limits, now)).collect();
        Ok(SerdeJson(KeyList { keys }))
    }

    /// Create a key
    #[oai(path = "/accounts/:id/keys", method = "post", operation_id = "createKey")]
    async fn create(&self, id: Path<String>, key: SerdeJson<NewKey>) -> Result<Created, ApiError> {
        let NewKey { name, scope, daily_limit } = key.0;
        check_limit(daily_limit)?;
        let secret = ApiKey::generate().map_err(ApiError::internal)?;
        let draft = KeyDraft {
            name: parse_name(&name)?,
            digest: secret.digest(),
            hint: secret.hint(),
            scope,
            daily_limit,
        };
        let id_of_key = KeyId::of(&draft.digest);
        let created = self.0.store.create_key(account_id(&id)?, draft).await;
        let created = self.0.changed(id_of_key, created)?;
        let key = present::key(&created, &self.0.limits, created.meta.created_at);
        Ok(Created::Key(SerdeJson(CreatedKey { secret: secret.expose().to_owned(), key })))
    }

    /// Show a key
    #[oai(path = "/keys/:id", method = "get", operation_id = "getKey")]
    async fn show(
        &self,
        id: Path<String>,
        /// The account that must hold the key; a key of another one is not found.
        account: Owner,
    ) -> Shown {
        let (id, owner) = ids(&id, &account)?;
        self.shown(self.0.store.key(id, owner).await?).await
    }

    /// Rename a key
    #[oai(path = "/keys/:id/name", method = "put", operation_id = "renameKey")]
    async fn rename(&self, id: Path<String>, account: Owner, name: SerdeJson<Rename>) -> Shown {
        let name = parse_name(&name.0.name)?;
        self.change(&id, &account, Change::Rename(name)).await
    }

    /// Set a key's daily limit
    #[oai(path = "/keys/:id/daily-limit", method = "put", operation_id = "setDailyLimit")]
    async fn limit(&self, id: Path<String>, account: Owner, limit: SerdeJson<SetDailyLimit>) -> Shown {
        check_limit(limit.0.daily_limit)?;
        self.change(&id, &account, Change::DailyLimit(limit.0.daily_limit)).await
    }

    /// Resume a paused key
    ///
    /// Fine for an active key, which stays as it is; an inactive one is refused.
    #[oai(path = "/keys/:id/resume", method = "post", operation_id = "resumeKey")]
    async fn resume(&self, id: Path<String>, account: Owner) -> Shown {
        self.change(&id, &account, Change::Resume).await
    }

    /// Deactivate a key
    #[oai(path = "/keys/:id/deactivate", method = "post", operation_id = "deactivateKey")]
    async fn deactivate(&self, id: Path<String>, account: Owner) -> Shown {
        self.change(&id, &account, Change::Deactivate).await
    }

    /// Reactivate an inactive key
    #[oai(path = "/keys/:id/reactivate", method = "post", operation_id = "reactivateKey")]
    async fn reactivate(&self, id: Path<String>, account: Owner) -> Shown {
        self.change(&id, &account, Change::Reactivate).await
    }

    /// Delete a key
    #[oai(path = "/keys/:id", method = "delete", operation_id = "deleteKey")]
    async fn delete(&self, id: Path<String>, account: Owner) -> Result<Done, ApiError> {
        let (id, owner) = ids(&id, &account)?;
        let deleted = self.0.store.delete_key(id, owner).await;
        self.0.changed(id, deleted)?;
        Ok(Done::Done)
    }

    /// Show a key's usage by day
    #[oai(path = "/keys/:id/usage", method = "get", operation_id = "getKeyUsage")]
    async fn usage(&self, id: Path<String>, account: Owner) -> Result<SerdeJson<Usage>, ApiError> {
        let (id, owner) = ids(&id, &account)?;
        let key = self.0.store.key(id, owner).await?;
        let now = self.0.store.now().await?;
        Ok(SerdeJson(Usage { days: present::usage(&key.record, now) }))
    }

    /// Show what happened to a key
    #[oai(path = "/keys/:id/events", method = "get", operation_id = "listKeyEvents")]
    async fn events(&self, id: Path<String>, account: Owner) -> Result<SerdeJson<EventList>, ApiError> {
        let (id, owner) = ids(&id, &account)?;
        let events = self.0.store.events(id, owner).await?.into_iter();
        let events = events.map(|event| Event { at: event.at, kind: event.kind, reason: event.reason });
        Ok(SerdeJson(EventList { events: events.collect() }))
    }
}

impl KeysApi {
    async fn change(&self, id: &str, account: &Owner, change: Change) -> Shown {
        let (id, owner) = ids(id, account)?;
        let changed = self.0.store.change_key(id, owner, &change).await;
        self.shown(self.0.changed(id, changed)?).await
    }

    async fn shown(&self, key: StoredKey) -> Shown {
        let now = self.0.store.now().await?;
        Ok(SerdeJson(present::key(&key, &self.0.limits, now)))
    }
}

/// The ids of a request: what can't be one does not exist.
fn ids(key: &str, account: &Owner) -> Result<(KeyId, Option<AccountId>), ApiError> {
    let key = KeyId::from_hex(key).map_err(|_| StoreError::KeyNotFound)?;
    let owner = account.0.as_deref().map(AccountId::from_hex).transpose();
    Ok((key, owner.map_err(|_| StoreError::KeyNotFound)?))
}

fn parse_name(text: &str) -> Result<KeyName, ApiError> {
    KeyName::parse(text).map_err(|error| ApiError::invalid("invalid_name", error))
}

fn check_limit(limit: Option<u32>) -> Result<(), ApiError> {
    match limit {
        Some(0) => Err(ApiError::invalid("invalid_limit", "a daily limit is at least 1")),
        _ => Ok(()),
    }
}
