//! API keys in Redis. Creating one takes two steps, because in a Cluster the data may be on different servers: first a
//! reservation in its account, then its own Redis keys. Afterward the reservation is checked again, because the account
//! may have been deleted in between.

use async_trait::async_trait;
use futures_util::future::try_join_all;
use quota_api::{Actor, Event, EventKind, KEYS_PER_ACCOUNT, StateChange};
use redis::Value;

use super::RedisStore;
use super::call::{
    CHANGE_KEY, CHECK_RESERVATIONS, CREATE_KEY, DELETE_KEY, LIST_RESERVATIONS, RELEASE, RESERVE, command,
};
use super::operation::{Operation, convert};
use super::topology::Reply;
use crate::domain::event::{self, with_actor};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, KeyMeta, StoredKey};
use crate::domain::record::{HEAD_BYTES, decode, encode};
use crate::store::{KeyDraft, KeyListing, KeyStore, RESERVATION_MS, Result, StoreError, UnreadableKey};

pub(super) enum KeyWrite {
    Written(Reply),
    /// The key exists already. Contains the account that holds it, unless its metadata is damaged.
    Existing(Option<AccountId>),
}

pub(super) type FoundKey = Result<StoredKey, UnreadableKey>;

/// The stored parts of an API key. An error is the reason why a part can't be read.
pub(super) struct KeyParts {
    record: Result<Option<Vec<u8>>, String>,
    meta: Result<Option<Vec<u8>>, String>,
}

