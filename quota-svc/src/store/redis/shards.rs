//! What is stored per shard: the index of accounts, announcements, and when notices are due. One call per shard, those on one
//! server in one pipeline.

use quota_api::NoticeKind;
use redis::FromRedisValue;
use tokio::time::Instant;

use super::call::{ANNOUNCE, Call, MARK_ANNOUNCED, command};
use super::redis_keys::RedisKey;
use super::{RedisStore, convert};
use crate::domain::account::to_json;
use crate::domain::id::{AccountId, SHARDS};
use crate::domain::notice::{Announcement, MAX_ANNOUNCEMENTS};
use crate::domain::time::day_of;
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

    pub(super) async fn add_announcement(&self, announcement: &Announcement) -> Result<u64> {
        let announcements = self.redis_keys.of_shard(announcement.key.shard(), "n");
        let call = ANNOUNCE.on([&announcements]).arg(to_json(&announcement.notice()));
        self.query(&call.arg(announcement.at).arg(MAX_ANNOUNCEMENTS)).await
    }

    pub(super) async fn mark_record(&self, announcement: &Announcement) -> Result<bool> {
        let record = self.redis_keys.record(announcement.key);
        let (paused_at, day): (&[u8], &[u8]) = match announcement.kind {
            NoticeKind::KeyPaused => (&announcement.at.to_le_bytes(), &[]),
            NoticeKind::KeyDailyLimit => (&[], &day_of(announcement.at).to_le_bytes()),
            NoticeKind::KeyExpiring => return Ok(false),
        };
        match self.query::<i64>(&MARK_ANNOUNCED.on([&record]).arg(paused_at).arg(day)).await {
            // A record that is not a string has no mark.
            Err(StoreError::InvalidData(_)) => Ok(false),
            marked => Ok(marked? == 1),
        }
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
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        let replies = self.on_shards::<Vec<(Vec<u8>, f64)>>("ZRANGEBYSCORE", letter, &args).await;
        for (shard, reply) in (0..SHARDS).zip(replies) {
            for (member, score) in reply.unwrap_or_else(|error| {
                failed.push(error);
                Vec::new()
            }) {
                match std::str::from_utf8(&member).ok().and_then(|text| parse(shard, text)) {
                    Some(parsed) => found.push((score as i64, parsed)),
                    None => {
                        let set = self.redis_keys.of_shard(shard, letter);
                        tracing::warn!(set = set.as_str(), "removing an entry that can't be read");
                        self.query::<i64>(&command("ZREM", &set).arg(member)).await?;
                    }
                }
            }
        }
        let shards = failed.len();
        if let Some(error) = failed.pop() {
            if shards == usize::from(SHARDS) {
                return Err(error);
            }
            if let Some(occurrences) = self.unread_shards.allow() {
                tracing::warn!(%error, shards, occurrences, "can't read a part of the outbox");
            }
        }
        found.sort_by_key(|(score, _)| *score);
        found.truncate(limit);
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

    pub(super) async fn forget_announcements(&self, announcements: &[Announcement]) -> Result<()> {
        let sets: Vec<RedisKey> =
            announcements.iter().map(|each| self.redis_keys.of_shard(each.key.shard(), "n")).collect();
        let members = announcements.iter().map(|each| to_json(&each.notice()));
        let calls: Vec<Call<'_>> =
            sets.iter().zip(members).map(|(set, member)| command("ZREM", set).arg(member)).collect();
        let replies = self.others.send_all(&calls, Instant::now() + self.write_timeout).await;
        replies.into_iter().try_for_each(|reply| Ok(reply.map(drop)?))
    }
}

/// Parses the `next` of a page: a shard, and the position of `SSCAN` in it, 0 for its start.
fn parse_cursor(text: &str) -> Option<(u8, u64)> {
    let (shard, position) = text.split_once(':')?;
    Some((shard.parse().ok().filter(|shard| *shard < SHARDS)?, position.parse().ok()?))
}

/// `None` if the announcement can't be read, or has another text than [`RedisStore::forget_announcements`] removes.
pub(super) fn parse_announcement(shard: u8, text: &str) -> Option<Announcement> {
    let announcement = Announcement::from_notice(&serde_json::from_str(text).ok()?)?;
    (announcement.key.shard() == shard && to_json(&announcement.notice()) == text).then_some(announcement)
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
