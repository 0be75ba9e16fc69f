//! Request and response types that differ from those of the model. Their doc comments are the descriptions in
//! `openapi/dashboard-api.json`.

use std::collections::BTreeSet;

use poem_openapi::{Enum, Object};
use quota_client::wire::{self, DayUsage, Event, KeyState, NoticeKind, Scope, UnreadableKey};
use serde::{Deserialize, Serialize};

use crate::config::Attribution;

/// A login and a password.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// 1 to 254 characters without whitespace, control characters or invisible characters, such as an email address.
    /// Case-insensitive.
    pub login: String,
    /// 8 to 1,024 characters; for a new account not the login and not a common password.
    pub password: String,
}

/// A password change.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The current password.
    pub current_password: String,
    /// 8 to 1,024 characters, not the login and not a common password.
    pub new_password: String,
}

/// A new password, set with a password link.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPassword {
    /// What follows `#set-password=` in the link.
    pub token: String,
    /// 8 to 1,024 characters, not the login and not a common password.
    pub password: String,
}

/// The password that confirms a deletion.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// The account's password.
    pub password: String,
}

/// An account with its keys and events, for an admin.
#[derive(Object, Serialize)]
pub struct AccountDetails {
    /// The account.
    pub account: wire::Account,
    /// Its keys.
    pub keys: KeyList,
    /// What admins and the operator did with the account in the last 31 days, newest first.
    pub events: Vec<Event>,
}

/// A key with its usage and events, for an admin.
#[derive(Object, Serialize)]
pub struct KeyDetails {
    /// ID of the key's account.
    pub account: String,
    /// The key.
    pub key: KeyWithPause,
    /// The last 31 days (UTC), oldest first and ending with today, including days without requests.
    pub usage: Vec<DayUsage>,
    /// Up to 100 events of the last 31 days, newest first.
    pub events: Vec<Event>,
}

/// A link with which an owner sets a password, once. Anyone who has it can do so: send it to the owner only.
#[derive(Object, Serialize)]
pub struct PasswordLink {
    /// Login of the account.
    pub login: String,
    /// The link.
    pub link: String,
    /// How long the link is valid, in seconds.
    pub expires_in: u64,
}

/// Where and when a webhook gets notices.
#[derive(Object, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// An https URL with a public host and the port 443 or 8443. Absent: there is no webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether notices are sent.
    pub enabled: bool,
    /// Kinds of notices that are not sent. Absent if all are.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub muted: BTreeSet<NoticeKind>,
}

/// The account's webhook, without its secret.
#[derive(Object, Serialize)]
pub struct WebhookStatus {
    /// Where and when it gets notices.
    #[oai(flatten)]
    #[serde(flatten)]
    pub settings: WebhookSettings,
    /// Last attempt to deliver a notice. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<wire::Delivery>,
}

/// The secret of a webhook, for the verification of its signatures.
#[derive(Object, Serialize)]
pub struct WebhookSecret {
    /// As in `whsec_…`. Shown only in this response. Absent if it has not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// The account's mail address.
#[derive(Object, Default, Serialize)]
pub struct MailStatus {
    /// The address. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether the link that was sent to the address has been used. Until then, it gets no other mail.
    pub verified: bool,
    /// Whether notices are sent.
    pub notices: bool,
    /// Kinds of notices that are not sent. Absent if all are.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub muted: BTreeSet<NoticeKind>,
    /// Last attempt to deliver a notice. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<wire::Delivery>,
}

/// A mail address to set.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetMail {
    /// At most 254 characters. If absent, the address is removed.
    pub address: Option<String>,
    /// Whether notices are sent.
    pub notices: bool,
    /// Kinds of notices that are not sent. Absent if all are.
    #[oai(default)]
    #[serde(default)]
    pub muted: BTreeSet<NoticeKind>,
    /// The account's password. Needed to set, change or remove the address.
    pub password: Option<String>,
}

/// Which account is meant.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginBody {
    /// Login of the account.
    pub login: String,
}

