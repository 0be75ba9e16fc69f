//! Keys: of an account, or by id. Where an `account` is given, another account's key answers `key_not_found`.

use http::Method;

use super::QuotaClient;
use crate::error::ClientError;
use crate::wire::{CreatedKey, EventList, Key, KeyList, NewKey, Rename, SetDailyLimit, Usage};

impl QuotaClient {
    /// The account's keys, oldest first.
    pub async fn keys(&self, account: &str) -> Result<KeyList, ClientError> {
        self.get(&["accounts", account, "keys"], &[]).await
    }

    /// Creates a key; `key_limit_reached` at the eleventh.
    pub async fn create_key(&self, account: &str, key: &NewKey) -> Result<CreatedKey, ClientError> {
        self.send(Method::POST, &["accounts", account, "keys"], &[], key).await
    }

    /// The key with this id.
    pub async fn key(&self, id: &str, account: Option<&str>) -> Result<Key, ClientError> {
        self.get(&["keys", id], of(&account).as_slice()).await
    }

    /// Gives a key another name.
    pub async fn rename_key(
        &self,
        id: &str,
        account: Option<&str>,
        name: &Rename,
    ) -> Result<Key, ClientError> {
        self.send(Method::PUT, &["keys", id, "name"], of(&account).as_slice(), name).await
    }

    /// Lets a paused key work again; `key_inactive` where it is deactivated.
    pub async fn resume_key(&self, id: &str, account: Option<&str>) -> Result<Key, ClientError> {
        self.change_key(id, "resume", account).await
    }

    /// Takes a key out of use until it is reactivated.
    pub async fn deactivate_key(&self, id: &str, account: Option<&str>) -> Result<Key, ClientError> {
        self.change_key(id, "deactivate", account).await
    }

    /// Brings a deactivated key back.
    pub async fn reactivate_key(&self, id: &str, account: Option<&str>) -> Result<Key, ClientError> {
        self.change_key(id, "reactivate", account).await
    }

    /// Gives a key a daily limit of its own, or the default back. For operators: it asks for no account.
    pub async fn set_daily_limit(&self, id: &str, limit: &SetDailyLimit) -> Result<Key, ClientError> {
        self.send(Method::PUT, &["keys", id, "daily-limit"], &[], limit).await
    }

    /// Deletes a key and frees its place.
    pub async fn delete_key(&self, id: &str, account: Option<&str>) -> Result<(), ClientError> {
        let call = self.call(Method::DELETE, &["keys", id])?.query(of(&account).as_slice());
        self.done(call).await
    }

    /// What was charged on each of the last 31 days.
    pub async fn usage(&self, id: &str, account: Option<&str>) -> Result<Usage, ClientError> {
        self.get(&["keys", id, "usage"], of(&account).as_slice()).await
    }

    /// What happened to the key, newest first.
    pub async fn events(&self, id: &str, account: Option<&str>) -> Result<EventList, ClientError> {
        self.get(&["keys", id, "events"], of(&account).as_slice()).await
    }

    async fn change_key(&self, id: &str, change: &str, account: Option<&str>) -> Result<Key, ClientError> {
        let call = self.call(Method::POST, &["keys", id, change])?.query(of(&account).as_slice());
        self.answer(call, super::MAX_ANSWER).await
    }
}

fn of<'a>(account: &Option<&'a str>) -> Option<(&'static str, &'a str)> {
    account.map(|account| ("account", account))
}
