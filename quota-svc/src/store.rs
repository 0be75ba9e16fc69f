//! The `Store` trait, implemented by Redis and by the embedded store, and its data types.

pub mod embedded;
pub mod redis;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::redis::RedisStore;
use anyhow::bail;
use api_key::ApiKey;
use async_trait::async_trait;
use base::flags::parse_duration;
use embedded::EmbeddedStore;
use quota_api::{
    AccountChange, Actor, ClaimedNotice, Contact, ContactStatus, Event, ImportReport, KeySettings, Limits,
    NewKey, NewSession, NoticeResult, SetCredential, SettingsChange, StoredAccount,
};
use secrecy::{ExposeSecret, SecretString};

use crate::domain::account::Login;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, KeyChangeError, KeyMeta, StoredKey};
use crate::domain::notice::{Announcement, Queue};
use crate::domain::time::Clock;
use crate::domain::transfer::ImportAccount;
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

/// The store: either --redis-url or --store-file.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    /// Redis or Valkey, in one of these forms: redis://HOST:PORT/DB (rediss:// for TLS); unix:///PATH;
    /// redis+cluster://HOST,HOST; redis+sentinel://HOST,HOST/MASTER
    #[arg(long, env, value_name = "URL", hide_env_values = true, conflicts_with = "store_file")]
    pub redis_url: Option<SecretString>,
    /// Store everything in this file instead of Redis; only for a single machine
    #[arg(long, env, value_name = "PATH")]
    pub store_file: Option<PathBuf>,
    /// Redis user (ACL)
    #[arg(long, env, value_name = "NAME")]
    pub redis_username: Option<String>,
    /// Redis password; prefer --redis-password-file
    #[arg(long, env, value_name = "PASSWORD", hide_env_values = true)]
    pub redis_password: Option<SecretString>,
    /// File with the Redis password
    #[arg(long, env, value_name = "PATH", conflicts_with = "redis_password")]
    pub redis_password_file: Option<PathBuf>,
    /// User on the Sentinels (ACL); the user and password of the URL are for the master
    #[arg(long, env, value_name = "NAME")]
    pub redis_sentinel_username: Option<String>,
    /// Password on the Sentinels; prefer --redis-sentinel-password-file
    #[arg(long, env, value_name = "PASSWORD", hide_env_values = true)]
    pub redis_sentinel_password: Option<SecretString>,
    /// File with the password on the Sentinels
    #[arg(long, env, value_name = "PATH", conflicts_with = "redis_sentinel_password")]
    pub redis_sentinel_password_file: Option<PathBuf>,
    /// PEM file with the certificate authority of a rediss:// server
    #[arg(long, env, value_name = "PATH")]
    pub redis_ca_file: Option<PathBuf>,
    /// Prefix of all Redis keys
    #[arg(long, env, value_name = "TEXT", default_value = "ipl:")]
    pub key_prefix: String,
    /// Maximum time for the store to charge a batch
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "250ms")]
    pub store_timeout: Duration,
    /// Maximum time for an operation on accounts, keys or sessions, including the confirmation of its writes; in an
    /// import, for each step. dashboard-api waits 3 s for all operations of a request
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "2500ms")]
    pub write_timeout: Duration,
}

base::default_from_flags!(StoreArgs);

impl StoreArgs {
    /// Rejects an invalid `--redis-url` without connecting.
    pub fn check(&self) -> anyhow::Result<()> {
        match &self.redis_url {
            Some(url) => Ok(RedisStore::check(url.expose_secret(), self)?),
            None => Ok(()),
        }
    }

    /// Opens the store. Connecting to Redis goes on in the background.
    pub fn open(&self, limits: Limits) -> anyhow::Result<Arc<dyn Store>> {
        match (&self.redis_url, &self.store_file) {
            (None, None) => bail!("no store configured: set --redis-url URL or --store-file PATH"),
            (None, Some(path)) => Ok(Arc::new(EmbeddedStore::open(path, limits, Clock::Store)?)),
            (Some(url), _) => {
                Ok(Arc::new(RedisStore::start(url.expose_secret(), self, limits, Clock::Store)?))
            }
        }
    }
}

/// Lifetime of a reservation whose key was never written. After this time the creation counts as failed.
pub const RESERVATION_MS: i64 = 60_000;

