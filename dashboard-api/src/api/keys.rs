//! Operations on the keys of the signed-in account.

use std::sync::Arc;

use poem_openapi::param::Path;
use poem_openapi::{ApiResponse, Object, OpenApi};
use quota_client::ClientError;
use quota_client::wire::{
    self, EventList, KeySettings, KeyState, NewKey, OwnedKey, Rotation, SettingsChange, StateChange,
    UnreadableKey, Usage,
};
use serde::Serialize;
use service_kit::SerdeJson;

use super::Tag;
use super::account::Done;
use super::context::{Context, SessionRequired};
use crate::error::Result;

/// An API key, without its secret.
#[derive(Object, Serialize)]
pub struct KeyWithPause {
    /// The key.
    #[oai(flatten)]
    #[serde(flatten)]
    pub key: wire::Key,
    /// When and why the key was paused. Only present while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
}

/// When and why a key was paused.
#[derive(Object, Serialize)]
pub struct Pause {
    /// Start of the pause: Unix time in milliseconds.
    pub at: i64,
    /// Human-readable reason.
    pub reason: String,
    /// Maximum number of requests within 60 seconds.
    pub burst_limit: u16,
}

impl From<wire::Key> for KeyWithPause {
    fn from(key: wire::Key) -> Self {
        let (at, burst_limit) = (key.state_since, key.burst_limit);
        let reason = format!("more than {burst_limit} requests within 60 seconds");
        let pause = (key.state == KeyState::Paused).then_some(Pause { at, reason, burst_limit });
        Self { key, pause }
    }
}

/// The account's keys.
#[derive(Object, Serialize)]
pub struct KeyList {
    /// Keys, oldest first.
    pub keys: Vec<KeyWithPause>,
    /// Keys whose stored data can't be read. Requests with them fail; they can only be deleted. Absent if there are none.
    #[oai(default)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableKey>,
}

impl From<wire::KeyList> for KeyList {
    /// Leaves out why a key can't be read, which is for the operator.
    fn from(wire::KeyList { keys, mut unreadable }: wire::KeyList) -> Self {
        unreadable.iter_mut().for_each(|key| key.reason.clear());
        Self { keys: keys.into_iter().map(KeyWithPause::from).collect(), unreadable }
    }
}

/// A new key with its secret, which is shown only in this response.
#[derive(Object, Serialize)]
pub struct CreatedKey {
    /// The API key. Only its SHA-256 is stored, so it can't be shown again.
    pub secret: String,
    /// A curl command that makes a request with the key.
    pub curl: String,
    /// The key as it appears in lists.
    pub key: KeyWithPause,
}

pub struct KeysApi(pub Arc<Context>);

#[derive(ApiResponse)]
enum CreatedResponse {
    /// The new key with its secret, which is shown only in this response.
    #[oai(status = 201)]
    Key(SerdeJson<CreatedKey>),
}

type KeyResult = Result<SerdeJson<KeyWithPause>>;

#[OpenApi(tag = "Tag::Keys")]
impl KeysApi {
    /// List keys
    ///
    /// All keys of the account, with their state and the requests of today.
    #[oai(path = "/keys", method = "get", operation_id = "listKeys")]
    async fn list(&self, request: SessionRequired) -> Result<SerdeJson<KeyList>> {
        let owner = self.owner(&request).await?;
        Ok(SerdeJson(self.0.quota.keys(&owner).await?.into()))
    }

    /// Create a key
    ///
    /// The response is the only one that contains the key itself: store it.
    #[oai(path = "/keys", method = "post", operation_id = "createKey")]
    async fn create(
        &self,
        request: SessionRequired,
        settings: SerdeJson<KeySettings>,
    ) -> Result<CreatedResponse> {
        let owner = self.owner(&request).await?;
        let new = NewKey { settings: settings.0, daily_limit: None };
        Ok(self.created(self.0.quota.create_key(&owner, &new).await?))
    }

    /// Replace a key
    ///
    /// Creates a copy with a new secret, and lets the old key expire after the overlap, so that nothing stops working while
    /// you replace it. The copy starts with the old key's count of today. The two count as one of your 10 keys. If the key has
    /// itself replaced another one, that one is deleted.
    #[oai(path = "/keys/:id/rotate", method = "post", operation_id = "rotateKey")]
    async fn rotate(
        &self,
        request: SessionRequired,
        id: Path<String>,
        rotation: SerdeJson<Rotation>,
    ) -> Result<CreatedResponse> {
        let owner = self.owner(&request).await?;
        Ok(self.created(self.0.quota.rotate_key(&id, Some(&owner), &rotation.0).await?))
    }

