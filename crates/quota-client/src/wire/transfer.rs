//! Export and import.

use poem_openapi::Object;
use serde::{Deserialize, Serialize};

use super::{DayUsage, KeyState, Scope};

/// One key in an export.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub struct ExportedKey {
    /// SHA-256 of the API key, 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// What its owner calls it.
    pub name: String,
    /// The key's first and last characters.
    pub hint: String,
    /// What it may see.
    pub scope: Scope,
    /// Where it is in its life.
    pub state: KeyState,
    /// Since when, Unix time in milliseconds.
    pub state_since: i64,
    /// Unix time in milliseconds.
    pub created_at: i64,
    /// A daily limit other than the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit: Option<u32>,
    /// What was charged by day; days without requests are left out.
    #[serde(default)]
    pub usage: Vec<DayUsage>,
}

/// One line of an export: an account with its credential and its keys.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub struct ExportedAccount {
    /// What its owner signs in with.
    pub login: String,
    /// Unix time in milliseconds.
    pub created_at: i64,
    /// What was stored as its credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Counts the changes of the credential.
    #[serde(default)]
    pub credential_version: u32,
    /// At most 10.
    #[oai(validator(max_items = 10))]
    pub keys: Vec<ExportedKey>,
}

/// A page of an export.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(skip_serializing_if_is_none)]
pub struct ExportPage {
    /// The accounts of this page.
    pub accounts: Vec<ExportedAccount>,
    /// How many accounts there are in all.
    pub total: u64,
    /// Give this back as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Accounts to import.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// 1 to 200 accounts.
    #[oai(validator(min_items = 1, max_items = 200))]
    pub accounts: Vec<ExportedAccount>,
}

/// What became of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct ImportReport {
    /// Accounts that were new.
    pub accounts_created: u64,
    /// Accounts that were there and kept their credential.
    pub accounts_kept: u64,
    /// Keys that were new.
    pub keys_created: u64,
    /// Keys that were there already and stayed as they are.
    pub keys_kept: u64,
    /// Keys left out because the account would have held more than 10.
    pub keys_refused: u64,
}