/// The cause of a [`StoreError`]: an error of a library, or a text.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("an account with this login already exists")]
    AccountExists,
    #[error("account not found")]
    AccountNotFound,
    /// The key does not exist or belongs to another account.
    #[error("key not found")]
    KeyNotFound,
    /// The session does not exist, has expired or was revoked.
    #[error("session not found")]
    SessionNotFound,
    #[error("an account can have at most 10 keys")]
    KeyLimitReached,
    /// The credential, or its version, is not the expected one.
    #[error("the credential was changed by another request")]
    CredentialConflict,
    #[error("the contact was changed by another request")]
    ContactConflict,
    #[error("`cursor` is not the `next` of a previous page")]
    InvalidCursor,
    #[error(transparent)]
    KeyChange(#[from] KeyChangeError),
    /// No result from the store: it is unreachable or did not reply in time.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[source] Cause),
    /// Not confirmed in time: it may be written or not, and a crash of the store can lose it.
    #[error("the write was not confirmed in time: {0}")]
    Unconfirmed(#[source] Cause),
    /// Damaged, or written in a format that this version does not support.
    #[error("invalid data in the store: {0}")]
    InvalidData(#[source] Cause),
    /// Like `InvalidData`, for the data of one key. The key can be deleted.
    #[error("key {id} can't be read: {reason}")]
    UnreadableKey { id: KeyId, reason: String },
    /// Like `InvalidData`, for the data of one account. The account can be deleted.
    #[error("account {0} can't be read")]
    UnreadableAccount(AccountId),
}

/// The result of most methods.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

#[derive(Debug, Clone)]
pub struct KeyDraft {
    /// With checked settings.
    pub new: NewKey,
    /// In the shard of the account.
    pub digest: api_key::KeyDigest,
    /// The key's first and last characters.
    pub hint: String,
    pub actor: Actor,
}

impl KeyDraft {
    fn into_key(self, account: AccountId, now: i64) -> StoredKey {
        let Self { new: NewKey { settings, daily_limit }, digest, hint, .. } = self;
        StoredKey::new(KeyMeta { account, digest, hint, created_at: now, settings }, daily_limit, now)
    }
}

/// Replaces a key: creates a copy of it with a new secret, which is in the same shard, and lets the old key expire after
/// `overlap` seconds, unless it expires earlier. A crash in between leaves both keys, and the old one does not expire.
pub async fn rotate_key(
    store: &dyn Store,
    id: KeyId,
    owner: Option<AccountId>,
    secret: &ApiKey,
    overlap: u32,
    actor: &Actor,
) -> Result<StoredKey> {
    let old = store.key(id, owner).await?;
    let settings = KeySettings { expires_at: None, ..old.meta.settings };
    let new = NewKey { settings, daily_limit: old.record.daily_limit };
    let draft = KeyDraft { new, digest: secret.digest(), hint: secret.hint(), actor: actor.clone() };
    let copy = store.create_key(old.meta.account, draft).await?;
    let end = u32::try_from(copy.meta.created_at / 1000).unwrap_or(u32::MAX).saturating_add(overlap);
    let expires_at = old.record.expires_at.map_or(end, |at| at.min(end)).into();
    let expiry = KeyChange::Settings(SettingsChange { expires_at, ..SettingsChange::default() });
    match store.change_key(id, owner, &expiry, actor).await {
        // Its owner has deleted it in the meantime.
        Ok(_) | Err(StoreError::KeyNotFound) => Ok(copy),
        Err(error) => {
            // Nobody would learn its secret.
            let _ = store.delete_key(copy.meta.id(), None).await;
            Err(error)
        }
    }
}

/// One page of a listing of accounts.
#[derive(Debug, Clone)]
pub struct AccountListing {
    pub accounts: Vec<StoredAccount>,
    pub total: u64,
    /// Cursor of the next page; `None` on the last page.
    pub next: Option<String>,
    /// Accounts of this page that can't be read, and are not in `accounts`.
    pub unreadable: Vec<AccountId>,
}

#[derive(Debug, Clone, Default)]
pub struct KeyListing {
    /// Oldest first.
    pub keys: Vec<StoredKey>,
    pub unreadable: Vec<UnreadableKey>,
}

/// A key whose stored data is damaged, or written in a format that this version does not support. It can be deleted, but
/// not changed. Its charges fail if its record can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableKey {
    pub id: KeyId,
    /// `None` if the metadata itself can't be read.
    pub meta: Option<KeyMeta>,
    pub reason: String,
}

impl From<&UnreadableKey> for StoreError {
    fn from(key: &UnreadableKey) -> Self {
        Self::UnreadableKey { id: key.id, reason: key.reason.clone() }
    }
}

/// Accounts, keys and counters.
///
/// A change to accounts or keys is durable when its method returns, as far as the store can confirm that.
/// [`Store::charge`] and [`AccountStore::add_session`] do not wait for a confirmation.
#[async_trait]
pub trait Store: AccountStore + KeyStore + NoticeStore {
    /// Charges each group atomically. Returns one outcome per group, in order; that of a group that could not be
    /// charged is [`GroupOutcome::Unavailable`].
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome>;

    /// The store's time in milliseconds.
    async fn now(&self) -> Result<i64>;

    /// Why the store can't serve charges or changes now; `None` if it can.
    fn unavailable_reason(&self) -> Option<String>;

    /// Waits until the store has failed for good: only a restart of the process helps. Redis can always recover.
    async fn failed(&self) {
        std::future::pending().await
    }

    /// Saves what is only in memory. The store must not be used afterward.
    async fn close(&self) {}

    /// `file` or `redis`.
    fn kind(&self) -> &'static str;

    /// Requests of the demo on the current day.
    async fn demo_used(&self) -> Result<u32>;

    /// The server's settings that endanger the data, if there are any.
    fn unsafe_settings(&self) -> Option<String> {
        None
    }

    /// Adds the accounts and keys of an export. Existing ones are not changed.
    async fn import(&self, accounts: &[ImportAccount]) -> Result<ImportReport>;
}

/// Accounts with their credentials and sessions.
#[async_trait]
pub trait AccountStore: Send + Sync {
    async fn create_account(&self, login: &Login, credential: Option<&str>) -> Result<StoredAccount>;
    async fn account(&self, id: AccountId) -> Result<StoredAccount>;
    /// A page of all accounts, in no particular order. It may have slightly more accounts than `limit`, and an account may
    /// be on two pages if accounts are created or deleted meanwhile.
    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountListing>;
    /// Deletes an account with its keys and sessions. Returns the IDs of the keys. If `expected_credential` is given and
    /// is not the current credential, fails with [`StoreError::CredentialConflict`] in the same atomic step. Without it, an
    /// unreadable account is deleted, too.
    async fn delete_account(&self, id: AccountId, expected_credential: Option<&str>) -> Result<Vec<KeyId>>;
    /// Applies a checked change. While the account is suspended, so are all its keys.
    async fn change_account(
        &self,
        id: AccountId,
        change: &AccountChange,
        actor: &Actor,
    ) -> Result<StoredAccount>;
    /// Replaces the credential if the current one is the expected one, and revokes sessions. Returns the new version.
    async fn set_credential(&self, id: AccountId, change: &SetCredential) -> Result<u32>;

    /// Adds a session. If `expected_credential` is given and is
    /// not the current credential, fails with [`StoreError::CredentialConflict`] in the same atomic step.
    ///
    /// Need not be durable: a crash that loses the session only means that its owner signs in again. So a sign-in does not
    /// wait for the store's disk and replicas, nor fail because of them.
    async fn add_session(&self, id: AccountId, session: &NewSession) -> Result<()>;
    async fn has_session(&self, id: AccountId, session: &str) -> Result<bool>;
    /// Succeeds also if the session is not active.
    async fn revoke_session(&self, id: AccountId, session: &str) -> Result<()>;
}

/// API keys and their events. Methods that take an `owner` treat another account's key as not found.
#[async_trait]
pub trait KeyStore: Send + Sync {
    async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey>;
    async fn keys(&self, account: AccountId) -> Result<KeyListing>;
    async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey>;
    /// Returns the changed key. The event of the change names the `actor`.
    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: &Actor,
    ) -> Result<StoredKey>;
    /// Deletes a key, readable or not, and frees its key slot in the account.
    async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<()>;
    async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>>;
}

