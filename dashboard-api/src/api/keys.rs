//! The keys of the account that is signed in.

use std::sync::Arc;

use poem_openapi::param::Path;
use poem_openapi::{ApiResponse, OpenApi};
use quota_client::wire::{self, EventList, KeyState, Rename, Usage};
use service_kit::SerdeJson;

use super::Tag;
use super::account::Done;
use super::context::Context;
use super::error::ApiError;
use super::model::{CreatedKey, Key, KeyList, NewKey};
use super::visitor::{Csrf, SignedIn};

/// Keys.
pub struct KeysApi(pub Arc<Context>);

#[derive(ApiResponse)]
enum Created {
    /// The key, shown this once.
    #[oai(status = 201)]
    Key(SerdeJson<CreatedKey>),
}

type Shown = Result<SerdeJson<Key>, ApiError>;

#[OpenApi(tag = "Tag::Keys")]
impl KeysApi {
    /// List keys
    #[oai(path = "/keys", method = "get", operation_id = "listKeys")]
    async fn list(&self, visitor: SignedIn) -> Result<SerdeJson<KeyList>, ApiError> {
        let ticket = self.0.session(&visitor).await?;
        let listed = self.0.quota.keys(&ticket.account).await.map_err(self.0.error())?;
        let mut keys = Vec::new();
        for key in listed.keys {
            keys.push(self.present(key).await);
        }
        Ok(SerdeJson(KeyList { keys }))
    }

    /// Create a key
    #[oai(path = "/keys", method = "post", operation_id = "createKey")]
    async fn create(
        &self,
        visitor: SignedIn,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        key: SerdeJson<NewKey>,
    ) -> Result<Created, ApiError> {
        let ticket = self.0.session(&visitor).await?;
        let NewKey { name, scope } = key.0;
        let new = wire::NewKey { name, scope, daily_limit: None };
        let created = self.0.quota.create_key(&ticket.account, &new).await.map_err(self.0.error())?;
        let curl = curl_line(&created.secret, &self.0.lookup_url);
        let key = Key::new(created.key, &[]);
        Ok(Created::Key(SerdeJson(CreatedKey { secret: created.secret, curl, key })))
    }

    /// Show a key
    #[oai(path = "/keys/:id", method = "get", operation_id = "getKey")]
    async fn show(&self, visitor: SignedIn, id: Path<String>) -> Shown {
        let owner = self.owner(&visitor).await?;
        self.shown(self.0.quota.key(&id, Some(&owner)).await).await
    }

    /// Rename a key
    #[oai(path = "/keys/:id/name", method = "put", operation_id = "renameKey")]
    async fn rename(
        &self,
        visitor: SignedIn,
        id: Path<String>,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        name: SerdeJson<Rename>,
    ) -> Shown {
        let owner = self.owner(&visitor).await?;
        self.shown(self.0.quota.rename_key(&id, Some(&owner), &name.0).await).await
    }

    /// Resume a paused key
    ///
    /// Fine for an active key, which stays as it is; an inactive one is refused.
    #[oai(path = "/keys/:id/resume", method = "post", operation_id = "resumeKey")]
    async fn resume(
        &self,
        visitor: SignedIn,
        id: Path<String>,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Shown {
        let owner = self.owner(&visitor).await?;
        self.shown(self.0.quota.resume_key(&id, Some(&owner)).await).await
    }

    /// Deactivate a key
    ///
    /// Requests with it are refused until it is reactivated.
    #[oai(path = "/keys/:id/deactivate", method = "post", operation_id = "deactivateKey")]
    async fn deactivate(
        &self,
        visitor: SignedIn,
        id: Path<String>,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Shown {
        let owner = self.owner(&visitor).await?;
        self.shown(self.0.quota.deactivate_key(&id, Some(&owner)).await).await
    }

    /// Reactivate an inactive key
    #[oai(path = "/keys/:id/reactivate", method = "post", operation_id = "reactivateKey")]
    async fn reactivate(
        &self,
        visitor: SignedIn,
        id: Path<String>,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Shown {
        let owner = self.owner(&visitor).await?;
        self.shown(self.0.quota.reactivate_key(&id, Some(&owner)).await).await
    }

    /// Delete a key
    ///
    /// For good; it frees its place.
    #[oai(path = "/keys/:id", method = "delete", operation_id = "deleteKey")]
    async fn delete(
        &self,
        visitor: SignedIn,
        id: Path<String>,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Result<Done, ApiError> {
        let owner = self.owner(&visitor).await?;
        self.0.quota.delete_key(&id, Some(&owner)).await.map_err(self.0.error())?;
        Ok(Done::Done)
    }

    /// Show a key's usage by day
    #[oai(path = "/keys/:id/usage", method = "get", operation_id = "getKeyUsage")]
    async fn usage(&self, visitor: SignedIn, id: Path<String>) -> Result<SerdeJson<Usage>, ApiError> {
        let owner = self.owner(&visitor).await?;
        Ok(SerdeJson(self.0.quota.usage(&id, Some(&owner)).await.map_err(self.0.error())?))
    }

    /// Show what happened to a key
    #[oai(path = "/keys/:id/events", method = "get", operation_id = "listKeyEvents")]
    async fn events(&self, visitor: SignedIn, id: Path<String>) -> Result<SerdeJson<EventList>, ApiError> {
        let owner = self.owner(&visitor).await?;
        Ok(SerdeJson(self.0.quota.events(&id, Some(&owner)).await.map_err(self.0.error())?))
    }
}

impl KeysApi {
    async fn owner(&self, visitor: &SignedIn) -> Result<String, ApiError> {
        Ok(self.0.session(visitor).await?.account)
    }

    async fn shown(&self, key: Result<wire::Key, quota_client::ClientError>) -> Shown {
        Ok(SerdeJson(self.present(key.map_err(self.0.error())?).await))
    }

    /// Adds why a paused key is paused; that this can't be told is no reason to show nothing.
    async fn present(&self, key: wire::Key) -> Key {
        let events = match key.state {
            KeyState::Paused => self.0.quota.events(&key.id, Some(&key.account)).await.ok(),
            KeyState::Active | KeyState::Inactive => None,
        };
        Key::new(key, &events.map(|list| list.events).unwrap_or_default())
    }
}

fn curl_line(secret: &str, lookup_url: &str) -> String {
    format!("curl -H \"Authorization: Bearer {secret}\" {lookup_url}/api/v1/ip")
}
