//! The rules about an account's keys.

use api_key::KeyDigest;
use quota_api::{
    Actor, CREATIONS_PER_DAY, Event, EventKind, KEYS_PER_ACCOUNT, KeyChange, KeySettings, NewKey, Rejection,
    SettingsChange,
};

use super::AccountValue;
use crate::domain::event::with_actor;
use crate::domain::id::KeyId;
use crate::domain::key::{KeyMeta, StoredKey};
use crate::domain::time::{date_of, day_of};

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
        let key = self.keys.get(&id).ok_or(Rejection::KeyNotFound)?.as_ref();
        key.map_err(|key| Rejection::UnreadableKey { id: key.id.clone(), reason: key.reason.clone() })
    }

    pub fn create_key(&mut self, draft: KeyDraft, now: i64) -> Result<StoredKey, Rejection> {
        let KeyDraft { new: NewKey { settings, daily_limit }, digest, hint, actor } = draft;
        check_expiry(settings.expires_at, now)?;
        if actor != Actor::Operator {
            self.count_creation(day_of(now))?;
        }
        let meta = KeyMeta::new(self.id(), digest, hint, now, settings);
        self.add_key(StoredKey::new(meta, daily_limit, now), EventKind::Created, &actor, now)
    }

    fn count_creation(&mut self, today: u32) -> Result<(), Rejection> {
        let (day, count) = self.creations;
        let count = if day == today { count } else { 0 };
        if count >= CREATIONS_PER_DAY {
            return Err(Rejection::CreationLimitReached { next: date_of(today + 1) });
        }
        self.creations = (today, count + 1);
        Ok(())
    }

    /// Adds a key. Its successor must be there, and have no other old key; otherwise it has none.
    pub(super) fn add_key(
        &mut self,
        mut key: StoredKey,
        kind: EventKind,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredKey, Rejection> {
        key.meta.successor = key.meta.successor.filter(|id| {
            self.key(*id).is_ok_and(|key| key.meta.successor.is_none()) && self.old_key_of(*id).is_none()
        });
        // A key and its old key count as one.
        let is_old = |key: &StoredKey| key.meta.successor.is_some();
        let count = self.keys.values().filter(|key| !key.as_ref().is_ok_and(is_old)).count();
        if count >= KEYS_PER_ACCOUNT && !is_old(&key) {
            return Err(Rejection::KeyLimitReached);
        }
        key.record.suspended = self.account.standing.suspension.is_some();
        key.meta.set_expiry_notice(now);
        let id = key.meta.id();
        self.new_events.push((id, Event { at: now, kind, reason: with_actor(kind.as_str(), actor) }));
        self.keys.insert(id, Ok(key.clone()));
        Ok(key)
    }

    fn old_key_of(&self, id: KeyId) -> Option<KeyId> {
        let mut keys = self.keys.values().flatten();
        keys.find(|key| key.meta.successor == Some(id)).map(|key| key.meta.id())
    }

    /// Replaces a key by its successor, a copy with another digest and hint. The key, now the old one, expires after `overlap`
    /// seconds, unless it expires earlier. Its own old key is deleted.
    pub fn rotate_key(
        &mut self,
        id: KeyId,
        digest: KeyDigest,
        hint: String,
        overlap: u32,
        actor: &Actor,
        now: i64,
    ) -> Result<StoredKey, Rejection> {
        if let Some(older) = self.old_key_of(id) {
            self.delete_key(older, now)?;
        }
        let mut old = self.key(id)?.clone();
        if old.meta.successor.is_some() {
            return Err(Rejection::KeyReplaced);
        }
        let settings = KeySettings { expires_at: None, ..old.meta.settings.clone() };
        let meta = KeyMeta::new(self.id(), digest, hint, now, settings);
        let mut successor = StoredKey::new(meta, old.record.daily_limit, now);
        successor.record.used = old.chain_count(now);
        if old.record.day == successor.record.day {
            successor.record.level = old.record.level % 4;
        }
        let end = u32::try_from(now / 1000).unwrap_or(u32::MAX).saturating_add(overlap);
        let expires_at = old.record.expires_at.map_or(end, |at| at.min(end)).into();
        old.meta.successor = Some(successor.meta.id());
        old.meta.set_expiry_notice(now);
        self.keys.insert(id, Ok(old));
        let successor = self.add_key(successor, EventKind::Created, actor, now)?;
        let expiry = SettingsChange { expires_at, ..SettingsChange::default() };
        self.apply_to_key(id, &KeyChange::Settings(expiry), actor, now)?;
        Ok(successor)
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
            let KeyMeta { successor, ref settings, .. } = self.key(id)?.meta;
            let is_later =
                |at: Option<&u32>| settings.expires_at.is_some_and(|end| at.is_none_or(|at| *at > end));
            if successor.is_some() && change.expires_at.as_opt_ref().is_some_and(is_later) {
                return Err(Rejection::KeyReplaced);
            }
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

    /// Deletes a key, readable or not. Its old key or its successor keeps its count of today.
    pub fn delete_key(&mut self, id: KeyId, now: i64) -> Result<(), Rejection> {
        let deleted = self.keys.remove(&id).ok_or(Rejection::KeyNotFound)?;
        let (count, successor) = deleted.map_or((0, None), |key| (key.chain_count(now), key.meta.successor));
        for StoredKey { meta, .. } in self.keys.values_mut().flatten() {
            let was_old = meta.successor == Some(id);
            if was_old {
                meta.successor = None;
                meta.set_expiry_notice(now);
            }
            if was_old || successor == Some(meta.id()) {
                meta.deleted_count = meta.deleted_count.max(Some((day_of(now), count)));
            }
        }
        Ok(())
    }
}

/// Rejects a time that is not in the future.
fn check_expiry(expires_at: Option<u32>, now: i64) -> Result<(), Rejection> {
    let is_over = expires_at.is_some_and(|at| i64::from(at) * 1000 <= now);
    if is_over { Err(Rejection::InvalidExpiry) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quota_api::{KeyState, Limits, Outcome, StateChange, origin_hash};

    use super::super::tests::{
        NOW, ada, draft, events, id, key_mut, make_unreadable, pause, stored, with_keys,
    };
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
            expiry_notice: Some(NOW + 3 * MS_PER_DAY),
            ..KeyMeta::new(value.id(), draft.digest, draft.hint, NOW, draft.new.settings)
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
        assert_eq!(value.delete_key(id(3), NOW), Ok(()));
        assert_eq!(value.delete_key(id(3), NOW), Err(Rejection::KeyNotFound));
        assert!(value.create_key(draft(11), NOW).is_ok());
    }

    #[test]
    fn missing_or_unreadable_key_is_not_changed() {
        let mut value = with_keys(1);
        make_unreadable(&mut value, 1);
        let unreadable = Rejection::UnreadableKey { id: id(1).to_string(), reason: "damaged".to_owned() };
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
            let mut expected_copy = value
                .clone()
                .create_key(
                    KeyDraft { digest: draft(2).digest, hint: "new".to_owned(), ..old.clone() },
                    NOW + 999,
                )
                .unwrap();
            expected_copy.record.used = 4;
            old.new.settings.expires_at = expires_at;
            let old = value.create_key(old, NOW).unwrap();
            value.new_events.clear();
            key_mut(&mut value, 1).record.used = 4;
            let copy =
                value.rotate_key(id(1), draft(2).digest, "new".to_owned(), overlap, &Actor::Owner, NOW + 999);
            assert_eq!(copy, Ok(expected_copy));
            assert_eq!(value.key(id(2)), copy.as_ref().map_err(Rejection::clone));
            let rotated = value.key(id(1)).unwrap();
            assert_eq!(
                (rotated.record.expires_at, rotated.meta.settings.expires_at),
                (Some(expected), Some(expected))
            );
            assert_eq!((rotated.record.used, &rotated.meta.hint), (4, &old.meta.hint));
            assert_eq!(rotated.meta.successor, Some(id(2)));
            let created = (2, 999, EventKind::Created, "created (by the owner)");
            let expired = text.map(|text| (1, 999, EventKind::ExpiryChanged, text));
            assert_eq!(events(&value), [created].into_iter().chain(expired).collect::<Vec<_>>());
        }
    }

    fn rotate(
        value: &mut AccountValue,
        from: u8,
        to: u8,
        overlap: u32,
        now: i64,
    ) -> Result<StoredKey, Rejection> {
        let KeyDraft { digest, hint, .. } = draft(to);
        value.rotate_key(id(from), digest, hint, overlap, &Actor::Owner, now)
    }

    fn numbers(value: &AccountValue) -> Vec<u8> {
        value.keys.keys().map(|id| id.0[1]).collect()
    }

    #[test]
    fn key_and_its_old_key_count_as_one() {
        let mut value = with_keys(10);
        for (from, to) in [(1, 11), (11, 12), (12, 13)] {
            assert!(rotate(&mut value, from, to, DAY, NOW).is_ok());
            assert_eq!(value.keys.len(), 11, "the key, its old key and nine others");
        }
        assert_eq!(numbers(&value), [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13]);
        for n in 2..=10 {
            assert!(rotate(&mut value, n, n + 20, DAY, NOW).is_ok());
        }
        assert_eq!(
            (value.keys.len(), value.create_key(draft(40), NOW)),
            (20, Err(Rejection::KeyLimitReached))
        );
        // The old key is then alone.
        value.delete_key(id(13), NOW).unwrap();
        assert_eq!(value.create_key(draft(40), NOW), Err(Rejection::KeyLimitReached));
        assert!(rotate(&mut value, 12, 14, DAY, NOW).is_ok());
        value.delete_key(id(12), NOW).unwrap();
        assert_eq!(value.create_key(draft(40), NOW), Err(Rejection::KeyLimitReached));
        value.delete_key(id(14), NOW).unwrap();
        assert!(value.create_key(draft(40), NOW).is_ok());
    }

    #[test]
    fn old_key_is_not_replaced_again_and_expires_only_earlier() {
        let end = SECONDS + 9 * DAY;
        for (change, expected) in [
            (expiry(end + 1), Err(Rejection::KeyReplaced)),
            (settings(r#"{"expires_at": null}"#), Err(Rejection::KeyReplaced)),
            (expiry(end), Ok(Some(end))),
            (expiry(SECONDS + 1), Ok(Some(SECONDS + 1))),
            (settings(r#"{"name": "b"}"#), Ok(Some(end))),
            (KeyChange::DailyLimit(Some(5)), Ok(Some(end))),
            (KeyChange::State(StateChange::Deactivate), Ok(Some(end))),
        ] {
            let mut value = with_keys(10);
            rotate(&mut value, 1, 11, 9 * DAY, NOW).unwrap();
            assert_eq!(rotate(&mut value.clone(), 1, 12, 0, NOW), Err(Rejection::KeyReplaced));
            let changed = |mut value: AccountValue| {
                let key = value.change_key(id(1), &change, &Actor::Operator, NOW)?;
                Ok(key.record.expires_at)
            };
            assert_eq!(changed(value.clone()), expected, "{change:?}");
            let old = &value.key(id(1)).unwrap().meta;
            assert_eq!((old.successor, old.expiry_notice), (Some(id(11)), None), "it is not announced");
            value.delete_key(id(11), NOW).unwrap();
            let alone = &value.key(id(1)).unwrap().meta;
            assert_eq!((alone.successor, alone.expiry_notice), (None, Some(NOW + 2 * MS_PER_DAY)));
            assert!(changed(value.clone()).is_ok(), "{change:?}");
            assert!(rotate(&mut value, 1, 12, 0, NOW).is_ok());
        }
    }

    #[test]
    fn successor_starts_with_the_larger_count_of_the_key_and_its_old_key() {
        for (counts, deleted, from, hours, expected) in [
            ([5, 3], None, 2, 0, 5),
            ([3, 5], None, 2, 0, 5),
            ([5, 3], Some(1), 2, 0, 5),
            ([3, 5], Some(1), 2, 0, 5),
            ([5, 3], Some(2), 1, 0, 5),
            ([3, 5], Some(2), 1, 0, 5),
            ([5, 3], Some(1), 2, 15, 5),
            ([5, 3], Some(1), 2, 16, 0),
            ([5, 3], None, 2, 16, 0),
        ] {
            let mut value = with_keys(1);
            rotate(&mut value, 1, 2, DAY, NOW).unwrap();
            (key_mut(&mut value, 1).record.used, key_mut(&mut value, 2).record.used) = (counts[0], counts[1]);
            if let Some(deleted) = deleted {
                value.delete_key(id(deleted), NOW).unwrap();
            }
            let successor = rotate(&mut value, from, 3, DAY, NOW + hours * MS_PER_DAY / 24).unwrap();
            assert_eq!(successor.record.used, expected, "{counts:?} {deleted:?} {hours}");
        }
        let mut value = with_keys(1);
        key_mut(&mut value, 1).record.level = 1;
        let level = rotate(&mut value.clone(), 1, 2, DAY, NOW).unwrap().record.level;
        let next_day = rotate(&mut value, 1, 2, DAY, NOW + MS_PER_DAY).unwrap().record.level;
        assert_eq!((level, next_day), (1, 0), "80 % of the limit is not announced again");
    }

    #[test]
    fn thirty_first_key_of_a_day_is_rejected_until_midnight() {
        let mut value = ada();
        let create = |value: &mut AccountValue, actor, now| {
            value.create_key(KeyDraft { actor, ..draft(1) }, now)?;
            value.delete_key(id(1), now)
        };
        let admin = || Actor::Admin("root".to_owned());
        for n in 0..60 {
            let actor = [Actor::Operator, Actor::Owner, Actor::Operator, admin()][n % 4].clone();
            assert_eq!(create(&mut value, actor, NOW), Ok(()));
        }
        let mut value = AccountValue::decode(&stored(&value)).unwrap().unwrap();
        for actor in [Actor::Owner, admin()] {
            let rejection = create(&mut value, actor, NOW + 16 * 3_600_000 - 1).unwrap_err();
            assert!(rejection.to_string().ends_with("the next one at 2027-01-16T00:00:00Z"), "{rejection}");
        }
        assert_eq!(create(&mut value, Actor::Operator, NOW), Ok(()));
        assert_eq!(create(&mut value, Actor::Owner, NOW + 16 * 3_600_000), Ok(()));
        value.create_key(draft(1), NOW + MS_PER_DAY).unwrap();
        for n in 1..40 {
            assert!(rotate(&mut value, n, n + 1, 0, NOW + MS_PER_DAY).is_ok(), "rotations do not count");
        }
        assert_eq!(value.creations.1, 2);
    }

    proptest! {
        /// Whatever an owner does with a key and those that replace it, they admit at most twice the limit in a day.
        #[test]
        fn chain_of_rotations_admits_at_most_twice_the_limit_in_a_day(
            steps in prop::collection::vec((0u8..16, any::<prop::sample::Index>(), 0u32..12), 0..100),
        ) {
            let limits = Limits { daily: 10, burst: 1_000, demo: 1 };
            let (mut value, mut now, mut created, mut admitted, mut limit) = (with_keys(1), NOW, 1, 0, 10);
            for (kind, index, n) in steps {
                if value.keys.is_empty() {
                    break;
                }
                let key = *index.get(&value.keys.keys().copied().collect::<Vec<_>>());
                let seconds = u32::try_from(now / 1000).unwrap();
                let mut changed = value.clone();
                let mut change = |change: &KeyChange| changed.change_key(key, change, &Actor::Owner, now).is_ok();
                let is_done = match kind {
                    0..=5 => {
                        let record = &mut key_mut(&mut changed, key.0[1]).record;
                        for _ in 0..n {
                            let is_denied = record.denial(now, None).is_some();
                            admitted += u32::from(!is_denied && record.charge(now, &limits) == Outcome::Allowed);
                        }
                        true
                    }
                    6..=9 => {
                        created += 1;
                        let overlap = [0, 1, 3_600, 7 * DAY][n as usize % 4];
                        rotate(&mut changed, key.0[1], created, overlap, now).is_ok()
                    }
                    10..=11 => changed.delete_key(key, now).is_ok(),
                    12 if n == 0 => change(&settings(r#"{"expires_at": null}"#)),
                    12 => change(&expiry(seconds + n * 3_600)),
                    13 => change(&KeyChange::State([StateChange::Deactivate, StateChange::Reactivate][n as usize % 2])),
                    14 => change(&KeyChange::DailyLimit((n > 0).then_some(n))),
                    _ => {
                        let before = day_of(now);
                        now += i64::from(n) * 1_800_000;
                        if day_of(now) != before {
                            (admitted, limit) = (0, 0);
                        }
                        true
                    }
                };
                if is_done {
                    value = changed;
                }
                let largest = value.keys.values().flatten().map(|key| key.record.limit(&limits)).max();
                limit = largest.unwrap_or(0).max(limit);
                prop_assert!(admitted <= 2 * limit, "{admitted} of {limit}");
                prop_assert!(value.keys.len() <= 2);
            }
        }
    }
}
