//! Keys in Redis: created in two steps, since an account and its keys may live on different servers.

use std::collections::HashMap;

use api_key::KeyDigest;
use futures_util::future::try_join_all;
use quota_client::wire::{EventKind, KEYS_PER_ACCOUNT};
use redis::Value;

use super::names::Name;
use super::script::{CHANGE_KEY, CREATE_KEY, DELETE_KEY, RESERVE};
use super::topology::Answer;
use super::{RedisStore, command, int};
use crate::domain::event::Event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{Change, KeyMeta, KeyName, StoredKey};
use crate::domain::record::{Record, decode, encode};
use crate::store::{KeyDraft, RESERVATION_MS, StoreError};

/// What became of an attempt to reserve a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Reserved,
    HadOne,
    NoneLeft,
}

impl RedisStore {
    pub(super) async fn add_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey, StoreError> {
        let id = KeyId::of(&draft.digest);
        let (mut now, mut places) = self.reserve(account, &[id]).await?;
        if places == [Place::NoneLeft] {
            // Listing clears the places of creations that were cut short.
            self.read_keys(account).await?;
            (now, places) = self.reserve(account, &[id]).await?;
        }
        if places == [Place::NoneLeft] {
            return Err(StoreError::KeyLimitReached);
        }
        let record = Record::new(draft.scope, draft.daily_limit, now);
        let KeyDraft { name, digest, hint, .. } = draft;
        let key = StoredKey { meta: KeyMeta { account, name, hint, digest, created_at: now }, record };
        let event = Event { at: now, kind: EventKind::Created, reason: "created".to_owned() };
        match self.write_key(&key, now, &event).await? {
            (false, _) => Err(StoreError::Away("the creation took too long".to_owned())),
            (true, answer) => {
                self.confirm.confirm(answer).await?;
                Ok(key)
            }
        }
    }

    /// Reserves a place for each key, in order; the time by the store's clock.
    pub(super) async fn reserve(
        &self,
        account: AccountId,
        keys: &[KeyId],
    ) -> Result<(i64, Vec<Place>), StoreError> {
        let [name, places, _] = self.names.account(account);
        let call = RESERVE.on([name.clone(), places].iter()).arg(KEYS_PER_ACCOUNT).arg(self.now_arg());
        let call = keys.iter().fold(call, |call, key| call.arg(key.to_string()));
        let answer = self.run(&name, &call).await?;
        let Value::Array(numbers) = &answer.value else {
            return Err(StoreError::Unreadable("reserve".to_owned()));
        };
        let numbers: Vec<i64> = numbers.iter().map(int).collect::<Result<_, _>>()?;
        match numbers.split_first() {
            None | Some((-1, _)) => Err(StoreError::AccountNotFound),
            Some((now, codes)) => Ok((*now, codes.iter().map(|code| place(*code)).collect())),
        }
    }

    /// Writes a key whose place was reserved at `reserved`. False: that was too long ago.
    pub(super) async fn write_key(
        &self,
        key: &StoredKey,
        reserved: i64,
        event: &Event,
    ) -> Result<(bool, Answer), StoreError> {
        let names = self.names.key(key.meta.id());
        let meta = &key.meta;
        let call = CREATE_KEY
            .on(names.iter())
            .arg(reserved)
            .arg(self.now_arg())
            .arg(encode(&key.record))
            .arg(event.to_line())
            .arg(&["account", &meta.account.to_string(), "name", meta.name.as_str()])
            .arg(&["hint", &meta.hint, "digest", &meta.digest.to_hex()])
            .arg(&["created", &meta.created_at.to_string()]);
        let (code, answer) = self.run_int(&names[0], &call).await?;
        Ok((code != 0, answer))
    }

    pub(super) async fn read_keys(&self, account: AccountId) -> Result<Vec<StoredKey>, StoreError> {
        self.read_account(account).await?;
        let [_, places, _] = self.names.account(account);
        let reserved: HashMap<String, i64> = self.ask(&places, &command("HGETALL", &places)).await?;
        let mut keys = Vec::new();
        let ids = reserved.iter().filter_map(|(id, at)| Some((KeyId::from_hex(id).ok()?, *at)));
        let found =
            try_join_all(ids.map(async |(id, at)| Ok::<_, StoreError>((id, at, self.find_key(id).await?))));
        for (id, reserved_at, key) in found.await? {
            match key {
                Some(key) => keys.push(key),
                None => self.clear_stale(&places, id, reserved_at).await?,
            }
        }
        keys.sort_by_key(|key| (key.meta.created_at, key.meta.id()));
        Ok(keys)
    }

