//! The outbox in Redis: notices that wait for their delivery, in one slot of a Cluster.

use std::collections::BTreeMap;
use std::str::FromStr;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use quota_api::{Channel, ClaimedNotice, Contact, ContactStatus, NoticeKind, NoticeResult};

use super::RedisStore;
use super::accounts::{check_account, contact_field};
use super::call::{
    ADD_NOTICE, ANNOUNCE, CLAIM_NOTICES, FINISH_NOTICE, MARK_ANNOUNCED, SET_ACCOUNT_FIELD, command,
};
use super::keys::readable;
use super::operation::{Operation, convert};
use super::topology::Reply;
use crate::domain::account::to_json;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyMeta, StoredKey};
use crate::domain::notice::{Announcement, CLAIM_MS, MAX_NOTICES, MAX_QUEUES, Queue, next_expiry_notice};
use crate::domain::time::day_of;
use crate::store::{Claims, NoticeStore, Result, StoreError};

/// Announcements that become notices before each claim.
const BATCH: usize = 32;

#[async_trait]
impl NoticeStore for RedisStore {
    async fn announce(&self, announcement: &Announcement) -> Result<u64> {
        let [announcements, ..] = self.redis_keys.outbox();
        let call = ANNOUNCE
            .on([&announcements])
            .arg(to_json(&announcement.notice()))
            .arg(announcement.at)
            .arg(MAX_QUEUES);
        self.operation().query(&call).await
    }

    async fn claim_notices(&self, limit: usize) -> Result<Claims> {
        let operation = self.operation();
        self.announce_expiring().await?;
        let mut dropped = operation.route_announcements().await?;
        let [_, queue, claims] = self.redis_keys.outbox();
        let call = CLAIM_NOTICES.on([&queue, &claims]).arg(self.now_arg()).arg(limit).arg(CLAIM_MS);
        let reply: Vec<Vec<u8>> = convert(operation.write(&call).await?.value)?;
        let mut notices = Vec::new();
        for [member, notice, claim, attempts] in reply.as_chunks::<4>().0 {
            let claim = number(claim).ok_or(StoreError::InvalidData("the claims of the outbox".into()))?;
            match (std::str::from_utf8(member).ok().and_then(Queue::parse), parse_notice(notice)) {
                (Some(Queue { account, channel }), Some(announcement)) => {
                    let attempts = number(attempts).unwrap_or(u32::MAX);
                    let (account, notice) = (account.to_string(), announcement.notice());
                    notices.push(ClaimedNotice { account, channel, notice, claim, attempts });
                    continue;
                }
                // An unreadable notice is removed, because it would be claimed again and again.
                (Some(unreadable), None) => drop(operation.end_claim(unreadable, claim, None).await?),
                (None, _) => drop(operation.write(&command("ZREM", &queue).arg(member)).await?),
            }
            dropped += 1;
        }
        Ok(Claims { notices, dropped })
    }

    async fn finish_notice(&self, queue: Queue, result: NoticeResult) -> Result<bool> {
        let operation = self.operation();
        let is_valid = operation.end_claim(queue, result.claim, result.retry_seconds).await?;
        if let Some(delivery) = result.delivery.filter(|_| is_valid) {
            let (account, field) = (queue.account, delivery_field(queue.channel));
            match operation.set_account_field(account, &field, &to_json(&delivery), None).await {
                Err(StoreError::AccountNotFound) => {}
                result => result?,
            }
        }
        Ok(is_valid)
    }

    async fn overdue_ms(&self) -> Result<i64> {
        let (operation, [announcements, queue, _]) = (self.operation(), self.redis_keys.outbox());
        let mut first_due = None;
        for set in [&announcements, &queue] {
            let first = command("ZRANGE", set).arg(0).arg(0).arg("WITHSCORES");
            let first: Vec<(Vec<u8>, f64)> = operation.query(&first).await?;
            first_due = first.first().map(|(_, due)| *due as i64).into_iter().chain(first_due).min();
        }
        match first_due {
            Some(due) => Ok(operation.read_now().await?.saturating_sub(due).max(0)),
            None => Ok(0),
        }
    }