impl KeyParts {
    pub(super) fn decode(&self, id: KeyId) -> Option<FoundKey> {
        if self.record == Ok(None) && self.meta == Ok(None) {
            return None;
        }
        let record = self.record.as_ref().map_err(Clone::clone).and_then(|bytes| {
            let bytes = bytes.as_ref().ok_or_else(|| "the record is missing".to_owned())?;
            decode(bytes).map_err(|error| error.to_string())
        });
        let meta = self.meta.as_ref().map_err(Clone::clone).and_then(|text| {
            let meta = text.as_ref().and_then(|text| KeyMeta::from_json(text, id));
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
    async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey> {
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
        let reason = with_actor("created", &draft.actor);
        let (mut key, event) =
            (draft.into_key(account, now), Event { at: now, kind: EventKind::Created, reason });
        let KeyWrite::Written(written) = operation.write_key(&key, &event).await? else {
            return Err(StoreError::InvalidData(format!("the new key {id} already exists").into()));
        };
        let (mut replies, suspended) = operation.check_reservations(account, now, &[id]).await?;
        key.record.suspended = suspended;
        replies.push(written);
        operation.confirm(replies).await?;
        Ok(key)
    }

    async fn keys(&self, account: AccountId) -> Result<KeyListing> {
        self.operation().read_keys(account).await
    }

    async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey> {
        self.operation().read_key(id, owner).await
    }

    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: &Actor,
    ) -> Result<StoredKey> {
        let operation = self.operation();
        let (key, reply) = operation.write_change(id, owner, change, actor).await?;
        operation.confirm([reply]).await?;
        Ok(key)
    }

    async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<()> {
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

    async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>> {
        let operation = self.operation();
        operation.read_key(id, owner).await?;
        let [_, _, events] = self.redis_keys.key(id);
        let lines: Vec<String> = operation.query(&command("LRANGE", &events).arg(0).arg(-1)).await?;
        Ok(event::current(&lines, operation.read_now().await?))
    }
}

impl Operation<'_> {
    /// Reserves a key slot for each key, in order. Returns the store's time, and for each key whether it has a
    /// reservation now; false if the account has no slot left.
    pub(super) async fn reserve(&self, account: AccountId, keys: &[KeyId]) -> Result<(i64, Vec<bool>)> {
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
    pub(super) async fn write_key(&self, key: &StoredKey, event: &Event) -> Result<KeyWrite> {
        self.index_expiry(key, event.at).await?;
        let redis_keys = self.redis_keys.key(key.meta.id());
        let call = CREATE_KEY
            .on(&redis_keys)
            .arg(encode(&key.record))
            .arg(key.meta.to_json())
            .arg(event::to_line(event));
        let reply = self.write(&call).await?;
        Ok(match &reply.value {
            Value::BulkString(owner) => {
                KeyWrite::Existing(AccountId::from_hex(&String::from_utf8_lossy(owner)).ok())
            }
            _ => KeyWrite::Written(reply),
        })
    }

    /// Changes a key without confirming the write.
    async fn write_change(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: &Actor,
    ) -> Result<(StoredKey, Reply)> {
        let redis_keys = self.redis_keys.key(id);
        // Repeated if a charge pauses the key in between, or someone else changes it.
        loop {
            let (parts, now) = tokio::try_join!(self.find_parts(id), self.read_now())?;
            let mut key = self.check_key(id, parts.decode(id), owner).await?;
            let (Ok(Some(record)), Ok(Some(meta))) = (parts.record, parts.meta) else {
                return Err(StoreError::KeyNotFound);
            };
            // Without an effect, the script writes nothing; earlier writes are confirmed nevertheless.
            let event = key.apply(change, now)?.map_or_else(String::new, |(kind, reason)| {
                event::to_line(&Event { at: now, kind, reason: with_actor(&reason, actor) })
            });
            if matches!(change, KeyChange::Settings(_)) {
                self.index_expiry(&key, now).await?;
            }
            let clears_window =
                matches!(change, KeyChange::State(StateChange::Resume | StateChange::Reactivate));
            let call = CHANGE_KEY
                .on(&redis_keys)
                .arg(&record[..HEAD_BYTES])
                .arg(&encode(&key.record)[..HEAD_BYTES])
                .arg(meta)
                .arg(key.meta.to_json())
                .arg(u8::from(clears_window))
                .arg(event);
            if let (1, reply) = self.write_int(&call).await? {
                return Ok((key, reply));
            }
        }
    }

    /// Sets the key's suspension to that of its account, which was `suspended` before the key was read. Reads the account again
    /// after each write of the key: of two processes at once, the last writer sees the account's final state. Returns `None` for
    /// a key that was deleted meanwhile.
    async fn adopt_suspension(
        &self,
        mut key: StoredKey,
        mut suspended: bool,
    ) -> Result<(Option<StoredKey>, Option<Reply>)> {
        let mut reply = None;
        while key.record.suspended != suspended {
            suspended = self.read_account(key.meta.account).await?.standing.suspension.is_some();
            if key.record.suspended == suspended {
                break;
            }
            let change = KeyChange::Suspended(suspended);
            match self.write_change(key.meta.id(), None, &change, &Actor::System).await {
                Ok((changed, written)) => (key, reply) = (changed, Some(written)),
                Err(StoreError::KeyNotFound) => return Ok((None, reply)),
                Err(error) => return Err(error),
            }
            suspended = self.read_account(key.meta.account).await?.standing.suspension.is_some();
        }
        Ok((Some(key), reply))
    }

    /// Deletes the keys just written and returns an error if their account was deleted meanwhile, or if their
    /// reservations, made at `reserved_at`, are no longer valid. No listing would contain such keys. If the account is suspended,
    /// so are all its keys then. Also returns whether it is.
    pub(super) async fn check_reservations(
        &self,
        account: AccountId,
        reserved_at: i64,
        written: &[KeyId],
    ) -> Result<(Vec<Reply>, bool)> {
        let [redis_key, reservations, _] = self.redis_keys.account(account);
        let call = CHECK_RESERVATIONS.on([&redis_key, &reservations]).arg(reserved_at).arg(self.now_arg());
        let call = written.iter().fold(call, |call, key| call.arg(key.to_string()));
        let (code, reply) = self.write_int(&call).await?;
        if code > 0 {
            let mut replies = if code == 2 { self.list_keys(account).await?.1 } else { Vec::new() };
            replies.push(reply);
            return Ok((replies, code == 2));
        }
        for key in written {
            self.delete_redis_keys(*key, Some(account), Unowned::Keep).await?;
        }
        Err(match code {
            -1 => StoreError::AccountNotFound,
            _ => StoreError::Unavailable("creating the key took too long".into()),
        })
    }

    async fn read_keys(&self, account: AccountId) -> Result<KeyListing> {
        let (listing, replies) = self.list_keys(account).await?;
        if !replies.is_empty() {
            self.confirm(replies).await?;
        }
        Ok(listing)
    }

    /// Lists the keys. Completes what was interrupted: stale reservations are removed, and each key's suspension is set to that
    /// of the account. Does not confirm these writes.
    pub(super) async fn list_keys(&self, account: AccountId) -> Result<(KeyListing, Vec<Reply>)> {
        let is_suspended = self.read_account(account).await?.standing.suspension.is_some();
        let (now, reserved) = self.list_reservations(account).await?;
        let mut listing = KeyListing::default();
        let found = reserved
            .iter()
            .map(async |(id, at)| Ok::<_, StoreError>((id, at, self.find_parts(*id).await?.decode(*id))));
        for (id, reserved_at, key) in try_join_all(found).await? {
            let holder = match &key {
                Some(Ok(key)) => Some(key.meta.account),
                Some(Err(unreadable)) => unreadable.meta.as_ref().map(|meta| meta.account),
                None => None,
            };
            match key {
                // An interrupted import has reserved a key that another account holds.
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
        let keys = std::mem::take(&mut listing.keys).into_iter();
        let adopted = keys.map(|key| self.adopt_suspension(key, is_suspended));
        let (keys, replies): (Vec<_>, Vec<_>) = try_join_all(adopted).await?.into_iter().unzip();
        listing.keys = keys.into_iter().flatten().collect();
        listing.keys.sort_by_key(|key| (key.meta.created_at, key.meta.id()));
        listing.unreadable.sort_by_key(|key| key.id);
        Ok((listing, replies.into_iter().flatten().collect()))
    }

    /// The time of the account's server, and the key ID and time of each reservation.
    async fn list_reservations(&self, account: AccountId) -> Result<(i64, Vec<(KeyId, i64)>)> {
        let [_, reservations, _] = self.redis_keys.account(account);
        let call = LIST_RESERVATIONS.on([&reservations]).arg(self.now_arg());
        let texts: Vec<String> = self.query(&call).await?;
        let invalid = || StoreError::InvalidData(format!("reservations of account {account}").into());
        let (now, pairs) = texts.split_first().ok_or_else(invalid)?;
        let pair = |pair: &[String]| Some((KeyId::from_hex(pair.first()?).ok()?, pair.get(1)?.parse().ok()?));
        Ok((now.parse().map_err(|_| invalid())?, pairs.chunks(2).filter_map(pair).collect()))
    }

    /// Removes a reservation unless it was renewed after `reserved_at`.
    pub(super) async fn release(&self, account: AccountId, id: KeyId, reserved_at: i64) -> Result<()> {
        let [_, reservations, _] = self.redis_keys.account(account);
        let call = RELEASE.on([&reservations]).arg(id.to_string()).arg(reserved_at);
        self.query::<i64>(&call).await.map(drop)
    }

    async fn read_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey> {
        let found = self.find_parts(id).await?.decode(id);
        self.check_key(id, found, owner).await
    }

    /// Checks that `owner` has the key, and that its account exists.
    async fn check_key(
        &self,
        id: KeyId,
        found: Option<FoundKey>,
        owner: Option<AccountId>,
    ) -> Result<StoredKey> {
        let key = match found {
            Some(Ok(key)) if owner.is_none_or(|owner| owner == key.meta.account) => key,
            Some(Err(key)) if self.may_access(&key, owner).await? => return Err((&key).into()),
            _ => return Err(StoreError::KeyNotFound),
        };
        if !self.has_reservation(key.meta.account, id).await? {
            // Its account was deleted while a process that crashed created the key.
            tracing::warn!(key = %id, "deleting a key that no account holds");
            self.delete_redis_keys(id, Some(key.meta.account), Unowned::Keep).await?;
            return Err(StoreError::KeyNotFound);
        }
        Ok(key)
    }

    /// Whether `owner` has an unreadable key. If its metadata can't be read, the reservation tells.
    async fn may_access(&self, key: &UnreadableKey, owner: Option<AccountId>) -> Result<bool> {
        match (owner, &key.meta) {
            (None, _) => Ok(true),
            (Some(owner), Some(meta)) => Ok(owner == meta.account),
            (Some(owner), None) => self.has_reservation(owner, key.id).await,
        }
    }

    async fn has_reservation(&self, account: AccountId, id: KeyId) -> Result<bool> {
        let [_, reservations, _] = self.redis_keys.account(account);
        self.query(&command("HEXISTS", &reservations).arg(id.to_string())).await
    }

    pub(super) async fn find_parts(&self, id: KeyId) -> Result<KeyParts> {
        let parts = self.read_parts(id).await?;
        // The key may have been created or deleted between the two reads.
        let is_incomplete = (parts.record == Ok(None)) != (parts.meta == Ok(None));
        if is_incomplete { self.read_parts(id).await } else { Ok(parts) }
    }

    async fn read_parts(&self, id: KeyId) -> Result<KeyParts> {
        let [record, meta, _] = self.redis_keys.key(id);
        let (record, meta) = (command("GET", &record), command("GET", &meta));
        let (record, meta) = tokio::join!(self.query(&record), self.query(&meta));
        Ok(KeyParts { record: readable(record)?, meta: readable(meta)? })
    }

    /// Deletes the Redis keys of an API key, but not its reservation, without confirming the deletion.
    pub(super) async fn delete_redis_keys(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        unowned: Unowned,
    ) -> Result<(DeletedKey, Reply)> {
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
        if matches!(deleted, DeletedKey::Of(_)) {
            // An entry that stays is dropped when it is due.
            let _ = self.write(&command("ZREM", &self.redis_keys.expiring()).arg(id.to_string())).await;
        }
        Ok((deleted, reply))
    }
}

/// Separates invalid data, whose reason is the inner error, from a store that can't be read at all.
pub(super) fn readable<T>(result: Result<T>) -> Result<Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(StoreError::InvalidData(reason)) => Ok(Err(reason.to_string())),
        Err(error) => Err(error),
    }
}
