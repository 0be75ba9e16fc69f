//! API keys in Redis. Creating one takes two steps, because in a Cluster the data may be on different servers: first a
//! reservation in its account, then its own Redis keys. Afterward the reservation is checked again, because the account
//! may have been deleted in between.

use std::collections::HashMap;

use api_key::KeyDigest;
use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::Value;

use super::RedisStore;
use super::call::{
    CHANGE_KEY, CHECK_RESERVATIONS, CREATE_KEY, DELETE_KEY, LIST_RESERVATIONS, RELEASE, RESERVE, command,
};
use super::operation::{Operation, convert};
use super::topology::Reply;
use crate::domain::account::KEYS_PER_ACCOUNT;
use crate::domain::event::{Actor, Event, EventKind, with_actor};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, KeyChangeError, KeyMeta, KeyName, StoredKey};
use crate::domain::record::{KeyRecord, decode, encode};
use crate::store::{KeyDraft, KeyListing, KeyStore, RESERVATION_MS, StoreError, UnreadableKey};

/// The result of writing a new key.
pub(super) enum KeyWrite {
    Written(Reply),
    /// The key exists already. Contains the account that holds it, unless its metadata is damaged.
    Existing(Option<AccountId>),
}

/// A key, readable or not.
type FoundKey = Result<StoredKey, UnreadableKey>;

/// The stored parts of an API key. An error is the reason why a part can't be read.
struct KeyParts {
    record: Result<Option<Vec<u8>>, String>,
    /// Empty if the key has no metadata.
    meta: Result<HashMap<String, String>, String>,
}

impl KeyParts {
    fn has_no_record(&self) -> bool {
        self.record == Ok(None)
    }

    fn has_no_meta(&self) -> bool {
        self.meta.as_ref().is_ok_and(HashMap::is_empty)
    }

    fn is_incomplete(&self) -> bool {
        self.has_no_record() != self.has_no_meta()
    }

    fn into_key(self, id: KeyId) -> Option<FoundKey> {
        if self.has_no_record() && self.has_no_meta() {
            return None;
        }
        let record = self.record.and_then(|bytes| {
            let bytes = bytes.ok_or_else(|| "the record is missing".to_owned())?;
            decode(&bytes).map_err(|error| error.to_string())
        });
        let meta = self.meta.and_then(|fields| {
            let meta = parse_meta(&fields).filter(|meta| meta.id() == id);
            meta.ok_or_else(|| "the metadata is missing or invalid".to_owned())
        });
        Some(match (meta, record) {
            (Ok(meta), Ok(record)) => Ok(StoredKey { meta, record }),
            (Ok(meta), Err(reason)) => Err(UnreadableKey { id, meta: Some(meta), reason }),
            (Err(reason), _) => Err(UnreadableKey { id, meta: None, reason }),
        })
    }
}

/// What to do with an API key whose metadata does not name an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unowned {
    Keep,
    Delete,
}

/// The result of deleting the Redis keys of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeletedKey {
    /// Deleted, with the account that its metadata named.
    Of(AccountId),
    /// The metadata names no account. Deleted only with [`Unowned::Delete`].
    Unowned,
    /// It does not exist or belongs to another account.
    NotFound,
}

#[async_trait]
impl KeyStore for RedisStore {
    async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey, StoreError> {
        let operation = self.operation();
        let id = KeyId::of(&draft.digest);
        let (mut now, mut reserved) = operation.reserve(account, &[id]).await?;
        if reserved == [false] {
            // Listing the keys removes stale reservations of failed creations.
            operation.read_keys(account).await?;
            (now, reserved) = operation.reserve(account, &[id]).await?;
        }
        if reserved == [false] {
            return Err(StoreError::KeyLimitReached);
        }
        let record = KeyRecord::new(draft.scope, draft.daily_limit, now);
        let KeyDraft { name, digest, hint, actor, .. } = draft;
        let key = StoredKey { meta: KeyMeta { account, name, hint, digest, created_at: now }, record };
        let event = Event { at: now, kind: EventKind::Created, reason: with_actor("created", actor) };
        let KeyWrite::Written(written) = operation.write_key(&key, &event).await? else {
            return Err(StoreError::InvalidData(format!("the new key {id} already exists").into()));
        };
        let checked = operation.check_reservations(account, now, &[id]).await?;
        operation.confirm([written, checked]).await?;
        Ok(key)
    }

