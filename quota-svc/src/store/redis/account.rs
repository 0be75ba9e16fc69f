//! Accounts in Redis: one script loads an account with the records of its keys, another one writes a change.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::ready;
use redis::{Arg, Cmd, Value};

use super::call::{COMMIT, Call, LOAD};
use super::confirm::{send, write_error};
use super::redis_keys::{RedisKey, RedisKeys, VERSION};
use super::{RedisStore, convert};
use crate::domain::change::{Change, RecordChange};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::loaded::{Loaded, Target};
use crate::domain::rejection::Rejection;
use crate::store::{Confirmation, Result, StoreError};

/// The part of a record with the burst window's latest arrival, limit, capacity, length and start.
const WINDOW_OFFSET: usize = 28;
const EMPTY_WINDOW: [u8; 18] = [0; 18];

/// See `lua/load.lua`.
type LoadReply = (i64, i64, String, Value, Vec<Vec<u8>>);

impl RedisStore {
    pub(super) async fn load_account(
        &self,
        target: Target,
        others: &[KeyId],
        deadline: Instant,
    ) -> Result<Option<Loaded>> {
        let redis_key = match target {
            Target::Account(id) => self.redis_keys.account(id),
            Target::Key(id) => self.redis_keys.record(id),
        };
        let call = others.iter().fold(LOAD.on([&redis_key]), |call, id| call.arg(id.to_string()));
        let reply = send(&self.others, &call, deadline, StoreError::from).await?;
        let Some((seconds, micros, account, fields, records)) = convert::<Option<LoadReply>>(reply.value)?
        else {
            return Ok(None);
        };
        let now = self.clock.manual().unwrap_or(seconds * 1000 + micros / 1000);
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        let pairs = records.as_chunks::<2>().0.iter();
        let records = pairs
            .filter_map(|[id, record]| Some((KeyId::from_hex(&text(id)?).ok()?, record.clone())))
            .collect();
        let account = match (AccountId::from_hex(&account), target) {
            (Ok(id), _) | (Err(_), Target::Account(id)) => id,
            (Err(_), Target::Key(id)) => {
                let reason = "the record is too short, or not a string".to_owned();
                return Err(Rejection::UnreadableKey { id, reason }.into());
            }
        };
        let mut loaded = Loaded { id: account, version: None, rows: Default::default(), records, now };
        let Value::Array(fields) = fields else { return Err(Rejection::UnreadableAccount(account).into()) };
        let fields: Vec<Vec<u8>> = convert(Value::Array(fields))?;
        for [name, value] in fields.as_chunks::<2>().0 {
            loaded.rows.extend(text(name).map(|name| (name, value.clone())));
        }
        if !fields.is_empty() {
            let version = loaded.rows.remove(VERSION).and_then(|version| version.try_into().ok());
            loaded.version = Some(version.ok_or(Rejection::UnreadableAccount(account))?);
        }
        Ok(Some(loaded))
    }

    pub(super) async fn commit_change(
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
        let reply = send(&self.others, &call, deadline, write_error).await?;
        let is_written = convert::<i64>(reply.value)? != 0;
        Ok(is_written.then(|| ready(Ok(())).boxed()))
    }
}

/// The operations of a commit (see `lua/commit.lua`) and their Redis keys, first that of the account.
#[derive(Default)]
struct Commit {
    redis_keys: Vec<RedisKey>,
    operations: Vec<Cmd>,
    /// The account's version after it, if it exists.
    version: Option<[u8; 8]>,
}

