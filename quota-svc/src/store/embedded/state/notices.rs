//! The outbox of the state in memory. Each account has its notices in its own row.

use quota_api::{ClaimedNotice, Contact, Delivery, Notice};

use super::{Draft, State};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::notice::{CLAIM_MS, MAX_NOTICES};
use crate::store::StoreError;

/// The claim of an account's oldest notice.
pub struct Claim {
    /// 0 between a failed attempt and the next one.
    number: u64,
    /// When another claim can be made, ms.
    until: i64,
    attempts: u32,
}

impl State {
    /// The account of a key, if its owner wants notices.
    pub fn account_to_notify(&self, key: KeyId) -> Option<AccountId> {
        let account = self.key(key, None).ok()?.meta.account;
        self.account(account).ok().filter(|row| row.account.contact.wants_notices()).map(|_| account)
    }

    /// Marks the pause at this time as announced, unless the key was paused again.
    pub fn mark_pause_announced(&mut self, id: KeyId, paused_at: i64) {
        let Some(entry) = self.keys.get_mut(&id) else { return };
        if entry.key.record.paused_at == paused_at {
            entry.key.record.unannounced = false;
            if !std::mem::replace(&mut entry.dirty, true) {
                self.dirty.push(id);
            }
        }
    }

    /// Marks the daily limit of a day as announced. Returns `false` if it already was.
    pub fn mark_limit_announced(&mut self, id: KeyId, day: u32) -> bool {
        let Some(entry) = self.keys.get_mut(&id) else { return false };
        if std::mem::replace(&mut entry.key.record.limit_notice_day, day) == day {
            return false;
        }
        if !std::mem::replace(&mut entry.dirty, true) {
            self.dirty.push(id);
        }
        true
    }

    fn accounts_with_notices(&self) -> impl Iterator<Item = (AccountId, &Notice)> {
        self.accounts.iter().filter_map(|(id, row)| Some((*id, row.notices.first()?)))
    }

    pub fn claim_notices(&mut self, limit: usize, now: i64) -> Vec<ClaimedNotice> {
        let is_due = |id: &AccountId| self.claims.get(id).is_none_or(|claim| claim.until <= now);
        let due = self.accounts_with_notices().filter(|(id, _)| is_due(id)).take(limit);
        let due: Vec<_> = due.map(|(id, notice)| (id, notice.clone())).collect();
        let mut claim = |(id, notice): (AccountId, Notice)| {
            self.last_claim += 1;
            let claim = self.claims.entry(id).or_insert(Claim { number: 0, until: 0, attempts: 0 });
            (claim.number, claim.until) = (self.last_claim, now + CLAIM_MS);
            let (account, claim, attempts) = (id.to_string(), claim.number, claim.attempts);
            ClaimedNotice { account, notice, claim, attempts }
        };
        due.into_iter().map(&mut claim).collect()
    }

    pub fn has_claim(&self, id: AccountId, number: u64) -> bool {
        self.claims.get(&id).is_some_and(|claim| claim.number == number)
    }

    /// Ends a claim. The next one can be made at `retry_at`, or immediately.
    pub fn end_claim(&mut self, id: AccountId, retry_at: Option<i64>) {
        match (retry_at, self.claims.get_mut(&id)) {
            (Some(until), Some(claim)) => *claim = Claim { number: 0, until, attempts: claim.attempts + 1 },
            _ => drop(self.claims.remove(&id)),
        }
    }

    /// Makes a new notice due now, unless an earlier one of the account is being delivered.
    pub fn set_due(&mut self, id: AccountId, now: i64) {
        self.claims.entry(id).or_insert(Claim { number: 0, until: now, attempts: 0 });
    }

    /// How long the notice that is due longest has waited.
    pub fn overdue_ms(&mut self, now: i64) -> i64 {
        // After a restart, all notices are due from the first call of this function on.
        let ids: Vec<_> = self.accounts_with_notices().map(|(id, _)| id).collect();
        ids.iter().for_each(|id| self.set_due(*id, now));
        let waits = ids.iter().filter_map(|id| Some(now - self.claims.get(id)?.until));
        waits.max().unwrap_or(0).max(0)
    }
}

impl Draft<'_> {
    /// Adds a notice unless the account has it already. Returns the number of notices that were dropped.
    pub fn add_notice(&mut self, id: AccountId, notice: Notice) -> Result<u64, StoreError> {
        self.update_account(id, |row| {
            if row.notices.contains(&notice) {
                return Ok(0);
            }
            row.notices.push(notice);
            // The oldest one may be claimed, so it stays: its claim must find it. The next one goes.
            let is_full = row.notices.len() > MAX_NOTICES;
            if is_full {
                row.notices.remove(1);
            }
            Ok(u64::from(is_full))
        })
    }

    pub fn remove_oldest_notice(&mut self, id: AccountId) -> Result<(), StoreError> {
        self.update_account(id, |row| {
            if !row.notices.is_empty() {
                row.notices.remove(0);
            }
            Ok(())
        })
    }

    pub fn set_contact(&mut self, id: AccountId, contact: &Contact) -> Result<(), StoreError> {
        self.update_account(id, |row| {
            row.account.contact = contact.clone();
            Ok(())
        })
    }

    pub fn set_last_delivery(&mut self, id: AccountId, delivery: &Delivery) -> Result<(), StoreError> {
        self.update_account(id, |row| {
            row.last_delivery = Some(delivery.clone());
            Ok(())
        })
    }
}
