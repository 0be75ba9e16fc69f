//! What is stored per shard: the index of accounts, announcements, and when notices are due. One call per shard, those on one
//! server in one pipeline.

use redis::FromRedisValue;
use tokio::time::Instant;

use super::call::{Call, command};
use super::redis_keys::RedisKey;
use super::{RedisStore, convert};
use crate::domain::id::{AccountId, SHARDS};
use crate::domain::notice::Announcement;
use crate::store::{AccountIds, Result, StoreError};

/// Minimum `COUNT` of an `SSCAN`, which visits about that many hash buckets. Many may be empty, so a smaller value would
/// often return nothing.
const MIN_SCAN: usize = 16;

impl RedisStore {
    /// A page is a bounded part of the index, so it takes about the same time in a store of any size.
    pub(super) async fn list_accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountIds> {
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

    /// Also returns the lists that have counted dropped announcements, with their counts.
    pub(super) async fn oldest_announcements(
        &self,
        limit: usize,
    ) -> Result<(Vec<Announcement>, Vec<(RedisKey, u64)>)> {
        let start = format!("-{}", limit + 1);
        let lists = self.on_shards::<Vec<Vec<u8>>>("LRANGE", "n", &[&start, "-1"]).await;
        let (mut found, mut dropped) = (Vec::new(), Vec::new());
        for (shard, mut entries) in self.reachable(lists)? {
            let list = self.redis_keys.of_shard(shard, "n");
            // The last entry is the count.
            let count = entries.pop().and_then(|entry| text(&entry)?.parse().ok());
            dropped.extend(count.filter(|count| *count > 0).map(|count| (list.clone(), count)));
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

    /// The first members of a sorted set of each shard whose scores are at most `until`, with their scores. Removes those that
    /// `parse` rejects. Shards that can't be read are left out, unless all are.
    pub(super) async fn earliest<T>(
        &self,
        letter: &str,
        until: &str,
        limit: usize,
        parse: impl Fn(u8, &str) -> Option<T>,
    ) -> Result<Vec<(i64, T)>> {
        let count = limit.to_string();
        let args = ["-inf", until, "WITHSCORES", "LIMIT", "0", &count];
        let replies = self.on_shards::<Vec<(Vec<u8>, f64)>>("ZRANGEBYSCORE", letter, &args).await;
        let mut found = Vec::new();
        for (shard, members) in self.reachable(replies)? {
            for (member, score) in members {
                match text(&member).and_then(|text| parse(shard, text)) {
                    Some(parsed) => found.push((score as i64, parsed)),
                    None => {
                        let set = self.redis_keys.of_shard(shard, letter);
                        self.remove_unreadable(&set, "ZREM", &[&member]).await?;
                    }
                }
            }
        }
        found.sort_by_key(|(score, _)| *score);
        found.truncate(limit);
        Ok(found)
    }

    /// The replies of the shards that can be read. Fails if none can.
    fn reachable<T>(&self, replies: Vec<Result<T>>) -> Result<Vec<(u8, T)>> {
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for (shard, reply) in (0..SHARDS).zip(replies) {
            match reply {
                Ok(reply) => found.push((shard, reply)),
                Err(error) => failed.push(error),
            }
        }
        let shards = failed.len();
        match failed.pop() {
            Some(error) if found.is_empty() => return Err(error),
            Some(error) => {
                if let Some(occurrences) = self.unread_shards.allow() {
                    tracing::warn!(%error, shards, occurrences, "can't read a part of the outbox");
                }
            }
            None => {}
        }
        Ok(found)
    }

    /// Makes a call for a Redis key of each shard, in the order of the shards.
    async fn on_shards<T: FromRedisValue>(&self, name: &str, letter: &str, args: &[&str]) -> Vec<Result<T>> {
        let redis_keys: Vec<RedisKey> =
            (0..SHARDS).map(|shard| self.redis_keys.of_shard(shard, letter)).collect();
        let calls: Vec<Call<'_>> =
            redis_keys.iter().map(|redis_key| command(name, redis_key).arg(args)).collect();
        let replies = self.others.send_all(&calls, Instant::now() + self.write_timeout).await.into_iter();
        replies.map(|reply| convert(reply?)).collect()
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
mod tests {
    use super::*;

    #[test]
    fn cursor_is_parsed_and_malformed_text_is_not() {
        for (text, cursor) in
            [("0:0", (0, 0)), ("63:345", (63, 345)), ("5:18446744073709551615", (5, u64::MAX))]
        {
            assert_eq!(parse_cursor(text), Some(cursor));
        }
        for malformed in ["", "5", "64:0", "-1:0", "1:", "1:x", "1:2:3", "abc"] {
            assert_eq!(parse_cursor(malformed), None, "{malformed}");
        }
    }
}
