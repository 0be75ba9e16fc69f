//! API keys: create, list, change, delete, usage and events.

use std::sync::Arc;

use api_key::ApiKey;
use poem_openapi::param::{Path, Query};
use poem_openapi::{ApiResponse, OpenApi};
use quota_api::{
    CreatedKey, DEFAULT_OVERLAP, EventList, KeyList, MAX_OVERLAP, NewKey, OwnedKey, Rotation, SetDailyLimit,
    SettingsChange, SettingsError, StateChange, UnreadableKey, Usage,
};
use service_kit::SerdeJson;

use super::Context;
use super::accounts::{ActorParam, Done, account_id, parse_actor};
use super::charges::Tag;
use super::error::{ApiError, RequestError, Result};
use crate::accounts::Seen;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{self, KeyChange, StoredKey};
use crate::domain::rejection::Rejection;
use crate::domain::value::KeyDraft;

pub struct KeysApi(pub Arc<Context>);

#[derive(ApiResponse)]
enum Created {
    /// The new key with its secret, which is returned only once.
    #[oai(status = 201)]
    Key(SerdeJson<CreatedKey>),
}

type Owner = Query<Option<String>>;
type KeyResult = Result<SerdeJson<OwnedKey>>;

#[OpenApi(tag = "Tag::Keys")]
impl KeysApi {
    /// List an account's keys
    ///
    /// Keys whose stored data is damaged are listed separately.
    #[oai(path = "/accounts/:id/keys", method = "get", operation_id = "listKeys")]
    async fn list(&self, id: Path<String>) -> Result<SerdeJson<KeyList>> {
        let Seen { value: listing, now } = self.0.accounts.keys(account_id(&id)?).await?;
        let keys = listing.keys.iter().map(|key| key.view(&self.0.limits, now)).collect();
        let unreadable = listing.unreadable.into_iter().map(unreadable_view).collect();
        Ok(SerdeJson(KeyList { keys, unreadable }))
    }

    /// Create a key
    ///
    /// The response is the only one that contains the key itself. Only its SHA-256 is stored.
    #[oai(path = "/accounts/:id/keys", method = "post", operation_id = "createKey")]
    async fn create(
        &self,
        id: Path<String>,
        /// Who creates the key, for its first event.
        actor: ActorParam,
        key: SerdeJson<NewKey>,
    ) -> Result<Created> {
        let NewKey { settings, daily_limit } = key.0;
        check_limit(daily_limit)?;
        let settings = settings.checked().map_err(RequestError::Settings)?;
        self.check_expiry(settings.expires_at).await?;
        let account = account_id(&id)?;
        let secret = account.generate_key().map_err(ApiError::internal)?;
        let draft = KeyDraft {
            new: NewKey { settings, daily_limit },
            digest: secret.digest(),
            hint: secret.hint(),
            actor: parse_actor(&actor)?,
        };
        let key_id = KeyId::of(&draft.digest);
        let accounts = self.0.accounts.clone();
        let result = self.0.complete(async move { accounts.create_key(account, draft).await }).await;
        let created = self.0.invalidate_after(key_id, result)?;
        Ok(self.created(&secret, &created))
    }

    /// Replace a key
    ///
    /// Creates a copy with a new secret, and lets the old key expire after the overlap. The copy needs a free place among the
    /// account's 10 keys. The two count separately.
    #[oai(path = "/keys/:id/rotate", method = "post", operation_id = "rotateKey")]
    async fn rotate(
        &self,
        id: Path<String>,
        account: Owner,
        /// Who replaces the key, for the events.
        actor: ActorParam,
        rotation: SerdeJson<Rotation>,
    ) -> Result<Created> {
        let overlap = rotation.0.overlap.unwrap_or(DEFAULT_OVERLAP);
        if overlap > MAX_OVERLAP {
            return Err(RequestError::Overlap.into());
        }
        let (id, owner) = parse_ids(&id, &account)?;
        let secret = id.generate_key().map_err(ApiError::internal)?;
        let (accounts, new, actor) = (self.0.accounts.clone(), secret.clone(), parse_actor(&actor)?);
        let rotation = async move { accounts.rotate_key(id, owner, &new, overlap, &actor).await };
        let result = self.0.complete(rotation).await;
        self.0.invalidate(KeyId::of(&secret.digest()));
        let created = self.0.invalidate_after(id, result)?;
        Ok(self.created(&secret, &created))
    }

    /// Show a key
    ///
    /// With its state, its limits and the requests of today.
    #[oai(path = "/keys/:id", method = "get", operation_id = "getKey")]
    async fn show(
        &self,
        id: Path<String>,
        /// Account that must own the key; a key of another account gets 404.
        account: Owner,
    ) -> KeyResult {
        let (id, owner) = parse_ids(&id, &account)?;
        Ok(self.to_response(&self.0.accounts.key(id, owner).await?))
    }

