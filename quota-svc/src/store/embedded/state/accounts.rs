//! The accounts and sessions of the state in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use quota_api::{AccountAction, AccountChange, Actor, NewSession, SetCredential, StoredAccount};

use super::{AccountRow, Draft, State};
use crate::domain::account::{MAX_SESSIONS, change_standing};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::KeyChange;
use crate::store::{AccountListing, StoreError};

impl State {
    pub fn account(&self, id: AccountId) -> Result<&AccountRow, StoreError> {
        self.accounts.get(&id).ok_or_else(|| match self.unreadable_accounts.contains(&id) {
            true => StoreError::UnreadableAccount(id),
            false => StoreError::AccountNotFound,
        })
    }

    /// A page of accounts, ordered by ID. The cursor is the last ID of the previous page.
    pub fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountListing, StoreError> {
        let after = match cursor.map(AccountId::from_hex).transpose() {
            Ok(Some(last)) => Bound::Excluded(last),
            Ok(None) => Bound::Unbounded,
            Err(_) => return Err(StoreError::InvalidCursor),
        };
        let (range, limit) = ((after, Bound::Unbounded), limit.max(1));
        let readable = self.accounts.range(range).map(|(id, _)| *id).take(limit.saturating_add(1));
        let unreadable = self.unreadable_accounts.range(range).copied().take(limit.saturating_add(1));
        let mut ids: Vec<AccountId> = readable.chain(unreadable).collect();
        ids.sort_unstable();
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().filter(|_| more).map(AccountId::to_string);
        let accounts = ids.iter().filter_map(|id| Some(self.accounts.get(id)?.account.clone())).collect();
        let unreadable = ids.into_iter().filter(|id| self.unreadable_accounts.contains(id)).collect();
        let total = (self.accounts.len() + self.unreadable_accounts.len()) as u64;
        Ok(AccountListing { accounts, total, next, unreadable })
    }

    /// Loads an account from the file.
    pub(super) fn load_account(&mut self, id: AccountId, row: &[u8]) {
        match serde_json::from_slice::<AccountRow>(row) {
            Ok(row) if AccountId::of(&row.account.login) == id => drop(self.accounts.insert(id, row)),
            _ => {
                tracing::error!(account = %id, "can't read a stored account; its owner can't sign in");
                self.unreadable_accounts.insert(id);
            }
        }
    }

    /// The keys whose metadata names this account, because its own list of keys can't be read.
    pub(super) fn keys_of_unreadable_account(&self, account: AccountId) -> Vec<KeyId> {
        let readable = self.keys.iter().filter(|(_, entry)| entry.key.meta.account == account);
        let unreadable = self.unreadable_keys.iter().filter(|(_, entry)| entry.account == Some(account));
        readable.map(|(id, _)| *id).chain(unreadable.map(|(id, _)| *id)).collect()
    }
}

impl Draft<'_> {
    pub fn create_account(&mut self, account: StoredAccount) -> Result<StoredAccount, StoreError> {
        if !matches!(self.account(AccountId::of(&account.login)), Err(StoreError::AccountNotFound)) {
            return Err(StoreError::AccountExists);
        }
        self.put_account(AccountRow {
            account: account.clone(),
            sessions: Default::default(),
            keys: Vec::new(),
            notices: BTreeMap::new(),
            last_deliveries: BTreeMap::new(),
        });
        Ok(account)
    }

    /// Deletes an account with its keys.
    pub fn delete_account(
        &mut self,
        id: AccountId,
        expected_credential: Option<&str>,
    ) -> Result<Vec<KeyId>, StoreError> {
        let keys = match self.account(id) {
            Ok(stored) => {
                check_credential(&stored.account, expected_credential)?;
                stored.keys.clone()
            }
            Err(StoreError::UnreadableAccount(_)) if expected_credential.is_none() => {
                self.state.keys_of_unreadable_account(id)
            }
            Err(error) => return Err(error),
        };
        for key in &keys {
            self.remove_key(*key);
        }
        self.remove_account(id);
        Ok(keys)
    }

    /// Changes an account, and with its suspension the keys.
    pub fn change_account(
        &mut self,
        id: AccountId,
        change: &AccountChange,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredAccount, StoreError> {
        let (account, keys) = self.update_account(id, |stored| {
            change_standing(&mut stored.account.standing, change, actor, now);
            if change.action == AccountAction::EndSessions {
                stored.sessions.clear();
            }
            Ok((stored.account.clone(), stored.keys.clone()))
        })?;
        let suspended = KeyChange::Suspended(account.standing.suspension.is_some());
        for key in keys {
            match self.change_key(key, None, &suspended, &Actor::System, now) {
                // A key that can't be read is denied anyway.
                Ok(_) | Err(StoreError::KeyNotFound | StoreError::UnreadableKey { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(account)
    }

    /// Replaces the credential and revokes sessions.
    pub fn set_credential(&mut self, id: AccountId, change: &SetCredential) -> Result<u32, StoreError> {
        self.update_account(id, |stored| {
            if stored.account.credential_version != change.expected_version {
                return Err(StoreError::CredentialConflict);
            }
            check_credential(&stored.account, change.expected_credential.as_deref())?;
            stored.account.credential = Some(change.credential.clone());
            stored.account.credential_version += 1;
            if change.keep_all_sessions != Some(true) {
                stored.sessions.retain(|session, _| Some(session) == change.keep_session.as_ref());
            }
            Ok(stored.account.credential_version)
        })
    }

    /// Adds a session. If there are too many, revokes the one that expires first.
    pub fn add_session(&mut self, id: AccountId, session: &NewSession, now: i64) -> Result<(), StoreError> {
        self.update_account(id, |stored| {
            check_credential(&stored.account, session.expected_credential.as_deref())?;
            stored.sessions.retain(|_, expires_at| *expires_at > now);
            while stored.sessions.len() >= MAX_SESSIONS {
                let first = stored.sessions.iter().min_by_key(|(_, expires_at)| **expires_at);
                let Some(first) = first.map(|(session, _)| session.clone()) else { break };
                stored.sessions.remove(&first);
            }
            let expires_at = now + i64::from(session.ttl_seconds) * 1000;
            stored.sessions.insert(session.id_sha256.clone(), expires_at);
            Ok(())
        })
    }

    /// Succeeds also if the account or the session does not exist.
    pub fn revoke_session(&mut self, id: AccountId, session: &str) -> Result<(), StoreError> {
        if self.account(id).is_err() {
            return Ok(());
        }
        self.update_account(id, |stored| {
            stored.sessions.remove(session);
            Ok(())
        })
    }

    /// Changes an account, unless `change` returns an error.
    pub(super) fn update_account<T>(
        &mut self,
        id: AccountId,
        change: impl FnOnce(&mut AccountRow) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut stored = self.account(id)?.clone();
        let result = change(&mut stored)?;
        self.put_account(stored);
        Ok(result)
    }
}

fn check_credential(account: &StoredAccount, expected: Option<&str>) -> Result<(), StoreError> {
    match expected {
        Some(expected) if account.credential.as_deref() != Some(expected) => {
            Err(StoreError::CredentialConflict)
        }
        _ => Ok(()),
    }
}
