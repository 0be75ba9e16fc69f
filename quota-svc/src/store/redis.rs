//! The store in Redis or Valkey: one server, one master behind Sentinels, or a Cluster.

mod call;
mod charge;
mod commit;
mod confirm;
mod managed_connection;
mod redis_keys;
mod settings;
mod target;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base::log_throttle::LogThrottle;
use call::{Call, CallError, LOAD, command};
use commit::Commit;
use confirm::{ConfirmedWrites, write_error};
use futures_util::FutureExt;
use futures_util::future::ready;
use quota_api::{Limits, Rejection};
use redis::{FromRedisValue, Value};
use redis_keys::{RedisKey, RedisKeys};
use settings::ServerLog;
pub use target::RedisUrlError;
use tokio::task::JoinSet;
use topology::Topology;

use super::{AccountIds, Confirmation, Result, Store, StoreArgs, StoreError, VERSION};
use crate::domain::change::Change;
use crate::domain::id::{AccountId, KeyId, SHARDS};
use crate::domain::notice::Announcement;
use crate::domain::time::Clock;
use crate::domain::value::{Loaded, Target};
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

/// Minimum `COUNT` of an `SSCAN`, which visits about that many hash buckets. Many may be empty, so a smaller value would
/// often return nothing.
const MIN_SCAN: usize = 16;

/// See `lua/load.lua`.
type LoadReply = (i64, i64, String, Value, BTreeMap<String, Vec<u8>>);

pub struct RedisStore {
    /// Connections for charges only, so that charges never queue behind slow commands.
    charges: Arc<Topology>,
    /// Connections for reads, and for writes that need no confirmation, such as new sessions.
    others: Arc<Topology>,
    confirmed: ConfirmedWrites,
    redis_keys: RedisKeys,
    limits: Limits,
    clock: Clock,
    store_timeout: Duration,
    write_timeout: Duration,
    server_log: Arc<ServerLog>,
    charge_failures: LogThrottle,
    invalid_records: LogThrottle,
    unread_shards: LogThrottle,
    /// The background tasks, which end when this is dropped.
    _tasks: JoinSet<()>,
}

impl RedisStore {
    /// Checks the URL and the files in `args`.
    pub fn check(url: &str, args: &StoreArgs) -> Result<(), RedisUrlError> {
        target::parse(url, args).map(drop)
    }