    async fn keys(&self, account: AccountId) -> Result<KeyListing, StoreError> {
        self.operation().read_keys(account).await
    }

    async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey, StoreError> {
        self.operation().read_key(id, owner).await
    }

    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: Option<Actor>,
    ) -> Result<StoredKey, StoreError> {
        let operation = self.operation();
        let redis_keys = self.redis_keys.key(id);
        let (action, value) = match change {
            KeyChange::Resume => ("resume", String::new()),
            KeyChange::Deactivate => ("deactivate", String::new()),
            KeyChange::Reactivate => ("reactivate", String::new()),
            KeyChange::Rename(name) => ("rename", name.as_str().to_owned()),
            KeyChange::DailyLimit(limit) => ("limit", limit.unwrap_or(0).to_string()),
        };
        let (kind, reason) = change.event(actor);
        let call = CHANGE_KEY
            .on(&redis_keys)
            .arg(owner.map_or_else(String::new, |owner| owner.to_string()))
            .arg(action)
            .arg(value)
            .arg(self.now_arg())
            .arg(format!("{} {reason}", kind.as_str()));
        let reply = match operation.write_int(&call).await? {
            (-1, _) => return Err(StoreError::KeyNotFound),
            (-2, _) => return Err(KeyChangeError::Inactive.into()),
            (-3, _) => return Err(KeyChangeError::Paused.into()),
            (-4, _) => {
                let reason = "the record is too short or has an unknown format version".to_owned();
                return Err(StoreError::UnreadableKey { id, reason });
            }
            (_, reply) => reply,
        };
        let (key, ()) = tokio::try_join!(operation.read_key(id, owner), operation.confirm([reply]))?;
        Ok(key)
    }

    async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<(), StoreError> {
        let operation = self.operation();
        let (account, deletion) = match operation.delete_redis_keys(id, owner, Unowned::Keep).await? {
            (DeletedKey::Of(account), deletion) => (Some(account), deletion),
            (DeletedKey::NotFound, _) => return Err(StoreError::KeyNotFound),
            (DeletedKey::Unowned, _) => {
                if let Some(owner) = owner
                    && !operation.has_reservation(owner, id).await?
                {
                    return Err(StoreError::KeyNotFound);
                }
                (owner, operation.delete_redis_keys(id, None, Unowned::Delete).await?.1)
            }
        };
        // Without an account, the reservation is unknown. The next listing of that account removes it.
        let Some(account) = account else { return operation.confirm([deletion]).await };
        let [_, reservations, _] = self.redis_keys.account(account);
        let release = operation.write(&command("HDEL", &reservations).arg(id.to_string())).await?;
        operation.confirm([deletion, release]).await
    }

    async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>, StoreError> {
        let operation = self.operation();
        operation.read_key(id, owner).await?;
        let [_, _, events] = self.redis_keys.key(id);
        let lines: Vec<String> = operation.query(&command("LRANGE", &events).arg(0).arg(-1)).await?;
        Ok(Event::current(&lines, operation.read_now().await?))
    }
}

