//! Keys in memory.

use quota_client::wire::{EventKind, ImportReport, KEYS_PER_ACCOUNT, Scope};

use super::super::writer::Op;
use super::stored::{meta_from_bytes, meta_to_bytes};
use super::{KeyEntry, State};
use crate::domain::event::Event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{Change as KeyChange, Refusal, StoredKey};
use crate::domain::record::{Record, decode, encode};
use crate::store::{ImportAccount, StoreError};

type Change<T> = Result<(T, Vec<Op>), StoreError>;

impl State {
    /// Adds a key to its account.
    pub fn create_key(&mut self, key: StoredKey, kind: EventKind, now: i64) -> Change<StoredKey> {
        let id = key.meta.id();
        let (_, mut ops) = self.alter(key.meta.account, |stored| {
            if stored.keys.len() >= KEYS_PER_ACCOUNT {
                return Err(StoreError::KeyLimitReached);
            }
            stored.keys.push(id);
            Ok(())
        })?;
        let reason = if kind == EventKind::Imported { "imported" } else { "created" };
        let event = Event { at: now, kind, reason: reason.to_owned() };
        ops.push(Op::Key(id, Some(meta_to_bytes(&key.meta))));
        ops.push(Op::Record(id, encode(&key.record)));
        ops.push(Op::Event(id, event.to_line()));
        self.keys.insert(id, KeyEntry { key: key.clone(), dirty: false, unreadable: false });
        Ok((key, ops))
    }

    /// The keys of an account, oldest first.
    pub fn keys(&self, account: AccountId) -> Result<Vec<StoredKey>, StoreError> {
        let ids = self.account(account)?.keys.iter();
        let mut keys = ids.map(|id| self.key(*id, None).cloned()).collect::<Result<Vec<_>, _>>()?;
        keys.sort_by_key(|key| (key.meta.created_at, key.meta.id()));
        Ok(keys)
    }

    /// One key.
    pub fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<&StoredKey, StoreError> {
        let entry = self.keys.get(&id).ok_or(StoreError::KeyNotFound)?;
        if owner.is_some_and(|owner| owner != entry.key.meta.account) {
            return Err(StoreError::KeyNotFound);
        }
        if entry.unreadable {
            return Err(StoreError::Unreadable(format!("key {id}")));
        }
        Ok(&entry.key)
    }

    /// Changes a key.
    pub fn change_key(
        &mut self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        now: i64,
    ) -> Change<StoredKey> {
        self.key(id, owner)?;
        let entry = self.keys.get_mut(&id).ok_or(StoreError::KeyNotFound)?;
        let changed = entry.key.apply(change, now).map_err(|refusal| match refusal {
            Refusal::Inactive => StoreError::KeyInactive,
            Refusal::Paused => StoreError::KeyPaused,
        })?;
        let Some((kind, reason)) = changed else { return Ok((entry.key.clone(), Vec::new())) };
        let ops = vec![
            Op::Key(id, Some(meta_to_bytes(&entry.key.meta))),
            Op::Record(id, encode(&entry.key.record)),
            Op::Event(id, Event { at: now, kind, reason }.to_line()),
        ];
        Ok((entry.key.clone(), ops))
    }

    /// Removes a key and frees its place.
    pub fn delete_key(&mut self, id: KeyId, owner: Option<AccountId>) -> Change<()> {
        let entry = self.keys.get(&id).ok_or(StoreError::KeyNotFound)?;
        let account = entry.key.meta.account;
        if owner.is_some_and(|owner| owner != account) {
            return Err(StoreError::KeyNotFound);
        }
        self.keys.remove(&id);
        let (_, mut ops) = self.alter(account, |stored| {
            stored.keys.retain(|key| *key != id);
            Ok(())
        })?;
        ops.push(Op::Key(id, None));
        Ok(((), ops))
    }

    /// Adds what an export has and this store has not.
    pub fn import(&mut self, accounts: &[ImportAccount], now: i64) -> Change<ImportReport> {
        let mut report = ImportReport::default();
        let mut all = Vec::new();
        for import in accounts {
            match self.create_account(import.account.clone()) {
                Ok((_, ops)) => {
                    report.accounts_created += 1;
                    all.extend(ops);
                }
                Err(_) => report.accounts_kept += 1,
            }
            for key in &import.keys {
                if self.keys.contains_key(&key.meta.id()) {
                    report.keys_kept += 1;
                    continue;
                }
                match self.create_key(key.clone(), EventKind::Imported, now) {
                    Ok((_, ops)) => {
                        report.keys_created += 1;
                        all.extend(ops);
                    }
                    Err(_) => report.keys_refused += 1,
                }
            }
        }
        Ok((report, all))
    }

    /// A key as the file has it; `None` if its description can't be read.
    pub fn load_key(&mut self, id: KeyId, meta: &[u8], record: &[u8]) -> Option<()> {
        let meta = meta_from_bytes(meta)?;
        let decoded = decode(record);
        if let Err(error) = &decoded {
            tracing::error!(key = %id, %error, "a key's record can't be read; the key is refused");
        }
        let unreadable = decoded.is_err();
        let record = decoded.unwrap_or_else(|_| Record::new(Scope::Ip, None, 0));
        self.keys.insert(id, KeyEntry { key: StoredKey { meta, record }, dirty: false, unreadable });
        Some(())
    }
}