    async fn contact(&self, id: AccountId) -> Result<ContactStatus> {
        let operation = self.operation();
        let contact = operation.read_account(id).await?.contact;
        let [account, ..] = self.redis_keys.account(id);
        let mut last_deliveries = BTreeMap::new();
        for channel in Channel::ALL {
            let last = command("HGET", &account).arg(delivery_field(*channel));
            let last = operation.query::<Option<String>>(&last).await?;
            let last = last.and_then(|last| serde_json::from_str(&last).ok());
            last_deliveries.extend(last.map(|last| (channel.as_str().to_owned(), last)));
        }
        Ok(ContactStatus { contact, last_deliveries })
    }

    async fn set_contact(&self, id: AccountId, expected: &Contact, contact: &Contact) -> Result<()> {
        let [expected, contact] = [expected, contact].map(contact_field);
        self.operation().set_account_field(id, "contact", &contact, Some(&expected)).await
    }
}

/// The account's field for the last delivery in a channel.
fn delivery_field(channel: Channel) -> String {
    format!("delivery:{}", channel.as_str())
}

impl RedisStore {
    /// Announces the keys that expire soon, in the order of their index.
    async fn announce_expiring(&self) -> Result<()> {
        let (operation, index) = (self.operation(), self.redis_keys.expiring());
        let now = operation.read_now().await?;
        let due = command("ZRANGEBYSCORE", &index).arg("-inf").arg(now).arg("LIMIT").arg(0).arg(BATCH);
        for member in operation.query::<Vec<Vec<u8>>>(&due).await? {
            let id = std::str::from_utf8(&member).ok().and_then(|text| KeyId::from_hex(text).ok());
            let key = match id {
                Some(id) => operation.find_parts(id).await?.decode(id).and_then(Result::ok),
                None => None,
            };
            // A key that was deleted, can't be read or does not expire anymore is not announced.
            let expires_at = key.and_then(|key| key.record.expires_at);
            let announcement = id.zip(expires_at).and_then(|(id, at)| Announcement::of_expiry(id, at, now));
            if let Some(announcement) = announcement {
                self.announce(&announcement).await?;
            }
            operation
                .write(&match expires_at.and_then(|at| next_expiry_notice(at, now)) {
                    Some(next) => command("ZADD", &index).arg(next).arg(&member),
                    None => command("ZREM", &index).arg(&member),
                })
                .await?;
        }
        Ok(())
    }
}

