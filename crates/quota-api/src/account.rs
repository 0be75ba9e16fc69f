//! Accounts, credentials and sessions.

use poem_openapi::Object;
use serde::{Deserialize, Serialize};

use super::Contact;

/// An account to create.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    /// Login of the account: 1 to 254 characters, without whitespace, control characters or invisible characters.
    /// Case-insensitive.
    pub login: String,
    /// Opaque secret of the account: 1 to 4,096 bytes, stored unchanged. dashboard-api stores the password hash here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// An account with its credential, as it is stored and exported.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct StoredAccount {
    /// Login of the account, in lowercase.
    pub login: String,
    /// Time of creation: Unix time in milliseconds.
    pub created_at: i64,
    /// Opaque secret of the account, written and read by dashboard-api. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Version of the credential, incremented by each change.
    #[serde(default)]
    pub credential_version: u32,
    /// Where the owner wants to be told about its keys. Absent if nowhere.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "Contact::is_empty")]
    pub contact: Contact,
}

/// An account, without its credential.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Account {
    /// ID of the account: 32 hexadecimal digits, derived from the login.
    pub id: String,
    /// Login of the account, in lowercase.
    pub login: String,
    /// Time of creation: Unix time in milliseconds.
    pub created_at: i64,
    /// Version of the credential, incremented by each change. 0 if the account has no credential.
    pub credential_version: u32,
}

/// A page of accounts.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct AccountPage {
    /// Accounts on this page.
    pub accounts: Vec<Account>,
    /// Total number of accounts.
    pub total: u64,
    /// `cursor` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// IDs of accounts on this page whose stored data can't be read. Absent if there are none.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// An account's credential and its version.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Credential {
    /// Opaque secret of the account. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Incremented by each change. 0 if the account has no credential.
    pub version: u32,
}

/// A new credential for an account.
#[derive(Debug, Clone, Default, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetCredential {
    /// Opaque secret of the account: 1 to 4,096 bytes, stored unchanged.
    pub credential: String,
    /// Version that this change replaces. The request fails with 409 if the current version differs.
    pub expected_version: u32,
    /// Credential that this change replaces. If given, the request fails with 409 if the current credential differs,
    /// as it does after the account was deleted and registered again: versions then start over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_credential: Option<String>,
    /// SHA-256 of the ID of the session to keep. All other sessions of the account are revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_session: Option<String>,
    /// If `true`, no session is revoked: the credential is another hash of the same password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_all_sessions: Option<bool>,
}

/// A session to create.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// SHA-256 of the session ID: 64 lowercase hexadecimal digits.
    pub id_sha256: String,
    /// Lifetime in seconds: 1 to 2,592,000 (30 days).
    pub ttl_seconds: u32,
    /// Credential that the password was checked against. If given, the request fails with 409 if the current credential
    /// differs: the password was changed, or the account was deleted and registered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_credential: Option<String>,
}

/// The deletion of an account.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountDeletion {
    /// Credential that the owner's password was checked against. If given, the request fails with 409 if the current
    /// credential differs: the password was changed, or the account was deleted and registered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_credential: Option<String>,
}
