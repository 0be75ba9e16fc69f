//! The `Store` trait, implemented by Redis and by the embedded store. It has no rules: those of charges are in
//! `domain/record.rs` and `lua/charge.lua`, all others in `domain/value.rs`.

pub mod embedded;
pub mod redis;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::redis::RedisStore;
use anyhow::bail;
use async_trait::async_trait;
use base::flags::parse_duration;
use embedded::EmbeddedStore;
use futures_util::future::BoxFuture;
use quota_api::{Limits, Rejection};
use secrecy::{ExposeSecret, SecretString};

use crate::domain::change::Change;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::notice::Announcement;
use crate::domain::time::Clock;
use crate::domain::value::{Loaded, Target, Version};
use crate::domain::verdict::{ChargeGroup, GroupOutcome, Subject};

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
    /// File with the Redis password
    #[arg(long, env, value_name = "PATH")]
    pub redis_password_file: Option<PathBuf>,
    /// User on the Sentinels (ACL); the user and password of the URL are for the master
    #[arg(long, env, value_name = "NAME")]
    pub redis_sentinel_username: Option<String>,
    /// File with the password on the Sentinels
    #[arg(long, env, value_name = "PATH")]
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
        self.redis_url.iter().try_for_each(|url| Ok(RedisStore::check(url.expose_secret(), self)?))
    }

    /// Opens the store. Connecting to Redis goes on in the background.
    pub fn open(&self, limits: Limits) -> anyhow::Result<Arc<dyn Store>> {
        Ok(match (&self.redis_url, &self.store_file) {
            (None, None) => bail!("no store configured: set --redis-url URL or --store-file PATH"),
            (None, Some(path)) => Arc::new(EmbeddedStore::open(path, limits, Clock::Store)?),
            (Some(url), _) => Arc::new(RedisStore::start(url.expose_secret(), self, limits, Clock::Store)?),
        })
    }
}

/// The cause of a [`StoreError`]: an error of a library, or a text.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("`cursor` is not the `next` of a previous page")]
    InvalidCursor,
    /// No result from the store: it is unreachable or did not reply in time. Nothing was changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[source] Cause),
    /// Not confirmed in time: it may be written or not, and a crash of the store can lose it.
    #[error("the write was not confirmed in time: {0}")]
    Unconfirmed(#[source] Cause),
    /// Damaged, or written in a format that this version does not support.
    #[error("invalid data in the store: {0}")]
    InvalidData(#[source] Cause),
}

/// The result of most methods.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// One page of the IDs of all accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountIds {
    pub ids: Vec<AccountId>,
    pub total: u64,
    /// Cursor of the next page; `None` on the last page.
    pub next: Option<String>,
}

/// The name of an account's version among its rows.
const VERSION: &str = "v";

/// The version of an account after a commit.
fn draw_version() -> Version {
    RandomState::new().hash_one(()).to_ne_bytes()
}

/// Locks a mutex even if an operation panicked while it held the lock: its request fails, later ones use the data as it
/// is.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a commit is confirmed: on disk and on a replica, as far as the store can confirm that. It ends by the commit's
/// deadline, with [`StoreError::Unconfirmed`] if there is no confirmation by then.
pub type Confirmation = BoxFuture<'static, Result<()>>;

/// Accounts, keys and counters, with few verbs.
#[async_trait]
pub trait Store: Send + Sync {
    /// Charges each group atomically. Returns one outcome per group, in order; that of a group that could not be
    /// charged is [`GroupOutcome::Unavailable`].
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome>;

    /// Loads an account with the records of its keys, and the records of `others`, keys of the same shard. An account that does
    /// not exist has no version. Announces what a charge could not announce before. `None`: the target is a key that does not exist. If its record names no account, it can't be
    /// read: [`Rejection::UnreadableKey`].
    async fn load(&self, target: Target, others: &[KeyId], deadline: Instant) -> Result<Option<Loaded>>;

    /// Writes a change in one atomic step. `None`: the account or one of the records is not as it was loaded, and nothing was
    /// written. Without `confirm`, the confirmation is immediate.
    async fn commit(&self, change: &Change, confirm: bool, deadline: Instant)
    -> Result<Option<Confirmation>>;

    /// The stored events of a key, newest first.
    async fn events(&self, key: KeyId) -> Result<Vec<String>>;

    /// A page of all accounts, in no particular order. It may have slightly more accounts than `limit`, and an account may
    /// be on two pages if accounts are created or deleted meanwhile.
    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountIds>;

    /// The oldest announcements of charges, at most about `limit`, and how many were dropped since the last call, because their
    /// number is bounded. What is unreachable or can't be read is left out.
    async fn announcements(&self, limit: usize) -> Result<(Vec<Announcement>, u64)>;
    /// Accounts with a notice that is due at `now`, at most about `limit`.
    async fn due_accounts(&self, now: i64, limit: usize) -> Result<Vec<AccountId>>;
    /// Keys with an expiry notice that is due at `now`, at most about `limit`.
    async fn expiring_keys(&self, now: i64, limit: usize) -> Result<Vec<KeyId>>;
    /// How long the notice or announcement that is due longest has waited, ms; 0 if none is due.
    async fn overdue_ms(&self) -> Result<i64>;

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
    async fn demo_used(&self) -> Result<u32> {
        let demo = ChargeGroup { subject: Subject::Demo, origin: None, count: 0 };
        match self.charge(&[demo]).await[..] {
            [GroupOutcome::Counted(counts)] => Ok(counts.used),
            _ => Err(StoreError::Unavailable("the demo can't be charged".into())),
        }
    }

    /// The server's settings that endanger the data, if there are any.
    fn unsafe_settings(&self) -> Option<String> {
        None
    }
}
