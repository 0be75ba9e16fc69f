//! API keys as stored: metadata, record, and the changes that can be made to a key.

use api_key::KeyDigest;
use quota_api::{Event, EventKind, Key, KeyChange, KeySettings, KeyState, Limits, Rejection, StateChange};
use serde::{Deserialize, Serialize};

use super::event::pause_reason;
use super::id::{AccountId, KeyId};
use super::notice::next_expiry_notice;
use super::record::KeyRecord;
use super::time::day_of;
use super::window::BurstWindow;

/// Key metadata: the part of a key that charges never change. Stored as JSON in both stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMeta {
    /// Not in the JSON: it is that of the account's other rows.
    #[serde(skip)]
    pub account: AccountId,
    #[serde(with = "hex")]
    pub digest: KeyDigest,
    /// The key's first and last characters.
    pub hint: String,
    /// Unix time in milliseconds.
    pub created_at: i64,
    /// When the owner is next told that the key expires, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry_notice: Option<i64>,
    /// The key that has replaced this one, its *old key*. Of the same account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<KeyId>,
    /// The day on which this key's old key or successor was deleted, and that key's count of the day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_count: Option<(u32, u32)>,
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
    pub fn new(
        account: AccountId,
        digest: KeyDigest,
        hint: String,
        created_at: i64,
        settings: KeySettings,
    ) -> Self {
        let (expiry_notice, successor, deleted_count) = (None, None, None);
        Self { account, digest, hint, created_at, expiry_notice, successor, deleted_count, settings }
    }

    pub fn id(&self) -> KeyId {
        KeyId::of(&self.digest)
    }

    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers serialize")
    }

    /// `None` if the text is not the metadata of the key with this ID.
    pub fn from_json(text: &[u8], id: KeyId, account: AccountId) -> Option<Self> {
        let meta: Self = serde_json::from_slice(text).ok()?;
        (meta.id() == id).then_some(Self { account, ..meta })
    }

    /// Sets the time of the first notice after `now`. An old key has none.
    pub fn set_expiry_notice(&mut self, now: i64) {
        let expires_at = self.settings.expires_at.filter(|_| self.successor.is_none());
        self.expiry_notice = expires_at.and_then(|at| next_expiry_notice(at, now));
    }
}

/// A stored key without its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub meta: KeyMeta,
    pub record: KeyRecord,
}

impl StoredKey {
    /// A new key, which is in its account's shard.
    pub fn new(meta: KeyMeta, daily_limit: Option<u32>, now: i64) -> Self {
        debug_assert_eq!(meta.id().shard(), meta.account.shard());
        let mut record = KeyRecord::new(meta.settings.scope, daily_limit, now);
        record.copy_settings(&meta.settings);
        record.account = meta.account;
        Self { meta, record }
    }

    /// The event of the pause that has not ended yet. An imported pause has none.
    pub fn pause_event(&self) -> Option<Event> {
        let KeyRecord { state, state_since, paused_at, ref window, .. } = self.record;
        let is_paused = state == KeyState::Paused && paused_at == state_since && paused_at > 0;
        let reason = pause_reason(window.limit);
        is_paused.then_some(Event { at: paused_at, kind: EventKind::Paused, reason })
    }

    /// The count with which a successor starts today: at least that of an old key or a successor that was deleted today. So a
    /// chain of rotations admits at most twice the limit in a day: no more than the counts of its last two keys together.
    pub fn chain_count(&self, now: i64) -> u32 {
        let today = day_of(now);
        let deleted = self.meta.deleted_count.filter(|(day, _)| *day == today);
        self.record.used_on(today, today).max(deleted.map_or(0, |(_, count)| count))
    }

    /// Applies a change. Returns the kind and the reason of its event; `None` if it had no effect.
    pub fn apply(&mut self, change: &KeyChange, now: i64) -> Result<Option<(EventKind, String)>, Rejection> {
        Ok(match change {
            KeyChange::State(change) => {
                self.change_state(*change, now)?.map(|kind| (kind, kind.as_str().to_owned()))
            }
            KeyChange::Settings(change) => {
                let event = self.meta.settings.apply(change);
                // The record still has the old time.
                if self.meta.settings.expires_at != self.record.expires_at {
                    self.meta.set_expiry_notice(now);
                }
                self.record.copy_settings(&self.meta.settings);
                event
            }
            KeyChange::DailyLimit(limit) if *limit == self.record.daily_limit => None,
            KeyChange::DailyLimit(limit) => {
                self.record.daily_limit = *limit;
                let limit = limit.map_or("the default".to_owned(), |limit| limit.to_string());
                Some((EventKind::LimitChanged, format!("daily limit set to {limit}")))
            }
        })
    }

    /// Suspends or restores the key with its account. Returns the kind and the reason of the event; `None` if it had no effect.
    pub fn set_suspended(&mut self, suspended: bool) -> Option<(EventKind, String)> {
        let has_changed = std::mem::replace(&mut self.record.suspended, suspended) != suspended;
        let kind = if suspended { EventKind::Suspended } else { EventKind::Restored };
        has_changed.then(|| (kind, format!("{} with its account", kind.as_str())))
    }

    /// Returns the kind of the change's event; `None` if it had no effect.
    fn change_state(&mut self, change: StateChange, now: i64) -> Result<Option<EventKind>, Rejection> {
        use KeyState::{Active, Inactive, Paused};
        let (state, kind) = match (change, self.record.state) {
            (StateChange::Resume, Inactive) => return Err(Rejection::KeyInactive),
            (StateChange::Reactivate, Paused) => return Err(Rejection::KeyPaused),
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
            successor: meta.successor.map(|id| id.to_string()),
        }
    }
}