/// Claimed notices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    pub notices: Vec<ClaimedNotice>,
    /// Notices that were dropped, because too many of a queue wait.
    pub dropped: u64,
}

/// Notices to owners: the outbox, where they wait for their delivery, and where the owners want them.
#[async_trait]
pub trait NoticeStore: Send + Sync {
    /// Announces an event of a key, for a notice to its owner. Needs no access to accounts: the quota-svc of a lookup-svc has
    /// none. Safe to repeat. Returns the number of announcements that were dropped, because the outbox is bounded.
    async fn announce(&self, announcement: &Announcement) -> Result<u64>;
    /// Makes notices of announcements, if the owners want them, and marks the pauses and days as announced. Then claims the
    /// oldest notice of up to `limit` queues whose turn it is.
    async fn claim_notices(&self, limit: usize) -> Result<Claims>;
    /// Ends a claim: removes its notice, or delays its next attempt by `retry_seconds`, and stores the delivery as the last one.
    /// Returns `false` if the claim is no longer valid.
    async fn finish_notice(&self, queue: Queue, result: NoticeResult) -> Result<bool>;
    /// How long the notice that is due longest has waited for a process to claim it, ms; 0 if none is due.
    async fn overdue_ms(&self) -> Result<i64>;

    async fn contact(&self, id: AccountId) -> Result<ContactStatus>;
    /// Replaces the contact. If it is not the expected one, fails with [`StoreError::ContactConflict`] in the same atomic step.
    async fn set_contact(&self, id: AccountId, expected: &Contact, contact: &Contact) -> Result<()>;
}
