//! The keys of the state in memory: create, read, change, delete, import and load.

use quota_client::wire::{Actor, EventKind, ImportReport, KEYS_PER_ACCOUNT, Scope};

use super::super::writer::RowWrite;
use super::stored::{meta_from_bytes, meta_to_bytes};
use super::{KeyEntry, State};
use crate::domain::event::{Event, with_actor};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, KeyChangeError, StoredKey};
use crate::domain::record::{KeyRecord, decode, encode};
use crate::store::{ImportAccount, StoreError};

/// The result of a change, and the rows to write to the file.
type StateChange<T> = Result<(T, Vec<RowWrite>), StoreError>;

impl State {
    pub fn create_key(
        &mut self,
        key: StoredKey,
        kind: EventKind,
        actor: Option<Actor>,
        now: i64,
    ) -> StateChange<StoredKey> {
        let id = key.meta.id();
        let (_, mut writes) = self.update_account(key.meta.account, |stored| {
            if stored.keys.len() >= KEYS_PER_ACCOUNT {
                return Err(StoreError::KeyLimitReached);
            }
            stored.keys.push(id);
            Ok(())
        })?;
        let reason = if kind == EventKind::Imported { "imported" } else { "created" };
        let event = Event { at: now, kind, reason: with_actor(reason, actor) };
        writes.push(RowWrite::Key(id, Some(meta_to_bytes(&key.meta))));
        writes.push(RowWrite::Record(id, encode(&key.record)));
        writes.push(RowWrite::Event(id, event.to_line()));
        self.keys.insert(id, KeyEntry { key: key.clone(), dirty: false, invalid: false });
        Ok((key, writes))
    }

    /// Oldest first.
    pub fn keys(&self, account: AccountId) -> Result<Vec<StoredKey>, StoreError> {
        let ids = self.account(account)?.keys.iter();
        let mut keys = ids.map(|id| self.key(*id, None).cloned()).collect::<Result<Vec<_>, _>>()?;
        keys.sort_by_key(|key| (key.meta.created_at, key.meta.id()));
        Ok(keys)
    }

    pub fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<&StoredKey, StoreError> {
        let entry = self.keys.get(&id).ok_or(StoreError::KeyNotFound)?;
        if owner.is_some_and(|owner| owner != entry.key.meta.account) {
            return Err(StoreError::KeyNotFound);
        }
        if entry.invalid {
            return Err(StoreError::InvalidData(format!("key {id}")));
        }
        Ok(&entry.key)
    }

    pub fn change_key(
        &mut self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: Option<Actor>,
        now: i64,
    ) -> StateChange<StoredKey> {
        self.key(id, owner)?;
        let entry = self.keys.get_mut(&id).ok_or(StoreError::KeyNotFound)?;
        let event = entry.key.apply(change, now).map_err(|error| match error {
            KeyChangeError::Inactive => StoreError::KeyInactive,
            KeyChangeError::Paused => StoreError::KeyPaused,
        })?;
        let Some((kind, reason)) = event else { return Ok((entry.key.clone(), Vec::new())) };
        let writes = vec![
            RowWrite::Key(id, Some(meta_to_bytes(&entry.key.meta))),
            RowWrite::Record(id, encode(&entry.key.record)),
            RowWrite::Event(id, Event { at: now, kind, reason: with_actor(&reason, actor) }.to_line()),
        ];
        Ok((entry.key.clone(), writes))
    }

    /// Deletes a key and frees its key slot.
    pub fn delete_key(&mut self, id: KeyId, owner: Option<AccountId>) -> StateChange<()> {
        let entry = self.keys.get(&id).ok_or(StoreError::KeyNotFound)?;
        let account = entry.key.meta.account;
        if owner.is_some_and(|owner| owner != account) {
            return Err(StoreError::KeyNotFound);
        }
        self.keys.remove(&id);
        let (_, mut writes) = self.update_account(account, |stored| {
            stored.keys.retain(|key| *key != id);
            Ok(())
        })?;
        writes.push(RowWrite::Key(id, None));
        Ok(((), writes))
    }

    /// Adds the accounts and keys that do not exist yet.
    pub fn import(&mut self, accounts: &[ImportAccount], now: i64) -> StateChange<ImportReport> {
        let mut report = ImportReport::default();
        let mut all_writes = Vec::new();
        for import in accounts {
            match self.create_account(import.account.clone()) {
                Ok((_, writes)) => {
                    report.accounts_created += 1;
                    all_writes.extend(writes);
                }
                Err(_) => report.accounts_kept += 1,
            }
            for key in &import.keys {
                if let Some(existing) = self.keys.get(&key.meta.id()) {
                    let is_own = existing.key.meta.account == import.account.id();
                    *(if is_own { &mut report.keys_kept } else { &mut report.keys_refused }) += 1;
                    continue;
                }
                match self.create_key(key.clone(), EventKind::Imported, Some(Actor::Operator), now) {
                    Ok((_, writes)) => {
                        report.keys_created += 1;
                        all_writes.extend(writes);
                    }
                    Err(_) => report.keys_refused += 1,
                }
            }
        }
        Ok((report, all_writes))
    }

    /// Loads a key from the file; `None` if its metadata is invalid.
    pub fn load_key(&mut self, id: KeyId, meta: &[u8], record: &[u8]) -> Option<()> {
        let meta = meta_from_bytes(meta)?;
        let decoded = decode(record);
        if let Err(error) = &decoded {
            tracing::error!(key = %id, %error, "can't read a stored key record; charges for this key fail");
        }
        let invalid = decoded.is_err();
        let record = decoded.unwrap_or_else(|_| KeyRecord::new(Scope::Ip, None, 0));
        self.keys.insert(id, KeyEntry { key: StoredKey { meta, record }, dirty: false, invalid });
        Some(())
    }
}
