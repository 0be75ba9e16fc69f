//! The outbox in Redis: notices that wait for their delivery, in one slot of a Cluster.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use quota_api::{Channel, ClaimedNotice, Contact, ContactStatus, Delivery, NoticeKind};

use super::RedisStore;
use super::accounts::check_account;
use super::call::{
    ADD_NOTICE, ANNOUNCE, CLAIM_NOTICES, FINISH_NOTICE, MARK_ANNOUNCED, SET_ACCOUNT_FIELD, command,
};
use super::keys::readable;
use super::operation::{Operation, convert};
use super::topology::Reply;
use crate::domain::account::to_json;
use crate::domain::id::AccountId;
use crate::domain::key::KeyMeta;
use crate::domain::notice::{Announcement, CLAIM_MS, MAX_NOTICES, MAX_QUEUES, Queue};
use crate::domain::time::day_of;
use crate::store::{Claims, NoticeStore, StoreError};

/// Announcements that are sorted before each claim.
const SORTED_AT_ONCE: usize = 32;

#[async_trait]
impl NoticeStore for RedisStore {
    async fn announce(&self, announcement: &Announcement) -> Result<u64, StoreError> {
        let [announcements, ..] = self.redis_keys.outbox();
        let call = ANNOUNCE
            .on([&announcements])
            .arg(to_json(&announcement.notice()))
            .arg(announcement.at)
            .arg(MAX_QUEUES);
        self.operation().query(&call).await
    }

    async fn claim_notices(&self, limit: usize) -> Result<Claims, StoreError> {
        let operation = self.operation();
        let dropped = operation.sort_announcements().await?;
        let [_, queue, claims] = self.redis_keys.outbox();
        let call = CLAIM_NOTICES.on([&queue, &claims]).arg(self.now_arg()).arg(limit).arg(CLAIM_MS);
        let reply: Vec<String> = convert(operation.write(&call).await?.value)?;
        let claimed = reply.as_chunks::<4>().0.iter().map(|[queue, notice, claim, attempts]| {
            let Queue { account, channel } = Queue::parse(queue)?;
            let (notice, account) = (serde_json::from_str(notice).ok()?, account.to_string());
            let (claim, attempts) = (claim.parse().ok()?, attempts.parse().ok()?);
            Some(ClaimedNotice { account, channel, notice, claim, attempts })
        });
        let invalid = || StoreError::InvalidData("a notice in the outbox".into());
        Ok(Claims { notices: claimed.collect::<Option<_>>().ok_or_else(invalid)?, dropped })
    }

    async fn finish_notice(
        &self,
        queue: Queue,
        claim: u64,
        retry_seconds: Option<u32>,
        delivery: Option<Delivery>,
    ) -> Result<bool, StoreError> {
        let [_, due, claims] = self.redis_keys.outbox();
        let list = self.redis_keys.notices(queue);
        let call = FINISH_NOTICE
            .on([&due, &list, &claims])
            .arg(self.now_arg())
            .arg(queue.to_string())
            .arg(claim)
            .arg(retry_seconds.map_or_else(String::new, |seconds| (u64::from(seconds) * 1000).to_string()));
        let operation = self.operation();
        let (finished, reply) = operation.write_int(&call).await?;
        operation.confirm([reply]).await?;
        if let Some(delivery) = delivery.filter(|_| finished == 1) {
            let (account, field) = (queue.account, delivery_field(queue.channel));
            match operation.set_account_field(account, &field, &to_json(&delivery)).await {
                Err(StoreError::AccountNotFound) => {}
                result => result?,
            }
        }
        Ok(finished == 1)
    }

    async fn overdue_ms(&self) -> Result<i64, StoreError> {
        let (operation, [announcements, queue, _]) = (self.operation(), self.redis_keys.outbox());
        let mut first_due = None;
        for set in [&announcements, &queue] {
            let first = command("ZRANGE", set).arg(0).arg(0).arg("WITHSCORES");
            let first: Vec<(String, f64)> = operation.query(&first).await?;
            first_due = first.first().map(|(_, due)| *due as i64).into_iter().chain(first_due).min();
        }
        match first_due {
            Some(due) => Ok((operation.read_now().await? - due).max(0)),
            None => Ok(0),
        }
    }

    async fn contact(&self, id: AccountId) -> Result<ContactStatus, StoreError> {
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

    async fn set_contact(&self, id: AccountId, contact: &Contact) -> Result<(), StoreError> {
        let contact = if contact.is_empty() { String::new() } else { to_json(contact) };
        self.operation().set_account_field(id, "contact", &contact).await
    }
}

/// The account's field for the last delivery in a channel.
fn delivery_field(channel: Channel) -> String {
    format!("delivery:{}", channel.as_str())
}

impl Operation<'_> {
    /// Makes notices of announcements, in their order. Returns the number of notices that were dropped.
    async fn sort_announcements(&self) -> Result<u64, StoreError> {
        let [announcements, ..] = self.redis_keys.outbox();
        let first = command("ZRANGE", &announcements).arg(0).arg(SORTED_AT_ONCE - 1);
        let lines: Vec<String> = self.query(&first).await?;
        if lines.is_empty() {
            return Ok(0);
        }
        let parse = |line: &String| Announcement::from_notice(&serde_json::from_str(line).ok()?);
        let sorted: Vec<Announcement> = lines.iter().filter_map(parse).collect();
        let (mut dropped, mut written) = (0, Vec::new());
        for announcement in &sorted {
            // Marked first, because every denied request of the day announces it again.
            let is_new =
                announcement.kind == NoticeKind::KeyPaused || self.mark_announced(announcement).await?;
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
    async fn queues(&self, announcement: &Announcement) -> Result<Vec<Queue>, StoreError> {
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
    async fn add_notice(
        &self,
        queue: Queue,
        announcement: &Announcement,
    ) -> Result<(i64, Reply), StoreError> {
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

    async fn mark_announced(&self, announcement: &Announcement) -> Result<bool, StoreError> {
        let record = self.redis_keys.record(announcement.key);
        let (paused_at, day): (&[u8], &[u8]) = match announcement.kind {
            NoticeKind::KeyPaused => (&announcement.at.to_le_bytes(), &[]),
            NoticeKind::KeyDailyLimit => (&[], &day_of(announcement.at).to_le_bytes()),
        };
        let call = MARK_ANNOUNCED.on([&record]).arg(paused_at).arg(day);
        Ok(self.write_int(&call).await?.0 == 1)
    }

    async fn set_account_field(&self, id: AccountId, field: &str, value: &str) -> Result<(), StoreError> {
        let [account, ..] = self.redis_keys.account(id);
        let (code, reply) = self.write_int(&SET_ACCOUNT_FIELD.on([&account]).arg(field).arg(value)).await?;
        check_account(code)?;
        self.confirm([reply]).await
    }
}
