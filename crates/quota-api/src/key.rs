//! Keys with their settings, state, usage and events.

use std::time::{Duration, UNIX_EPOCH};

use clap::ValueEnum;
use poem_openapi::types::MaybeUndefined;
use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};
use url::Url;

use super::invisible::{is_invisible, is_variation_selector};

/// Maximum number of keys per account. A key and its old key, which it has replaced, count as one.
pub const KEYS_PER_ACCOUNT: usize = 10;
/// Maximum number of keys that an account can create per day (UTC), without rotations.
pub const CREATIONS_PER_DAY: u32 = 30;

/// Maximum length of a key's name in characters.
const MAX_NAME: usize = 64;
/// Maximum number of a key's origins.
const MAX_ORIGINS: usize = 10;
/// Maximum length of an origin in bytes.
const MAX_ORIGIN: usize = 300;

/// Which response fields a key may see. `ip`: the IP address. `geo` adds the location, and the number and organization
/// of the AS. `full` adds connection details and the `proxy` and `hosting` flags.
// The numbers are those of stored records. The comments on the values are `--help` text, too.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Enum, ValueEnum, Serialize, Deserialize,
)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// IP address.
    #[default]
    Ip = 0,
    /// Adds the location, and the number and organization of the AS.
    Geo = 1,
    /// Adds connection details and the `proxy` and `hosting` flags.
    Full = 2,
}

base::names!(Scope: Ip => "ip", Geo => "geo", Full => "full");

/// State of a key. `paused`: it exceeded the burst limit and is denied until resumed. `inactive`: it is denied until
/// reactivated.
// The numbers are those of the stored record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Enum, ValueEnum, Serialize, Deserialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    #[default]
    Active = 0,
    Paused = 1,
    Inactive = 2,
}

base::names!(KeyState: Active => "active", Paused => "paused", Inactive => "inactive");

/// A change of a key's state. `resume`: a paused key becomes active. `deactivate`: the key becomes inactive.
/// `reactivate`: an inactive key becomes active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateChange {
    Resume,
    Deactivate,
    Reactivate,
}

base::names!(StateChange: Resume => "resume", Deactivate => "deactivate", Reactivate => "reactivate");

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
    /// When the key expires: Unix time in seconds. Absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u32>,
    /// Origins of the web pages that may use the key, such as `https://www.example.org`: at most 10. Other requests get 403.
    /// Absent if every request may use it.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
}

/// A change of a key's settings. Fields that are absent stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsChange {
    /// Name of the key: 1 to 64 characters, without control characters or invisible characters. Not necessarily unique.
    pub name: Option<String>,
    /// When the key expires: Unix time in seconds, in the future. `null`: never.
    #[serde(default, skip_serializing_if = "MaybeUndefined::is_undefined")]
    pub expires_at: MaybeUndefined<u32>,
    /// Origins of the web pages that may use the key: at most 10. Without any, every request may use it.
    pub allowed_origins: Option<Vec<String>>,
}

/// Why the settings of a key are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("a key name must be 1 to 64 characters, without control characters or invisible characters")]
    Name,
    #[error("the time at which a key expires must be in the future")]
    Expiry,
    #[error(
        "a key can have at most 10 origins, each a scheme, a host and possibly a port, such as https://www.example.org"
    )]
    Origins,
}

base::names!(SettingsError: Name => "invalid_name", Expiry => "invalid_expiry", Origins => "invalid_origins");

impl KeySettings {
    pub fn new(name: &str, scope: Scope) -> Self {
        Self { name: name.to_owned(), scope, expires_at: None, allowed_origins: Vec::new() }
    }

    /// Checks the settings of a new or imported key. Trims the name, and brings the origins into the form that browsers send.
    pub fn checked(self) -> Result<Self, SettingsError> {
        let (name, allowed_origins) = (checked_name(&self.name)?, checked_origins(&self.allowed_origins)?);
        Ok(Self { name, allowed_origins, ..self })
    }

    /// Applies a change that was checked. Returns the kind and the reason of its event; `None` if it has no effect.
    pub fn apply(&mut self, change: &SettingsChange) -> Option<(EventKind, String)> {
        let mut events = Vec::new();
        if let Some(name) = change.name.as_ref().filter(|name| **name != self.name) {
            self.name.clone_from(name);
            events.push((EventKind::Renamed, format!("renamed to {name}")));
        }
        if let Some(expires_at) = change.expires_at.as_opt_ref().map(Option::<&u32>::copied)
            && expires_at != self.expires_at
        {
            self.expires_at = expires_at;
            let reason =
                expires_at.map_or("never expires".to_owned(), |at| format!("expires at {}", rfc3339(at)));
            events.push((EventKind::ExpiryChanged, reason));
        }
        if let Some(origins) =
            change.allowed_origins.as_ref().filter(|origins| **origins != self.allowed_origins)
        {
            self.allowed_origins.clone_from(origins);
            let reason = match origins.len() {
                0 => "all origins allowed".to_owned(),
                1 => "1 allowed origin".to_owned(),
                count => format!("{count} allowed origins"),
            };
            events.push((EventKind::OriginsChanged, reason));
        }
        let kind = events.first()?.0;
        let reasons: Vec<String> = events.into_iter().map(|(_, reason)| reason).collect();
        Some((kind, reasons.join("; ")))
    }
}

/// A time in seconds as text, such as `2026-12-01T00:00:00Z`.
pub fn rfc3339(seconds: u32) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds.into())).to_string()
}