impl Operation<'_> {
    /// Puts a key that expires into the index of the next notices about it. Called before the key is written: an entry
    /// without its key does no harm.
    pub(super) async fn index_expiry(&self, key: &StoredKey, now: i64) -> Result<()> {
        let next = key.record.expires_at.and_then(|at| next_expiry_notice(at, now));
        let Some(next) = next else { return Ok(()) };
        let index = self.redis_keys.expiring();
        self.write(&command("ZADD", &index).arg(next).arg(key.meta.id().to_string())).await.map(drop)
    }

    /// Makes notices of announcements, in their order. Returns the number of notices that were dropped.
    async fn route_announcements(&self) -> Result<u64> {
        let [announcements, ..] = self.redis_keys.outbox();
        let first = command("ZRANGE", &announcements).arg(0).arg(BATCH - 1);
        let lines: Vec<Vec<u8>> = self.query(&first).await?;
        if lines.is_empty() {
            return Ok(0);
        }
        let sorted: Vec<Announcement> = lines.iter().filter_map(|line| parse_notice(line)).collect();
        let (mut dropped, mut written) = (0, Vec::new());
        for announcement in &sorted {
            // Marked first, because every denied request of the day announces it again.
            let is_new =
                announcement.kind != NoticeKind::KeyDailyLimit || self.mark_announced(announcement).await?;
            for queue in if is_new { self.queues(announcement).await? } else { Vec::new() } {
                let (count, reply) = self.add_notice(queue, announcement).await?;
                dropped += count.unsigned_abs();
                written.push(reply);
            }
        }
        self.confirm(written).await?;
        // Marked last: until then, the next charge of the key repeats the announcement.
        let pauses = sorted.iter().filter(|announcement| announcement.kind == NoticeKind::KeyPaused);
        try_join_all(pauses.map(|announcement| self.mark_announced(announcement))).await?;
        self.write(&command("ZREM", &announcements).arg(&lines)).await?;
        Ok(dropped)
    }

    /// Where the owner of the key wants notices.
    async fn queues(&self, announcement: &Announcement) -> Result<Vec<Queue>> {
        let [_, meta, _] = self.redis_keys.key(announcement.key);
        let meta = readable(self.query::<Option<Vec<u8>>>(&command("GET", &meta)).await)?;
        let meta = meta.ok().flatten().and_then(|text| KeyMeta::from_json(&text, announcement.key));
        // A key that can't be read, or was deleted, has no owner to tell.
        let Some(KeyMeta { account, .. }) = meta else { return Ok(Vec::new()) };
        let channels = match self.read_account(account).await {
            Ok(account) => account.contact.channels(),
            Err(StoreError::AccountNotFound | StoreError::UnreadableAccount(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(channels.into_iter().map(|channel| Queue { account, channel }).collect())
    }

    /// Adds the notice without confirming the write. Returns the number of notices that were dropped for it.
    async fn add_notice(&self, queue: Queue, announcement: &Announcement) -> Result<(i64, Reply)> {
        let ([_, due, _], list) = (self.redis_keys.outbox(), self.redis_keys.notices(queue));
        let call = ADD_NOTICE
            .on([&due, &list])
            .arg(self.now_arg())
            .arg(queue.to_string())
            .arg(to_json(&announcement.notice()))
            .arg(MAX_NOTICES)
            .arg(MAX_QUEUES);
        self.write_int(&call).await
    }

    /// Returns `false` if the claim is no longer valid.
    async fn end_claim(&self, queue: Queue, claim: u64, retry_seconds: Option<u32>) -> Result<bool> {
        let ([_, due, claims], list) = (self.redis_keys.outbox(), self.redis_keys.notices(queue));
        let call = FINISH_NOTICE
            .on([&due, &list, &claims])
            .arg(self.now_arg())
            .arg(queue.to_string())
            .arg(claim)
            .arg(retry_seconds.map_or_else(String::new, |seconds| (u64::from(seconds) * 1000).to_string()));
        let (finished, reply) = self.write_int(&call).await?;
        self.confirm([reply]).await?;
        Ok(finished == 1)
    }

    async fn mark_announced(&self, announcement: &Announcement) -> Result<bool> {
        let record = self.redis_keys.record(announcement.key);
        let (paused_at, day): (&[u8], &[u8]) = match announcement.kind {
            NoticeKind::KeyPaused => (&announcement.at.to_le_bytes(), &[]),
            NoticeKind::KeyDailyLimit => (&[], &day_of(announcement.at).to_le_bytes()),
            NoticeKind::KeyExpiring => return Ok(false),
        };
        let call = MARK_ANNOUNCED.on([&record]).arg(paused_at).arg(day);
        // A record that is not a string has no mark.
        Ok(readable(self.write_int(&call).await)?.is_ok_and(|(marked, _)| marked == 1))
    }

    /// Sets a field if it has the `expected` value; without one, in any case.
    async fn set_account_field(
        &self,
        id: AccountId,
        field: &str,
        value: &str,
        expected: Option<&str>,
    ) -> Result<()> {
        let [account, ..] = self.redis_keys.account(id);
        let call = SET_ACCOUNT_FIELD.on([&account]).arg(field).arg(value).arg(expected);
        let (code, reply) = self.write_int(&call).await?;
        check_account(code)?;
        self.confirm([reply]).await
    }
}

/// `None` if the notice can't be read.
fn parse_notice(json: &[u8]) -> Option<Announcement> {
    Announcement::from_notice(&serde_json::from_slice(json).ok()?)
}

fn number<T: FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
