//! A change of an account as the operations of `lua/commit.lua`.

use redis::{Arg, Cmd};

use super::call::{COMMIT, Call};
use super::redis_keys::{RedisKey, RedisKeys};
use crate::domain::change::{Change, RecordChange};
use crate::store::{VERSION, Version, draw_version};

/// The part of a record with the burst window's latest arrival, limit, capacity, length and start.
const WINDOW_OFFSET: usize = 28;
const EMPTY_WINDOW: [u8; 18] = [0; 18];

/// The operations of a commit (see `lua/commit.lua`) and their Redis keys, first that of the account.
#[derive(Default)]
pub struct Commit {
    redis_keys: Vec<RedisKey>,
    operations: Vec<Cmd>,
    /// The account's version after it, if it exists.
    pub version: Option<Version>,
}

impl Commit {
    pub fn of(change: &Change, redis_keys: &RedisKeys) -> Self {
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
            let version = draw_version();
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
            RecordChange::Deleted => drop(self.add("DEL", redis_key)),
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

    pub fn call(&self, change: &Change, confirm: bool) -> Call<'_> {
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
