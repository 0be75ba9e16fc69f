//! Changes of accounts and keys that are not on disk yet.

use std::collections::HashMap;

use quota_api::Event;

use super::super::store_file::{Row, RowWrite};
use super::{AccountRow, KeyEntry, State};
use crate::domain::event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, StoredKey};
use crate::domain::record::encode;
use crate::store::{Result, StoreError};

/// The state with staged changes on top. The state itself does not change.
///
/// A method that returns an error has staged nothing.
pub struct Draft<'a> {
    pub(super) state: &'a State,
    pub staged: Staged,
}

/// Staged changes: first their rows are written, then they are applied to the state.
#[derive(Default)]
pub struct Staged {
    /// `None` for a deleted account.
    accounts: HashMap<AccountId, Option<AccountRow>>,
    keys: HashMap<KeyId, StagedKey>,
    events: Vec<(KeyId, Event)>,
}

enum StagedKey {
    New(StoredKey),
    /// A key of the state with its changes, and their times. Charges can change its counters until the changes are
    /// applied, so applying them repeats them.
    Changed(StoredKey, Vec<(KeyChange, i64)>),
    Deleted,
}

impl<'a> Draft<'a> {
    pub fn new(state: &'a State) -> Self {
        Self { state, staged: Staged::default() }
    }

    pub(super) fn account(&self, id: AccountId) -> Result<&AccountRow> {
        match self.staged.accounts.get(&id) {
            Some(staged) => staged.as_ref().ok_or(StoreError::AccountNotFound),
            None => self.state.account(id),
        }
    }

    pub(super) fn put_account(&mut self, row: AccountRow) {
        self.staged.accounts.insert(AccountId::of(&row.account.login), Some(row));
    }

    pub(super) fn remove_account(&mut self, id: AccountId) {
        self.staged.accounts.insert(id, None);
    }

    pub(super) fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<&StoredKey> {
        let Some(staged) = self.staged.keys.get(&id) else { return self.state.key(id, owner) };
        let key = staged.key().ok_or(StoreError::KeyNotFound)?;
        if owner.is_some_and(|owner| owner != key.meta.account) {
            return Err(StoreError::KeyNotFound);
        }
        Ok(key)
    }

    pub(super) fn put_new_key(&mut self, key: StoredKey, event: Event) {
        let id = key.meta.id();
        self.staged.keys.insert(id, StagedKey::New(key));
        self.staged.events.push((id, event));
    }

    /// Stages a key to which `change` has been applied.
    pub(super) fn put_changed_key(&mut self, key: StoredKey, change: &KeyChange, event: Event) {
        let (id, change) = (key.meta.id(), (change.clone(), event.at));
        let staged = match self.staged.keys.remove(&id) {
            Some(StagedKey::New(_)) => StagedKey::New(key),
            Some(StagedKey::Changed(_, mut changes)) => {
                changes.push(change);
                StagedKey::Changed(key, changes)
            }
            Some(StagedKey::Deleted) | None => StagedKey::Changed(key, vec![change]),
        };
        self.staged.keys.insert(id, staged);
        self.staged.events.push((id, event));
    }

    pub(super) fn remove_key(&mut self, id: KeyId) {
        self.staged.keys.insert(id, StagedKey::Deleted);
        self.staged.events.retain(|(key, _)| *key != id);
    }

    /// The account of a key, readable or not. `None` if the key is unreadable and no account has it.
    pub(super) fn key_owner(&self, id: KeyId, owner: Option<AccountId>) -> Result<Option<AccountId>> {
        let account = match (self.staged.keys.get(&id), self.state.unreadable_keys.get(&id)) {
            (Some(staged), _) => Some(staged.key().ok_or(StoreError::KeyNotFound)?.meta.account),
            (None, Some(unreadable)) => unreadable.account,
            (None, None) => Some(self.state.key(id, None)?.meta.account),
        };
        if owner.is_some() && owner != account { Err(StoreError::KeyNotFound) } else { Ok(account) }
    }
}

impl StagedKey {
    /// `None` for a deleted key.
    fn key(&self) -> Option<&StoredKey> {
        match self {
            Self::New(key) | Self::Changed(key, _) => Some(key),
            Self::Deleted => None,
        }
    }
}

impl Staged {
    /// The rows to write.
    pub fn rows(&self) -> Vec<RowWrite> {
        let to_json = |row: &AccountRow| serde_json::to_vec(row).expect("strings and numbers serialize");
        let accounts = self.accounts.iter();
        let mut rows: Vec<_> = accounts
            .map(|(id, row)| match row {
                Some(row) => RowWrite::Put(Row::Account(*id), to_json(row)),
                None => RowWrite::Delete(Row::Account(*id)),
            })
            .collect();
        for (id, staged) in &self.keys {
            // A new key can replace one that was deleted in the same commit.
            if !matches!(staged, StagedKey::Changed(..)) {
                rows.extend([Row::Key(*id), Row::Record(*id), Row::Events(*id)].map(RowWrite::Delete));
            }
            if let Some(key) = staged.key() {
                rows.push(RowWrite::Put(Row::Key(*id), key.meta.to_json()));
                rows.push(RowWrite::Put(Row::Record(*id), encode(&key.record)));
            }
        }
        rows.extend(self.events.iter().map(|(id, event)| RowWrite::AddEvent(*id, event::to_line(event))));
        rows
    }
}

impl State {
    /// Applies changes whose rows are on disk.
    pub fn apply(&mut self, staged: Staged) {
        for (id, account) in staged.accounts {
            self.unreadable_accounts.remove(&id);
            match account {
                Some(account) => drop(self.accounts.insert(id, account)),
                None => drop(self.accounts.remove(&id)),
            }
        }
        for (id, key) in staged.keys {
            self.unreadable_keys.remove(&id);
            match key {
                StagedKey::New(key) => drop(self.keys.insert(id, KeyEntry { key, dirty: false })),
                StagedKey::Changed(_, changes) => self.repeat_changes(id, &changes),
                StagedKey::Deleted => drop(self.keys.remove(&id)),
            }
        }
    }

    fn repeat_changes(&mut self, id: KeyId, changes: &[(KeyChange, i64)]) {
        let Some(entry) = self.keys.get_mut(&id) else { return };
        for (change, at) in changes {
            // Can't fail: of the states that charges change (active to paused), none rejects a change that was
            // accepted before.
            let _ = entry.key.apply(change, *at);
        }
    }
}
