//! The one boundary with two implementations: where accounts, keys and counters are kept.

pub mod embedded;
pub mod redis;

use async_trait::async_trait;
use quota_client::wire::ImportReport;

use crate::domain::account::{Account, Login};
use crate::domain::event::Event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{Change, KeyName, StoredKey};
use crate::domain::verdict::{Entry, Judged};

/// How long a place without a record stays reserved: a creation that takes longer has failed.
pub const RESERVATION_MS: i64 = 60_000;

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The login is taken.
    #[error("an account with this login exists")]
    AccountExists,
    /// There is no such account.
    #[error("there is no such account")]
    AccountNotFound,
    /// There is no such key, or it is another account's.
    #[error("there is no such key")]
    KeyNotFound,
    /// There is no such session, or it has ended.
    #[error("there is no such session")]
    SessionNotFound,
    /// The account holds as many keys as it may.
    #[error("an account holds at most 10 keys")]
    KeyLimitReached,
    /// The credential was changed by somebody else in between.
    #[error("the credential was changed in between")]
    VersionConflict,
    /// An inactive key can't be resumed.
    #[error("the key is inactive: reactivate it first")]
    KeyInactive,
    /// A paused key can't be reactivated.
    #[error("the key is paused: resume it instead")]
    KeyPaused,
    /// The store can't be reached in time.
    #[error("the store is away: {0}")]
    Away(String),
    /// Written, but not confirmed in time: it may or may not survive.
    #[error("the write was not confirmed in time: {0}")]
    Unconfirmed(String),
    /// What is stored can't be read by this version.
    #[error("stored data can't be read: {0}")]
    Unreadable(String),
}

/// A key to be written.
#[derive(Debug, Clone)]
pub struct KeyDraft {
    /// What its owner calls it.
    pub name: KeyName,
    /// SHA-256 of the key.
    pub digest: api_key::KeyDigest,
    /// The key's first and last characters.
    pub hint: String,
    /// What it may see.
    pub scope: quota_client::wire::Scope,
    /// A daily limit of its own.
    pub daily_limit: Option<u32>,
}

/// Part of a long listing.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// How many there are in all.
    pub total: u64,
    /// Where to go on; `None` on the last page.
    pub next: Option<String>,
}

/// Accounts, keys and counters.
///
/// Changes are durable when they are answered (as far as the store can promise it). `charge` answers every entry,
/// in order; what can't be judged is [`Judged::Unavailable`]. Methods that take an `owner` treat another account's
/// key as not found.
#[async_trait]
pub trait Store: Send + Sync {
    /// Judges and charges, one atomic step per entry.
    async fn charge(&self, entries: &[Entry]) -> Vec<Judged>;

    /// The time by the store's clock, in milliseconds: proof that it answers.
    async fn now(&self) -> Result<i64, StoreError>;

    /// What keeps the store from serving charges or changes now; `None` if nothing does.
    fn trouble(&self) -> Option<String>;

    /// Creates an account.
    async fn create_account(&self, login: &Login, credential: Option<&str>) -> Result<Account, StoreError>;
    /// One account.
    async fn account(&self, id: AccountId) -> Result<Account, StoreError>;
    /// All accounts, page by page, in no particular order; `limit` is a hint.
    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Account>, StoreError>;
    /// Removes an account with its keys and sessions and tells which keys those were.
    async fn delete_account(&self, id: AccountId) -> Result<Vec<KeyId>, StoreError>;
    /// Replaces the credential made from `expected_version`, ends all sessions but `keep`; the new version.
    async fn set_credential(
        &self,
        id: AccountId,
        expected_version: u32,
        credential: &str,
        keep: Option<&str>,
    ) -> Result<u32, StoreError>;

    /// Keeps a session (the SHA-256 of its id in hexadecimal digits).
    async fn add_session(&self, id: AccountId, session: &str, ttl_seconds: u32) -> Result<(), StoreError>;
    /// Whether a session lives.
    async fn has_session(&self, id: AccountId, session: &str) -> Result<bool, StoreError>;
    /// Ends a session; fine if it has ended.
    async fn end_session(&self, id: AccountId, session: &str) -> Result<(), StoreError>;

    /// Creates a key in an account.
    async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey, StoreError>;
    /// The keys of an account, oldest first.
    async fn keys(&self, account: AccountId) -> Result<Vec<StoredKey>, StoreError>;
    /// One key.
    async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey, StoreError>;
    /// Changes a key; the key as it is then.
    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &Change,
    ) -> Result<StoredKey, StoreError>;
    /// Removes a key and frees its place.
    async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<(), StoreError>;
    /// The events of a key, newest first.
    async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>, StoreError>;

    /// Adds accounts and keys of an export; what is there already stays as it is.
    async fn import(&self, accounts: &[ImportAccount]) -> Result<ImportReport, StoreError>;
}

/// A checked line of an export.
#[derive(Debug, Clone)]
pub struct ImportAccount {
    /// The account.
    pub account: Account,
    /// Its keys.
    pub keys: Vec<StoredKey>,
}