    /// Starts connecting in the background and returns immediately.
    pub fn start(url: &str, args: &StoreArgs, limits: Limits, clock: Clock) -> Result<Self, RedisUrlError> {
        let (target, options) = target::parse(url, args)?;
        let mut tasks = JoinSet::new();
        let mut start = |timeout| {
            let mut options = options.clone();
            options.timeout = timeout;
            Topology::start(target.clone(), options, &mut tasks)
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
            server_log: options.server_log,
            charge_failures: LogThrottle::default(),
            invalid_records: LogThrottle::default(),
            unread_shards: LogThrottle::default(),
            _tasks: tasks,
        })
    }

    /// A script's time argument: a manual clock's time, or empty for the server's clock.
    fn now_arg(&self) -> String {
        self.clock.manual().map_or_else(String::new, |now| now.to_string())
    }

    /// Makes a call that only reads, or whose writes need no confirmation, and converts its reply.
    async fn query<T: FromRedisValue>(&self, call: &Call<'_>) -> Result<T> {
        convert(self.others.send(call, Instant::now() + self.write_timeout).await?.value)
    }

    /// Makes a call for a Redis key of each shard, in the order of the shards.
    async fn on_shards<T: FromRedisValue>(&self, name: &str, letter: &str, args: &[&str]) -> Vec<Result<T>> {
        let redis_keys: Vec<RedisKey> =
            (0..SHARDS).map(|shard| self.redis_keys.of_shard(shard, letter)).collect();
        let calls: Vec<Call<'_>> =
            redis_keys.iter().map(|redis_key| command(name, redis_key).arg(args)).collect();
        let replies = self.others.send_all(&calls, Instant::now() + self.write_timeout).await.into_iter();
        replies.map(|reply| convert(reply?.value)).collect()
    }

    /// The replies of the shards that can be read. Fails if none can.
    fn reachable<T>(&self, replies: Vec<Result<T>>) -> Result<Vec<(u8, T)>> {
        let mut failed = Vec::new();
        let by_shard = (0..SHARDS).zip(replies);
        let found: Vec<_> = by_shard
            .filter_map(|(shard, reply)| Some((shard, reply.map_err(|error| failed.push(error)).ok()?)))
            .collect();
        let shards = failed.len();
        match failed.pop() {
            Some(error) if found.is_empty() => Err(error),
            Some(error) if let Some(occurrences) = self.unread_shards.allow() => {
                tracing::warn!(%error, shards, occurrences, "can't read a part of the outbox");
                Ok(found)
            }
            _ => Ok(found),
        }
    }

    /// Also returns how many were dropped, if these counts are to be reset.
    async fn oldest_announcements(
        &self,
        limit: usize,
        resets_counts: bool,
    ) -> Result<(Vec<Announcement>, u64)> {
        let start = format!("-{}", limit + 1);
        let lists = self.on_shards::<Vec<Vec<u8>>>("LRANGE", "n", &[&start, "-1"]).await;
        let (mut found, mut dropped) = (Vec::new(), 0);
        for (shard, mut entries) in self.reachable(lists)? {
            let list = self.redis_keys.of_shard(shard, "n");
            // The last entry is the count.
            let count: u64 = entries.pop().and_then(|entry| text(&entry)?.parse().ok()).unwrap_or(0);
            if resets_counts && count > 0 {
                self.query::<()>(&command("LSET", &list).arg(-1).arg(0)).await?;
                dropped += count;
            }
            for entry in entries {
                let announcement = text(&entry).and_then(Announcement::parse);
                match announcement.filter(|announcement| announcement.key.shard() == shard) {
                    Some(announcement) => found.push(announcement),
                    None => self.remove_unreadable(&list, "LREM", &[b"-1", &entry]).await?,
                }
            }
        }
        found.sort_unstable();
        found.truncate(limit);
        Ok((found, dropped))
    }

    async fn remove_unreadable(&self, redis_key: &RedisKey, name: &str, args: &[&[u8]]) -> Result<()> {
        tracing::warn!(redis_key = redis_key.as_str(), "removing an entry that can't be read");
        self.query::<i64>(&command(name, redis_key).arg(args)).await.map(drop)
    }

    /// The first IDs in a sorted set of each shard whose times are at most `until`, with their times. Removes what can't be read.
    /// Shards that can't be read are left out, unless all are. Keys, too, are returned as accounts.
    async fn earliest(&self, letter: &str, until: &str, limit: usize) -> Result<Vec<(i64, AccountId)>> {
        let count = limit.to_string();
        let args = ["-inf", until, "WITHSCORES", "LIMIT", "0", &count];
        let replies = self.on_shards::<Vec<(Vec<u8>, f64)>>("ZRANGEBYSCORE", letter, &args).await;
        let mut found = Vec::new();
        for (shard, members) in self.reachable(replies)? {
            for (member, time) in members {
                let id = text(&member).and_then(|text| AccountId::from_hex(text).ok());
                match id.filter(|id| id.shard() == shard) {
                    Some(id) => found.push((time as i64, id)),
                    None => {
                        let set = self.redis_keys.of_shard(shard, letter);
                        self.remove_unreadable(&set, "ZREM", &[&member]).await?;
                    }
                }
            }
        }
        found.sort_by_key(|(time, _)| *time);
        found.truncate(limit);
        Ok(found)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        self.charge_groups(groups).await
    }

    async fn load(&self, target: Target, others: &[KeyId], deadline: Instant) -> Result<Option<Loaded>> {
        let redis_key = match target {
            Target::Account(id) => self.redis_keys.account(id),
            Target::Key(id) => self.redis_keys.record(id),
        };
        let call = others.iter().fold(LOAD.on([&redis_key]), |call, id| call.arg(id.to_string()));
        let reply = self.others.send(&call, deadline).await?;
        let Some((seconds, micros, account, fields, records)) = convert::<Option<LoadReply>>(reply.value)?
        else {
            return Ok(None);
        };
        let now = self.clock.manual().unwrap_or(seconds * 1000 + micros / 1000);
        let records =
            records.into_iter().filter_map(|(id, record)| Some((KeyId::from_hex(&id).ok()?, record)));
        let id = match (AccountId::from_hex(&account), target) {
            (Ok(id), _) | (Err(_), Target::Account(id)) => id,
            (Err(_), Target::Key(id)) => {
                let reason = "the record is too short, or not a string".to_owned();
                return Err(Rejection::UnreadableKey { id: id.to_string(), reason }.into());
            }
        };
        let mut loaded = Loaded { id, version: None, rows: BTreeMap::new(), records: records.collect(), now };
        let unreadable = || StoreError::from(Rejection::UnreadableAccount { id: id.to_string() });
        loaded.rows = redis::from_redis_value(fields).map_err(|_| unreadable())?;
        if !loaded.rows.is_empty() {
            let version = loaded.rows.remove(VERSION).and_then(|version| version.try_into().ok());
            loaded.version = Some(version.ok_or_else(unreadable)?);
        }
        Ok(Some(loaded))
    }

    async fn commit(
        &self,
        change: &Change,
        confirm: bool,
        deadline: Instant,
    ) -> Result<Option<Confirmation>> {
        let commit = Commit::of(change, &self.redis_keys);
        let call = commit.call(change, confirm);
        if confirm {
            return self.confirmed.write(&call, commit.version, deadline).await;
        }
        let reply = self.others.send(&call, deadline).await.map_err(write_error)?;
        let is_written = convert::<i64>(reply.value)? != 0;
        Ok(is_written.then(|| ready(Ok(())).boxed()))
    }

    async fn events(&self, key: KeyId) -> Result<Vec<String>> {
        self.query(&command("LRANGE", &self.redis_keys.events(key)).arg(0).arg(-1)).await
    }

    /// A page is a bounded part of the index, so it takes about the same time in a store of any size.
    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountIds> {
        let (mut shard, mut position) =
            cursor.map_or(Some((0, 0)), parse_cursor).ok_or(StoreError::InvalidCursor)?;
        let mut ids = Vec::new();
        while shard < SHARDS && ids.len() < limit {
            let count = (limit - ids.len()).max(MIN_SCAN);
            let index = self.redis_keys.of_shard(shard, "i");
            let scan = command("SSCAN", &index).arg(position).arg("COUNT").arg(count);
            let members: Vec<String>;
            (position, members) = self.query(&scan).await?;
            ids.extend(members.iter().filter_map(|member| AccountId::from_hex(member).ok()));
            shard += u8::from(position == 0);
        }
        let counts = self.on_shards::<u64>("SCARD", "i", &[]).await.into_iter();
        let total = counts.sum::<Result<u64>>()?;
        let next = (shard < SHARDS).then(|| format!("{shard}:{position}"));
        Ok(AccountIds { ids, total, next })
    }

    async fn announcements(&self, limit: usize) -> Result<(Vec<Announcement>, u64)> {
        self.oldest_announcements(limit, true).await
    }

    async fn due_accounts(&self, now: i64, limit: usize) -> Result<Vec<AccountId>> {
        let due = self.earliest("q", &now.to_string(), limit).await?;
        Ok(due.into_iter().map(|(_, account)| account).collect())
    }

    async fn expiring_keys(&self, now: i64, limit: usize) -> Result<Vec<KeyId>> {
        let due = self.earliest("x", &now.to_string(), limit).await?;
        Ok(due.into_iter().map(|(_, id)| KeyId(id.0)).collect())
    }

    async fn overdue_ms(&self) -> Result<i64> {
        let announced = self.oldest_announcements(1, false).await?.0;
        let due = self.earliest("q", "+inf", 1).await?;
        let times = due.iter().map(|(due, _)| *due).chain(announced.iter().map(|first| first.at));
        match times.min() {
            Some(due) => Ok(self.now().await?.saturating_sub(due).max(0)),
            None => Ok(0),
        }
    }

    /// The manual clock's time or that of a server that can be reached.
    async fn now(&self) -> Result<i64> {
        if let Some(now) = self.clock.manual() {
            return Ok(now);
        }
        let mut shards = (0..SHARDS).map(|shard| self.redis_keys.of_shard(shard, "i"));
        let is_up = |key: &RedisKey| self.others.server_of(key).is_some_and(|server| server.is_connected());
        let redis_key = shards.find(is_up).unwrap_or_else(|| self.redis_keys.demo());
        let (seconds, micros): (i64, i64) = self.query(&Call::without_args("TIME", &redis_key)).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    fn unavailable_reason(&self) -> Option<String> {
        let others = [&self.charges, &self.others].into_iter();
        let reason = others.chain(&self.confirmed.sides).find_map(|topology| topology.unavailable_reason());
        if reason.is_none() {
            self.server_log.set_available();
            return None;
        }
        self.server_log.rejection().or(reason)
    }

    fn kind(&self) -> &'static str {
        "redis"
    }

    fn unsafe_settings(&self) -> Option<String> {
        self.server_log.unsafe_settings()
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

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Parses the `next` of a page: a shard, and the position of `SSCAN` in it, 0 for its start.
fn parse_cursor(text: &str) -> Option<(u8, u64)> {
    let (shard, position) = text.split_once(':')?;
    Some((shard.parse().ok().filter(|shard| *shard < SHARDS)?, position.parse().ok()?))
}

#[cfg(test)]
mod tests;
