//! Accounts and their sessions in Redis.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use quota_api::{
    AccountAction, AccountChange, Actor, Contact, NewSession, SetCredential, Standing, StoredAccount,
};
use serde::de::DeserializeOwned;

use super::RedisStore;
use super::call::{BEGIN_DELETION, CREATE_ACCOUNT, SESSION, SET_ACCOUNT_FIELD, SET_CREDENTIAL, command};
use super::keys::{Unowned, readable};
use super::operation::Operation;
use super::redis_keys::{INDEX_SHARDS, RedisKey};
use super::topology::Reply;
use crate::domain::account::{Login, MAX_SESSIONS, change_standing, to_json};
use crate::domain::id::{AccountId, KeyId};
use crate::store::{AccountListing, AccountStore, StoreError};

/// Minimum `COUNT` of an `SSCAN`, which visits about that many hash buckets. Many may be empty, so a smaller value would
/// often return nothing.
const MIN_SCAN: usize = 16;

/// A cursor in the index of accounts: a shard, and the position of `SSCAN` in it. As text, `SHARD` or `SHARD:POSITION`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct IndexCursor {
    shard: u8,
    position: u64,
}

impl IndexCursor {
    fn parse(text: &str) -> Result<Self, StoreError> {
        let (shard, position) = text.split_once(':').unwrap_or((text, "0"));
        match (shard.parse(), position.parse()) {
            (Ok(shard), Ok(position)) if shard < INDEX_SHARDS => Ok(Self { shard, position }),
            _ => Err(StoreError::InvalidCursor),
        }
    }

    /// The cursor after an `SSCAN` that returned `position`, which is 0 at the end of a shard. `None` at the end of the
    /// index.
    fn following(self, position: u64) -> Option<Self> {
        match position {
            0 => Some(Self { shard: self.shard + 1, position }).filter(|next| next.shard < INDEX_SHARDS),
            _ => Some(Self { position, ..self }),
        }
    }
}

impl fmt::Display for IndexCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            0 => write!(f, "{}", self.shard),
            position => write!(f, "{}:{position}", self.shard),
        }
    }
}

#[async_trait]
impl AccountStore for RedisStore {
    async fn create_account(
        &self,
        login: &Login,
        credential: Option<&str>,
    ) -> Result<StoredAccount, StoreError> {
        let operation = self.operation();
        // `created_at` is replaced below with the store's time.
        let account = StoredAccount::new(login.as_str().to_owned(), credential.map(str::to_owned), 0);
        let mut written = operation.add_to_index([login.account_id()]).await?;
        let (created_at, created) = operation.write_account(&account, None).await?;
        written.push(created);
        operation.confirm(written).await?;
        Ok(StoredAccount { created_at, ..account })
    }

    async fn account(&self, id: AccountId) -> Result<StoredAccount, StoreError> {
        self.operation().read_account(id).await
    }

    /// A page is a bounded part of the index, so it takes about the same time in a store of any size.
    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountListing, StoreError> {
        let operation = self.operation();
        let mut next = Some(cursor.map_or(Ok(IndexCursor::default()), IndexCursor::parse)?);
        let (mut accounts, mut unreadable) = (Vec::new(), Vec::new());
        while let Some(at) = next.filter(|_| accounts.len() + unreadable.len() < limit) {
            let count = limit - accounts.len() - unreadable.len();
            let index = self.redis_keys.index(at.shard);
            let scan = command("SSCAN", &index).arg(at.position).arg("COUNT").arg(count.max(MIN_SCAN));
            let (position, ids): (u64, Vec<String>) = operation.query(&scan).await?;
            operation.read_listed(&ids, &mut accounts, &mut unreadable).await?;
            next = at.following(position);
        }
        let next = next.map(|cursor| cursor.to_string());
        Ok(AccountListing { accounts, total: operation.count_accounts().await?, next, unreadable })
    }

    /// Marks the account as deleting, so that no key or session can be added. Then deletes its keys, its index entry
    /// and the account. If a step fails, a retry completes the deletion. The hash of reservations has the IDs of all keys.
    async fn delete_account(
        &self,
        id: AccountId,
        expected_credential: Option<&str>,
    ) -> Result<Vec<KeyId>, StoreError> {
        let operation = self.operation();
        let [account, reservations, sessions] = self.redis_keys.account(id);
        let begin = BEGIN_DELETION.on([&account]).arg(expected_credential.unwrap_or_default());
        check_account(operation.write_int(&begin).await?.0)?;
        let keys = readable(operation.query(&command("HKEYS", &reservations)).await)?;
        let keys: Vec<String> = keys.unwrap_or_default();
        let keys: Vec<KeyId> = keys.iter().filter_map(|key| KeyId::from_hex(key).ok()).collect();
        // The reservation shows that a key without readable metadata belongs to this account.
        let deletions = keys.iter().map(|key| operation.delete_redis_keys(*key, Some(id), Unowned::Delete));
        let deletions = try_join_all(deletions).await?;
        let mut written: Vec<Reply> = deletions.into_iter().map(|(_, reply)| reply).collect();
        let index = self.redis_keys.index_of(id);
        written.push(operation.write(&command("SREM", &index).arg(id.to_string())).await?);
        let delete = command("DEL", &account).arg(reservations.as_str()).arg(sessions.as_str());
        written.push(operation.write(&delete).await?);
        operation.confirm(written).await?;
        Ok(keys)
    }