/// The token of a link.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkToken {
    /// What follows `#verify-mail=` in the link.
    pub token: String,
}

/// Result of a test event, or of mail with a link.
#[derive(Object, Serialize)]
pub struct SendResult {
    /// Why it was not delivered. Absent if it was, or if nothing had to be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Settings that the page needs before sign-in.
#[derive(Object, Serialize)]
pub struct Settings {
    /// Whether visitors can create accounts.
    pub signup: bool,
    /// Public URL of the lookup API.
    pub lookup_url: String,
    /// URL of the documentation.
    pub docs_url: String,
    /// Maximum number of keys per account.
    pub keys_per_account: u32,
    /// Whether accounts can have a webhook.
    pub webhooks: bool,
    /// Whether accounts can have a mail address, and passwords can be reset by mail.
    pub mail: bool,
    /// Links that the licenses of the geo data require, for the page's footer.
    pub attribution: Vec<Attribution>,
}

/// An API key, without its secret.
#[derive(Object, Serialize)]
pub struct KeyWithPause {
    /// The key.
    #[oai(flatten)]
    #[serde(flatten)]
    pub key: wire::Key,
    /// When and why the key was paused. Only present while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
}

/// When and why a key was paused.
#[derive(Object, Serialize)]
pub struct Pause {
    /// Start of the pause: Unix time in milliseconds.
    pub at: i64,
    /// Human-readable reason.
    pub reason: String,
    /// Maximum number of requests within 60 seconds.
    pub burst_limit: u16,
}

impl From<wire::Key> for KeyWithPause {
    fn from(key: wire::Key) -> Self {
        let (at, burst_limit) = (key.state_since, key.burst_limit);
        let reason = format!("more than {burst_limit} requests within 60 seconds");
        let pause = (key.state == KeyState::Paused).then_some(Pause { at, reason, burst_limit });
        Self { key, pause }
    }
}

/// State and quota of a key. Without its name and origins.
#[derive(Object, Serialize)]
pub struct QuotaState {
    /// State of the key. A key that has expired, or whose account is suspended, is `inactive`.
    pub state: KeyState,
    /// Why the key is not active. Absent if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<QuotaReason>,
    /// Which fields a lookup with this key returns.
    pub scope: Scope,
    /// Requests allowed per day (UTC).
    pub daily_limit: u32,
    /// Requests counted against the daily limit today.
    pub used_today: u32,
    /// Requests left today.
    pub remaining_today: u32,
    /// When the day ends: Unix time in seconds.
    pub reset: u64,
    /// Requests allowed within 60 seconds. One more pauses the key.
    pub burst_limit: u16,
    /// Requests within the last 60 seconds.
    pub burst_used: u16,
    /// Requests left within 60 seconds.
    pub burst_remaining: u16,
    /// When the key expires: Unix time in seconds. Absent if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u32>,
}

/// Why a key is not active. `burst`: it exceeded the burst limit. `suspended`: its account is.
#[derive(Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum QuotaReason {
    Deactivated,
    Expired,
    Burst,
    Suspended,
}

/// The account's keys.
#[derive(Object, Serialize)]
pub struct KeyList {
    /// Keys, oldest first.
    pub keys: Vec<KeyWithPause>,
    /// Keys whose stored data can't be read. Requests with them fail; they can only be deleted. Absent if there are none.
    #[oai(default)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableKey>,
}

impl From<wire::KeyList> for KeyList {
    /// Leaves out why a key can't be read, which is for the operator.
    fn from(wire::KeyList { keys, mut unreadable }: wire::KeyList) -> Self {
        unreadable.iter_mut().for_each(|key| key.reason.clear());
        Self { keys: keys.into_iter().map(KeyWithPause::from).collect(), unreadable }
    }
}

/// A new key with its secret, which is shown only in this response.
#[derive(Object, Serialize)]
pub struct CreatedKey {
    /// The API key. Only its SHA-256 is stored, so it can't be shown again.
    pub secret: String,
    /// A curl command that makes a request with the key.
    pub curl: String,
    /// The key as it appears in lists.
    pub key: KeyWithPause,
}