    /// Get a key
    ///
    /// The state of one key, and its requests of today.
    #[oai(path = "/keys/:id", method = "get", operation_id = "getKey")]
    async fn show(&self, request: SessionRequired, id: Path<String>) -> KeyResult {
        let owner = self.owner(&request).await?;
        key_result(self.0.quota.key(&id, Some(&owner)).await)
    }

    /// Change a key's settings
    ///
    /// Changes only the given fields, such as the name.
    #[oai(path = "/keys/:id", method = "patch", operation_id = "changeKey")]
    async fn change(
        &self,
        request: SessionRequired,
        id: Path<String>,
        change: SerdeJson<SettingsChange>,
    ) -> KeyResult {
        let owner = self.owner(&request).await?;
        key_result(self.0.quota.change_key(&id, Some(&owner), &change.0).await)
    }

    /// Resume a paused key
    ///
    /// An active key stays active. An inactive key gets 409.
    #[oai(path = "/keys/:id/resume", method = "post", operation_id = "resumeKey")]
    async fn resume(&self, request: SessionRequired, id: Path<String>) -> KeyResult {
        let owner = self.owner(&request).await?;
        key_result(self.0.quota.change_state(&id, Some(&owner), StateChange::Resume).await)
    }

    /// Deactivate a key
    ///
    /// Requests with this key get 403 until it is reactivated.
    #[oai(path = "/keys/:id/deactivate", method = "post", operation_id = "deactivateKey")]
    async fn deactivate(&self, request: SessionRequired, id: Path<String>) -> KeyResult {
        let owner = self.owner(&request).await?;
        key_result(self.0.quota.change_state(&id, Some(&owner), StateChange::Deactivate).await)
    }

    /// Reactivate an inactive key
    ///
    /// An active key stays active. A paused key gets 409: resume it.
    #[oai(path = "/keys/:id/reactivate", method = "post", operation_id = "reactivateKey")]
    async fn reactivate(&self, request: SessionRequired, id: Path<String>) -> KeyResult {
        let owner = self.owner(&request).await?;
        key_result(self.0.quota.change_state(&id, Some(&owner), StateChange::Reactivate).await)
    }

    /// Delete a key
    ///
    /// Deletes the key permanently. It no longer counts toward the account's limit.
    #[oai(path = "/keys/:id", method = "delete", operation_id = "deleteKey")]
    async fn delete(&self, request: SessionRequired, id: Path<String>) -> Result<Done> {
        let owner = self.owner(&request).await?;
        self.0.quota.delete_key(&id, Some(&owner)).await?;
        Ok(Done::Done)
    }

    /// Get a key's usage by day
    ///
    /// The allowed requests of the last 31 days.
    #[oai(path = "/keys/:id/usage", method = "get", operation_id = "getKeyUsage")]
    async fn usage(&self, request: SessionRequired, id: Path<String>) -> Result<SerdeJson<Usage>> {
        let owner = self.owner(&request).await?;
        Ok(SerdeJson(self.0.quota.usage(&id, Some(&owner)).await?))
    }

    /// List a key's events
    ///
    /// When and why the key was created, paused, resumed, deactivated, reactivated or renamed.
    #[oai(path = "/keys/:id/events", method = "get", operation_id = "listKeyEvents")]
    async fn events(&self, request: SessionRequired, id: Path<String>) -> Result<SerdeJson<EventList>> {
        let owner = self.owner(&request).await?;
        Ok(SerdeJson(self.0.quota.events(&id, Some(&owner)).await?))
    }
}

impl KeysApi {
    fn created(&self, created: wire::CreatedKey) -> CreatedResponse {
        let (secret, lookup_url) = (created.secret, &self.0.lookup_url);
        let curl = format!("curl -H \"Authorization: Bearer {secret}\" {lookup_url}/api/v1/ip");
        CreatedResponse::Key(SerdeJson(CreatedKey { secret, curl, key: created.key.into() }))
    }

    async fn owner(&self, request: &SessionRequired) -> Result<String> {
        Ok(self.0.session(request).await?.account)
    }
}

fn key_result(key: Result<OwnedKey, ClientError>) -> KeyResult {
    Ok(SerdeJson(key?.key.into()))
}