    /// The account first, then its keys: a concurrent creation reads the account after writing its key, so one of the two sees
    /// the other.
    async fn change_account(
        &self,
        id: AccountId,
        change: &AccountChange,
        actor: &Actor,
    ) -> Result<StoredAccount, StoreError> {
        let operation = self.operation();
        let [redis_key, _, sessions] = self.redis_keys.account(id);
        if change.action == AccountAction::EndSessions {
            operation.write(&command("DEL", &sessions)).await?;
        }
        // Repeated if another change is made in between.
        loop {
            let (now, mut account) = tokio::try_join!(operation.read_now(), operation.read_account(id))?;
            let stored: Option<String> =
                operation.query(&command("HGET", &redis_key).arg("standing")).await?;
            account.standing = parse_field(stored.as_ref()).ok_or(StoreError::UnreadableAccount(id))?;
            change_standing(&mut account.standing, change, actor, now);
            let call = SET_ACCOUNT_FIELD
                .on([&redis_key])
                .arg("standing")
                .arg(standing_field(&account.standing))
                .arg(stored.unwrap_or_default());
            let (code, reply) = operation.write_int(&call).await?;
            if code == OUTDATED {
                continue;
            }
            check_account(code)?;
            let mut replies = vec![reply];
            if matches!(change.action, AccountAction::Suspend | AccountAction::Restore) {
                replies.extend(operation.list_keys(id).await?.1);
            }
            operation.confirm(replies).await?;
            return Ok(account);
        }
    }

    async fn set_credential(&self, id: AccountId, change: &SetCredential) -> Result<u32, StoreError> {
        let operation = self.operation();
        let [account, _, sessions] = self.redis_keys.account(id);
        let keep = match change.keep_all_sessions {
            Some(true) => "*",
            _ => change.keep_session.as_deref().unwrap_or_default(),
        };
        let call = SET_CREDENTIAL
            .on([&account, &sessions])
            .arg(change.expected_version)
            .arg(&change.credential)
            .arg(keep)
            .arg(change.expected_credential.as_deref().unwrap_or_default());
        let (version, reply) = operation.write_int(&call).await?;
        check_account(version)?;
        operation.confirm([reply]).await?;
        Ok(u32::try_from(version).unwrap_or(u32::MAX))
    }

    async fn add_session(&self, id: AccountId, session: &NewSession) -> Result<(), StoreError> {
        let NewSession { id_sha256, ttl_seconds, expected_credential } = session;
        let expected = expected_credential.as_deref();
        self.operation().session(id, id_sha256, Some(*ttl_seconds), expected).await.map(drop)
    }

    async fn has_session(&self, id: AccountId, session: &str) -> Result<bool, StoreError> {
        self.operation().session(id, session, None, None).await
    }

    async fn revoke_session(&self, id: AccountId, session: &str) -> Result<(), StoreError> {
        let operation = self.operation();
        let [_, _, sessions] = self.redis_keys.account(id);
        let reply = operation.write(&command("HDEL", &sessions).arg(session)).await?;
        operation.confirm([reply]).await
    }
}

