//! API keys as stored: metadata, record, and the changes that can be made to a key.

use api_key::KeyDigest;

use super::event::{Actor, EventKind, with_actor};
use super::id::{AccountId, KeyId};
use super::invisible::{is_invisible, is_variation_selector};
use super::record::{KeyRecord, KeyState};

/// Maximum length of a key's name in characters.
const MAX_NAME: usize = 64;

/// A key's name: trimmed, 1 to 64 characters, without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key name must be 1 to 64 characters, without control characters or invisible characters")]
pub struct NameError;

impl KeyName {
    /// Validates the name of a new, renamed or imported key. Stricter than [`parse`](Self::parse).
    pub fn parse_new(text: &str) -> Result<Self, NameError> {
        let name = Self::parse(text)?;
        let is_visible = |c: char| !is_variation_selector(c) && !c.is_whitespace();
        match name.0.chars().any(is_invisible) || !name.0.chars().any(is_visible) {
            true => Err(NameError),
            false => Ok(name),
        }
    }

    /// Validates the name of an existing key.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let name = text.trim();
        if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(NameError);
        }
        Ok(Self(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Key metadata: the part of a key that charges never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMeta {
    pub account: AccountId,
    pub name: KeyName,
    /// The key's first and last characters.
    pub hint: String,
    pub digest: KeyDigest,
    /// Unix time in milliseconds.
    pub created_at: i64,
}

impl KeyMeta {
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.digest)
    }
}

/// A stored key without its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub meta: KeyMeta,
    pub record: KeyRecord,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// Paused → active.
    Resume,
    /// Active or paused → inactive.
    Deactivate,
    /// Inactive → active.
    Reactivate,
    Rename(KeyName),
    /// `None` restores the default limit.
    DailyLimit(Option<u32>),
}

/// Why a change is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyChangeError {
    #[error("an inactive key can't be resumed: reactivate it")]
    Inactive,
    #[error("a paused key can't be reactivated: resume it")]
    Paused,
}

impl StoredKey {
    /// Applies a change. Returns false if it had no effect. `lua/change_key.lua` implements the same transitions in
    /// Redis.
    pub fn apply(&mut self, change: &KeyChange, now: i64) -> Result<bool, KeyChangeError> {
        use KeyState::{Active, Inactive, Paused};
        match (change, self.record.state) {
            (KeyChange::Resume, Inactive) => return Err(KeyChangeError::Inactive),
            (KeyChange::Reactivate, Paused) => return Err(KeyChangeError::Paused),
            (KeyChange::Resume, Paused) | (KeyChange::Reactivate, Inactive) => self.record.activate(now),
            (KeyChange::Deactivate, Active | Paused) => {
                (self.record.state, self.record.state_since) = (Inactive, now);
            }
            (KeyChange::Rename(name), _) if *name != self.meta.name => self.meta.name = name.clone(),
            (KeyChange::DailyLimit(limit), _) if *limit != self.record.daily_limit => {
                self.record.daily_limit = *limit;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl KeyChange {
    /// Kind and reason of the change's event.
    pub fn event(&self, actor: Option<Actor>) -> (EventKind, String) {
        let (kind, reason) = match self {
            Self::Resume => (EventKind::Resumed, "resumed".to_owned()),
            Self::Deactivate => (EventKind::Deactivated, "deactivated".to_owned()),
            Self::Reactivate => (EventKind::Reactivated, "reactivated".to_owned()),
            Self::Rename(name) => (EventKind::Renamed, format!("renamed to {}", name.as_str())),
            Self::DailyLimit(Some(limit)) => (EventKind::LimitChanged, format!("daily limit set to {limit}")),
            Self::DailyLimit(None) => (EventKind::LimitChanged, "daily limit set to the default".to_owned()),
        };
        (kind, with_actor(&reason, actor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_name_with_invisible_characters_is_rejected() {
        let in_text = ["prod\u{200b}", "\u{202e}prod", "pro\u{2066}d", "prod\u{2028}x", "\u{feff}prod"];
        let alone = ["\u{fe0f}", "\u{fe00}\u{fe0f}", "\u{fe0f} \u{fe0f}"];
        for name in in_text.into_iter().chain(alone) {
            assert_eq!(KeyName::parse_new(name), Err(NameError), "{name:?}");
            assert!(KeyName::parse(name).is_ok(), "existing keys keep working: {name:?}");
        }
        assert!(KeyName::parse_new("Büro · 東京 ❤\u{fe0f}").is_ok());
    }
}
