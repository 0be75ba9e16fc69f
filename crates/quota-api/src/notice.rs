//! Notices: messages to an owner about a key, and where they are sent.

use std::collections::{BTreeMap, BTreeSet};

use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};

base::names! {
    /// Kind of a notice. `key.paused`: the key exceeded the burst limit. `key.daily_limit_80`, `key.daily_limit`: the key's requests of
    /// today have reached four fifths of the daily limit, or all of it. `key.expiring`: the key expires in 7 days or less, or in a day or less.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enum, Serialize, Deserialize)]
    pub enum NoticeKind {
        #[oai(rename = "key.paused")]
        #[serde(rename = "key.paused")]
        KeyPaused = "key.paused",
        #[oai(rename = "key.daily_limit_80")]
        #[serde(rename = "key.daily_limit_80")]
        KeyDailyLimit80 = "key.daily_limit_80",
        #[oai(rename = "key.daily_limit")]
        #[serde(rename = "key.daily_limit")]
        KeyDailyLimit = "key.daily_limit",
        #[oai(rename = "key.expiring")]
        #[serde(rename = "key.expiring")]
        KeyExpiring = "key.expiring",
    }
}

/// How a notice reaches its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    Webhook,
    Mail,
}

base::names!(Channel: Webhook => "webhook", Mail => "mail");

/// What happened to a key.
// The same event always has the same fields, so the outbox recognizes a repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notice {
    pub kind: NoticeKind,
    /// ID of the key.
    pub key: String,
    /// When it happened; for `key.expiring`, 7 days or 1 day before the key expires. Unix time in milliseconds.
    pub at: i64,
    /// The limit that was exceeded or reached; 0 for `key.expiring`.
    pub limit: u32,
    /// Requests of the day so far; 0 for `key.paused` and `key.expiring`.
    #[serde(default)]
    pub used: u32,
}

/// The oldest notice of an account in a channel, claimed by a process that delivers it. Other processes get it again after 60 seconds,
/// unless the result is reported first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedNotice {
    pub account: String,
    pub channel: Channel,
    pub notice: Notice,
    /// Number of this claim, to report its result with.
    pub claim: u64,
    /// Failed attempts before this one.
    pub attempts: u32,
}

/// Result of an attempt to deliver a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoticeResult {
    pub account: String,
    pub channel: Channel,
    /// `claim` of the notice.
    pub claim: u64,
    /// When to try again, in seconds. If absent, the notice is removed.
    pub retry_seconds: Option<u32>,
    /// The attempt, for the owner. If absent, nothing was sent, and no attempt is counted.
    pub delivery: Option<Delivery>,
}

/// An attempt to deliver a notice.
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contact {
    /// Webhook of the account. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Mail address of the account. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail: Option<Mail>,
}

impl Contact {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Where notices of this kind are sent.
    pub fn channels(&self, kind: NoticeKind) -> Vec<Channel> {
        let webhook = self.webhook.iter().filter(|webhook| webhook.enabled && !webhook.muted.contains(&kind));
        let mail = self.mail.iter();
        let mail = mail.filter(|mail| mail.verified && mail.notices && !mail.muted.contains(&kind));
        webhook.map(|_| Channel::Webhook).chain(mail.map(|_| Channel::Mail)).collect()
    }

    /// The mail address, if its owner has verified it.
    pub fn verified_address(&self) -> Option<&str> {
        self.mail.as_ref().filter(|mail| mail.verified).map(|mail| &*mail.address)
    }
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// URL that notices are sent to.
    pub url: String,
    /// Secret of the signature, as in `whsec_…`.
    pub secret: String,
    /// Whether notices are sent.
    pub enabled: bool,
    /// Kinds of notices that are not sent. Absent if all are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub muted: BTreeSet<NoticeKind>,
}

/// A mail address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    /// The address.
    pub address: String,
    /// Whether a link that was sent to the address has been used. Until then, it gets no other mail.
    pub verified: bool,
    /// Whether notices are sent.
    pub notices: bool,
    /// Kinds of notices that are not sent. Absent if all are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub muted: BTreeSet<NoticeKind>,
}

/// An account's contact and the last deliveries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactStatus {
    /// Where the owner wants to be told.
    pub contact: Contact,
    /// Last attempt to deliver a notice in each channel, by its name.
    pub last_deliveries: BTreeMap<String, Delivery>,
}
