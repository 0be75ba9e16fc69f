//! Keys with their settings, state, usage and events.

use clap::ValueEnum;
use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};

use super::invisible::{is_invisible, is_variation_selector};

/// Maximum number of keys per account.
pub const KEYS_PER_ACCOUNT: usize = 10;

/// Maximum length of a key's name in characters.
const MAX_NAME: usize = 64;

/// Which response fields a key may see. `ip`: the IP address. `geo` adds the location, and the number and organization
/// of the AS. `full` adds connection details and the `proxy` and `hosting` flags.
// The numbers are those of the stored record. The comments on the values are `--help` text, too.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enum, ValueEnum, Serialize, Deserialize,
)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// IP address.
    Ip = 0,
    /// Adds the location, and the number and organization of the AS.
    Geo = 1,
    /// Adds connection details and the `proxy` and `hosting` flags.
    Full = 2,
}

names!(Scope: Ip => "ip", Geo => "geo", Full => "full");

/// State of a key. `paused`: it exceeded the burst limit and is denied until resumed. `inactive`: it is denied until
/// reactivated.
// The numbers are those of the stored record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, ValueEnum, Serialize, Deserialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    Active = 0,
    Paused = 1,
    Inactive = 2,
}

names!(KeyState: Active => "active", Paused => "paused", Inactive => "inactive");

/// A change of a key's state. `resume`: a paused key becomes active. `deactivate`: the key becomes inactive.
/// `reactivate`: an inactive key becomes active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase")]
pub enum StateChange {
    Resume,
    Deactivate,
    Reactivate,
}

names!(StateChange: Resume => "resume", Deactivate => "deactivate", Reactivate => "reactivate");

/// What the owner of a key chooses.
// Stored and exported as a whole, and part of every request and response about a key: a new attribute of keys is a field
// here and, if it can be changed, in `SettingsChange`.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySettings {
    /// Name of the key: 1 to 64 characters, without control characters or invisible characters. Not necessarily unique.
    pub name: String,
    /// Which fields a lookup with this key returns.
    pub scope: Scope,
}

/// A change of a key's settings. Fields that are absent stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsChange {
    /// Name of the key: 1 to 64 characters, without control characters or invisible characters. Not necessarily unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Why the settings of a key are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("a key name must be 1 to 64 characters, without control characters or invisible characters")]
    Name,
}

impl SettingsError {
    pub fn code(self) -> &'static str {
        match self {
            Self::Name => "invalid_name",
        }
    }
}

impl KeySettings {
    pub fn new(name: &str, scope: Scope) -> Self {
        Self { name: name.to_owned(), scope }
    }

    /// Checks the settings of a new or imported key, and trims the name.
    pub fn checked(self) -> Result<Self, SettingsError> {
        Ok(Self { name: checked_name(&self.name)?, ..self })
    }

    /// Applies a change that was checked. Returns the kind and the reason of its event; `None` if it has no effect.
    pub fn apply(&mut self, change: &SettingsChange) -> Option<(EventKind, String)> {
        match &change.name {
            Some(name) if *name != self.name => {
                self.name.clone_from(name);
                Some((EventKind::Renamed, format!("renamed to {name}")))
            }
            _ => None,
        }
    }
}

impl SettingsChange {
    pub fn rename(name: &str) -> Self {
        Self { name: Some(name.to_owned()) }
    }

    /// Checks the change, and trims the name.
    pub fn checked(self) -> Result<Self, SettingsError> {
        Ok(Self { name: self.name.as_deref().map(checked_name).transpose()? })
    }
}

fn checked_name(text: &str) -> Result<String, SettingsError> {
    let name = text.trim();
    let is_visible = |c: char| !is_variation_selector(c) && !c.is_whitespace();
    if name.chars().count() > MAX_NAME || name.chars().any(is_invisible) || !name.chars().any(is_visible) {
        return Err(SettingsError::Name);
    }
    Ok(name.to_owned())
}

/// A key to create.
#[derive(Debug, Clone, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// Name and scope.
    #[oai(flatten)]
    #[serde(flatten)]
    pub settings: KeySettings,
    /// Daily limit, at least 1. If absent, the service's default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit: Option<u32>,
}

impl NewKey {
    pub fn new(name: &str, scope: Scope) -> Self {
        Self { settings: KeySettings::new(name, scope), daily_limit: None }
    }
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Key {
    /// ID of the key: 32 hexadecimal digits.
    pub id: String,
    /// Name and scope.
    #[oai(flatten)]
    #[serde(flatten)]
    pub settings: KeySettings,
    /// First and last characters of the key, as in `ipl_abcd…wxyz`.
    pub hint: String,
    /// State of the key.
    pub state: KeyState,
    /// Time of the last state change: Unix time in milliseconds.
    pub state_since: i64,
    /// Time of creation: Unix time in milliseconds.
    pub created_at: i64,
    /// Requests allowed per day (UTC).
    pub daily_limit: u32,
    /// Requests allowed within 60 seconds. One more pauses the key.
    pub burst_limit: u16,
    /// Requests counted against the daily limit today (UTC).
    pub used_today: u32,
}

/// A key with the ID of its account.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct OwnedKey {
    /// ID of the account that the key belongs to.
    pub account: String,
    /// The key, without its secret.
    #[oai(flatten)]
    #[serde(flatten)]
    pub key: Key,
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

names!(Actor: Owner => "owner", Operator => "operator", System => "system");

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    Created,
    Imported,
    Paused,
    Resumed,
    Deactivated,
    Reactivated,
    Renamed,
    LimitChanged,
}

names!(EventKind:
    Created => "created",
    Imported => "imported",
    Paused => "paused",
    Resumed => "resumed",
    Deactivated => "deactivated",
    Reactivated => "reactivated",
    Renamed => "renamed",
    LimitChanged => "limit_changed",
);

/// One entry in a key's history.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Event {
    /// Time of the event: Unix time in milliseconds.
    pub at: i64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Human-readable reason. Ends with who acted, as in `resumed (by the owner)`.
    pub reason: String,
}

/// History of a key.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct EventList {
    /// Up to 100 events of the last 31 days, newest first.
    pub events: Vec<Event>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_invisible_characters_is_rejected() {
        let checked = |name: &str| NewKey::new(name, Scope::Ip).settings.checked();
        let in_text = ["prod\u{200b}", "\u{202e}prod", "pro\u{2066}d", "prod\u{2028}x", "\u{feff}prod"];
        let alone = ["", " ", "\u{fe0f}", "\u{fe00}\u{fe0f}", "\u{fe0f} \u{fe0f}"];
        for name in in_text.into_iter().chain(alone) {
            assert_eq!(checked(name), Err(SettingsError::Name), "{name:?}");
        }
        assert_eq!(
            checked(" Büro · 東京 ❤\u{fe0f} ").map(|settings| settings.name),
            Ok("Büro · 東京 ❤\u{fe0f}".to_owned())
        );
    }
}
