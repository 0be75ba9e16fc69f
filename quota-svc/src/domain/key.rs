//! API keys as stored: metadata, record, and the changes that can be made to a key.

use api_key::KeyDigest;
use quota_api::{EventKind, Key, KeySettings, KeyState, Limits, SettingsChange, StateChange, origin_hash};
use serde::{Deserialize, Serialize};

use super::id::{AccountId, KeyId};
use super::record::KeyRecord;
use super::time::day_of;
use super::verdict::GroupOutcome;
use super::window::BurstWindow;

/// Key metadata: the part of a key that charges never change. Stored as JSON in both stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMeta {
    /// The first field: Lua scripts read it from the start of the JSON text.
    pub account: AccountId,
    #[serde(with = "hex")]
    pub digest: KeyDigest,
    /// The key's first and last characters.
    pub hint: String,
    /// Unix time in milliseconds.
    pub created_at: i64,
    #[serde(flatten)]
    pub settings: KeySettings,
}

mod hex {
    use api_key::KeyDigest;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(digest: &KeyDigest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&digest.to_hex())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KeyDigest, D::Error> {
        KeyDigest::from_hex(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl KeyMeta {
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.digest)
    }

    /// With the hashes of the allowed origins, which `lua/charge.lua` compares.
    pub fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct WithHashes<'a> {
            #[serde(flatten)]
            meta: &'a KeyMeta,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            origin_hashes: Vec<String>,
        }
        let hash = |origin: &String| format!("{:032x}", origin_hash(origin.as_bytes()));
        let origin_hashes = self.settings.allowed_origins.iter().map(hash).collect();
        serde_json::to_vec(&WithHashes { meta: self, origin_hashes }).expect("strings and numbers serialize")
    }

    /// `None` if the text is not the metadata of the key with this ID.
    pub fn from_json(text: &[u8], id: KeyId) -> Option<Self> {
        serde_json::from_slice(text).ok().filter(|meta: &Self| meta.id() == id)
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
    State(StateChange),
    Settings(SettingsChange),
    /// `None` restores the default limit.
    DailyLimit(Option<u32>),
    /// Whether the key's account is suspended.
    Suspended(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyChangeError {
    #[error("an inactive key can't be resumed: reactivate it")]
    Inactive,
    #[error("a paused key can't be reactivated: resume it")]
    Paused,
}

impl StoredKey {
    /// A new key, which is in its account's shard.
    pub fn new(meta: KeyMeta, daily_limit: Option<u32>, now: i64) -> Self {
        debug_assert_eq!(meta.id().shard(), meta.account.shard());
        let mut record = KeyRecord::new(meta.settings.scope, daily_limit, now);
        record.copy_settings(&meta.settings);
        Self { meta, record }
    }

    /// Why a request is denied whatever the key's limits are; `None` if they decide. `origin` is the hash of the request's
    /// origin.
    pub fn denial(&self, now: i64, origin: Option<u128>) -> Option<GroupOutcome> {
        let (record, allowed) = (&self.record, &self.meta.settings.allowed_origins);
        if record.suspended {
            return Some(GroupOutcome::Suspended);
        }
        if record.state == KeyState::Inactive {
            return Some(GroupOutcome::Inactive);
        }
        if let Some(at) = record.expires_at.filter(|at| now >= i64::from(*at) * 1000) {
            return Some(GroupOutcome::Expired { at });
        }
        let is_allowed = |origin| allowed.iter().any(|allowed| origin_hash(allowed.as_bytes()) == origin);
        (record.restricted && !origin.is_some_and(is_allowed)).then_some(GroupOutcome::WrongOrigin)
    }

    /// Applies a change. Returns the kind and the reason of its event; `None` if it had no effect.
    pub fn apply(
        &mut self,
        change: &KeyChange,
        now: i64,
    ) -> Result<Option<(EventKind, String)>, KeyChangeError> {
        Ok(match change {
            KeyChange::State(change) => {
                self.change_state(*change, now)?.map(|kind| (kind, kind.as_str().to_owned()))
            }
            KeyChange::Settings(change) => {
                let event = self.meta.settings.apply(change);
                self.record.copy_settings(&self.meta.settings);
                event
            }
            KeyChange::Suspended(suspended) if *suspended == self.record.suspended => None,
            KeyChange::Suspended(suspended) => {
                self.record.suspended = *suspended;
                let kind = if *suspended { EventKind::Suspended } else { EventKind::Restored };
                Some((kind, format!("{} with its account", kind.as_str())))
            }
            KeyChange::DailyLimit(limit) if *limit == self.record.daily_limit => None,
            KeyChange::DailyLimit(limit) => {
                self.record.daily_limit = *limit;
                let limit = limit.map_or("the default".to_owned(), |limit| limit.to_string());
                Some((EventKind::LimitChanged, format!("daily limit set to {limit}")))
            }
        })
    }

    /// Returns the kind of the change's event; `None` if it had no effect.
    fn change_state(&mut self, change: StateChange, now: i64) -> Result<Option<EventKind>, KeyChangeError> {
        use KeyState::{Active, Inactive, Paused};
        let (state, kind) = match (change, self.record.state) {
            (StateChange::Resume, Inactive) => return Err(KeyChangeError::Inactive),
            (StateChange::Reactivate, Paused) => return Err(KeyChangeError::Paused),
            (StateChange::Resume, Paused) => (Active, EventKind::Resumed),
            (StateChange::Reactivate, Inactive) => (Active, EventKind::Reactivated),
            (StateChange::Deactivate, Active | Paused) => (Inactive, EventKind::Deactivated),
            _ => return Ok(None),
        };
        (self.record.state, self.record.state_since) = (state, now);
        if state == Active {
            self.record.window = BurstWindow::default();
        }
        Ok(Some(kind))
    }

    /// The key as the API returns it, with its usage so far on the day of `now`.
    pub fn view(&self, limits: &Limits, now: i64) -> Key {
        let (Self { meta, record }, today) = (self, day_of(now));
        Key {
            id: meta.id().to_string(),
            settings: meta.settings.clone(),
            hint: meta.hint.clone(),
            state: record.state,
            state_since: record.state_since,
            created_at: meta.created_at,
            daily_limit: record.limit(limits),
            burst_limit: limits.burst,
            used_today: record.used_on(today, today),
            burst_used: record.window.used(now),
            suspended: record.suspended,
        }
    }
}
