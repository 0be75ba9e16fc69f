//! The store in Redis or Valkey: one server, one master behind Sentinels, or a Cluster.

mod accounts;
mod call;
mod charge;
mod confirm;
mod keys;
mod managed_connection;
mod notices;
mod operation;
mod redis_keys;
mod settings;
mod target;
mod topology;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base::log_throttle::LogThrottle;
use call::command;
use futures_util::future::try_join_all;
use keys::KeyWrite;
use operation::Operation;
use quota_api::{Actor, Event, EventKind, ImportReport, Limits};
use redis_keys::RedisKeys;
use settings::SettingsCheck;
pub use target::RedisUrlError;
use topology::{Reply, Topology};

use super::{Result, Store, StoreArgs, StoreError};
use crate::domain::event::with_actor;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::time::{Clock, day_of};
use crate::domain::transfer::ImportAccount;
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

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
    charge_failures: LogThrottle,
    invalid_records: LogThrottle,
}

impl RedisStore {
    /// Checks the URL and the files in `args`.
    pub fn check(url: &str, args: &StoreArgs) -> Result<(), RedisUrlError> {
        target::parse(url, args, args.store_timeout).map(drop)
    }

    /// Starts connecting in the background and returns immediately.
    pub fn start(url: &str, args: &StoreArgs, limits: Limits, clock: Clock) -> Result<Self, RedisUrlError> {
        let (target, options) = target::parse(url, args, args.store_timeout)?;
        let start = |timeout| {
            let mut options = options.clone();
            options.response_timeout = timeout;
            Topology::start(target.clone(), options, timeout)
        };
        Ok(Self {
            charges: start(args.store_timeout),
            others: start(args.write_timeout),
            // Twice as long, because a PING or a write may have to wait for the confirmation of another write.
            writes: start(args.write_timeout * 2),
            redis_keys: RedisKeys::new(&args.key_prefix),
            limits,
            clock,
            store_timeout: args.store_timeout,
            write_timeout: args.write_timeout,
            settings: options.settings,
            charge_failures: LogThrottle::default(),
            invalid_records: LogThrottle::default(),
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

    async fn now(&self) -> Result<i64> {
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

    fn kind(&self) -> &'static str {
        "redis"
    }

    async fn demo_used(&self) -> Result<u32, StoreError> {
        let operation = self.operation();
        let demo = self.redis_keys.demo();
        let counter = command("GET", &demo);
        let (counter, now) = tokio::try_join!(operation.query::<Vec<u8>>(&counter), operation.read_now())?;
        let (day, used) = counter.split_at_checked(4).unwrap_or_default();
        Ok(if day == day_of(now).to_le_bytes() { used.try_into().map_or(0, u32::from_le_bytes) } else { 0 })
    }

    fn unsafe_settings(&self) -> Option<String> {
        self.settings.unsafe_settings()
    }

    async fn import(&self, accounts: &[ImportAccount]) -> Result<ImportReport> {
        self.bulk_operation().import_all(accounts).await
    }
}

impl Operation<'_> {
    /// Imports accounts and keys concurrently, with one confirmation per server at the end.
    async fn import_all(&self, accounts: &[ImportAccount]) -> Result<ImportReport> {
        let mut unconfirmed =
            self.add_to_index(accounts.iter().map(|import| AccountId::of(&import.account.login))).await?;
        let imported = try_join_all(accounts.iter().map(|account| self.import_one(account))).await?;
        let mut total = ImportReport::default();
        for (report, replies) in imported {
            total += report;
            unconfirmed.extend(replies);
        }
        self.confirm(unconfirmed).await?;
        Ok(total)
    }

    async fn import_one(&self, import: &ImportAccount) -> Result<(ImportReport, Vec<Reply>)> {
        let (mut report, mut replies) = (ImportReport::default(), Vec::new());
        match self.write_account(&import.account, Some(import.account.created_at)).await {
            Ok((_, reply)) => {
                report.accounts_created = 1;
                replies.push(reply);
            }
            Err(StoreError::AccountExists) => report.accounts_kept = 1,
            Err(error) => return Err(error),
        }
        if import.keys.is_empty() {
            return Ok((report, replies));
        }
        let account = AccountId::of(&import.account.login);
        let ids: Vec<KeyId> = import.keys.iter().map(|key| key.meta.id()).collect();
        let (now, reserved) = self.reserve(account, &ids).await?;
        let reason = with_actor("imported", &Actor::Operator);
        let event = Event { at: now, kind: EventKind::Imported, reason };
        let mut written = Vec::new();
        for (key, reserved) in import.keys.iter().zip(reserved) {
            if !reserved {
                report.keys_refused += 1;
                continue;
            }
            // An interrupted import leaves reservations without a key, so existing reservations are written, too.
            match self.write_key(key, &event).await? {
                KeyWrite::Written(reply) => {
                    report.keys_created += 1;
                    replies.push(reply);
                    written.push(key.meta.id());
                }
                KeyWrite::Existing(Some(owner)) if owner == account => report.keys_kept += 1,
                KeyWrite::Existing(_) => {
                    report.keys_refused += 1;
                    self.release(account, key.meta.id(), now).await?;
                }
            }
        }
        // Also for keys that were kept: an earlier import may have died before it suspended them.
        if !written.is_empty() || report.keys_kept > 0 {
            replies.extend(self.check_reservations(account, now, &written).await?.0);
        }
        Ok((report, replies))
    }
}
