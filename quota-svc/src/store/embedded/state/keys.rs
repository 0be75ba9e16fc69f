//! The keys of the state in memory: create, read, change, delete, import and load.

use quota_api::{Actor, Event, EventKind, ImportReport, KEYS_PER_ACCOUNT};

use super::{Draft, KeyEntry, State, UnreadableEntry};
use crate::domain::event::with_actor;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, KeyMeta, StoredKey};
use crate::domain::record::decode;
use crate::domain::transfer::ImportAccount;
use crate::store::{KeyListing, Result, StoreError, UnreadableKey};

impl State {
    pub fn keys(&self, account: AccountId) -> Result<KeyListing> {
        let mut listing = KeyListing::default();
        for id in &self.account(account)?.keys {
            if let Some(entry) = self.keys.get(id) {
                listing.keys.push(entry.key.clone());
            } else if let Some(entry) = self.unreadable_keys.get(id) {
                listing.unreadable.push(entry.key.clone());
            }
        }
        listing.keys.sort_by_key(|key| (key.meta.created_at, key.meta.id()));
        Ok(listing)
    }

    pub fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<&StoredKey> {
        let belongs = |account| owner.is_none() || owner == account;
        match (self.keys.get(&id), self.unreadable_keys.get(&id)) {
            (Some(entry), _) if belongs(Some(entry.key.meta.account)) => Ok(&entry.key),
            (None, Some(entry)) if belongs(entry.account) => Err((&entry.key).into()),
            _ => Err(StoreError::KeyNotFound),
        }
    }

    /// Loads a key from the file. A missing part is empty. Accounts must have been loaded.
    pub(super) fn load_key(&mut self, id: KeyId, meta: &[u8], record: &[u8]) {
        match (KeyMeta::from_json(meta, id), decode(record)) {
            (Some(meta), Ok(record)) => {
                self.keys.insert(id, KeyEntry { key: StoredKey { meta, record }, dirty: false });
            }
            (None, _) => self.load_unreadable(id, None, "its metadata is missing or invalid".to_owned()),
            (meta, Err(error)) => self.load_unreadable(id, meta, error.to_string()),
        }
    }

    /// Adds a key for each entry in an account's list of keys that was not loaded. Call it after loading all keys.
    pub(super) fn load_missing_keys(&mut self) {
        let listed = self.accounts.values().flat_map(|account| &account.keys);
        let missing =
            listed.filter(|id| !self.keys.contains_key(id) && !self.unreadable_keys.contains_key(id));
        for id in missing.copied().collect::<Vec<_>>() {
            self.load_unreadable(id, None, "its data is missing".to_owned());
        }
    }

    fn load_unreadable(&mut self, id: KeyId, meta: Option<KeyMeta>, reason: String) {
        tracing::error!(key = %id, reason, "can't read a stored key; its charges fail");
        let holder = || self.accounts.iter().find(|(_, account)| account.keys.contains(&id));
        let account = meta.as_ref().map(|meta| meta.account).or_else(|| Some(*holder()?.0));
        self.unreadable_keys.insert(id, UnreadableEntry { key: UnreadableKey { id, meta, reason }, account });
    }
}

impl Draft<'_> {
    pub fn create_key(
        &mut self,
        mut key: StoredKey,
        kind: EventKind,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredKey> {
        let id = key.meta.id();
        key.record.suspended = self.update_account(key.meta.account, |stored| {
            if stored.keys.len() >= KEYS_PER_ACCOUNT {
                return Err(StoreError::KeyLimitReached);
            }
            stored.keys.push(id);
            Ok(stored.account.standing.suspension.is_some())
        })?;
        let reason = with_actor(kind.as_str(), actor);
        self.put_new_key(key.clone(), Event { at: now, kind, reason });
        Ok(key)
    }

    pub fn change_key(
        &mut self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredKey> {
        let mut key = self.key(id, owner)?.clone();
        if let Some((kind, reason)) = key.apply(change, now)? {
            let reason = with_actor(&reason, actor);
            self.put_changed_key(key.clone(), change, Event { at: now, kind, reason });
        }
        Ok(key)
    }

    /// Deletes a key and frees its key slot.
    pub fn delete_key(&mut self, id: KeyId, owner: Option<AccountId>) -> Result<()> {
        if let Some(account) = self.key_owner(id, owner)? {
            let freed = self.update_account(account, |stored| {
                stored.keys.retain(|key| *key != id);
                Ok(())
            });
            match freed {
                // The key can be deleted even if its account does not exist or can't be read.
                Ok(()) | Err(StoreError::AccountNotFound | StoreError::UnreadableAccount(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.remove_key(id);
        Ok(())
    }

    /// Adds the accounts and keys that do not exist yet.
    pub fn import(&mut self, accounts: &[ImportAccount], now: i64) -> Result<ImportReport> {
        let mut report = ImportReport::default();
        for import in accounts {
            let account = AccountId::of(&import.account.login);
            match self.create_account(import.account.clone()) {
                Ok(_) => report.accounts_created += 1,
                Err(_) => report.accounts_kept += 1,
            }
            for key in &import.keys {
                match self.key_owner(key.meta.id(), None) {
                    Ok(owner) if owner == Some(account) => report.keys_kept += 1,
                    Ok(_) => report.keys_refused += 1,
                    // There is no such key.
                    Err(_) => {
                        match self.create_key(key.clone(), EventKind::Imported, &Actor::Operator, now) {
                            Ok(_) => report.keys_created += 1,
                            Err(_) => report.keys_refused += 1,
                        }
                    }
                }
            }
        }
        Ok(report)
    }
}
