//! Accounts and sessions in memory.

use std::collections::hash_map::Entry;

use super::super::writer::Op;
use super::{State, StoredAccount};
use crate::domain::account::{Account, MAX_SESSIONS};
use crate::domain::id::{AccountId, KeyId};
use crate::store::{Page, StoreError};

type Change<T> = Result<(T, Vec<Op>), StoreError>;

impl State {
    /// Adds an account.
    pub fn create_account(&mut self, account: Account) -> Change<Account> {
        let id = account.id();
        match self.accounts.entry(id) {
            Entry::Occupied(_) => Err(StoreError::AccountExists),
            Entry::Vacant(place) => {
                let stored = StoredAccount { account, sessions: Default::default(), keys: Vec::new() };
                let stored = place.insert(stored);
                Ok((stored.account.clone(), vec![Op::Account(id, Some(stored.to_bytes()))]))
            }
        }
    }

    /// One account.
    pub fn account(&self, id: AccountId) -> Result<&StoredAccount, StoreError> {
        self.accounts.get(&id).ok_or(StoreError::AccountNotFound)
    }

    /// A page of accounts by id; the cursor is the last id of the page before.
    pub fn accounts(&self, cursor: Option<&str>, limit: usize) -> Page<Account> {
        let after = cursor.and_then(|id| AccountId::from_hex(id).ok());
        let mut ids: Vec<AccountId> = self.accounts.keys().copied().filter(|id| Some(*id) > after).collect();
        ids.sort_unstable();
        let more = ids.len() > limit;
        ids.truncate(limit.max(1));
        let next = ids.last().filter(|_| more).map(AccountId::to_string);
        let items = ids.iter().map(|id| self.accounts[id].account.clone()).collect();
        Page { items, total: self.accounts.len() as u64, next }
    }

    /// Removes an account with its keys.
    pub fn delete_account(&mut self, id: AccountId) -> Change<Vec<KeyId>> {
        let account = self.accounts.remove(&id).ok_or(StoreError::AccountNotFound)?;
        let mut ops = vec![Op::Account(id, None)];
        for key in &account.keys {
            self.keys.remove(key);
            ops.push(Op::Key(*key, None));
        }
        Ok((account.keys, ops))
    }

    /// Replaces the credential and ends the other sessions.
    pub fn set_credential(
        &mut self,
        id: AccountId,
        expected_version: u32,
        credential: &str,
        keep: Option<&str>,
    ) -> Change<u32> {
        self.alter(id, |stored| {
            if stored.account.credential_version != expected_version {
                return Err(StoreError::VersionConflict);
            }
            stored.account.credential = Some(credential.to_owned());
            stored.account.credential_version += 1;
            stored.sessions.retain(|session, _| Some(session.as_str()) == keep);
            Ok(stored.account.credential_version)
        })
    }

    /// Adds a session; of too many, the one that ends first makes room.
    pub fn add_session(&mut self, id: AccountId, session: &str, ends: i64, now: i64) -> Change<()> {
        self.alter(id, |stored| {
            stored.sessions.retain(|_, ends| *ends > now);
            while stored.sessions.len() >= MAX_SESSIONS {
                let first = stored.sessions.iter().min_by_key(|(_, ends)| **ends);
                let Some(first) = first.map(|(session, _)| session.clone()) else { break };
                stored.sessions.remove(&first);
            }
            stored.sessions.insert(session.to_owned(), ends);
            Ok(())
        })
    }

    /// Ends a session.
    pub fn end_session(&mut self, id: AccountId, session: &str) -> Change<()> {
        if !self.accounts.contains_key(&id) {
            return Ok(((), Vec::new()));
        }
        self.alter(id, |stored| {
            stored.sessions.remove(session);
            Ok(())
        })
    }

    /// Changes an account and wants its row written.
    pub(super) fn alter<T>(
        &mut self,
        id: AccountId,
        change: impl FnOnce(&mut StoredAccount) -> Result<T, StoreError>,
    ) -> Change<T> {
        let stored = self.accounts.get_mut(&id).ok_or(StoreError::AccountNotFound)?;
        let result = change(stored)?;
        Ok((result, vec![Op::Account(id, Some(stored.to_bytes()))]))
    }

    /// An account as the file has it.
    pub fn load_account(&mut self, id: AccountId, account: StoredAccount) {
        self.accounts.insert(id, account);
    }
}
