//! Accounts and their sessions in Redis.

use std::collections::HashMap;

use futures_util::future::try_join_all;

use super::command;
use super::operation::Operation;
use super::redis_keys::INDEX_SHARDS;
use super::script::{CREATE_ACCOUNT, SESSION, SET_CREDENTIAL};
use super::topology::Reply;
use crate::domain::account::{Account, Login, MAX_SESSIONS};
use crate::domain::id::{AccountId, KeyId};
use crate::store::{CredentialChange, KeptSessions, Page, StoreError};

impl Operation<'_> {
    pub(super) async fn add_account(&self, account: &Account) -> Result<Account, StoreError> {
        let (created_at, written) = self.write_account(account, None).await?;
        self.confirm(written).await?;
        Ok(Account { created_at, ..account.clone() })
    }

    /// Writes a new account, without confirming the write. `created_at` is `None` for the store's current time. Returns
    /// the time of creation.
    pub(super) async fn write_account(
        &self,
        account: &Account,
        created_at: Option<i64>,
    ) -> Result<(i64, [Reply; 2]), StoreError> {
        let id = account.id();
        let index = self.redis_keys.index_of(id);
        // The index entry is written first. If the second step fails, listings skip the entry, because its
        // account does not exist. In the other order, an account could remain that is never listed.
        let mut add = command("SADD", &index);
        let listed = self.write_command(&index, add.arg(id.to_string())).await?;
        let [redis_key, ..] = self.redis_keys.account(id);
        let call = CREATE_ACCOUNT
            .on([redis_key.clone()].iter())
            .arg(self.now_arg())
            .arg(created_at.map_or_else(String::new, |at| at.to_string()))
            .arg(account.login.as_str())
            .arg(account.credential.as_deref().unwrap_or_default())
            .arg(account.credential_version);
        match self.write_int(&redis_key, &call).await? {
            (0, _) => Err(StoreError::AccountExists),
            (created_at, created) => Ok((created_at, [listed, created])),
        }
    }

    pub(super) async fn read_account(&self, id: AccountId) -> Result<Account, StoreError> {
        let [redis_key, ..] = self.redis_keys.account(id);
        let fields: HashMap<String, String> = self.query(&redis_key, &command("HGETALL", &redis_key)).await?;
        if fields.is_empty() || fields.contains_key("deleting") {
            return Err(StoreError::AccountNotFound);
        }
        parse_account(&fields).ok_or_else(|| StoreError::InvalidData(format!("account {id}")))
    }

    /// A page consists of whole shards of the index, at least one. The cursor is the number of the next shard.
    pub(super) async fn read_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Account>, StoreError> {
        let first: u8 = cursor.map_or(Some(0), |shard| shard.parse().ok()).unwrap_or(INDEX_SHARDS);
        let mut items = Vec::new();
        let mut shard = first;
        while shard < INDEX_SHARDS && items.len() < limit {
            let index = self.redis_keys.index(shard);
            let ids: Vec<String> = self.query(&index, &command("SMEMBERS", &index)).await?;
            for chunk in ids.chunks(500) {
                items.extend(self.read_listed(chunk).await?);
            }
            shard += 1;
        }
        let next = (shard < INDEX_SHARDS).then(|| shard.to_string());
        Ok(Page { items, total: self.count_accounts().await?, next })
    }

    /// Reads the accounts of these index entries. Skips accounts that are being created or deleted.
    async fn read_listed(&self, ids: &[String]) -> Result<Vec<Account>, StoreError> {
        let ids = ids.iter().filter_map(|id| AccountId::from_hex(id).ok());
        let accounts = try_join_all(ids.map(async |id| match self.read_account(id).await {
            Ok(account) => Ok(Some(account)),
            Err(StoreError::AccountNotFound) => Ok(None),
            Err(error) => Err(error),
        }));
        Ok(accounts.await?.into_iter().flatten().collect())
    }

    async fn count_accounts(&self) -> Result<u64, StoreError> {
        let counts = (0..INDEX_SHARDS).map(async |shard| {
            let index = self.redis_keys.index(shard);
            self.query::<u64>(&index, &command("SCARD", &index)).await
        });
        Ok(try_join_all(counts).await?.into_iter().sum())
    }

    /// Marks the account as deleting, so that no key or session can be added. Then deletes its keys, its index entry
    /// and the account. If a step fails, a retry completes the deletion. The hash of reservations has the IDs of all keys.
    pub(super) async fn remove_account(&self, id: AccountId) -> Result<Vec<KeyId>, StoreError> {
        let [account, reservations, sessions] = self.redis_keys.account(id);
        let exists: bool = self.query(&account, &command("EXISTS", &account)).await?;
        if !exists {
            return Err(StoreError::AccountNotFound);
        }
        let mut mark = command("HSET", &account);
        self.write_command(&account, mark.arg("deleting").arg(1)).await?;
        let keys: Vec<String> = self.query(&reservations, &command("HKEYS", &reservations)).await?;
        let keys: Vec<KeyId> = keys.iter().filter_map(|key| KeyId::from_hex(key).ok()).collect();
        let deletions = keys.iter().map(|key| self.delete_redis_keys(*key, Some(id)));
        let deletions = try_join_all(deletions).await?;
        let mut written: Vec<Reply> = deletions.into_iter().flatten().map(|(_, reply)| reply).collect();
        let index = self.redis_keys.index_of(id);
        let mut unlist = command("SREM", &index);
        written.push(self.write_command(&index, unlist.arg(id.to_string())).await?);
        let mut delete = command("DEL", &account);
        delete.arg(reservations.as_str()).arg(sessions.as_str());
        written.push(self.write_command(&account, &delete).await?);
        self.confirm(written).await?;
        Ok(keys)
    }

    pub(super) async fn replace_credential(
        &self,
        id: AccountId,
        change: &CredentialChange<'_>,
    ) -> Result<u32, StoreError> {
        let [account, _, sessions] = self.redis_keys.account(id);
        let keep = match change.keep {
            KeptSessions::None => "",
            KeptSessions::One(session) => session,
            KeptSessions::All => "*",
        };
        let call = SET_CREDENTIAL
            .on([account.clone(), sessions].iter())
            .arg(change.expected_version)
            .arg(change.credential)
            .arg(keep)
            .arg(change.expected_credential.unwrap_or_default());
        match self.write_int(&account, &call).await? {
            (-1, _) => Err(StoreError::AccountNotFound),
            (-2, _) => Err(StoreError::VersionConflict),
            (version, reply) => {
                self.confirm([reply]).await?;
                Ok(u32::try_from(version).unwrap_or(u32::MAX))
            }
        }
    }

    /// With a `ttl` in seconds, adds a session. Without a `ttl`, checks whether the session is active.
    pub(super) async fn session(
        &self,
        id: AccountId,
        session: &str,
        ttl: Option<u32>,
        expected_credential: Option<&str>,
    ) -> Result<bool, StoreError> {
        let [account, _, sessions] = self.redis_keys.account(id);
        let call = SESSION
            .on([account.clone(), sessions].iter())
            .arg(self.now_arg())
            .arg(session)
            .arg(ttl.map_or_else(String::new, |seconds| (u64::from(seconds) * 1000).to_string()))
            .arg(MAX_SESSIONS)
            .arg(expected_credential.unwrap_or_default());
        match self.run_int(&account, &call).await? {
            -1 => Err(StoreError::AccountNotFound),
            -2 => Err(StoreError::VersionConflict),
            active => Ok(active == 1),
        }
    }

    pub(super) async fn delete_session(&self, id: AccountId, session: &str) -> Result<(), StoreError> {
        let [_, _, sessions] = self.redis_keys.account(id);
        let mut delete = command("HDEL", &sessions);
        let reply = self.write_command(&sessions, delete.arg(session)).await?;
        self.confirm([reply]).await
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
