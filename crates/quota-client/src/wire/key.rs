//! Keys: their scope and state, usage and events.

use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};

/// How many keys an account may hold.
pub const KEYS_PER_ACCOUNT: usize = 10;

/// What a key may see. Ordered from the narrowest to the widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Addresses only.
    Ip,
    /// Addresses, place and network operator.
    Geo,
    /// Everything, with the facts of the connection.
    Full,
}

/// Where a key is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// Requests are judged and charged.
    Active,
    /// The burst limit was exceeded; refused until the owner resumes it.
    Paused,
    /// Deactivated by its owner; refused until reactivated.
    Inactive,
}

/// A key to create.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// What its owner calls it: 1 to 64 characters, need not be unique.
    pub name: String,
    /// What it may see.
    pub scope: Scope,
    /// A daily limit other than the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit: Option<u32>,
}

/// A key as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(skip_serializing_if_is_none)]
pub struct Key {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The id of the account that holds it.
    pub account: String,
    /// What its owner calls it.
    pub name: String,
    /// The key's first and last characters, as in `ipl_abcd…wxyz`.
    pub hint: String,
    /// What it may see.
    pub scope: Scope,
    /// Where it is in its life.
    pub state: KeyState,
    /// Since when it is in that state: Unix time in milliseconds.
    pub state_since: i64,
    /// Unix time in milliseconds.
    pub created_at: i64,
    /// Requests a day.
    pub daily_limit: u32,
    /// Requests a minute.
    pub burst_limit: u32,
    /// Requests charged today (UTC).
    pub used_today: u32,
}

/// The keys of an account.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct KeyList {
    /// Oldest first.
    pub keys: Vec<Key>,
}

/// A key just created: the only time the key itself is shown.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct CreatedKey {
    /// The API key. It is not stored and can't be shown again.
    pub secret: String,
    /// As it is listed from now on.
    pub key: Key,
}

/// A change of a key's name.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// 1 to 64 characters.
    pub name: String,
}

/// A change of a key's daily limit.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub struct SetDailyLimit {
    /// Requests a day; absent: the service's default from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit: Option<u32>,
}

/// What was charged on one day.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct DayUsage {
    /// `YYYY-MM-DD`, UTC.
    pub day: String,
    /// Requests charged.
    pub requests: u32,
}

/// Usage by day.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Usage {
    /// The last 31 days, today last; days without requests are 0.
    pub days: Vec<DayUsage>,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It came into being.
    Created,
    /// It came from an export.
    Imported,
    /// It exceeded the burst limit.
    Paused,
    /// Its owner resumed it.
    Resumed,
    /// Its owner deactivated it.
    Deactivated,
    /// Its owner reactivated it.
    Reactivated,
    /// It has another name.
    Renamed,
    /// It has another daily limit.
    LimitChanged,
}

/// One event of a key.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Event {
    /// Unix time in milliseconds.
    pub at: i64,
    /// What happened.
    pub kind: EventKind,
    /// Why, for people.
    pub reason: String,
}

/// The events of a key.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct EventList {
    /// Newest first: the last 100, none older than 31 days.
    pub events: Vec<Event>,
}
