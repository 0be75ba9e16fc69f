//! Accounts, credentials and sessions; export and import.

use std::ops::AddAssign;

use clap::ValueEnum;
use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};

use super::{Contact, ContactStatus, DayUsage, Event, KeySettings, KeyState};

/// What an account may do in the dashboard. `owner`: manage its own keys. `admin`: manage all accounts, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Enum, ValueEnum, Serialize, Deserialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Manages its own keys.
    #[default]
    Owner,
    /// Manages all accounts.
    Admin,
}

base::names!(Role: Owner => "owner", Admin => "admin");

/// Why and since when an account is suspended.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Suspension {
    /// Reason, which the owner sees.
    pub reason: String,
    /// Start of the suspension: Unix time in milliseconds.
    pub at: i64,
}

/// What admins and the operator have decided about an account, and its history.
// Stored and exported as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    pub role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Up to 100 events, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

impl Standing {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A change of an account by an admin or the operator.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountChange {
    /// What to do.
    pub action: AccountAction,
    /// Reason of a suspension, which the owner sees: 1 to 200 characters, without control characters or invisible characters.
    pub reason: Option<String>,
}

impl AccountChange {
    pub fn new(action: AccountAction) -> Self {
        Self { action, reason: None }
    }
}

/// What to do with an account. `suspend`: its keys get 403 and its owner can change nothing. `restore`: ends the suspension.
/// `end_sessions`: signs its owner out everywhere, and revokes password links. `make_admin`, `make_owner`: change its role.
/// `password_link`: only adds the event of a new password link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum, Serialize, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum AccountAction {
    Suspend,
    Restore,
    EndSessions,
    MakeAdmin,
    MakeOwner,
    PasswordLink,
}

/// An account to create.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    /// Login of the account: 1 to 254 characters, without whitespace, control characters or invisible characters.
    /// Case-insensitive.
    pub login: String,
    /// Opaque secret of the account: 1 to 4,096 bytes, stored unchanged. dashboard-api stores the password hash here.
    pub credential: Option<String>,
}

/// An account with its credential, as it is stored and exported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Contact::is_empty")]
    pub contact: Contact,
    /// Role, suspension and history. Absent for an owner without any.
    #[serde(default, skip_serializing_if = "Standing::is_default")]
    pub standing: Standing,
}

impl StoredAccount {
    /// An account that was just created.
    pub fn new(login: String, credential: Option<String>, created_at: i64) -> Self {
        let credential_version = u32::from(credential.is_some());
        Self { login, created_at, credential, credential_version, ..Self::default() }
    }
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
    /// Role of the account.
    pub role: Role,
    /// Present while the account is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
}

/// An account with its contact and its history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccountDetails {
    pub account: Account,
    pub contact: ContactStatus,
    /// What admins and the operator did with the account in the last 31 days, newest first.
    pub events: Vec<Event>,
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

/// The state of the service, in numbers that are cheap to read.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Overview {
    /// Number of accounts.
    pub accounts: u64,
    /// Requests of the demo today (UTC).
    pub demo_used: u32,
    /// Requests per day (UTC) for the demo.
    pub demo_limit: u32,
    /// The store: `file` or `redis`.
    pub store: String,
    /// What endangers the stored data. Absent if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_problem: Option<String>,
}

/// The keys of a page of accounts, counted. Every key is read, so all pages together take a while.
#[derive(Debug, Clone, Default, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct UsageCount {
    /// Accounts on this page.
    pub accounts: u64,
    /// Of these, suspended ones.
    pub suspended: u64,
    /// Active keys.
    pub active: u64,
    /// Paused keys.
    pub paused: u64,
    /// Inactive keys.
    pub inactive: u64,
    /// Keys whose stored data can't be read.
    pub unreadable: u64,
    /// Requests of these keys today (UTC).
    pub requests_today: u64,
    /// `cursor` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Adds the counts of another page, and continues after it.
