//! The rules about an account's keys.

use api_key::KeyDigest;
use quota_api::{Actor, Event, EventKind, KEYS_PER_ACCOUNT, KeySettings, NewKey, SettingsChange};

use super::AccountValue;
use crate::domain::event::with_actor;
use crate::domain::id::KeyId;
use crate::domain::key::{KeyChange, KeyMeta, StoredKey};
use crate::domain::rejection::Rejection;

/// A key to create.
#[derive(Debug, Clone)]
pub struct KeyDraft {
    /// With checked settings.
    pub new: NewKey,
    pub digest: KeyDigest,
    /// The key's first and last characters.
    pub hint: String,
    pub actor: Actor,
}

impl AccountValue {
    pub fn key(&self, id: KeyId) -> Result<&StoredKey, Rejection> {
        Ok(self.keys.get(&id).ok_or(Rejection::KeyNotFound)?.as_ref()?)
    }

    pub fn create_key(&mut self, draft: KeyDraft, now: i64) -> Result<StoredKey, Rejection> {
        let KeyDraft { new: NewKey { settings, daily_limit }, digest, hint, actor } = draft;
        check_expiry(settings.expires_at, now)?;
        let meta =
            KeyMeta { account: self.id(), digest, hint, created_at: now, expiry_notice: None, settings };
        self.add_key(StoredKey::new(meta, daily_limit, now), EventKind::Created, &actor, now)
    }