    async fn clear_stale(&self, places: &Name, id: KeyId, reserved_at: i64) -> Result<(), StoreError> {
        if self.read_now().await? - reserved_at > RESERVATION_MS {
            let mut clear = command("HDEL", places);
            self.ask::<i64>(places, clear.arg(id.to_string())).await?;
        }
        Ok(())
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
        Ok(key)
    }

    async fn find_key(&self, id: KeyId) -> Result<Option<StoredKey>, StoreError> {
        let [record, meta, _] = self.names.key(id);
        let bytes: Option<Vec<u8>> = self.ask(&record, &command("GET", &record)).await?;
        let fields: HashMap<String, String> = self.ask(&meta, &command("HGETALL", &meta)).await?;
        let Some(bytes) = bytes.filter(|_| !fields.is_empty()) else { return Ok(None) };
        let unreadable = |why: String| StoreError::Unreadable(format!("key {id}: {why}"));
        let record = decode(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let meta = parse_meta(&fields).ok_or_else(|| unreadable("its description".to_owned()))?;
        Ok(Some(StoredKey { meta, record }))
    }

    pub(super) async fn alter_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &Change,
    ) -> Result<StoredKey, StoreError> {
        let names = self.names.key(id);
        let (action, value, kind) = match change {
            Change::Resume => ("resume", String::new(), "resumed"),
            Change::Deactivate => ("deactivate", String::new(), "deactivated"),
            Change::Reactivate => ("reactivate", String::new(), "reactivated"),
            Change::Rename(name) => ("rename", name.as_str().to_owned(), "renamed"),
            Change::DailyLimit(limit) => ("limit", limit.unwrap_or(0).to_string(), "limit_changed"),
        };
        let call = CHANGE_KEY
            .on(names.iter())
            .arg(owner.map_or_else(String::new, |owner| owner.to_string()))
            .arg(action)
            .arg(value)
            .arg(self.now_arg())
            .arg(format!("{kind} {}", change.reason()));
        match self.run_int(&names[0], &call).await? {
            (-1, _) => return Err(StoreError::KeyNotFound),
            (-2, _) => return Err(StoreError::KeyInactive),
            (-3, _) => return Err(StoreError::KeyPaused),
            (-4, _) => return Err(StoreError::Unreadable(format!("key {id}"))),
            (_, answer) => self.confirm.confirm(answer).await?,
        }
        self.read_key(id, owner).await
    }

    pub(super) async fn remove_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<(), StoreError> {
        let account = self.remove_record(id, owner).await?.ok_or(StoreError::KeyNotFound)?;
        let [_, places, _] = self.names.account(account);
        let mut free = command("HDEL", &places);
        let answer = self.records.send(&places, free.arg(id.to_string())).await?;
        self.confirm.confirm(answer).await
    }

    /// Removes what a key has in its own slot; the account that held it, or `None`: there is no such key.
    pub(super) async fn remove_record(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
    ) -> Result<Option<AccountId>, StoreError> {
        let names = self.names.key(id);
        let call = DELETE_KEY.on(names.iter()).arg(owner.map_or_else(String::new, |owner| owner.to_string()));
        let answer = self.run(&names[0], &call).await?;
        let Value::BulkString(account) = &answer.value else { return Ok(None) };
        let account = AccountId::from_hex(&String::from_utf8_lossy(account)).ok();
        self.confirm.confirm(answer).await?;
        Ok(account)
    }

    pub(super) async fn read_events(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
    ) -> Result<Vec<Event>, StoreError> {
        self.read_key(id, owner).await?;
        let [_, _, events] = self.names.key(id);
        let mut range = command("LRANGE", &events);
        let lines: Vec<String> = self.ask(&events, range.arg(0).arg(-1)).await?;
        let now = self.read_now().await?;
        Ok(lines
            .iter()
            .filter_map(|line| Event::from_line(line))
            .filter(|event| event.is_current(now))
            .collect())
    }
}

fn place(code: i64) -> Place {
    match code {
        1 => Place::Reserved,
        2 => Place::HadOne,
        _ => Place::NoneLeft,
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
