//! A key beside its record: its name and owner, and the changes its owner may make.

use api_key::KeyDigest;
use quota_client::wire::{EventKind, KeyState};

use super::id::{AccountId, KeyId};
use super::record::Record;

/// The longest name in characters.
const MAX_NAME: usize = 64;

/// What a key's owner calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName(String);

/// The text can't be a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key's name is 1 to 64 characters without control characters")]
pub struct NameError;

impl KeyName {
    /// Trims and checks.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let name = text.trim();
        if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(NameError);
        }
        Ok(Self(name.to_owned()))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What does not change with a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMeta {
    /// The account that holds it.
    pub account: AccountId,
    /// What its owner calls it.
    pub name: KeyName,
    /// The key's first and last characters.
    pub hint: String,
    /// SHA-256 of the key.
    pub digest: KeyDigest,
    /// Unix time in milliseconds.
    pub created_at: i64,
}

impl KeyMeta {
    /// Its identity.
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.digest)
    }
}

/// A key with everything that is stored of it, except its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Name, owner and the like.
    pub meta: KeyMeta,
    /// State and counters.
    pub record: Record,
}

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Paused → active.
    Resume,
    /// Active or paused → inactive.
    Deactivate,
    /// Inactive → active.
    Reactivate,
    /// Another name.
    Rename(KeyName),
    /// Another daily limit, or the default.
    DailyLimit(Option<u32>),
}

/// Why a change is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// An inactive key must be reactivated, not resumed.
    Inactive,
    /// A paused key must be resumed, not reactivated.
    Paused,
}

/// What a change came to: the event it is, or `None` where everything was so already.
pub type Changed = Option<(EventKind, String)>;

impl StoredKey {
    /// Makes the change. `lua/change_key.lua` follows the same table in Redis.
    pub fn apply(&mut self, change: &Change, now: i64) -> Result<Changed, Refusal> {
        use KeyState::{Active, Inactive, Paused};
        match (change, self.record.state) {
            (Change::Resume, Inactive) => Err(Refusal::Inactive),
            (Change::Reactivate, Paused) => Err(Refusal::Paused),
            (Change::Resume, Paused) => {
                self.record.activate(now);
                Ok(Some((EventKind::Resumed, change.reason())))
            }
            (Change::Reactivate, Inactive) => {
                self.record.activate(now);
                Ok(Some((EventKind::Reactivated, change.reason())))
            }
            (Change::Deactivate, Active | Paused) => {
                (self.record.state, self.record.state_since) = (Inactive, now);
                Ok(Some((EventKind::Deactivated, change.reason())))
            }
            (Change::Rename(name), _) if *name != self.meta.name => {
                self.meta.name = name.clone();
                Ok(Some((EventKind::Renamed, change.reason())))
            }
            (Change::DailyLimit(limit), _) if *limit != self.record.daily_limit => {
                self.record.daily_limit = *limit;
                Ok(Some((EventKind::LimitChanged, change.reason())))
            }
            _ => Ok(None),
        }
    }
}

impl Change {
    /// Why, for people: the text of the event.
    pub fn reason(&self) -> String {
        match self {
            Self::Resume => "resumed by its owner".to_owned(),
            Self::Deactivate => "deactivated by its owner".to_owned(),
            Self::Reactivate => "reactivated by its owner".to_owned(),
            Self::Rename(name) => format!("renamed to {}", name.as_str()),
            Self::DailyLimit(Some(limit)) => format!("daily limit set to {limit}"),
            Self::DailyLimit(None) => "daily limit set to the default".to_owned(),
        }
    }
}
