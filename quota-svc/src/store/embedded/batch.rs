//! The changes that one transaction writes.
//!
//! They are compared with the memory before the transaction and made in memory after it, and charges go on meanwhile.
//! These count as made before the changes: of a record, only those fields change that differ between the compared and
//! the new one. So a key that is paused meanwhile stays paused, unless the change deactivates it. The next transaction
//! writes the record as it then is in memory.

use std::collections::{HashMap, HashSet};

use super::state::{State, announcement_row};
use super::store_file::{RowWrite, kind, named_row, row};
use crate::domain::change::{Change, RecordChange};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::record::{HEAD_BYTES, KeyRecord, decode, encode, encode_head};
use crate::domain::window::BurstWindow;
use crate::store::{Result, StoreError};

#[derive(Default)]
pub struct Batch {
    accounts: HashSet<AccountId>,
    /// The records that it writes. Of one that changes, as it was compared, and its new value.
    records: HashMap<KeyId, Option<Box<[KeyRecord; 2]>>>,
    pub rows: Vec<RowWrite>,
}

impl Batch {
    /// Adds a change, unless another one has made its notices. Returns `false` if the account or one of the records is not as it was loaded, or if the batch
    /// changes it already.
    pub fn add(&mut self, state: &State, change: Change) -> Result<bool> {
        let (account, stored) = (change.account, state.accounts.get(&change.account));
        if change.made.is_some_and(|made| !state.announcements.contains(&made)) {
            return Ok(true);
        }
        if self.accounts.contains(&account) || stored.map(|stored| stored.version) != change.expected {
            return Ok(false);
        }
        let (mut records, mut rows) = (Vec::new(), Vec::new());
        let mut put = |key, value| rows.push(RowWrite::Put(key, value));
        change.made.iter().for_each(|made| put(announcement_row(made), None));
        for (id, change) in change.records {
            let mut changed = None;
            let value = match (change, state.records.get(&id)) {
                _ if self.records.contains_key(&id) => return Ok(false),
                (RecordChange::New(bytes), None) => Some(bytes),
                (RecordChange::Changed { expected, head, clears_window, origins }, Some(Ok(record)))
                    if encode_head(record) == expected =>
                {
                    let mut after = record.clone();
                    if clears_window {
                        after.window = BurstWindow::default();
                    }
                    after.origins = origins.unwrap_or(after.origins);
                    let mut bytes = encode(&after);
                    bytes[..HEAD_BYTES].copy_from_slice(&head);
                    let after = decode(&bytes).map_err(|error| StoreError::InvalidData(error.into()))?;
                    changed = Some(Box::new([record.clone(), after]));
                    Some(bytes)
                }
                (RecordChange::Deleted, _) => {
                    put(row(kind::EVENTS, id.0), None);
                    put(row(kind::EXPIRY_NOTICE, id.0), None);
                    None
                }
                _ => return Ok(false),
            };
            put(row(kind::RECORD, id.0), value);
            records.push((id, changed));
        }
        let account_row = |name: &str| named_row(kind::ACCOUNT, account.0, name);
        let time = |at: Option<i64>| at.map(|at| at.to_le_bytes().to_vec());
        if change.exists {
            change.rows.into_iter().for_each(|(name, value)| put(account_row(&name), value));
            change.notice_due.into_iter().for_each(|at| put(row(kind::NOTICE_DUE, account.0), time(at)));
        } else {
            stored.iter().flat_map(|stored| stored.rows.keys()).for_each(|name| put(account_row(name), None));
            put(row(kind::NOTICE_DUE, account.0), None);
        }
        change.expiry_notices.into_iter().for_each(|(id, at)| put(row(kind::EXPIRY_NOTICE, id.0), time(at)));
        rows.extend(change.events.into_iter().map(|(id, line)| RowWrite::AddEvent(id, line)));
        self.accounts.insert(account);
        self.records.extend(records);
        self.rows.append(&mut rows);
        Ok(true)
    }
}

impl State {
    /// Makes the changes of a batch that is on disk.
    pub fn apply(&mut self, batch: Batch) {
        let changed = batch.records.into_iter().filter_map(|(id, records)| {
            let (records, record) = (*records?, self.records.get(&id)?.clone().ok()?);
            Some((id, Ok(with_difference(record, records))))
        });
        let changed: Vec<_> = changed.collect();
        for write in batch.rows {
            if let RowWrite::Put(key, value) = write {
                self.put(&key, value.as_deref());
            }
        }
        self.records.extend(changed);
        for account in batch.accounts {
            self.last_version += 1;
            if let Some(stored) = self.accounts.get_mut(&account) {
                stored.version = self.last_version.to_le_bytes();
            }
        }
    }
}

fn with_difference(mut record: KeyRecord, [before, after]: [KeyRecord; 2]) -> KeyRecord {
    if (after.state, after.state_since) != (before.state, before.state_since) {
        (record.state, record.state_since) = (after.state, after.state_since);
    }
    if after.window != before.window {
        record.window = after.window;
    }
    // Charges do not change the other fields of the head.
    let KeyRecord { scope, daily_limit, expires_at, suspended, origins, .. } = after;
    KeyRecord { scope, daily_limit, expires_at, suspended, origins, ..record }
}
