//! Notices to owners: makes them of announcements, and hands them out for delivery.

use quota_api::{ClaimedNotice, NoticeResult};

use super::{Accounts, Seen};
use crate::domain::change::Change;
use crate::domain::id::AccountId;
use crate::domain::loaded::Target;
use crate::domain::notice::Announcement;
use crate::domain::rejection::Rejection;
use crate::domain::value::AccountValue;
use crate::store::{Result, StoreError};

/// Announcements, and keys that expire, of which notices are made before each claim.
const BATCH: usize = 32;

/// Claimed notices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    pub notices: Vec<ClaimedNotice>,
    /// Notices that were dropped, because too many of a queue wait.
    pub dropped: u64,
}

impl Accounts {
    /// Makes notices of announcements and of keys that expire, if the owners want them. Then claims the oldest notice of each
    /// channel of up to `limit` accounts where it is due. An account that can't be reached holds up no other. Nothing is confirmed:
    /// a crash that loses a notice restores what it was made of, and one that loses a claim only ends it.
    pub async fn claim_notices(&self, limit: usize) -> Result<Claims> {
        let (mut claims, mut unreachable) = (Claims::default(), None);
        let (announcements, dropped) = self.store.announcements(BATCH).await?;
        claims.dropped += dropped;
        for announcement in announcements {
            let make = |value: &mut AccountValue, now| {
                Ok(Some(value.make_notices(&announcement, self.default_limit, now)))
            };
            let made = self.step(Target::Key(announcement.key), Some(announcement), &mut unreachable, make);
            claims.dropped += made.await?.unwrap_or(0);
        }
        let now = self.store.now().await?;
        for key in self.store.expiring_keys(now, BATCH).await? {
            let add = |value: &mut AccountValue, now| {
                let is_due = value.key(key)?.meta.expiry_notice.is_some_and(|at| at <= now);
                Ok(is_due.then(|| value.add_expiry_notice(key, now)))
            };
            let added = self.step(Target::Key(key), None, &mut unreachable, add);
            claims.dropped += added.await?.unwrap_or(0);
        }
        // Later than the new notices.
        let now = self.store.now().await?;
        for id in self.store.due_accounts(now, limit).await? {
            let claim = |value: &mut AccountValue, now| {
                Ok(Some(value.claim_notices(now)).filter(|claimed| !claimed.is_empty()))
            };
            let claimed = self.step(Target::Account(id), None, &mut unreachable, claim);
            claims.notices.extend(claimed.await?.unwrap_or_default());
        }
        match unreachable {
            Some(error) if claims == Claims::default() => Err(error),
            _ => Ok(claims),
        }
    }

    /// Applies a rule. If it has nothing to do, or the account or the key was deleted or can't be read, corrects the index. An error of
    /// an account that can't be reached is stored in `unreachable`: a part of the store that is unreachable holds up only its own accounts.
    async fn step<T>(
        &self,
        target: Target,
        made: Option<Announcement>,
        unreachable: &mut Option<StoreError>,
        rule: impl Fn(&mut AccountValue, i64) -> Result<Option<T>, Rejection>,
    ) -> Result<Option<T>> {
        let done = match self.update(target, false, rule).await {
            Ok(Seen { value: None, .. }) | Err(StoreError::Rejected(_)) => {
                self.correct_index(target, made).await.map(|()| None)
            }
            result => result.map(|seen| seen.value),
        };
        match done {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unconfirmed(_))) => {
                *unreachable = Some(error);
                Ok(None)
            }
            result => result,
        }
    }

    /// Corrects the time in the index at which a notice of an account, or that a key expires, is due. Otherwise one that was
    /// deleted, or can't be read, would be looked at again and again. Removes an announcement of which no notice can be made.
    async fn correct_index(&self, target: Target, made: Option<Announcement>) -> Result<()> {
        let deadline = self.deadline();
        let loaded = match self.store.load(target, &[], deadline).await {
            Err(StoreError::Rejected(_)) => None,
            loaded => loaded?,
        };
        let mut change = match (&loaded, target) {
            (Some(loaded), _) => {
                let (account, expected) = (loaded.id, loaded.version);
                Change { account, expected, exists: expected.is_some(), ..Change::default() }
            }
            // No account has the ID of a key; this one is in its shard.
            (None, Target::Key(key)) => Change { account: AccountId(key.0), ..Change::default() },
            (None, Target::Account(_)) => return Ok(()),
        };
        change.made = made;
        let value = loaded.and_then(|loaded| AccountValue::decode(&loaded).ok().flatten());
        match target {
            Target::Account(_) => change.notice_due = Some(value.and_then(|value| value.outbox.due())),
            Target::Key(key) => {
                let notice = value.and_then(|value| value.key(key).ok()?.meta.expiry_notice);
                change.expiry_notices.insert(key, notice);
            }
        }
        self.store.commit(&change, false, deadline).await.map(drop)
    }

    /// Ends a claim: removes its notice, or delays its next attempt by `retry_seconds`, and stores the delivery as the last one.
    /// Returns `false` if the claim is no longer valid.
    pub async fn finish_notice(&self, account: AccountId, result: &NoticeResult) -> Result<bool> {
        let finish = |value: &mut AccountValue, now| Ok(value.finish_notice(result.clone(), now));
        match self.update(Target::Account(account), false, finish).await {
            Err(StoreError::Rejected(_)) => Ok(false),
            finished => Ok(finished?.value),
        }
    }
}