impl Operation<'_> {
    /// Adds accounts to the index, with one call per shard and without confirming the writes.
    ///
    /// Must be called before [`Self::write_account`]. If that fails, listings skip the entry, because its account does not exist.
    /// In the other order, an account could remain that is never listed.
    pub(super) async fn add_to_index(
        &self,
        ids: impl IntoIterator<Item = AccountId>,
    ) -> Result<Vec<Reply>, StoreError> {
        let mut by_shard: HashMap<RedisKey, Vec<String>> = HashMap::new();
        for id in ids {
            by_shard.entry(self.redis_keys.index_of(id)).or_default().push(id.to_string());
        }
        let add = async |(index, ids)| self.write(&command("SADD", index).arg(ids)).await;
        try_join_all(by_shard.iter().map(add)).await
    }

    /// Writes a new account that is in the index, without confirming the write. `created_at` is `None` for the store's
    /// current time. Returns the time of creation.
    pub(super) async fn write_account(
        &self,
        account: &StoredAccount,
        created_at: Option<i64>,
    ) -> Result<(i64, Reply), StoreError> {
        let [redis_key, ..] = self.redis_keys.account(AccountId::of(&account.login));
        let call = CREATE_ACCOUNT
            .on([&redis_key])
            .arg(self.now_arg())
            .arg(created_at.map_or_else(String::new, |at| at.to_string()))
            .arg(&account.login)
            .arg(account.credential.as_deref().unwrap_or_default())
            .arg(account.credential_version)
            .arg(contact_field(&account.contact))
            .arg(standing_field(&account.standing));
        match self.write_int(&call).await? {
            (0, _) => Err(StoreError::AccountExists),
            created => Ok(created),
        }
    }

    pub(super) async fn read_account(&self, id: AccountId) -> Result<StoredAccount, StoreError> {
        let [redis_key, ..] = self.redis_keys.account(id);
        let fields: HashMap<String, String> = readable(self.query(&command("HGETALL", &redis_key)).await)?
            .map_err(|_| StoreError::UnreadableAccount(id))?;
        if fields.is_empty() || fields.contains_key("deleting") {
            return Err(StoreError::AccountNotFound);
        }
        parse_account(&fields).ok_or(StoreError::UnreadableAccount(id))
    }

    /// Reads the accounts of these index entries. Skips accounts that are being created or deleted.
    async fn read_listed(
        &self,
        ids: &[String],
        items: &mut Vec<StoredAccount>,
        unreadable: &mut Vec<AccountId>,
    ) -> Result<(), StoreError> {
        let ids: BTreeSet<AccountId> = ids.iter().filter_map(|id| AccountId::from_hex(id).ok()).collect();
        for result in join_all(ids.into_iter().map(|id| self.read_account(id))).await {
            match result {
                Ok(account) => items.push(account),
                Err(StoreError::AccountNotFound) => {}
                Err(StoreError::UnreadableAccount(id)) => unreadable.push(id),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn count_accounts(&self) -> Result<u64, StoreError> {
        let counts = (0..INDEX_SHARDS).map(async |shard| {
            let index = self.redis_keys.index(shard);
            self.query::<u64>(&command("SCARD", &index)).await
        });
        Ok(try_join_all(counts).await?.into_iter().sum())
    }

    /// With a `ttl` in seconds, adds a session. Without a `ttl`, checks whether the session is active.
    async fn session(
        &self,
        id: AccountId,
        session: &str,
        ttl: Option<u32>,
        expected_credential: Option<&str>,
    ) -> Result<bool, StoreError> {
        let [account, _, sessions] = self.redis_keys.account(id);
        let call = SESSION
            .on([&account, &sessions])
            .arg(self.now_arg())
            .arg(session)
            .arg(ttl.map_or_else(String::new, |seconds| (u64::from(seconds) * 1000).to_string()))
            .arg(MAX_SESSIONS)
            .arg(expected_credential.unwrap_or_default());
        let active: i64 = self.query(&call).await?;
        check_account(active)?;
        Ok(active == 1)
    }
}

/// The reply of `lua/set_account_field.lua` if the field has changed since it was read.
const OUTDATED: i64 = -3;

/// The error that a script on an account reports with a negative number.
pub(super) fn check_account(code: i64) -> Result<(), StoreError> {
    match code {
        -1 => Err(StoreError::AccountNotFound),
        -2 => Err(StoreError::CredentialConflict),
        OUTDATED => Err(StoreError::ContactConflict),
        _ => Ok(()),
    }
}

/// The value of the field `contact`; empty for none.
pub(super) fn contact_field(contact: &Contact) -> String {
    if contact.is_empty() { String::new() } else { to_json(contact) }
}

fn parse_account(fields: &HashMap<String, String>) -> Option<StoredAccount> {
    Some(StoredAccount {
        login: fields.get("login")?.clone(),
        created_at: fields.get("created")?.parse().ok()?,
        credential: fields.get("credential").cloned(),
        credential_version: fields.get("version")?.parse().ok()?,
        contact: parse_field(fields.get("contact"))?,
        standing: parse_field(fields.get("standing"))?,
    })
}

/// Parses a field with JSON. A field that does not exist has the default value.
fn parse_field<T: DeserializeOwned + Default>(json: Option<&String>) -> Option<T> {
    json.map_or(Some(T::default()), |json| serde_json::from_str(json).ok())
}

fn standing_field(standing: &Standing) -> String {
    if standing.is_default() { String::new() } else { to_json(standing) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_cursor_round_trips_and_malformed_text_is_rejected() {
        for text in ["0", "63", "12:345", "0:18446744073709551615"] {
            assert_eq!(IndexCursor::parse(text).unwrap().to_string(), text);
        }
        for malformed in ["", "64", "-1", "1:", "1:x", "1:2:3", "abc"] {
            assert!(matches!(IndexCursor::parse(malformed), Err(StoreError::InvalidCursor)), "{malformed}");
        }
        let last = IndexCursor { shard: INDEX_SHARDS - 1, position: 7 };
        assert_eq!(last.following(0), None);
        assert_eq!(last.following(9).unwrap().to_string(), "63:9");
    }
}