impl AddAssign for UsageCount {
    fn add_assign(&mut self, page: Self) {
        self.accounts += page.accounts;
        self.suspended += page.suspended;
        self.active += page.active;
        self.paused += page.paused;
        self.inactive += page.inactive;
        self.unreadable += page.unreadable;
        self.requests_today += page.requests_today;
        self.next = page.next;
    }
}

/// An account's credential and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Opaque secret of the account, if it has one.
    pub credential: Option<String>,
    /// Incremented by each change. 0 if the account has no credential.
    pub version: u32,
}

/// Maximum memory and passes of an imported password hash. RFC 9106 recommends 64 MiB and 3 passes.
const MAX_HASH_KIB: u32 = 64 * 1024;
const MAX_HASH_PASSES: u32 = 10;

/// Whether a credential can be verified with bounded memory and time. One that is no argon2 hash can.
pub fn is_affordable_hash(credential: &str) -> bool {
    let is_bounded = |parameter: &str| match parameter.split_once('=') {
        Some(("m", kib)) => kib.parse().is_ok_and(|kib: u32| kib <= MAX_HASH_KIB),
        Some(("t", passes)) => passes.parse().is_ok_and(|passes: u32| passes <= MAX_HASH_PASSES),
        _ => true,
    };
    !credential.starts_with("$argon2") || credential.split(['$', ',']).all(is_bounded)
}

/// A new credential for an account.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetCredential {
    /// Opaque secret of the account: 1 to 4,096 bytes, stored unchanged.
    pub credential: String,
    /// Version that this change replaces. The request fails with 409 if the current version differs.
    pub expected_version: u32,
    /// Credential that this change replaces. If given, the request fails with 409 if the current credential differs,
    /// as it does after the account was deleted and registered again: versions then start over.
    pub expected_credential: Option<String>,
    /// SHA-256 of the ID of the session to keep. All other sessions of the account are revoked.
    pub keep_session: Option<String>,
    /// If `true`, no session is revoked: the credential is another hash of the same password.
    pub keep_all_sessions: Option<bool>,
}

/// What a session is for. The order is that of replacement: a new link replaces links of its own kind or of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A password link that anybody has requested for the owner.
    RequestedLink,
    /// A password link of an admin or the operator.
    Link,
    /// A signed-in browser.
    Session,
}

/// A session or a password link to create.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    pub kind: SessionKind,
    /// SHA-256 of the session ID: 64 lowercase hexadecimal digits.
    pub id_sha256: String,
    /// Lifetime in seconds: 1 to 2,592,000 (30 days).
    pub ttl_seconds: u32,
    /// Credential that the password was checked against. If given, the request fails with 409 if the current credential
    /// differs: the password was changed, or the account was deleted and registered again.
    pub expected_credential: Option<String>,
}

/// A key in an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedKey {
    /// SHA-256 of the API key: 64 lowercase hexadecimal digits.
    pub sha256: String,
    /// First and last characters of the key, as in `ipl_abcd…wxyz`.
    pub hint: String,
    #[serde(flatten)]
    pub settings: KeySettings,
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
    #[serde(flatten)]
    pub account: StoredAccount,
    /// Keys of the account: at most 10, each possibly with its old key.
    pub keys: Vec<ExportedKey>,
}

/// A page of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportPage {
    pub accounts: Vec<ExportedAccount>,
    pub total: u64,
    /// `cursor` of the next page; `None` on the last page.
    pub next: Option<String>,
    /// Accounts and keys that can't be read, and are not in `accounts`.
    pub left_out: Vec<LeftOut>,
}

/// An account or a key that an export left out, because its stored data can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub account: String,
    /// ID of the key. Absent if the account itself can't be read; it was then left out with all its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
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
    pub accounts_created: u64,
    /// Accounts that already existed. Their credentials were not changed.
    pub accounts_kept: u64,
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
