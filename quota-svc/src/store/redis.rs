//! The store in Redis or Valkey: one server, one master behind Sentinels, or a Cluster.

mod accounts;
mod charge;
mod confirm;
mod import;
mod keys;
mod managed_connection;
mod operation;
mod redis_keys;
mod restart;
mod script;
mod settings;
mod target;
mod topology;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
pub use confirm::ConfirmWrites;
use redis_keys::{RedisKey, RedisKeys};
use service_kit::LogThrottle;
use settings::SettingsCheck;
pub use target::{Credentials, RedisUrlError};
use topology::Topology;

use super::{CredentialChange, ImportAccount, ImportReport, KeyDraft, KeyListing, Page, Store, StoreError};
use crate::domain::account::{Account, Login};
use crate::domain::event::{Actor, Event};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, StoredKey};
use crate::domain::limits::Limits;
use crate::domain::time::Clock;
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

/// Configuration of a [`RedisStore`].
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `--redis-url`.
    pub url: String,
    pub credentials: Credentials,
    /// Prefix of all Redis keys.
    pub key_prefix: String,
    /// Timeout of a charge.
    pub store_timeout: Duration,
    /// Timeout of every other operation, including its confirmation. In an import, of each call.
    pub write_timeout: Duration,
    /// Whether changes to accounts and keys are confirmed.
    pub confirm_writes: ConfirmWrites,
    pub limits: Limits,
    pub clock: Clock,
}

pub struct RedisStore {
    /// Connections for charges only, so that charges never queue behind slow commands.
    charges: Topology,
    /// Connections for reads, and for writes that need no confirmation, such as new sessions.
    others: Topology,
    /// Connections for confirmed writes. `WAIT` and `WAITAOF` block them: a call waits for the confirmations before it.
    writes: Topology,
    redis_keys: RedisKeys,
    limits: Limits,
    clock: Clock,
    store_timeout: Duration,
    write_timeout: Duration,
    settings: Arc<SettingsCheck>,
    confirm_writes: ConfirmWrites,
    charge_failures: LogThrottle,
    invalid_records: LogThrottle,
    missing_permissions: LogThrottle,
}

impl RedisStore {
    /// Starts connecting in the background and returns immediately.
    pub fn start(options: RedisOptions) -> Result<Self, RedisUrlError> {
        let settings = Arc::new(SettingsCheck::default());
        let start = |timeout| {
            let (target, mut connect_options) =
                target::parse(&options.url, options.credentials.clone(), timeout)?;
            connect_options.settings = settings.clone();
            Ok::<_, RedisUrlError>(Topology::start(target, connect_options, timeout))
        };
        Ok(Self {
            charges: start(options.store_timeout)?,
            others: start(options.write_timeout)?,
            // Twice as long, because a PING or a write may have to wait for the confirmation of another write.
            writes: start(options.write_timeout * 2)?,
            redis_keys: RedisKeys::new(&options.key_prefix),
            limits: options.limits,
            clock: options.clock,
            store_timeout: options.store_timeout,
            write_timeout: options.write_timeout,
            settings,
            confirm_writes: options.confirm_writes,
            charge_failures: LogThrottle::default(),
            invalid_records: LogThrottle::default(),
            missing_permissions: LogThrottle::default(),
        })
    }

    /// A script's time argument: a manual clock's time, or empty for the server's clock.
    fn now_arg(&self) -> String {
        self.clock.manual().map_or_else(String::new, |now| now.to_string())
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        self.charge_batch(groups).await
    }

    async fn now(&self) -> Result<i64, StoreError> {
        self.operation().read_now().await
    }

    fn unavailable_reason(&self) -> Option<String> {
        let reason = self.charges.unavailable_reason().or_else(|| self.others.unavailable_reason());
        match reason.or_else(|| self.writes.unavailable_reason()) {
            None => {
                self.settings.pass();
                None
            }
            Some(reason) => Some(self.settings.rejection().unwrap_or(reason)),
        }
    }

    fn unsafe_settings(&self) -> Option<String> {
        self.settings.unsafe_settings()
    }

    async fn create_account(&self, login: &Login, credential: Option<&str>) -> Result<Account, StoreError> {
        let credential = credential.map(str::to_owned);
        let credential_version = u32::from(credential.is_some());
        // `add_account` replaces `created_at` with the store's time.
        let account = Account { login: login.clone(), created_at: 0, credential, credential_version };
        self.operation().add_account(&account).await
    }

    async fn account(&self, id: AccountId) -> Result<Account, StoreError> {
        self.operation().read_account(id).await
    }

    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Account>, StoreError> {
        self.operation().read_accounts(cursor, limit).await
    }

    async fn delete_account(
        &self,
        id: AccountId,
        expected_credential: Option<&str>,
    ) -> Result<Vec<KeyId>, StoreError> {
        self.operation().remove_account(id, expected_credential).await
    }

    async fn set_credential(&self, id: AccountId, change: &CredentialChange) -> Result<u32, StoreError> {
        self.operation().replace_credential(id, change).await
    }

    async fn add_session(
        &self,
        id: AccountId,
        session: &str,
        ttl_seconds: u32,
        expected_credential: Option<&str>,
    ) -> Result<(), StoreError> {
        self.operation().session(id, session, Some(ttl_seconds), expected_credential).await.map(drop)
    }

    async fn has_session(&self, id: AccountId, session: &str) -> Result<bool, StoreError> {
        self.operation().session(id, session, None, None).await
    }

    async fn revoke_session(&self, id: AccountId, session: &str) -> Result<(), StoreError> {
        self.operation().delete_session(id, session).await
    }

    async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey, StoreError> {
        self.operation().add_key(account, draft).await
    }

    async fn keys(&self, account: AccountId) -> Result<KeyListing, StoreError> {
        self.operation().read_keys(account).await
    }

    async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey, StoreError> {
        self.operation().read_key(id, owner).await
    }

    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: Option<Actor>,
    ) -> Result<StoredKey, StoreError> {
        self.operation().apply_change(id, owner, change, actor).await
    }

    async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<(), StoreError> {
        self.operation().remove_key(id, owner).await
    }

    async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>, StoreError> {
        self.operation().read_events(id, owner).await
    }

    async fn import(&self, accounts: &[ImportAccount]) -> Result<ImportReport, StoreError> {
        self.bulk_operation().import_all(accounts).await
    }
}

/// A command, and the Redis key whose server it is sent to.
struct KeyCommand<'a> {
    redis_key: &'a RedisKey,
    command: redis::Cmd,
}

/// A command whose first argument is `redis_key`.
fn command<'a>(name: &str, redis_key: &'a RedisKey) -> KeyCommand<'a> {
    KeyCommand { redis_key, command: redis::cmd(name) }.arg(redis_key.as_str())
}

impl KeyCommand<'_> {
    fn arg(mut self, arg: impl redis::ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }
}
