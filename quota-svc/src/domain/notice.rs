//! What is announced to the owner of a key.

use std::collections::BTreeMap;
use std::fmt;

use quota_api::{Channel, Delivery, Notice, NoticeKind};
use serde::{Deserialize, Serialize};

use super::id::KeyId;
use super::time::MS_PER_DAY;

/// Maximum number of notices of a queue that wait for their delivery. A further one replaces an older one.
pub const MAX_NOTICES: usize = 100;
/// Maximum number of announcements in the embedded store; in Redis it is 1,000 per shard. The oldest go.
pub const MAX_ANNOUNCEMENTS: usize = 64_000;
/// Duration of a claim, after which another process may deliver the notice.
pub const CLAIM_MS: i64 = 60_000;
/// Start of the year 10,000 in ms, which RFC 3339 has no text for.
const END_OF_TIME: i64 = 253_402_300_800_000;

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
        let is_valid =
            |queue: &NoticeQueue| !queue.notices.is_empty() && queue.notices.iter().all(is_deliverable);
        outbox.queues.values().all(is_valid).then_some(outbox)
    }

    /// When the first notice is due, ms.
    pub fn due(&self) -> Option<i64> {
        self.queues.values().map(|queue| queue.due).min()
    }
}

/// The notices of one channel, delivered one at a time and in order. There is at least one. Each channel has a queue of its own, so
/// that one that fails does not delay the other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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

/// When the owner of a key that expires at this time, in seconds, is told: 7 days and 1 day before, ms.
fn expiry_notices(expires_at: u32) -> impl Iterator<Item = i64> {
    [7, 1].into_iter().map(move |days| i64::from(expires_at) * 1000 - days * MS_PER_DAY)
}

/// When the owner is next told that the key expires; `None` if no more.
pub fn next_expiry_notice(expires_at: u32, now: i64) -> Option<i64> {
    expiry_notices(expires_at).find(|at| *at > now)
}

/// A pause, a level of the daily limit that was reached, or a key that expires, which the owner must be told about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Announcement {
    /// When it happened, ms; of an expiry, 7 days or 1 day before.
    pub at: i64,
    pub key: KeyId,
    pub kind: NoticeKind,
    /// The limit that was reached; 0 for the default one, and for an expiry.
    pub limit: u32,
    /// Requests of the day so far; 0 for a pause and an expiry.
    pub used: u32,
}

/// As it is stored, see `lua/announce.lua`.
impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, key, kind, limit, used } = self;
        write!(f, "{key} {} {at} {limit} {used}", kind.as_str())
    }
}

impl Announcement {
    /// `None` if it has another text than a stored one, or its time can't be formatted.
    pub fn parse(text: &str) -> Option<Self> {
        let [key, kind, at, limit, used] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let kind = *NoticeKind::ALL.iter().find(|known| known.as_str() == kind)?;
        let (key, at) = (KeyId::from_hex(key).ok()?, at.parse().ok()?);
        let announcement = Self { at, key, kind, limit: limit.parse().ok()?, used: used.parse().ok()? };
        ((0..END_OF_TIME).contains(&at) && announcement.to_string() == text).then_some(announcement)
    }

    /// That the key expires, if that is due at `now`. `expires_at` is in seconds.
    pub fn of_expiry(key: KeyId, expires_at: u32, now: i64) -> Option<Self> {
        let at = expiry_notices(expires_at).filter(|at| *at <= now).last()?;
        let is_over = now >= i64::from(expires_at) * 1000;
        (!is_over).then_some(Self { at, key, kind: NoticeKind::KeyExpiring, limit: 0, used: 0 })
    }

    /// Whether it is too old to be of use to the owner.
    pub fn is_over(&self, now: i64) -> bool {
        now - self.at > MS_PER_DAY
    }

    pub fn notice(&self) -> Notice {
        let Self { at, key, kind, limit, used } = *self;
        Notice { kind, key: key.to_string(), at, limit, used }
    }
}

/// Whether dashboard-api can deliver a stored notice: its key is an ID, and its time can be formatted.
fn is_deliverable(notice: &Notice) -> bool {
    KeyId::from_hex(&notice.key).is_ok() && (0..END_OF_TIME).contains(&notice.at)
}
