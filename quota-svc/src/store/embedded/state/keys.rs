//! The keys of the state in memory: create, read, change, delete, import and load.

use quota_client::wire::{Actor, EventKind, ImportReport, KEYS_PER_ACCOUNT, Scope};

use super::stored::meta_from_bytes;
use super::{Draft, KeyEntry, State};
use crate::domain::event::{Event, with_actor};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, KeyChangeError, StoredKey};
use crate::domain::record::{KeyRecord, decode};
use crate::store::{ImportAccount, StoreError};

impl State {
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

impl Draft<'_> {
    pub fn create_key(
        &mut self,
        key: StoredKey,
        kind: EventKind,
        actor: Option<Actor>,
        now: i64,
    ) -> Result<StoredKey, StoreError> {
        let id = key.meta.id();
        self.update_account(key.meta.account, |stored| {
            if stored.keys.len() >= KEYS_PER_ACCOUNT {
                return Err(StoreError::KeyLimitReached);
            }
            stored.keys.push(id);
            Ok(())
        })?;
        let reason = if kind == EventKind::Imported { "imported" } else { "created" };
        self.put_new_key(key.clone(), Event { at: now, kind, reason: with_actor(reason, actor) });
        Ok(key)
    }

    pub fn change_key(
        &mut self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: Option<Actor>,
        now: i64,
    ) -> Result<StoredKey, StoreError> {
        let mut key = self.key(id, owner)?.clone();
        let event = key.apply(change, now).map_err(|error| match error {
            KeyChangeError::Inactive => StoreError::KeyInactive,
            KeyChangeError::Paused => StoreError::KeyPaused,
        })?;
        if let Some((kind, reason)) = event {
            let event = Event { at: now, kind, reason: with_actor(&reason, actor) };
            self.put_changed_key(key.clone(), change, event);
        }
        Ok(key)
    }

    /// Deletes a key and frees its key slot.
    pub fn delete_key(&mut self, id: KeyId, owner: Option<AccountId>) -> Result<(), StoreError> {
        let account = self.key_owner(id, owner)?;
        let freed = self.update_account(account, |stored| {
            stored.keys.retain(|key| *key != id);
            Ok(())
        });
        match freed {
            // The key of a deleted account is deleted, too.
            Ok(()) | Err(StoreError::AccountNotFound) => {}
            Err(error) => return Err(error),
        }
        self.remove_key(id);
        Ok(())
    }

    /// Adds the accounts and keys that do not exist yet.
    pub fn import(&mut self, accounts: &[ImportAccount], now: i64) -> Result<ImportReport, StoreError> {
        let mut report = ImportReport::default();
        for import in accounts {
            match self.create_account(import.account.clone()) {
                Ok(_) => report.accounts_created += 1,
                Err(_) => report.accounts_kept += 1,
            }
            for key in &import.keys {
                if self.has_key(key.meta.id()) {
                    let is_own = self.key_owner(key.meta.id(), Some(import.account.id())).is_ok();
                    *(if is_own { &mut report.keys_kept } else { &mut report.keys_refused }) += 1;
                    continue;
                }
                match self.create_key(key.clone(), EventKind::Imported, Some(Actor::Operator), now) {
                    Ok(_) => report.keys_created += 1,
                    Err(_) => report.keys_refused += 1,
                }
            }
        }
        Ok(report)
    }
}
