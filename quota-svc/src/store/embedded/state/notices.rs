//! The outbox of the state in memory. Each account has its notices in its own row.

use quota_api::{ClaimedNotice, Contact, Delivery, Notice, NoticeKind};

use super::{Draft, State};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::notice::{Announcement, CLAIM_MS, MAX_NOTICES, Queue};
use crate::domain::time::day_of;
use crate::store::{Result, StoreError};

/// How often keys that expire are looked for, ms.
const EXPIRY_CHECK_MS: i64 = 60_000;

/// The claim of a queue's oldest notice.
pub struct Claim {
    /// 0 between a failed attempt and the next one.
    number: u64,
    /// When another claim can be made, ms.
    until: i64,
    attempts: u32,
}

impl State {
    /// Where the owner of a key wants notices.
    pub fn queues(&self, key: KeyId) -> Vec<Queue> {
        let account = self.key(key, None).map(|key| key.meta.account);
        let row = account.and_then(|account| Ok((account, self.account(account)?)));
        let Ok((account, row)) = row else { return Vec::new() };
        row.account.contact.channels().into_iter().map(|channel| Queue { account, channel }).collect()
    }

    /// Marks a pause or a day as announced. Returns `false` if the key was paused again, or the day is marked already.
    pub fn mark_announced(&mut self, announcement: &Announcement) -> bool {
        let (id, day) = (announcement.key, day_of(announcement.at));
        let Some(entry) = self.keys.get_mut(&id) else { return false };
        let record = &mut entry.key.record;
        match announcement.kind {
            NoticeKind::KeyPaused if record.paused_at == announcement.at => record.unannounced = false,
            NoticeKind::KeyDailyLimit if record.limit_notice_day != day => record.limit_notice_day = day,
            _ => return false,
        }
        entry.mark_dirty(id, &mut self.dirty);
        true
    }

    /// The notices about keys that expire that became due since the last check; `None` if that was less than a minute ago.
    pub fn due_expiry_notices(&self, now: i64) -> Option<Vec<Announcement>> {
        let checked = self.demo.expiry_checked;
        if now < checked.saturating_add(EXPIRY_CHECK_MS) {
            return None;
        }
        let expiring = self.keys.iter().filter_map(|(id, entry)| Some((*id, entry.key.record.expires_at?)));
        let due = expiring.filter_map(|(id, at)| Announcement::of_expiry(id, at, now));
        // The first check ever announces nothing: what was due before it is not known.
        Some(due.filter(|announcement| checked > 0 && announcement.at > checked).collect())
    }

    pub fn set_expiry_checked(&mut self, now: i64) {
        (self.demo.expiry_checked, self.demo.dirty) = (now, true);
    }

    fn oldest_notices(&self) -> impl Iterator<Item = (Queue, &Notice)> {
        self.accounts.iter().flat_map(|(id, row)| {
            let queue = |channel| Queue { account: *id, channel };
            row.notices.iter().filter_map(move |(channel, list)| Some((queue(*channel), list.first()?)))
        })
    }

    pub fn claim_notices(&mut self, limit: usize, now: i64) -> Vec<ClaimedNotice> {
        let is_due = |queue: &Queue| self.claims.get(queue).is_none_or(|claim| claim.until <= now);
        let due = self.oldest_notices().filter(|(queue, _)| is_due(queue)).take(limit);
        let due: Vec<_> = due.map(|(queue, notice)| (queue, notice.clone())).collect();
        let mut claim = |(queue, notice): (Queue, Notice)| {
            self.last_claim += 1;
            let claim = self.claims.entry(queue).or_insert(Claim { number: 0, until: 0, attempts: 0 });
            (claim.number, claim.until) = (self.last_claim, now + CLAIM_MS);
            let (account, channel) = (queue.account.to_string(), queue.channel);
            ClaimedNotice { account, channel, notice, claim: claim.number, attempts: claim.attempts }
        };
        due.into_iter().map(&mut claim).collect()
    }

    pub fn has_claim(&self, queue: Queue, number: u64) -> bool {
        self.claims.get(&queue).is_some_and(|claim| claim.number == number)
    }

    /// Ends a claim. The next one can be made at `retry_at`, or immediately.
    pub fn end_claim(&mut self, queue: Queue, retry_at: Option<i64>) {
        match (retry_at, self.claims.get_mut(&queue)) {
            (Some(until), Some(claim)) => *claim = Claim { number: 0, until, attempts: claim.attempts + 1 },
            _ => drop(self.claims.remove(&queue)),
        }
    }

    /// Makes a new notice due now, unless an earlier one of the queue is being delivered.
    pub fn set_due(&mut self, queue: Queue, now: i64) {
        self.claims.entry(queue).or_insert(Claim { number: 0, until: now, attempts: 0 });
    }

    /// How long the notice that is due longest has waited.
    pub fn overdue_ms(&mut self, now: i64) -> i64 {
        // After a restart, all notices are due from the first call of this function on.
        let queues: Vec<_> = self.oldest_notices().map(|(queue, _)| queue).collect();
        queues.iter().for_each(|queue| self.set_due(*queue, now));
        let waits = queues.iter().filter_map(|queue| Some(now - self.claims.get(queue)?.until));
        waits.max().unwrap_or(0).max(0)
    }
}

impl Draft<'_> {
    /// Adds a notice to these queues of an account, unless they have it already. Returns the number of notices that were
    /// dropped.
    pub fn add_notice(&mut self, queues: &[Queue], notice: &Notice) -> Result<u64> {
        let mut dropped = 0;
        for queue in queues {
            self.update_account(queue.account, |row| {
                let notices = row.notices.entry(queue.channel).or_default();
                if !notices.contains(notice) {
                    notices.push(notice.clone());
                }
                // The oldest one may be claimed, so it stays: its claim must find it. The next one goes.
                if notices.len() > MAX_NOTICES {
                    notices.remove(1);
                    dropped += 1;
                }
                Ok(())
            })?;
        }
        Ok(dropped)
    }

    /// Removes the oldest notice of a queue, if it `is_done`, and stores the delivery.
    pub fn finish_notice(
        &mut self,
        Queue { account, channel }: Queue,
        is_done: bool,
        delivery: Option<Delivery>,
    ) -> Result<()> {
        self.update_account(account, |row| {
            row.last_deliveries.extend(delivery.map(|delivery| (channel.as_str().to_owned(), delivery)));
            if let Some(notices) = row.notices.get_mut(&channel).filter(|list| is_done && !list.is_empty()) {
                notices.remove(0);
            }
            row.notices.retain(|_, list| !list.is_empty());
            Ok(())
        })
    }

    pub fn set_contact(&mut self, id: AccountId, expected: &Contact, contact: Contact) -> Result<()> {
        self.update_account(id, |row| {
            if row.account.contact != *expected {
                return Err(StoreError::ContactConflict);
            }
            row.account.contact = contact;
            Ok(())
        })
    }
}
