//! Calls for keys. If `account` is given, calls for a key of another account fail with `key_not_found`.

use http::Method;

use super::QuotaClient;
use crate::error::ClientError;
use quota_api::{CreatedKey, EventList, Key, KeyList, NewKey, Rename, SetDailyLimit, Usage};

impl QuotaClient {
    /// Lists the account's keys, oldest first.
    pub async fn keys(&self, account: &str) -> Result<KeyList, ClientError> {
        self.get(&["accounts", account, "keys"], &[]).await
    }

    /// Creates a key. Fails with `key_limit_reached` if the account has 10 keys.
    pub async fn create_key(&self, account: &str, key: &NewKey) -> Result<CreatedKey, ClientError> {
        self.send_json(Method::POST, &["accounts", account, "keys"], &self.change_query(None), key).await
    }

    /// Returns a key by its ID.
    pub async fn key(&self, id: &str, account: Option<&str>) -> Result<Key, ClientError> {
        self.get(&["keys", id], account_query(&account).as_slice()).await
    }

    /// Renames a key.
    pub async fn rename_key(
        &self,
        id: &str,
        account: Option<&str>,
        name: &Rename,
    ) -> Result<Key, ClientError> {
        self.send_json(Method::PUT, &["keys", id, "name"], &self.change_query(account), name).await
    }

    /// Resumes a key that was paused because it exceeded its burst limit. Fails with `key_inactive` if the key is deactivated.
    pub async fn resume_key(&self, id: &str, account: Option<&str>) -> Result<Key, ClientError> {
        self.change_key(id, "resume", account).await
    }

    /// Deactivates a key.
    pub async fn deactivate_key(&self, id: &str, account: Option<&str>) -> Result<Key, ClientError> {
        self.change_key(id, "deactivate", account).await
    }

    /// Reactivates a deactivated key.
    pub async fn reactivate_key(&self, id: &str, account: Option<&str>) -> Result<Key, ClientError> {
        self.change_key(id, "reactivate", account).await
    }

    /// Sets a key's daily limit, or resets it to the default. For operators only: the
    /// key may belong to any account.
    pub async fn set_daily_limit(&self, id: &str, limit: &SetDailyLimit) -> Result<Key, ClientError> {
        self.send_json(Method::PUT, &["keys", id, "daily-limit"], &self.change_query(None), limit).await
    }

    /// Deletes a key. It no longer counts toward the account's limit of 10 keys.
    pub async fn delete_key(&self, id: &str, account: Option<&str>) -> Result<(), ClientError> {
        let query = account_query(&account);
        self.send_no_content(self.request(Method::DELETE, &["keys", id], query.as_slice())?).await
    }

    /// Returns the key's usage in the last 31 days.
    pub async fn usage(&self, id: &str, account: Option<&str>) -> Result<Usage, ClientError> {
        self.get(&["keys", id, "usage"], account_query(&account).as_slice()).await
    }

    /// Lists the key's events, newest first.
    pub async fn events(&self, id: &str, account: Option<&str>) -> Result<EventList, ClientError> {
        self.get(&["keys", id, "events"], account_query(&account).as_slice()).await
    }

    async fn change_key(&self, id: &str, change: &str, account: Option<&str>) -> Result<Key, ClientError> {
        let request = self.request(Method::POST, &["keys", id, change], &self.change_query(account))?;
        self.send_and_parse(request).await
    }

    /// Query parameters of a change that is recorded as an event of the key: the account that must own the key, and who
    /// makes the change, each only if known.
    fn change_query<'a>(&self, account: Option<&'a str>) -> Vec<(&'static str, &'a str)> {
        let actor = self.actor.map(|actor| ("actor", actor.as_str()));
        account_query(&account).into_iter().chain(actor).collect()
    }
}

fn account_query<'a>(account: &Option<&'a str>) -> Option<(&'static str, &'a str)> {
    account.map(|account| ("account", account))
}
