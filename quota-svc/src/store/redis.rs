//! The store in Redis or Valkey: one server, one master behind Sentinels, or a Cluster.

mod account;
mod call;
mod charge;
mod confirm;
mod managed_connection;
mod redis_keys;
mod settings;
mod shards;
mod target;
mod topology;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base::log_throttle::LogThrottle;
use call::{Call, command};
use confirm::ConfirmedWrites;
use quota_api::Limits;
use redis::{FromRedisValue, Value};
use redis_keys::RedisKeys;
use settings::SettingsCheck;
pub use target::RedisUrlError;
use topology::{CallError, Topology};

use super::{AccountIds, Confirmation, Result, Store, StoreArgs, StoreError};
use crate::domain::change::Change;
use crate::domain::id::{AccountId, KeyId, SHARDS};
use crate::domain::loaded::{Loaded, Target};
use crate::domain::notice::Announcement;
use crate::domain::time::{Clock, day_of};
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

pub struct RedisStore {
    /// Connections for charges only, so that charges never queue behind slow commands.
    charges: Topology,
    /// Connections for reads, and for writes that need no confirmation, such as new sessions.
    others: Topology,
    confirmed: ConfirmedWrites,
    redis_keys: RedisKeys,
    limits: Limits,
    clock: Clock,
    store_timeout: Duration,
    write_timeout: Duration,
    settings: Arc<SettingsCheck>,
    charge_failures: LogThrottle,
    invalid_records: LogThrottle,
    unread_shards: LogThrottle,
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
            confirmed: ConfirmedWrites::new([start(args.write_timeout * 2), start(args.write_timeout * 2)]),
            redis_keys: RedisKeys::new(&args.key_prefix),
            limits,
            clock,
            store_timeout: args.store_timeout,
            write_timeout: args.write_timeout,
            settings: options.settings,
            charge_failures: LogThrottle::default(),
            invalid_records: LogThrottle::default(),
            unread_shards: LogThrottle::default(),
        })
    }

    /// A script's time argument: a manual clock's time, or empty for the server's clock.
    fn now_arg(&self) -> String {
        self.clock.manual().map_or_else(String::new, |now| now.to_string())
    }

    /// Makes a call that only reads, or whose writes need no confirmation, and converts its reply.
    async fn query<T: FromRedisValue>(&self, call: &Call<'_>) -> Result<T> {
        convert(self.others.send(call, self.write_timeout).await?.value)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        self.charge_batch(groups).await
    }

    async fn load(&self, target: Target, others: &[KeyId], deadline: Instant) -> Result<Option<Loaded>> {
        self.load_account(target, others, deadline).await
    }

    async fn commit(
        &self,
        change: &Change,
        confirm: bool,
        deadline: Instant,
    ) -> Result<Option<Confirmation>> {
        self.commit_change(change, confirm, deadline).await
    }

    async fn events(&self, key: KeyId) -> Result<Vec<String>> {
        self.query(&command("LRANGE", &self.redis_keys.events(key)).arg(0).arg(-1)).await
    }

    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountIds> {
        self.list_accounts(cursor, limit).await
    }

    async fn announcements(&self, limit: usize) -> Result<(Vec<Announcement>, u64)> {
        let (announcements, counts) = self.oldest_announcements(limit).await?;
        let mut dropped = 0;
        for (list, count) in counts {
            self.query::<()>(&command("LSET", &list).arg(-1).arg(0)).await?;
            dropped += count;
        }
        Ok((announcements, dropped))
    }

    async fn due_accounts(&self, now: i64, limit: usize) -> Result<Vec<AccountId>> {
        let parse = |shard, text: &str| AccountId::from_hex(text).ok().filter(|id| id.shard() == shard);
        let due = self.earliest("q", &now.to_string(), limit, parse).await?;
        Ok(due.into_iter().map(|(_, account)| account).collect())
    }

    async fn expiring_keys(&self, now: i64, limit: usize) -> Result<Vec<KeyId>> {
        let parse = |shard, text: &str| KeyId::from_hex(text).ok().filter(|id| id.shard() == shard);
        let due = self.earliest("x", &now.to_string(), limit, parse).await?;
        Ok(due.into_iter().map(|(_, key)| key).collect())
    }

    async fn overdue_ms(&self) -> Result<i64> {
        let announced = self.oldest_announcements(1).await?.0;
        let due = self.earliest("q", "+inf", 1, |_, _| Some(())).await?;
        let times = due.iter().map(|(due, ())| *due).chain(announced.iter().map(|first| first.at));
        match times.min() {
            Some(due) => Ok(self.now().await?.saturating_sub(due).max(0)),
            None => Ok(0),
        }
    }

    /// The manual clock's time or that of a server, whichever can be reached.
    async fn now(&self) -> Result<i64> {
        if let Some(now) = self.clock.manual() {
            return Ok(now);
        }
        let time = async |redis_key| {
            let (seconds, micros): (i64, i64) = self.query(&Call::without_args("TIME", &redis_key)).await?;
            Ok(seconds * 1000 + micros / 1000)
        };
        let mut now = time(self.redis_keys.demo()).await;
        for shard in 0..SHARDS {
            if now.is_ok() {
                break;
            }
            now = time(self.redis_keys.of_shard(shard, "i")).await;
        }
        now
    }

    fn unavailable_reason(&self) -> Option<String> {
        let reason = self.charges.unavailable_reason().or_else(|| self.others.unavailable_reason());
        match reason.or_else(|| self.confirmed.unavailable_reason()) {
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

    async fn demo_used(&self) -> Result<u32> {
        let demo = self.redis_keys.demo();
        let counter = command("GET", &demo);
        let (counter, now) = tokio::try_join!(self.query::<Vec<u8>>(&counter), self.now())?;
        let (day, used) = counter.split_at_checked(4).unwrap_or_default();
        Ok(if day == day_of(now).to_le_bytes() { used.try_into().map_or(0, u32::from_le_bytes) } else { 0 })
    }

    fn unsafe_settings(&self) -> Option<String> {
        self.settings.unsafe_settings()
    }
}

fn convert<T: FromRedisValue>(value: Value) -> Result<T> {
    redis::from_redis_value(value).map_err(|error| StoreError::InvalidData(error.into()))
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            // The data is wrong, not the connection: a retry would not help.
            CallError::Failed(error) if error.code() == Some("WRONGTYPE") => Self::InvalidData(error.into()),
            other => Self::Unavailable(other.into()),
        }
    }
}

#[cfg(test)]
mod tests;