impl SettingsChange {
    pub fn rename(name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::default() }
    }

    /// Checks the change as [`KeySettings::checked`] does.
    pub fn checked(self) -> Result<Self, SettingsError> {
        Ok(Self {
            name: self.name.as_deref().map(checked_name).transpose()?,
            allowed_origins: self.allowed_origins.as_deref().map(checked_origins).transpose()?,
            ..self
        })
    }
}

/// The origins without repetitions, each as browsers send it.
fn checked_origins(origins: &[String]) -> Result<Vec<String>, SettingsError> {
    let origin = |text: &String| {
        let url = Url::parse(text.trim()).ok()?;
        let origin = url.origin().ascii_serialization();
        let is_origin = matches!(url.scheme(), "http" | "https") && url.as_str() == format!("{origin}/");
        // The URL standard allows `*` in a host, but no browser sends it.
        let is_origin = is_origin && !origin.contains('*');
        (is_origin && origin.len() <= MAX_ORIGIN).then_some(origin)
    };
    let mut checked: Vec<String> =
        origins.iter().map(origin).collect::<Option<_>>().ok_or(SettingsError::Origins)?;
    checked.sort();
    checked.dedup();
    if checked.len() > MAX_ORIGINS { Err(SettingsError::Origins) } else { Ok(checked) }
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// What the owner chooses.
    #[serde(flatten)]
    pub settings: KeySettings,
    /// Daily limit, at least 1. If absent, the service's default applies.
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
    /// What the owner chose.
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
    /// Requests within the last 60 seconds that count toward the burst limit.
    pub burst_used: u16,
    /// Whether the key is denied because its account is suspended.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// ID of the key that has replaced this one. Absent if none has, or if that one was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Object, Serialize, Deserialize)]
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
    /// Why the key can't be read, for the operator. Absent in the dashboard.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "String::is_empty")]
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
    pub daily_limit: Option<u32>,
}

/// Longest overlap of a rotation in seconds: 7 days.
pub const MAX_OVERLAP: u32 = 7 * 86_400;
/// Overlap of a rotation that names none, in seconds: 24 hours.
pub const DEFAULT_OVERLAP: u32 = 86_400;

/// How a key is replaced.
#[derive(Debug, Clone, Default, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// How long the old key still works, in seconds: at most 604,800 (7 days). If absent, 86,400 (24 hours).
    pub overlap: Option<u32>,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Actor {
    /// The owner of the account, in the dashboard.
    Owner,
    /// The operator of the service, on the command line.
    Operator,
    /// The service itself.
    System,
    /// An admin with this login, in the dashboard.
    Admin(String),
}

base::names! {
    /// Kind of an event.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
    #[oai(rename_all = "snake_case")]
    #[serde(rename_all = "snake_case")]
    pub enum EventKind {
        Created = "created",
        Imported = "imported",
        Paused = "paused",
        Resumed = "resumed",
        Deactivated = "deactivated",
        Reactivated = "reactivated",
        Renamed = "renamed",
        LimitChanged = "limit_changed",
        ExpiryChanged = "expiry_changed",
        OriginsChanged = "origins_changed",
        Suspended = "suspended",
        Restored = "restored",
        RoleChanged = "role_changed",
        SessionsEnded = "sessions_ended",
        PasswordLink = "password_link",
    }
}

/// One entry in the history of a key or an account.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Event {
    /// Time of the event: Unix time in milliseconds.
    pub at: i64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Human-readable reason. Ends with who acted, as in `resumed (by the owner)`.
    pub reason: String,
}

/// History of a key or an account.
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

    #[test]
    fn origins_are_brought_into_the_form_that_browsers_send() {
        let checked = |origins: &[&str]| {
            checked_origins(&origins.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let valid =
            ["https://b.example:8443", " HTTPS://A.Example/ ", "https://a.example:443", "http://[::1]:3000"];
        assert_eq!(
            checked(&valid).unwrap(),
            ["http://[::1]:3000", "https://a.example", "https://b.example:8443"]
        );
        assert_eq!(checked(&["https://bücher.example"]).unwrap(), ["https://xn--bcher-kva.example"]);
        for invalid in [
            "",
            "null",
            "*",
            "a.example",
            "https://a.example/x",
            "https://u@a.example",
            "https://a.example?q",
            "https://a.example/#f",
            "ftp://a.example",
            "https://*.example",
            "file:///etc",
        ] {
            assert_eq!(checked(&[invalid]), Err(SettingsError::Origins), "{invalid}");
        }
        let many: Vec<String> = (0..11).map(|n| format!("https://{n}.example")).collect();
        assert_eq!(checked_origins(&many), Err(SettingsError::Origins));
        assert!(checked_origins(&many[..10]).is_ok());
        assert_eq!(checked(&[&format!("https://{}.example", "a".repeat(300))]), Err(SettingsError::Origins));
    }

    #[test]
    fn change_of_several_settings_is_one_event() {
        let mut settings = KeySettings::new("laptop", Scope::Ip);
        let change: SettingsChange =
            serde_json::from_str(r#"{"name": "web", "expires_at": 1800000000}"#).unwrap();
        let (kind, reason) = settings.apply(&change).unwrap();
        assert_eq!((kind, &*reason), (EventKind::Renamed, "renamed to web; expires at 2027-01-15T08:00:00Z"));
        assert_eq!(settings.apply(&change), None);
        let never: SettingsChange = serde_json::from_str(r#"{"expires_at": null}"#).unwrap();
        assert_eq!(settings.apply(&never), Some((EventKind::ExpiryChanged, "never expires".to_owned())));
        assert_eq!(settings.expires_at, None);
    }
}
