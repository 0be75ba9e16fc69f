//! Notices: what an owner is told about a key, and where.

use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};

/// Kind of a notice. `key.paused`: the key exceeded the burst limit. `key.daily_limit`: the key's first request over the
/// daily limit was denied today.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
pub enum NoticeKind {
    #[oai(rename = "key.paused")]
    #[serde(rename = "key.paused")]
    KeyPaused,
    #[oai(rename = "key.daily_limit")]
    #[serde(rename = "key.daily_limit")]
    KeyDailyLimit,
}

names!(NoticeKind: KeyPaused => "key.paused", KeyDailyLimit => "key.daily_limit");

/// What happened to a key.
// The same event always has the same fields, so the outbox recognizes a repeat.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notice {
    /// Kind of the notice.
    pub kind: NoticeKind,
    /// ID of the key.
    pub key: String,
    /// Time of the pause, or the start of the day (UTC) of the daily limit: Unix time in milliseconds.
    pub at: i64,
    /// The limit that was exceeded.
    pub limit: u32,
}

/// The oldest notice of an account, claimed by a process that delivers it. Other processes get it again after 60 seconds,
/// unless the result is reported first.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct ClaimedNotice {
    /// ID of the account.
    pub account: String,
    /// The notice.
    pub notice: Notice,
    /// Number of this claim, to report its result with.
    pub claim: u64,
    /// Failed attempts before this one.
    pub attempts: u32,
}

/// Notices to deliver.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct ClaimedNotices {
    /// At most one per account.
    pub notices: Vec<ClaimedNotice>,
}

/// Result of an attempt to deliver a notice.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoticeResult {
    /// ID of the account.
    pub account: String,
    /// `claim` of the notice.
    pub claim: u64,
    /// When to try again, in seconds. If absent, the notice is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_seconds: Option<u32>,
    /// The attempt, for the owner. If absent, nothing was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
}

/// The last attempt to deliver a notice to an account's webhook.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// Time of the attempt: Unix time in milliseconds.
    pub at: i64,
    /// Why it failed. Absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Where an account's owner wants to be told about its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contact {
    /// Webhook of the account. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

impl Contact {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether notices are sent anywhere.
    pub fn wants_notices(&self) -> bool {
        self.webhook.as_ref().is_some_and(|webhook| webhook.enabled)
    }
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// URL that notices are sent to.
    pub url: String,
    /// Secret of the signature, as in `whsec_…`.
    pub secret: String,
    /// Whether notices are sent.
    pub enabled: bool,
}

/// An account's contact and the last delivery.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct ContactStatus {
    /// Where the owner wants to be told.
    pub contact: Contact,
    /// Last attempt to deliver a notice. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<Delivery>,
}
