//! What a store loads of an account: its rows, and the records of its keys.

use std::collections::{BTreeMap, BTreeSet};

use super::id::{AccountId, KeyId};
use super::record::account_of;

/// Which account to load: by its ID, or by that of one of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Account(AccountId),
    Key(KeyId),
}

/// Drawn by each commit, so an account that was deleted and created again has another one.
pub type Version = [u8; 8];

/// An account as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    pub id: AccountId,
    /// `None`: there is no such account.
    pub version: Option<Version>,
    /// The parts of the account by their names: [`row::ACCOUNT`], [`row::SESSIONS`], [`row::OUTBOX`], [`row::CREATIONS`], and one
    /// per key.
    pub rows: BTreeMap<String, Vec<u8>>,
    /// The records of its keys, and of other keys that were asked for. Empty for one that can't be read at all; a missing one
    /// is not in the map.
    pub records: BTreeMap<KeyId, Vec<u8>>,
    /// The store's time, ms.
    pub now: i64,
}

impl Loaded {
    /// The keys of the account, readable or not: those with a row, and those whose record names the account.
    pub fn keys(&self) -> BTreeSet<KeyId> {
        let rows = self.rows.keys().filter_map(|name| row::key_of(name));
        let is_own = |record: &[u8]| account_of(record) == Some(self.id);
        let records = self.records.iter().filter(|(_, record)| is_own(record)).map(|(id, _)| *id);
        rows.chain(records).collect()
    }
}

/// The names of rows.
pub mod row {
    use super::KeyId;

    pub const ACCOUNT: &str = "account";
    pub const SESSIONS: &str = "sessions";
    pub const OUTBOX: &str = "outbox";
    pub const CREATIONS: &str = "creations";

    /// The row with a key's metadata.
    pub fn key(id: KeyId) -> String {
        format!("k:{id}")
    }

    /// The key whose metadata this row has.
    pub fn key_of(name: &str) -> Option<KeyId> {
        KeyId::from_hex(name.strip_prefix("k:")?).ok()
    }
}
