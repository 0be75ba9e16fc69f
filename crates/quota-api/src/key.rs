//! Keys with their scope, state, usage and events.

use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};

/// Maximum number of keys per account.
pub const KEYS_PER_ACCOUNT: usize = 10;

/// Which response fields a key may see. `ip`: the IP address. `geo` adds the location, and the number and organization
/// of the AS. `full` adds connection details and the `proxy` and `hosting` flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// IP address.
    Ip,
    /// Adds the location, and the number and organization of the AS.
    Geo,
    /// Adds connection details and the `proxy` and `hosting` flags.
    Full,
}

/// State of a key. `paused`: it exceeded the burst limit and is denied until resumed. `inactive`: it is denied until
/// reactivated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// Requests are allowed within the limits.
    Active,
    /// The key exceeded the burst limit. Its requests are denied until it is resumed.
    Paused,
    /// The key is deactivated. Its requests are denied until it is reactivated.
    Inactive,
}

/// A key to create.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// Name of the key: 1 to 64 characters, without control characters or invisible characters. Not necessarily unique.
    pub name: String,
    /// Scope of the key.
    pub scope: Scope,
    /// Daily limit, at least 1. If absent, the service's default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit: Option<u32>,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Key {
    /// ID of the key: 32 hexadecimal digits.
    pub id: String,
    /// ID of the account that the key belongs to.
    pub account: String,
    /// Name of the key.
    pub name: String,
    /// First and last characters of the key, as in `ipl_abcd…wxyz`.
    pub hint: String,
    /// Scope of the key.
    pub scope: Scope,
    /// State of the key.
    pub state: KeyState,
    /// Time of the last state change: Unix time in milliseconds.
    pub state_since: i64,
    /// Time of creation: Unix time in milliseconds.
    pub created_at: i64,
    /// Requests allowed per day (UTC).
    pub daily_limit: u32,
    /// Requests allowed within 60 seconds. One more pauses the key.
    pub burst_limit: u32,
    /// Requests counted against the daily limit today (UTC).
    pub used_today: u32,
}

/// The keys of an account.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct KeyList {
    /// Keys, oldest first.
    pub keys: Vec<Key>,
    /// Keys whose stored data can't be read. Absent if there are none.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableKey>,
}

/// A key whose stored data is damaged or in an unknown format. Its requests fail. It can only be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct UnreadableKey {
    /// ID of the key: 32 hexadecimal digits.
    pub id: String,
    /// Name of the key, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// First and last characters of the key, if they can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Why the key can't be read.
    pub reason: String,
}

/// A new key with its secret, which is shown only once.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct CreatedKey {
    /// The API key. Only its SHA-256 is stored, so it can't be shown again.
    pub secret: String,
    /// The key, without its secret.
    pub key: Key,
}

/// A new name for a key.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// Name of the key: 1 to 64 characters, without control characters or invisible characters. Not necessarily unique.
    pub name: String,
}

/// A new daily limit for a key.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetDailyLimit {
    /// Requests allowed per day, at least 1. If absent, the service's default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit: Option<u32>,
}

/// Usage of a key on one day.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct DayUsage {
    /// Day in UTC, as `YYYY-MM-DD`.
    pub day: String,
    /// Number of allowed requests.
    pub requests: u32,
}

/// Usage of a key per day.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Usage {
    /// The last 31 days (UTC), oldest first and ending with today, including days without requests.
    pub days: Vec<DayUsage>,
}

/// Who makes a change. The reason of the change's event names the actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Actor {
    /// The owner of the account, in the dashboard.
    Owner,
    /// The operator of the service, on the command line.
    Operator,
    /// The service itself.
    System,
}

impl Actor {
    /// The actor's name in the internal API and in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Operator => "operator",
            Self::System => "system",
        }
    }
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The key was created.
    Created,
    /// The key was imported from an export.
    Imported,
    /// The key exceeded the burst limit.
    Paused,
    /// The key was resumed.
    Resumed,
    /// The key was deactivated.
    Deactivated,
    /// The key was reactivated.
    Reactivated,
    /// The key was renamed.
    Renamed,
    /// The daily limit was changed.
    LimitChanged,
}

/// One entry in a key's history.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Event {
    /// Time of the event: Unix time in milliseconds.
    pub at: i64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Human-readable reason. Ends with who acted, as in `resumed (by the owner)`, unless that is unknown.
    pub reason: String,
}

/// History of a key.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct EventList {
    /// Up to 100 events of the last 31 days, newest first.
    pub events: Vec<Event>,
}
