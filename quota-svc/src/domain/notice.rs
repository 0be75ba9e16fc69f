//! What is announced to the owner of a key.

use std::collections::BTreeMap;

use quota_api::{Channel, Delivery, Notice, NoticeKind};
use serde::{Deserialize, Serialize};

use super::id::{AccountId, KeyId};
use super::time::{MS_PER_DAY, day_of};
use super::verdict::{ChargeGroup, GroupOutcome, Subject};

/// Maximum number of notices of a queue that wait for their delivery. A further one replaces an older one.
pub const MAX_NOTICES: usize = 100;
/// Maximum number of announcements of a shard. Further ones are dropped.
pub const MAX_ANNOUNCEMENTS: usize = 1_000;
/// Duration of a claim, after which another process may deliver the notice.
pub const CLAIM_MS: i64 = 60_000;
/// Start of the year 10,000 in ms, which RFC 3339 has no text for.
const END_OF_TIME: i64 = 253_402_300_800_000;

/// The notices of an account in one channel, delivered one at a time and in order. Each channel has a queue of its own, so
/// that one that fails does not delay the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Queue {
    pub account: AccountId,
    pub channel: Channel,
}

/// The notices of an account that wait for their delivery, and the last deliveries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outbox {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<Channel, NoticeQueue>,
    /// By the name of the channel.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub last_deliveries: BTreeMap<String, Delivery>,
    /// Number of the last claim in any channel.
    pub last_claim: u64,
}

impl Outbox {
    /// `None` if it can't be read, or has a notice that can't be delivered.
    pub fn decode(json: &[u8]) -> Option<Self> {
        let outbox: Self = serde_json::from_slice(json).ok()?;
        let is_valid = |queue: &NoticeQueue| {
            !queue.notices.is_empty()
                && queue.notices.iter().all(|notice| Announcement::from_notice(notice).is_some())
        };
        outbox.queues.values().all(is_valid).then_some(outbox)
    }

    /// When the first notice is due, ms.
    pub fn due(&self) -> Option<i64> {
        self.queues.values().map(|queue| queue.due).min()
    }
}

/// The notices of one channel. There is at least one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoticeQueue {
    /// Oldest first.
    pub notices: Vec<Notice>,
    /// When the oldest one can be claimed, ms.
    pub due: i64,
    /// Number of the last claim of the oldest one; 0 if it is not claimed.
    pub claim: u64,
    /// Failed attempts to deliver the oldest one.
    pub attempts: u32,
}

impl NoticeQueue {
    pub fn new(due: i64) -> Self {
        Self { notices: Vec::new(), due, claim: 0, attempts: 0 }
    }
}

/// When the owner of a key that expires at this time, in seconds, is told: 7 days and 1 day before, ms.
fn expiry_notices(expires_at: u32) -> impl Iterator<Item = i64> {
    [7, 1].into_iter().map(move |days| i64::from(expires_at) * 1000 - days * MS_PER_DAY)
}

/// When the owner is told next that the key expires; `None` if no more.
pub fn next_expiry_notice(expires_at: u32, now: i64) -> Option<i64> {
    expiry_notices(expires_at).find(|at| *at > now)
}

/// A pause, a first denied request of a day or a key that expires, which the owner must be told about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    pub key: KeyId,
    pub kind: NoticeKind,
    /// Time of the pause or of the denied request, ms.
    pub at: i64,
    pub limit: u32,
}

impl Announcement {
    /// What the outcome of a group gives reason to announce. Every request over the daily limit does: the store knows
    /// which is the day's first.
    pub fn of(group: &ChargeGroup, outcome: &GroupOutcome, burst_limit: u16) -> Option<Self> {
        let Subject::Key(key) = group.subject else { return None };
        let paused = |at| Some(Self { key, kind: NoticeKind::KeyPaused, at, limit: burst_limit.into() });
        match outcome {
            GroupOutcome::Counted(counts) if counts.burst_exceeded => paused(counts.now),
            GroupOutcome::Paused { unannounced: Some(at), .. } => paused(*at),
            GroupOutcome::Counted(counts) if counts.over_daily > 0 => {
                Some(Self { key, kind: NoticeKind::KeyDailyLimit, at: counts.now, limit: counts.limit })
            }
            _ => None,
        }
    }

    /// That the key expires, if that is due at `now`. `expires_at` is in seconds.
    pub fn of_expiry(key: KeyId, expires_at: u32, now: i64) -> Option<Self> {
        let at = expiry_notices(expires_at).filter(|at| *at <= now).last()?;
        let is_over = now >= i64::from(expires_at) * 1000;
        (!is_over).then_some(Self { key, kind: NoticeKind::KeyExpiring, at, limit: 0 })
    }

    /// The announcement of a notice. `None` if its key is not an ID, or its time can't be formatted.
    pub fn from_notice(notice: &Notice) -> Option<Self> {
        let Notice { kind, key, at, limit } = notice;
        if !(0..END_OF_TIME).contains(at) {
            return None;
        }
        Some(Self { key: KeyId::from_hex(key).ok()?, kind: *kind, at: *at, limit: *limit })
    }

    /// The same for every announcement of the same pause or day.
    pub fn notice(&self) -> Notice {
        let at = match self.kind {
            NoticeKind::KeyPaused | NoticeKind::KeyExpiring => self.at,
            NoticeKind::KeyDailyLimit => i64::from(day_of(self.at)) * MS_PER_DAY,
        };
        Notice { kind: self.kind, key: self.key.to_string(), at, limit: self.limit }
    }
}
