//! The outbox in Redis: notices that wait for their delivery, in one slot of a Cluster.

use async_trait::async_trait;
use quota_api::{ClaimedNotice, Contact, ContactStatus, Delivery, NoticeKind, Outbox};

use super::RedisStore;
use super::accounts::check_account;
use super::call::{ADD_NOTICE, CLAIM_NOTICES, FINISH_NOTICE, MARK_ANNOUNCED, SET_ACCOUNT_FIELD, command};
use super::keys::readable;
use super::operation::{Operation, convert};
use crate::domain::account::to_json;
use crate::domain::id::AccountId;
use crate::domain::key::KeyMeta;
use crate::domain::notice::{Announcement, CLAIM_MS, MAX_ACCOUNTS, MAX_NOTICES};
use crate::domain::time::day_of;
use crate::store::{NoticeStore, StoreError};

#[async_trait]
impl NoticeStore for RedisStore {
    async fn announce(&self, announcement: &Announcement) -> Result<u64, StoreError> {
        let operation = self.operation();
        match announcement.kind {
            // Marked last: until then, the next charge of the key repeats the announcement.
            NoticeKind::KeyPaused => {
                let dropped = operation.add_notice(announcement).await?;
                operation.mark_announced(announcement).await?;
                Ok(dropped)
            }
            // Marked first, because every denied request of the day would announce it again.
            NoticeKind::KeyDailyLimit => match operation.mark_announced(announcement).await? {
                true => operation.add_notice(announcement).await,
                false => Ok(0),
            },
        }
    }

    async fn claim_notices(&self, limit: usize) -> Result<Vec<ClaimedNotice>, StoreError> {
        let [queue, _, claims] = self.redis_keys.outbox();
        let call = CLAIM_NOTICES.on([&queue, &claims]).arg(self.now_arg()).arg(limit).arg(CLAIM_MS);
        let reply: Vec<String> = convert(self.operation().write(&call).await?.value)?;
        let claimed = reply.as_chunks::<4>().0.iter().map(|[account, notice, claim, attempts]| {
            let invalid = |_| StoreError::InvalidData("a notice in the outbox".into());
            Ok(ClaimedNotice {
                account: account.clone(),
                notice: serde_json::from_str(notice)
                    .map_err(|error| StoreError::InvalidData(error.into()))?,
                claim: claim.parse().map_err(invalid)?,
                attempts: attempts.parse().map_err(invalid)?,
            })
        });
        claimed.collect()
    }

    async fn finish_notice(
        &self,
        account: AccountId,
        claim: u64,
        retry_seconds: Option<u32>,
    ) -> Result<bool, StoreError> {
        let [queue, times, claims] = self.redis_keys.outbox();
        let list = self.redis_keys.notices(account);
        let call = FINISH_NOTICE
            .on([&queue, &times, &list, &claims])
            .arg(self.now_arg())
            .arg(account.to_string())
            .arg(claim)
            .arg(retry_seconds.map_or_else(String::new, |seconds| (u64::from(seconds) * 1000).to_string()));
        let operation = self.operation();
        let (finished, reply) = operation.write_int(&call).await?;
        operation.confirm([reply]).await?;
        Ok(finished == 1)
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        let (operation, [queue, times, _]) = (self.operation(), self.redis_keys.outbox());
        let accounts = operation.query(&command("ZCARD", &queue)).await?;
        let oldest: Vec<(String, f64)> =
            operation.query(&command("ZRANGE", &times).arg(0).arg(0).arg("WITHSCORES")).await?;
        Ok(Outbox { accounts, oldest: oldest.first().map(|(_, at)| *at as i64) })
    }

    async fn contact(&self, id: AccountId) -> Result<ContactStatus, StoreError> {
        let operation = self.operation();
        let contact = operation.read_account(id).await?.contact;
        let [account, ..] = self.redis_keys.account(id);
        let last: Option<String> = operation.query(&command("HGET", &account).arg("delivery")).await?;
        let last_delivery = last.and_then(|last| serde_json::from_str(&last).ok());
        Ok(ContactStatus { contact, last_delivery })
    }

    async fn set_contact(&self, id: AccountId, contact: &Contact) -> Result<(), StoreError> {
        let contact = if contact.is_empty() { String::new() } else { to_json(contact) };
        self.operation().set_account_field(id, "contact", &contact).await
    }

    async fn set_last_delivery(&self, id: AccountId, delivery: &Delivery) -> Result<(), StoreError> {
        self.operation().set_account_field(id, "delivery", &to_json(delivery)).await
    }
}

impl Operation<'_> {
    /// Adds the notice, if the owner of the key wants notices. Returns the number of notices that were dropped for it.
    async fn add_notice(&self, announcement: &Announcement) -> Result<u64, StoreError> {
        let [_, meta, _] = self.redis_keys.key(announcement.key);
        let meta = readable(self.query::<Option<Vec<u8>>>(&command("GET", &meta)).await)?;
        let meta = meta.ok().flatten().and_then(|text| KeyMeta::from_json(&text, announcement.key));
        // A key that can't be read, or was deleted, has no owner to tell.
        let Some(KeyMeta { account, .. }) = meta else { return Ok(0) };
        match self.read_account(account).await {
            Ok(account) if account.contact.wants_notices() => {}
            Ok(_) | Err(StoreError::AccountNotFound | StoreError::UnreadableAccount(_)) => return Ok(0),
            Err(error) => return Err(error),
        }
        let [queue, times, _] = self.redis_keys.outbox();
        let (list, notice) = (self.redis_keys.notices(account), announcement.notice());
        let call = ADD_NOTICE
            .on([&queue, &times, &list])
            .arg(account.to_string())
            .arg(to_json(&notice))
            .arg(notice.at)
            .arg(MAX_NOTICES)
            .arg(MAX_ACCOUNTS);
        let (dropped, reply) = self.write_int(&call).await?;
        self.confirm([reply]).await?;
        Ok(dropped.unsigned_abs())
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
