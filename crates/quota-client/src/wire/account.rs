//! Accounts, credentials and sessions.

use poem_openapi::Object;
use serde::{Deserialize, Serialize};

/// An account to create.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    /// What its owner signs in with: 1 to 254 characters, no white space or control characters; compared without regard to case.
    pub login: String,
    /// Stored as it is and never interpreted (dashboard-api keeps its password hash here).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// An account, without its credential.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Account {
    /// 32 hexadecimal digits, derived from the login.
    pub id: String,
    /// What its owner signs in with.
    pub login: String,
    /// Unix time in milliseconds.
    pub created_at: i64,
    /// Counts the changes of the credential; 0 while none was ever set.
    pub credential_version: u32,
}

/// A page of accounts.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(skip_serializing_if_is_none)]
pub struct AccountPage {
    /// The accounts of this page.
    pub accounts: Vec<Account>,
    /// How many accounts there are in all.
    pub total: u64,
    /// Give this back as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An account's credential with its version.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(skip_serializing_if_is_none)]
pub struct Credential {
    /// What was stored; absent while none was ever set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Counts its changes.
    pub version: u32,
}

/// A new credential for an account.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub struct SetCredential {
    /// Stored as it is and never interpreted; 1 to 4096 bytes.
    pub credential: String,
    /// The version this change was made from: another one answers 409.
    pub expected_version: u32,
    /// The session (its SHA-256) that stays; every other one of the account ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_session: Option<String>,
}

/// A session to keep with the account.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// SHA-256 of the session's id, 64 lower-case hexadecimal digits.
    pub id_sha256: String,
    /// How many seconds it lives; at most 30 days.
    pub ttl_seconds: u32,
}
