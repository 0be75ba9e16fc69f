//! API keys in Redis. Creating one takes two steps, because in a Cluster the data may be on different servers: first a
//! reservation in its account, then its own Redis keys. Afterward the reservation is checked again, because the account
//! may have been deleted in between.

use std::collections::HashMap;

use api_key::KeyDigest;
use futures_util::future::try_join_all;
use quota_client::wire::{Actor, EventKind, KEYS_PER_ACCOUNT};
use redis::Value;

use super::command;
use super::operation::{Operation, int};
use super::script::{
    CHANGE_KEY, CHECK_RESERVATIONS, CREATE_KEY, DELETE_KEY, LIST_RESERVATIONS, RELEASE, RESERVE,
};
use super::topology::Reply;
use crate::domain::event::{Event, with_actor};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, KeyMeta, KeyName, StoredKey};
use crate::domain::record::{KeyRecord, decode, encode};
use crate::store::{KeyDraft, RESERVATION_MS, StoreError};

/// The result of reserving a key slot in an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reservation {
    New,
    /// The key already had a reservation.
    Existing,
    LimitReached,
}

/// The result of writing a new key.
pub(super) enum KeyWrite {
    Written(Reply),
    /// The key exists already. Contains the account that holds it, unless its metadata is damaged.
    Existing(Option<AccountId>),
}