impl Commit {
    fn of(change: &Change, redis_keys: &RedisKeys) -> Self {
        let (mut commit, id, shard) = (Self::default(), change.account, change.account.shard());
        let of_shard = |letter| redis_keys.of_shard(shard, letter);
        let account = redis_keys.account(id);
        commit.redis_keys.push(account.clone());
        if let Some(made) = &change.made {
            commit.add("MADE", &of_shard("n")).arg(made.to_string());
        }
        if change.is_empty() {
            // Only to be confirmed. With the same version, it conflicts with no other change.
            commit.version = change.expected;
            return commit;
        }
        if change.exists {
            let version = RandomState::new().hash_one(id).to_ne_bytes();
            commit.version = Some(version);
            let write = commit.add("HSET", &account).arg(VERSION).arg(&version);
            for (name, row) in &change.rows {
                if let Some(row) = row {
                    write.arg(name).arg(row);
                }
            }
            for (name, _) in change.rows.iter().filter(|(_, row)| row.is_none()) {
                commit.add("HDEL", &account).arg(name);
            }
        } else {
            commit.add("DEL", &account);
        }
        if !change.exists || change.expected.is_none() {
            commit.add(if change.exists { "SADD" } else { "SREM" }, &of_shard("i")).arg(id.to_string());
        }
        if change.exists && change.expected.is_none() {
            commit.add("LIST", &of_shard("n"));
        }
        let notice_due = if change.exists { change.notice_due } else { Some(None) };
        if let Some(due) = notice_due {
            commit.set_time(&of_shard("q"), id.to_string(), due);
        }
        let mut expiry_notices = change.expiry_notices.clone();
        for (id, record) in &change.records {
            commit.change_record(&redis_keys.record(*id), record);
            if *record == RecordChange::Deleted {
                commit.add("DEL", &redis_keys.events(*id));
                expiry_notices.insert(*id, None);
            }
        }
        for (key, line) in &change.events {
            commit.add("EVENTS", &redis_keys.events(*key)).arg(line);
        }
        for (key, at) in expiry_notices {
            commit.set_time(&of_shard("x"), key.to_string(), at);
        }
        commit
    }

    fn change_record(&mut self, redis_key: &RedisKey, change: &RecordChange) {
        match change {
            RecordChange::New(record) => {
                self.add("NEW", redis_key);
                self.add("SET", redis_key).arg(record);
            }
            RecordChange::Changed { expected, head, clears_window, origins } => {
                self.add("HEAD", redis_key).arg(expected);
                self.add("SETRANGE", redis_key).arg(0).arg(head);
                if *clears_window {
                    self.add("SETRANGE", redis_key).arg(WINDOW_OFFSET).arg(&EMPTY_WINDOW);
                }
                if let Some(origins) = origins {
                    let hashes: Vec<u8> = origins.iter().flat_map(|hash| hash.to_be_bytes()).collect();
                    self.add("ORIGINS", redis_key).arg(hashes);
                }
            }
            RecordChange::Deleted => {
                self.add("DEL", redis_key);
            }
        }
    }

    /// Sets the time of a member of a sorted set, or removes it.
    fn set_time(&mut self, redis_key: &RedisKey, member: String, time: Option<i64>) {
        match time {
            Some(time) => self.add("ZADD", redis_key).arg(time).arg(member),
            None => self.add("ZREM", redis_key).arg(member),
        };
    }

    fn add(&mut self, name: &str, redis_key: &RedisKey) -> &mut Cmd {
        if !self.redis_keys.contains(redis_key) {
            self.redis_keys.push(redis_key.clone());
        }
        let mut operation = redis::cmd(name);
        operation.arg(redis_key.as_str());
        self.operations.push_mut(operation)
    }

    fn call(&self, change: &Change, confirm: bool) -> Call<'_> {
        let expected = change.expected.as_ref().map_or(&[][..], |version| version);
        let call = COMMIT.on(&self.redis_keys).arg(expected).arg(u8::from(confirm));
        self.operations.iter().fold(call, |call, operation| {
            let parts = operation.args_iter().filter_map(|part| match part {
                Arg::Simple(bytes) => Some(bytes),
                _ => None,
            });
            parts.clone().fold(call.arg(parts.count()), Call::arg)
        })
    }
}