    pub(super) fn add_key(
        &mut self,
        mut key: StoredKey,
        kind: EventKind,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredKey, Rejection> {
        if self.keys.len() >= KEYS_PER_ACCOUNT {
            return Err(Rejection::KeyLimitReached);
        }
        key.record.suspended = self.account.standing.suspension.is_some();
        key.meta.set_expiry_notice(now);
        let id = key.meta.id();
        self.new_events.push((id, Event { at: now, kind, reason: with_actor(kind.as_str(), actor) }));
        self.keys.insert(id, Ok(key.clone()));
        Ok(key)
    }

    /// Replaces a key by a copy with another digest and hint; the old key expires after `overlap` seconds, unless it expires
    /// earlier.
    pub fn rotate_key(
        &mut self,
        id: KeyId,
        digest: KeyDigest,
        hint: String,
        overlap: u32,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredKey, Rejection> {
        let StoredKey { meta, record } = self.key(id)?;
        let settings = KeySettings { expires_at: None, ..meta.settings.clone() };
        let new = NewKey { settings, daily_limit: record.daily_limit };
        let end = u32::try_from(now / 1000).unwrap_or(u32::MAX).saturating_add(overlap);
        let expires_at = record.expires_at.map_or(end, |at| at.min(end)).into();
        let copy = self.create_key(KeyDraft { new, digest, hint, actor: actor.clone() }, now)?;
        let expiry = SettingsChange { expires_at, ..SettingsChange::default() };
        self.apply_to_key(id, &KeyChange::Settings(expiry), actor, now)?;
        Ok(copy)
    }

    /// Applies a checked change.
    pub fn change_key(
        &mut self,
        id: KeyId,
        change: &KeyChange,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredKey, Rejection> {
        if let KeyChange::Settings(change) = change {
            check_expiry(change.expires_at.value().copied(), now)?;
        }
        self.apply_to_key(id, change, actor, now)
    }

    /// If the change ends a pause, the event of the pause is added, too.
    fn apply_to_key(
        &mut self,
        id: KeyId,
        change: &KeyChange,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredKey, Rejection> {
        let mut key = self.key(id)?.clone();
        let pause = key.pause_event();
        if let Some((kind, text)) = key.apply(change, now)? {
            let ended = pause.filter(|_| key.pause_event().is_none());
            let event = Event { at: now, kind, reason: with_actor(&text, actor) };
            self.new_events.extend(ended.into_iter().chain([event]).map(|event| (id, event)));
            self.keys.insert(id, Ok(key.clone()));
        }
        Ok(key)
    }

    /// Deletes a key, readable or not.
    pub fn delete_key(&mut self, id: KeyId) -> Result<(), Rejection> {
        self.keys.remove(&id).map(drop).ok_or(Rejection::KeyNotFound)
    }
}

/// Rejects a time that is not in the future.
fn check_expiry(expires_at: Option<u32>, now: i64) -> Result<(), Rejection> {
    match expires_at {
        Some(at) if i64::from(at) * 1000 <= now => Err(Rejection::InvalidExpiry),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use quota_api::{KeyState, StateChange, origin_hash};

    use super::super::tests::{NOW, ada, draft, events, id, key_mut, make_unreadable, pause, with_keys};
    use super::*;
    use crate::domain::record::KeyRecord;
    use crate::domain::time::MS_PER_DAY;
    use crate::domain::window::BurstWindow;

    const SECONDS: u32 = (NOW / 1000) as u32;
    const DAY: u32 = 86_400;

    fn settings(json: &str) -> KeyChange {
        KeyChange::Settings(serde_json::from_str(json).unwrap())
    }

    fn expiry(at: u32) -> KeyChange {
        settings(&format!(r#"{{"expires_at": {at}}}"#))
    }

    #[test]
    fn new_key_has_its_settings_limit_and_event() {
        let mut value = ada();
        let mut draft = draft(1);
        draft.new.settings.expires_at = Some(SECONDS + 10 * DAY);
        draft.new.settings.allowed_origins = vec!["https://a.example".to_owned()];
        draft.new.daily_limit = Some(7);
        let key = value.create_key(draft.clone(), NOW).unwrap();
        assert_eq!(value.key(id(1)), Ok(&key));
        let meta = KeyMeta {
            account: value.id(),
            digest: draft.digest,
            hint: draft.hint,
            created_at: NOW,
            expiry_notice: Some(NOW + 3 * MS_PER_DAY),
            settings: draft.new.settings,
        };
        assert_eq!(key.meta, meta);
        let record = KeyRecord {
            expires_at: meta.settings.expires_at,
            origins: vec![origin_hash(b"https://a.example")],
            account: value.id(),
            ..KeyRecord::new(meta.settings.scope, Some(7), NOW)
        };
        assert_eq!(key.record, record);
        assert_eq!(events(&value), [(1, 0, EventKind::Created, "created (by the owner)")]);
    }

    #[test]
    fn eleventh_key_is_rejected_until_one_is_deleted() {
        let mut value = with_keys(10);
        make_unreadable(&mut value, 3);
        assert_eq!(value.create_key(draft(11), NOW), Err(Rejection::KeyLimitReached));
        let rotated = value.clone().rotate_key(id(1), draft(11).digest, String::new(), 0, &Actor::Owner, NOW);
        assert_eq!(rotated, Err(Rejection::KeyLimitReached));
        assert_eq!(value.delete_key(id(3)), Ok(()));
        assert_eq!(value.delete_key(id(3)), Err(Rejection::KeyNotFound));
        assert!(value.create_key(draft(11), NOW).is_ok());
    }

    #[test]
    fn missing_or_unreadable_key_is_not_changed() {
        let mut value = with_keys(1);
        make_unreadable(&mut value, 1);
        let unreadable = Rejection::UnreadableKey { id: id(1), reason: "damaged".to_owned() };
        for (n, rejection) in [(1, unreadable), (2, Rejection::KeyNotFound)] {
            let change = KeyChange::DailyLimit(Some(5));
            assert_eq!(value.key(id(n)), Err(rejection.clone()));
            assert_eq!(value.change_key(id(n), &change, &Actor::Owner, NOW), Err(rejection.clone()));
            let copy = draft(9);
            let rotated = value.rotate_key(id(n), copy.digest, copy.hint, 0, &Actor::Owner, NOW);
            assert_eq!(rotated, Err(rejection));
        }
        assert_eq!((events(&value).len(), value.keys.len()), (0, 1));
    }

    #[test]
    fn key_state_transitions_match_documentation() {
        use KeyState::{Active, Inactive, Paused};
        use StateChange::{Deactivate, Reactivate, Resume};
        const PAUSED: (u8, i64, EventKind, &str) =
            (1, 5, EventKind::Paused, "more than 2 requests within 60 seconds (by the system)");
        let resumed = (1, 9, EventKind::Resumed, "resumed (by the owner)");
        let reactivated = (1, 9, EventKind::Reactivated, "reactivated (by the owner)");
        let deactivated = (1, 9, EventKind::Deactivated, "deactivated (by the owner)");
        for (state, change, expected) in [
            (Active, Resume, Ok((Active, vec![]))),
            (Active, Reactivate, Ok((Active, vec![]))),
            (Active, Deactivate, Ok((Inactive, vec![deactivated]))),
            (Paused, Resume, Ok((Active, vec![PAUSED, resumed]))),
            (Paused, Reactivate, Err(Rejection::KeyPaused)),
            (Paused, Deactivate, Ok((Inactive, vec![PAUSED, deactivated]))),
            (Inactive, Resume, Err(Rejection::KeyInactive)),
            (Inactive, Reactivate, Ok((Active, vec![reactivated]))),
            (Inactive, Deactivate, Ok((Inactive, vec![]))),
        ] {
            let mut value = with_keys(1);
            pause(&mut value, 1, NOW + 5);
            let record = &mut key_mut(&mut value, 1).record;
            (record.state, record.paused_at) = (state, if state == Paused { NOW + 5 } else { 0 });
            let before = record.clone();
            let changed = value.change_key(id(1), &KeyChange::State(change), &Actor::Owner, NOW + 9);
            let case = format!("{state:?} {change:?}");
            match expected {
                Err(rejection) => assert_eq!(changed, Err(rejection), "{case}"),
                Ok((state, new_events)) => {
                    let record = changed.unwrap().record;
                    assert_eq!(value.key(id(1)).unwrap().record, record);
                    assert_eq!(events(&value), new_events, "{case}");
                    let since = if new_events.is_empty() { before.state_since } else { NOW + 9 };
                    assert_eq!((record.state, record.state_since), (state, since), "{case}");
                    let starts_anew = state == Active && !new_events.is_empty();
                    let window = if starts_anew { BurstWindow::default() } else { before.window };
                    assert_eq!(record.window, window, "{case}");
                    assert_eq!(record.unannounced, before.unannounced, "a pause stays to be announced");
                }
            }
        }
    }

    #[test]
    fn pause_has_an_event_until_it_ends() {
        let mut value = with_keys(1);
        assert_eq!(value.key(id(1)).unwrap().pause_event(), None);
        pause(&mut value, 1, NOW + 5);
        let reason = "more than 2 requests within 60 seconds (by the system)".to_owned();
        let event = Event { at: NOW + 5, kind: EventKind::Paused, reason };
        assert_eq!(value.key(id(1)).unwrap().pause_event(), Some(event));
        value.change_key(id(1), &settings(r#"{"name": "b"}"#), &Actor::Owner, NOW + 6).unwrap();
        assert_eq!(events(&value), [(1, 6, EventKind::Renamed, "renamed to b (by the owner)")]);
        // Ended in the same millisecond.
        let mut ended = value.clone();
        ended.change_key(id(1), &KeyChange::State(StateChange::Deactivate), &Actor::Owner, NOW + 5).unwrap();
        assert_eq!(ended.key(id(1)).unwrap().pause_event(), None);
        let kinds: Vec<_> = events(&ended).into_iter().map(|event| event.2).collect();
        assert_eq!(kinds, [EventKind::Renamed, EventKind::Paused, EventKind::Deactivated]);
        // An imported pause: the time of the last pause is unknown.
        for (state_since, paused_at) in [(NOW, 0), (0, 0), (NOW, NOW - 1)] {
            let record = &mut key_mut(&mut value, 1).record;
            (record.state_since, record.paused_at) = (state_since, paused_at);
            assert_eq!(value.key(id(1)).unwrap().pause_event(), None);
        }
    }

    #[test]
    fn change_of_settings_or_limit_adds_an_event_if_it_has_an_effect() {
        for (change, expected) in [
            (settings(r#"{"name": "b"}"#), Some((EventKind::Renamed, "renamed to b (by the operator)"))),
            (settings(r#"{"name": "a key"}"#), None),
            (settings(r#"{"expires_at": null}"#), None),
            (
                settings(r#"{"allowed_origins": ["https://a.example"]}"#),
                Some((EventKind::OriginsChanged, "1 allowed origin (by the operator)")),
            ),
            (KeyChange::DailyLimit(None), None),
            (
                KeyChange::DailyLimit(Some(5)),
                Some((EventKind::LimitChanged, "daily limit set to 5 (by the operator)")),
            ),
        ] {
            let mut value = with_keys(2);
            let key = value.change_key(id(1), &change, &Actor::Operator, NOW + 1).unwrap();
            assert_eq!(value.key(id(1)), Ok(&key));
            let expected: Vec<_> = expected.into_iter().map(|(kind, reason)| (1, 1, kind, reason)).collect();
            assert_eq!(events(&value), expected, "{change:?}");
            let hashes = key.meta.settings.allowed_origins.iter().map(|o| origin_hash(o.as_bytes()));
            assert_eq!(key.record.origins, hashes.collect::<Vec<_>>());
            value.change_key(id(1), &change, &Actor::Operator, NOW + 2).unwrap();
            assert_eq!(events(&value).len(), expected.len(), "no effect the second time");
        }
        let mut value = with_keys(1);
        key_mut(&mut value, 1).record.daily_limit = Some(5);
        let key = value.change_key(id(1), &KeyChange::DailyLimit(None), &Actor::Owner, NOW).unwrap();
        assert_eq!(key.record.daily_limit, None);
        assert_eq!(events(&value)[0].3, "daily limit set to the default (by the owner)");
    }

    #[test]
    fn new_expiry_sets_the_time_of_its_notice() {
        let mut value = with_keys(1);
        let mut change = |change: KeyChange, now| {
            let key = value.change_key(id(1), &change, &Actor::Owner, now).unwrap();
            assert_eq!(key.record.expires_at, key.meta.settings.expires_at);
            key.meta.expiry_notice.map(|at| (at - NOW) / MS_PER_DAY)
        };
        let end = SECONDS + 10 * DAY;
        assert_eq!(change(expiry(end), NOW), Some(3));
        let later = NOW + 4 * MS_PER_DAY;
        assert_eq!(change(settings(r#"{"name": "b"}"#), later), Some(3), "the notice is still to be made");
        assert_eq!(change(expiry(end), later), Some(3));
        assert_eq!(change(expiry(end + DAY), later), Some(10), "that of 7 days before is due already");
        assert_eq!(change(expiry(SECONDS + 4 * DAY + 3_600), later), None);
        assert_eq!(change(expiry(end + 7 * DAY), later), Some(10));
        assert_eq!(change(settings(r#"{"expires_at": null}"#), later), None);
    }

    #[test]
    fn rotation_copies_the_key_and_lets_the_old_one_expire() {
        for (expires_at, overlap, expected, text) in [
            (None, 60, SECONDS + 60, Some("expires at 2027-01-15T08:01:00Z (by the owner)")),
            (Some(SECONDS + 61), 60, SECONDS + 60, Some("expires at 2027-01-15T08:01:00Z (by the owner)")),
            (Some(SECONDS + 59), 60, SECONDS + 59, None),
            (None, u32::MAX, u32::MAX, Some("expires at 2106-02-07T06:28:15Z (by the owner)")),
        ] {
            let mut value = ada();
            let mut old = draft(1);
            old.new.settings.allowed_origins = vec!["https://a.example".to_owned()];
            old.new.daily_limit = Some(7);
            let expected_copy = value.clone().create_key(
                KeyDraft { digest: draft(2).digest, hint: "new".to_owned(), ..old.clone() },
                NOW + 999,
            );
            old.new.settings.expires_at = expires_at;
            let old = value.create_key(old, NOW).unwrap();
            value.new_events.clear();
            key_mut(&mut value, 1).record.used = 4;
            let copy =
                value.rotate_key(id(1), draft(2).digest, "new".to_owned(), overlap, &Actor::Owner, NOW + 999);
            assert_eq!(copy, expected_copy);
            assert_eq!(value.key(id(2)), copy.as_ref().map_err(Rejection::clone));
            let rotated = value.key(id(1)).unwrap();
            assert_eq!(
                (rotated.record.expires_at, rotated.meta.settings.expires_at),
                (Some(expected), Some(expected))
            );
            assert_eq!((rotated.record.used, &rotated.meta.hint), (4, &old.meta.hint));
            let created = (2, 999, EventKind::Created, "created (by the owner)");
            let expired = text.map(|text| (1, 999, EventKind::ExpiryChanged, text));
            assert_eq!(events(&value), [created].into_iter().chain(expired).collect::<Vec<_>>());
        }
    }
}