impl Operation<'_> {
    pub(super) async fn add_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey, StoreError> {
        let id = KeyId::of(&draft.digest);
        let (mut now, mut reservations) = self.reserve(account, &[id]).await?;
        if reservations == [Reservation::LimitReached] {
            // Listing the keys removes stale reservations of failed creations.
            self.read_keys(account).await?;
            (now, reservations) = self.reserve(account, &[id]).await?;
        }
        if reservations == [Reservation::LimitReached] {
            return Err(StoreError::KeyLimitReached);
        }
        let record = KeyRecord::new(draft.scope, draft.daily_limit, now);
        let KeyDraft { name, digest, hint, actor, .. } = draft;
        let key = StoredKey { meta: KeyMeta { account, name, hint, digest, created_at: now }, record };
        let event = Event { at: now, kind: EventKind::Created, reason: with_actor("created", actor) };
        let KeyWrite::Written(written) = self.write_key(&key, &event).await? else {
            return Err(StoreError::InvalidData(format!("the new key {id} already exists")));
        };
        let checked = self.check_reservations(account, now, &[id]).await?;
        self.confirm([written, checked]).await?;
        Ok(key)
    }

    /// Reserves a key slot for each key, in order. Also returns the store's time.
    pub(super) async fn reserve(
        &self,
        account: AccountId,
        keys: &[KeyId],
    ) -> Result<(i64, Vec<Reservation>), StoreError> {
        let [redis_key, reservations, _] = self.redis_keys.account(account);
        let call =
            RESERVE.on([redis_key.clone(), reservations].iter()).arg(KEYS_PER_ACCOUNT).arg(self.now_arg());
        let call = keys.iter().fold(call, |call, key| call.arg(key.to_string()));
        let reply = self.write(&redis_key, &call).await?;
        let Value::Array(numbers) = &reply.value else {
            return Err(StoreError::InvalidData("unexpected reply to reserve.lua".to_owned()));
        };
        let numbers: Vec<i64> = numbers.iter().map(int).collect::<Result<_, _>>()?;
        match numbers.split_first() {
            None | Some((-1, _)) => Err(StoreError::AccountNotFound),
            Some((now, codes)) => Ok((*now, codes.iter().map(|code| reservation(*code)).collect())),
        }
    }

    /// Writes a reserved key unless it exists, without confirming the write. The caller then calls
    /// [`Self::check_reservations`].
    pub(super) async fn write_key(&self, key: &StoredKey, event: &Event) -> Result<KeyWrite, StoreError> {
        let redis_keys = self.redis_keys.key(key.meta.id());
        let meta = &key.meta;
        let call = CREATE_KEY
            .on(redis_keys.iter())
            .arg(encode(&key.record))
            .arg(event.to_line())
            .arg(&["account", &meta.account.to_string(), "name", meta.name.as_str()])
            .arg(&["hint", &meta.hint, "digest", &meta.digest.to_hex()])
            .arg(&["created", &meta.created_at.to_string()]);
        let reply = self.write(&redis_keys[0], &call).await?;
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
        let call = CHECK_RESERVATIONS
            .on([redis_key.clone(), reservations].iter())
            .arg(reserved_at)
            .arg(self.now_arg());
        let call = written.iter().fold(call, |call, key| call.arg(key.to_string()));
        let (code, reply) = self.write_int(&redis_key, &call).await?;
        if code == 1 {
            return Ok(reply);
        }
        for key in written {
            self.delete_redis_keys(*key, Some(account)).await?;
        }
        Err(match code {
            -1 => StoreError::AccountNotFound,
            _ => StoreError::Unavailable("creating the key took too long".to_owned()),
        })
    }

    pub(super) async fn read_keys(&self, account: AccountId) -> Result<Vec<StoredKey>, StoreError> {
        self.read_account(account).await?;
        let (now, reserved) = self.list_reservations(account).await?;
        let mut keys = Vec::new();
        let found =
            reserved.iter().map(async |(id, at)| Ok::<_, StoreError>((id, at, self.find_key(*id).await?)));
        for (id, reserved_at, key) in try_join_all(found).await? {
            match key {
                Some(key) if key.meta.account == account => keys.push(key),
                // An import of an earlier version reserved a key that another account holds.
                Some(_) => self.release(account, *id, *reserved_at).await?,
                // The creation of the key failed, or is still in progress. A reservation from the future was made under a
                // wrong clock.
                None if (now - reserved_at).abs() > RESERVATION_MS => {
                    self.release(account, *id, *reserved_at).await?
                }
                None => {}
            }
        }
        keys.sort_by_key(|key| (key.meta.created_at, key.meta.id()));
        Ok(keys)
    }

    /// The time of the account's server, and the key ID and time of each reservation.
    async fn list_reservations(&self, account: AccountId) -> Result<(i64, Vec<(KeyId, i64)>), StoreError> {
        let [_, reservations, _] = self.redis_keys.account(account);
        let call = LIST_RESERVATIONS.on([reservations.clone()].iter()).arg(self.now_arg());
        let reply = self.run(&reservations, &call).await?;
        let texts: Vec<String> = redis::from_redis_value(reply.value)
            .map_err(|error| StoreError::InvalidData(error.to_string()))?;
        let invalid = || StoreError::InvalidData(format!("reservations of account {account}"));
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
        let call = RELEASE.on([reservations.clone()].iter()).arg(id.to_string()).arg(reserved_at);
        self.run_int(&reservations, &call).await.map(drop)
    }

    pub(super) async fn read_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
    ) -> Result<StoredKey, StoreError> {
        let key = self.find_key(id).await?.ok_or(StoreError::KeyNotFound)?;
        if owner.is_some_and(|owner| owner != key.meta.account) {
            return Err(StoreError::KeyNotFound);
        }
        let [_, reservations, _] = self.redis_keys.account(key.meta.account);
        let mut is_reserved = command("HEXISTS", &reservations);
        if !self.query::<bool>(&reservations, is_reserved.arg(id.to_string())).await? {
            // Its account was deleted while an earlier version, or a process that crashed, created the key.
            tracing::warn!(key = %id, "deleting a key that no account holds");
            self.delete_redis_keys(id, Some(key.meta.account)).await?;
            return Err(StoreError::KeyNotFound);
        }
        Ok(key)
    }

    async fn find_key(&self, id: KeyId) -> Result<Option<StoredKey>, StoreError> {
        let [record, meta, _] = self.redis_keys.key(id);
        let bytes: Option<Vec<u8>> = self.query(&record, &command("GET", &record)).await?;
        let fields: HashMap<String, String> = self.query(&meta, &command("HGETALL", &meta)).await?;
        let Some(bytes) = bytes.filter(|_| !fields.is_empty()) else { return Ok(None) };
        let invalid = |why: String| StoreError::InvalidData(format!("key {id}: {why}"));
        let record = decode(&bytes).map_err(|error| invalid(error.to_string()))?;
        let meta = parse_meta(&fields).ok_or_else(|| invalid("invalid metadata".to_owned()))?;
        Ok(Some(StoredKey { meta, record }))
    }

    pub(super) async fn apply_change(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: Option<Actor>,
    ) -> Result<StoredKey, StoreError> {
        let redis_keys = self.redis_keys.key(id);
        let (action, value, kind) = match change {
            KeyChange::Resume => ("resume", String::new(), "resumed"),
            KeyChange::Deactivate => ("deactivate", String::new(), "deactivated"),
            KeyChange::Reactivate => ("reactivate", String::new(), "reactivated"),
            KeyChange::Rename(name) => ("rename", name.as_str().to_owned(), "renamed"),
            KeyChange::DailyLimit(limit) => ("limit", limit.unwrap_or(0).to_string(), "limit_changed"),
        };
        let call = CHANGE_KEY
            .on(redis_keys.iter())
            .arg(owner.map_or_else(String::new, |owner| owner.to_string()))
            .arg(action)
            .arg(value)
            .arg(self.now_arg())
            .arg(format!("{kind} {}", with_actor(&change.reason(), actor)));
        let reply = match self.write_int(&redis_keys[0], &call).await? {
            (-1, _) => return Err(StoreError::KeyNotFound),
            (-2, _) => return Err(StoreError::KeyInactive),
            (-3, _) => return Err(StoreError::KeyPaused),
            (-4, _) => return Err(StoreError::InvalidData(format!("key {id}"))),
            (_, reply) => reply,
        };
        let (key, ()) = tokio::try_join!(self.read_key(id, owner), self.confirm([reply]))?;
        Ok(key)
    }

    pub(super) async fn remove_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<(), StoreError> {
        let deleted = self.delete_redis_keys(id, owner).await?;
        let (account, deletion) = deleted.ok_or(StoreError::KeyNotFound)?;
        let [_, reservations, _] = self.redis_keys.account(account);
        let mut release = command("HDEL", &reservations);
        let release = self.write_command(&reservations, release.arg(id.to_string())).await?;
        self.confirm([deletion, release]).await
    }

    /// Deletes the Redis keys of an API key, but not its reservation, without confirming the deletion. Returns its
    /// account, or `None` if the API key does not exist.
    pub(super) async fn delete_redis_keys(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
    ) -> Result<Option<(AccountId, Reply)>, StoreError> {
        let redis_keys = self.redis_keys.key(id);
        let call =
            DELETE_KEY.on(redis_keys.iter()).arg(owner.map_or_else(String::new, |owner| owner.to_string()));
        let reply = self.write(&redis_keys[0], &call).await?;
        let Value::BulkString(account) = &reply.value else { return Ok(None) };
        let account = AccountId::from_hex(&String::from_utf8_lossy(account)).ok();
        Ok(account.map(|account| (account, reply)))
    }

    pub(super) async fn read_events(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
    ) -> Result<Vec<Event>, StoreError> {
        self.read_key(id, owner).await?;
        let [_, _, events] = self.redis_keys.key(id);
        let mut range = command("LRANGE", &events);
        let lines: Vec<String> = self.query(&events, range.arg(0).arg(-1)).await?;
        let now = self.read_now().await?;
        Ok(lines
            .iter()
            .filter_map(|line| Event::from_line(line))
            .filter(|event| event.is_current(now))
            .collect())
    }
}

fn reservation(code: i64) -> Reservation {
    match code {
        1 => Reservation::New,
        2 => Reservation::Existing,
        _ => Reservation::LimitReached,
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