    /// Change a key's settings
    ///
    /// Changes only the given fields, such as the name.
    #[oai(path = "/keys/:id", method = "patch", operation_id = "changeKey")]
    async fn change_settings(
        &self,
        id: Path<String>,
        account: Owner,
        /// Who makes the change, for its event.
        actor: ActorParam,
        change: SerdeJson<SettingsChange>,
    ) -> KeyResult {
        let change = change.0.checked().map_err(RequestError::Settings)?;
        self.check_expiry(change.expires_at.value().copied()).await?;
        self.change(&id, &account, actor, KeyChange::Settings(change)).await
    }

    /// Set a key's daily limit
    ///
    /// Applies from the next charge on. The requests of today stay counted.
    #[oai(path = "/keys/:id/daily-limit", method = "put", operation_id = "setDailyLimit")]
    async fn limit(
        &self,
        id: Path<String>,
        account: Owner,
        /// Who makes the change, for its event.
        actor: ActorParam,
        limit: SerdeJson<SetDailyLimit>,
    ) -> KeyResult {
        check_limit(limit.0.daily_limit)?;
        self.change(&id, &account, actor, KeyChange::DailyLimit(limit.0.daily_limit)).await
    }

    /// Resume, deactivate or reactivate a key
    ///
    /// A key that already has the new state stays as it is. To resume an inactive key, or to reactivate a paused one, gets
    /// 409.
    #[oai(path = "/keys/:id/:change", method = "post", operation_id = "changeKeyState")]
    async fn change_state(
        &self,
        id: Path<String>,
        change: Path<StateChange>,
        account: Owner,
        /// Who makes the change, for its event.
        actor: ActorParam,
    ) -> KeyResult {
        self.change(&id, &account, actor, KeyChange::State(change.0)).await
    }

    /// Delete a key
    ///
    /// Permanent. The key no longer counts toward the limit of its account.
    #[oai(path = "/keys/:id", method = "delete", operation_id = "deleteKey")]
    async fn delete(&self, id: Path<String>, account: Owner) -> Result<Done> {
        let (id, owner) = parse_ids(&id, &account)?;
        let accounts = self.0.accounts.clone();
        let result = self.0.complete(async move { accounts.delete_key(id, owner).await }).await;
        self.0.invalidate_after(id, result)?;
        Ok(Done::Done)
    }

    /// Show a key's usage by day
    ///
    /// The allowed requests of the last 31 days.
    #[oai(path = "/keys/:id/usage", method = "get", operation_id = "getKeyUsage")]
    async fn usage(&self, id: Path<String>, account: Owner) -> Result<SerdeJson<Usage>> {
        let (id, owner) = parse_ids(&id, &account)?;
        let key = self.0.accounts.key(id, owner).await?;
        Ok(SerdeJson(Usage { days: key.record.usage(key.now) }))
    }

    /// List a key's events
    ///
    /// The history of the last 31 days, newest first.
    #[oai(path = "/keys/:id/events", method = "get", operation_id = "listKeyEvents")]
    async fn events(&self, id: Path<String>, account: Owner) -> Result<SerdeJson<EventList>> {
        let (id, owner) = parse_ids(&id, &account)?;
        Ok(SerdeJson(EventList { events: self.0.accounts.events(id, owner).await? }))
    }
}

impl KeysApi {
    /// Rejects a time that is not in the future.
    async fn check_expiry(&self, expires_at: Option<u32>) -> Result<()> {
        match expires_at {
            Some(at) if i64::from(at) * 1000 <= self.0.accounts.now().await? => {
                Err(RequestError::Settings(SettingsError::Expiry).into())
            }
            _ => Ok(()),
        }
    }

    fn created(&self, secret: &ApiKey, created: &StoredKey) -> Created {
        let key = created.view(&self.0.limits, created.meta.created_at);
        Created::Key(SerdeJson(CreatedKey { secret: secret.expose().to_owned(), key }))
    }

    async fn change(&self, id: &str, account: &Owner, actor: ActorParam, change: KeyChange) -> KeyResult {
        let (id, owner) = parse_ids(id, account)?;
        let result = self.0.accounts.change_key(id, owner, &change, &parse_actor(&actor)?).await;
        Ok(self.to_response(&self.0.invalidate_after(id, result)?))
    }

    fn to_response(&self, key: &Seen<StoredKey>) -> SerdeJson<OwnedKey> {
        let account = key.meta.account.to_string();
        SerdeJson(OwnedKey { account, key: key.view(&self.0.limits, key.now) })
    }
}

/// Parses the key ID and the optional account ID. A malformed ID gets 404, like an unknown one.
fn parse_ids(key: &str, account: &Owner) -> Result<(KeyId, Option<AccountId>)> {
    let key = KeyId::from_hex(key).map_err(|_| Rejection::KeyNotFound)?;
    let owner = account.0.as_deref().map(AccountId::from_hex).transpose();
    Ok((key, owner.map_err(|_| Rejection::KeyNotFound)?))
}

fn check_limit(limit: Option<u32>) -> Result<(), RequestError> {
    if limit == Some(0) { Err(RequestError::DailyLimit) } else { Ok(()) }
}

fn unreadable_view(key: key::UnreadableKey) -> UnreadableKey {
    let key::UnreadableKey { id, meta, reason } = key;
    let (name, hint) = meta.map(|meta| (meta.settings.name, meta.hint)).unzip();
    UnreadableKey { id: id.to_string(), name, hint, reason }
}
