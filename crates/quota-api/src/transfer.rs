//! Export and import.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::{DayUsage, KeySettings, KeyState, StoredAccount};

/// A key in an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedKey {
    /// SHA-256 of the API key: 64 lowercase hexadecimal digits.
    pub sha256: String,
    /// First and last characters of the key, as in `ipl_abcd…wxyz`.
    pub hint: String,
    /// Name and scope.
    #[serde(flatten)]
    pub settings: KeySettings,
    /// State of the key.
    pub state: KeyState,
    /// Time of the last state change: Unix time in milliseconds.
    pub state_since: i64,
    /// Time of creation: Unix time in milliseconds.
    pub created_at: i64,
    /// Daily limit. If absent, the service's default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit: Option<u32>,
    /// ID of the key that has replaced this one. Absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
    /// Usage per day, without the days that have no requests.
    #[serde(default)]
    pub usage: Vec<DayUsage>,
}

/// An account in an export, with its credential and its keys: one line of an export file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedAccount {
    /// The account itself.
    #[serde(flatten)]
    pub account: StoredAccount,
    /// Keys of the account: at most 10, each possibly with its old key.
    pub keys: Vec<ExportedKey>,
}

/// A page of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportPage {
    /// Accounts on this page.
    pub accounts: Vec<ExportedAccount>,
    /// Total number of accounts.
    pub total: u64,
    /// `cursor` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Accounts and keys that can't be read, and are not in `accounts`. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// An account or a key that an export left out, because its stored data can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// ID of the account.
    pub account: String,
    /// ID of the key. Absent if the account itself can't be read; it was then left out with all its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Why it can't be read.
    pub reason: String,
}

/// Accounts to import.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// 1 to 200 accounts.
    pub accounts: Vec<ExportedAccount>,
}

/// Result of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReport {
    /// Accounts that were created.
    pub accounts_created: u64,
    /// Accounts that already existed. Their credentials were not changed.
    pub accounts_kept: u64,
    /// Keys that were created.
    pub keys_created: u64,
    /// Keys that already existed. They were not changed.
    pub keys_kept: u64,
    /// Keys that were skipped, because the account already has 10 keys or another account holds the key.
    pub keys_refused: u64,
}

impl AddAssign for ImportReport {
    fn add_assign(&mut self, other: Self) {
        self.accounts_created += other.accounts_created;
        self.accounts_kept += other.accounts_kept;
        self.keys_created += other.keys_created;
        self.keys_kept += other.keys_kept;
        self.keys_refused += other.keys_refused;
    }
}
