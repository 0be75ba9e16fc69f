//! Accounts and their sessions in Redis.

use std::collections::HashMap;

use futures_util::future::try_join_all;

use super::names::INDEX_PARTS;
use super::script::{CREATE_ACCOUNT, SESSION, SET_CREDENTIAL};
use super::topology::Answer;
use super::{RedisStore, command};
use crate::domain::account::{Account, Login, MAX_SESSIONS};
use crate::domain::id::{AccountId, KeyId};
use crate::store::{Page, StoreError};

impl RedisStore {
    pub(super) async fn add_account(&self, account: &Account) -> Result<Account, StoreError> {
        let (created_at, answer) = self.write_account(account, None).await?;
        self.confirm.confirm(answer).await?;
        Ok(Account { created_at, ..account.clone() })
    }

    /// Writes a new account, not yet confirmed, and tells when it was created.
    pub(super) async fn write_account(
        &self,
        account: &Account,
        created: Option<i64>,
    ) -> Result<(i64, Answer), StoreError> {
        let id = account.id();
        let index = self.names.index_of(id);
        // The index first: an account that can't be listed would be worse than an entry without an account.
        let mut add = command("SADD", &index);
        self.ask::<i64>(&index, add.arg(id.to_string())).await?;
        let [name, ..] = self.names.account(id);
        let call = CREATE_ACCOUNT
            .on([name.clone()].iter())
            .arg(self.now_arg())
            .arg(created.map_or_else(String::new, |at| at.to_string()))
            .arg(account.login.as_str())
            .arg(account.credential.as_deref().unwrap_or_default())
            .arg(account.credential_version);
        match self.run_int(&name, &call).await? {
            (0, _) => Err(StoreError::AccountExists),
            written => Ok(written),
        }
    }

    pub(super) async fn read_account(&self, id: AccountId) -> Result<Account, StoreError> {
        let [name, ..] = self.names.account(id);
        let fields: HashMap<String, String> = self.ask(&name, &command("HGETALL", &name)).await?;
        if fields.is_empty() || fields.contains_key("deleting") {
            return Err(StoreError::AccountNotFound);
        }
        parse_account(&fields).ok_or_else(|| StoreError::Unreadable(format!("account {id}")))
    }

    /// A page is at least one part of the index; a cursor is the part to go on with.
    pub(super) async fn read_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Account>, StoreError> {
        let first: u8 = cursor.map_or(Some(0), |part| part.parse().ok()).unwrap_or(INDEX_PARTS);
        let mut items = Vec::new();
        let mut part = first;
        while part < INDEX_PARTS && items.len() < limit {
            let index = self.names.index(part);
            let ids: Vec<String> = self.ask(&index, &command("SMEMBERS", &index)).await?;
            for chunk in ids.chunks(500) {
                items.extend(self.read_listed(chunk).await?);
            }
            part += 1;
        }
        let next = (part < INDEX_PARTS).then(|| part.to_string());
        Ok(Page { items, total: self.count_accounts().await?, next })
    }

    /// The accounts of these index entries; one that is being created or deleted is left out.
    async fn read_listed(&self, ids: &[String]) -> Result<Vec<Account>, StoreError> {
        let ids = ids.iter().filter_map(|id| AccountId::from_hex(id).ok());
        let found = try_join_all(ids.map(async |id| match self.read_account(id).await {
            Ok(account) => Ok(Some(account)),
            Err(StoreError::AccountNotFound) => Ok(None),
            Err(error) => Err(error),
        }));
        Ok(found.await?.into_iter().flatten().collect())
    }

    async fn count_accounts(&self) -> Result<u64, StoreError> {
        let parts = (0..INDEX_PARTS).map(async |part| {
            let index = self.names.index(part);
            self.ask::<u64>(&index, &command("SCARD", &index)).await
        });
        Ok(try_join_all(parts).await?.into_iter().sum())
    }

    /// Marks the account, so that nothing new comes into it, and takes it apart from the keys inwards: if this is
    /// cut short, doing it again finishes it.
    pub(super) async fn remove_account(&self, id: AccountId) -> Result<Vec<KeyId>, StoreError> {
        let [account, places, sessions] = self.names.account(id);
        let exists: bool = self.ask(&account, &command("EXISTS", &account)).await?;
        if !exists {
            return Err(StoreError::AccountNotFound);
        }
        let mut mark = command("HSET", &account);
        self.ask::<i64>(&account, mark.arg("deleting").arg(1)).await?;
        let keys: Vec<String> = self.ask(&places, &command("HKEYS", &places)).await?;
        let keys: Vec<KeyId> = keys.iter().filter_map(|key| KeyId::from_hex(key).ok()).collect();
        for key in &keys {
            self.remove_record(*key, Some(id)).await?;
        }
        let index = self.names.index_of(id);
        let mut forget = command("SREM", &index);
        self.ask::<i64>(&index, forget.arg(id.to_string())).await?;
        let mut delete = command("DEL", &account);
        delete.arg(places.as_str()).arg(sessions.as_str());
        let answer = self.records.send(&account, &delete).await?;
        self.confirm.confirm(answer).await?;
        Ok(keys)
    }

    pub(super) async fn replace_credential(
        &self,
        id: AccountId,
        expected_version: u32,
        credential: &str,
        keep: Option<&str>,
    ) -> Result<u32, StoreError> {
        let [account, _, sessions] = self.names.account(id);
        let call = SET_CREDENTIAL
            .on([account.clone(), sessions].iter())
            .arg(expected_version)
            .arg(credential)
            .arg(keep.unwrap_or_default());
        match self.run_int(&account, &call).await? {
            (-1, _) => Err(StoreError::AccountNotFound),
            (-2, _) => Err(StoreError::VersionConflict),
            (version, answer) => {
                self.confirm.confirm(answer).await?;
                Ok(u32::try_from(version).unwrap_or(u32::MAX))
            }
        }
    }

    /// Adds a session that lives `ttl` seconds, or asks whether it lives.
    pub(super) async fn session(
        &self,
        id: AccountId,
        session: &str,
        ttl: Option<u32>,
    ) -> Result<bool, StoreError> {
        let [account, _, sessions] = self.names.account(id);
        let call = SESSION
            .on([account.clone(), sessions].iter())
            .arg(self.now_arg())
            .arg(session)
            .arg(ttl.map_or_else(String::new, |seconds| (u64::from(seconds) * 1000).to_string()))
            .arg(MAX_SESSIONS);
        match self.run_int(&account, &call).await?.0 {
            -1 => Err(StoreError::AccountNotFound),
            alive => Ok(alive == 1),
        }
    }

    pub(super) async fn drop_session(&self, id: AccountId, session: &str) -> Result<(), StoreError> {
        let [_, _, sessions] = self.names.account(id);
        let mut delete = command("HDEL", &sessions);
        let answer = self.records.send(&sessions, delete.arg(session)).await?;
        self.confirm.confirm(answer).await
    }
}

fn parse_account(fields: &HashMap<String, String>) -> Option<Account> {
    Some(Account {
        login: Login::parse(fields.get("login")?).ok()?,
        created_at: fields.get("created")?.parse().ok()?,
        credential: fields.get("credential").cloned(),
        credential_version: fields.get("version")?.parse().ok()?,
    })
}