impl Operation<'_> {
    /// Reserves a key slot for each key, in order. Returns the store's time, and for each key whether it has a
    /// reservation now; false if the account has no slot left.
    pub(super) async fn reserve(
        &self,
        account: AccountId,
        keys: &[KeyId],
    ) -> Result<(i64, Vec<bool>), StoreError> {
        let [redis_key, reservations, _] = self.redis_keys.account(account);
        let call = RESERVE.on([&redis_key, &reservations]).arg(KEYS_PER_ACCOUNT).arg(self.now_arg());
        let call = keys.iter().fold(call, |call, key| call.arg(key.to_string()));
        let numbers: Vec<i64> = convert(self.write(&call).await?.value)?;
        match numbers.split_first() {
            None | Some((-1, _)) => Err(StoreError::AccountNotFound),
            Some((now, codes)) => Ok((*now, codes.iter().map(|code| *code != 0).collect())),
        }
    }

    /// Writes a reserved key unless it exists, without confirming the write. The caller then calls
    /// [`Self::check_reservations`].
    pub(super) async fn write_key(&self, key: &StoredKey, event: &Event) -> Result<KeyWrite, StoreError> {
        let redis_keys = self.redis_keys.key(key.meta.id());
        let meta = &key.meta;
        let call = CREATE_KEY
            .on(&redis_keys)
            .arg(encode(&key.record))
            .arg(event.to_line())
            .arg(&["account", &meta.account.to_string(), "name", meta.name.as_str()])
            .arg(&["hint", &meta.hint, "digest", &meta.digest.to_hex()])
            .arg(&["created", &meta.created_at.to_string()]);
        let reply = self.write(&call).await?;
        Ok(match &reply.value {
            Value::BulkString(owner) => {
                KeyWrite::Existing(AccountId::from_hex(&String::from_utf8_lossy(owner)).ok())
            }
            _ => KeyWrite::Written(reply),
        })
    }

    /// Deletes the keys just written and returns an error if their account was deleted meanwhile, or if their
    /// reservations, made at `reserved_at`, are no longer valid. No listing would contain such keys.
    pub(super) async fn check_reservations(
        &self,
        account: AccountId,
        reserved_at: i64,
        written: &[KeyId],
    ) -> Result<Reply, StoreError> {
        let [redis_key, reservations, _] = self.redis_keys.account(account);
        let call = CHECK_RESERVATIONS.on([&redis_key, &reservations]).arg(reserved_at).arg(self.now_arg());
        let call = written.iter().fold(call, |call, key| call.arg(key.to_string()));
        let (code, reply) = self.write_int(&call).await?;
        if code == 1 {
            return Ok(reply);
        }
        for key in written {
            self.delete_redis_keys(*key, Some(account), Unowned::Keep).await?;
        }
        Err(match code {
            -1 => StoreError::AccountNotFound,
            _ => StoreError::Unavailable("creating the key took too long".into()),
        })
    }

    async fn read_keys(&self, account: AccountId) -> Result<KeyListing, StoreError> {
        self.read_account(account).await?;
        let (now, reserved) = self.list_reservations(account).await?;
        let mut listing = KeyListing::default();
        let found =
            reserved.iter().map(async |(id, at)| Ok::<_, StoreError>((id, at, self.find_key(*id).await?)));
        for (id, reserved_at, key) in try_join_all(found).await? {
            let holder = match &key {
                Some(Ok(key)) => Some(key.meta.account),
                Some(Err(unreadable)) => unreadable.meta.as_ref().map(|meta| meta.account),
                None => None,
            };
            match key {
                // An import of an earlier version reserved a key that another account holds.
                _ if holder.is_some_and(|holder| holder != account) => {
                    self.release(account, *id, *reserved_at).await?
                }
                Some(Ok(key)) => listing.keys.push(key),
                Some(Err(key)) => listing.unreadable.push(key),
                // The creation of the key failed, or is still in progress. A reservation from the future was made under a
                // wrong clock.
                None if (now - reserved_at).abs() > RESERVATION_MS => {
                    self.release(account, *id, *reserved_at).await?
                }
                None => {}
            }
        }
        listing.keys.sort_by_key(|key| (key.meta.created_at, key.meta.id()));
        listing.unreadable.sort_by_key(|key| key.id);
        Ok(listing)
    }

    /// The time of the account's server, and the key ID and time of each reservation.
    async fn list_reservations(&self, account: AccountId) -> Result<(i64, Vec<(KeyId, i64)>), StoreError> {
        let [_, reservations, _] = self.redis_keys.account(account);
        let call = LIST_RESERVATIONS.on([&reservations]).arg(self.now_arg());
        let texts: Vec<String> = self.query(&call).await?;
        let invalid = || StoreError::InvalidData(format!("reservations of account {account}").into());
        let (now, pairs) = texts.split_first().ok_or_else(invalid)?;
        let pair = |pair: &[String]| Some((KeyId::from_hex(pair.first()?).ok()?, pair.get(1)?.parse().ok()?));
        Ok((now.parse().map_err(|_| invalid())?, pairs.chunks(2).filter_map(pair).collect()))
    }

    /// Removes a reservation unless it was renewed after `reserved_at`.
    pub(super) async fn release(
        &self,
        account: AccountId,
        id: KeyId,
        reserved_at: i64,
    ) -> Result<(), StoreError> {
        let [_, reservations, _] = self.redis_keys.account(account);
        let call = RELEASE.on([&reservations]).arg(id.to_string()).arg(reserved_at);
        self.query::<i64>(&call).await.map(drop)
    }

    async fn read_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey, StoreError> {
        let key = match self.find_key(id).await? {
            Some(Ok(key)) if owner.is_none_or(|owner| owner == key.meta.account) => key,
            Some(Err(key)) if self.may_access(&key, owner).await? => return Err((&key).into()),
            _ => return Err(StoreError::KeyNotFound),
        };
        if !self.has_reservation(key.meta.account, id).await? {
            // Its account was deleted while an earlier version, or a process that crashed, created the key.
            tracing::warn!(key = %id, "deleting a key that no account holds");
            self.delete_redis_keys(id, Some(key.meta.account), Unowned::Keep).await?;
            return Err(StoreError::KeyNotFound);
        }
        Ok(key)
    }

    /// Whether `owner` has an unreadable key. If its metadata can't be read, the reservation tells.
    async fn may_access(&self, key: &UnreadableKey, owner: Option<AccountId>) -> Result<bool, StoreError> {
        match (owner, &key.meta) {
            (None, _) => Ok(true),
            (Some(owner), Some(meta)) => Ok(owner == meta.account),
            (Some(owner), None) => self.has_reservation(owner, key.id).await,
        }
    }

    async fn has_reservation(&self, account: AccountId, id: KeyId) -> Result<bool, StoreError> {
        let [_, reservations, _] = self.redis_keys.account(account);
        self.query(&command("HEXISTS", &reservations).arg(id.to_string())).await
    }

    async fn find_key(&self, id: KeyId) -> Result<Option<FoundKey>, StoreError> {
        let mut parts = self.read_parts(id).await?;
        if parts.is_incomplete() {
            // The key may have been created or deleted between the two reads.
            parts = self.read_parts(id).await?;
        }
        Ok(parts.into_key(id))
    }

    async fn read_parts(&self, id: KeyId) -> Result<KeyParts, StoreError> {
        let [record, meta, _] = self.redis_keys.key(id);
        let record = readable(self.query(&command("GET", &record)).await)?;
        let meta = readable(self.query(&command("HGETALL", &meta)).await)?;
        Ok(KeyParts { record, meta })
    }

    /// Deletes the Redis keys of an API key, but not its reservation, without confirming the deletion.
    pub(super) async fn delete_redis_keys(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        unowned: Unowned,
    ) -> Result<(DeletedKey, Reply), StoreError> {
        let redis_keys = self.redis_keys.key(id);
        let call = DELETE_KEY
            .on(&redis_keys)
            .arg(owner.map_or_else(String::new, |owner| owner.to_string()))
            .arg(u8::from(unowned == Unowned::Delete));
        let reply = self.write(&call).await?;
        let deleted = match &reply.value {
            Value::BulkString(account) => match AccountId::from_hex(&String::from_utf8_lossy(account)) {
                Ok(account) => DeletedKey::Of(account),
                Err(_) => DeletedKey::Unowned,
            },
            _ => DeletedKey::NotFound,
        };
        Ok((deleted, reply))
    }
}

/// Separates invalid data, whose reason is the inner error, from a store that can't be read at all.
pub(super) fn readable<T>(result: Result<T, StoreError>) -> Result<Result<T, String>, StoreError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(StoreError::InvalidData(reason)) => Ok(Err(reason.to_string())),
        Err(error) => Err(error),
    }
}

fn parse_meta(fields: &HashMap<String, String>) -> Option<KeyMeta> {
    Some(KeyMeta {
        account: AccountId::from_hex(fields.get("account")?).ok()?,
        name: KeyName::parse(fields.get("name")?).ok()?,
        hint: fields.get("hint")?.clone(),
        digest: KeyDigest::from_hex(fields.get("digest")?).ok()?,
        created_at: fields.get("created")?.parse().ok()?,
    })
}
