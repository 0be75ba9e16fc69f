//! The difference between an account as it was loaded and its new value, which a commit writes.

use std::collections::BTreeMap;

use super::event::to_line;
use super::id::{AccountId, KeyId};
use super::notice::Announcement;
use super::record::{HEAD_BYTES, KeyRecord, encode, encode_head};
use super::value::{AccountValue, Loaded, Version, row};

/// The difference between an account as it was loaded and its new value. It is written in one atomic step, if the account's
/// version and the heads of the records in it are still those that were loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub account: AccountId,
    /// The version that was loaded.
    pub expected: Option<Version>,
    /// Whether the account exists afterward. If not, the store deletes all that it has of the account.
    pub exists: bool,
    /// Rows to write; `None`: to delete.
    pub rows: BTreeMap<String, Option<Vec<u8>>>,
    pub records: BTreeMap<KeyId, RecordChange>,
    /// Lines to add to the events of keys, in this order.
    pub events: Vec<(KeyId, String)>,
    /// Times of the next notices that a key expires, ms, if they have changed; `None`: there is none anymore.
    pub expiry_notices: BTreeMap<KeyId, Option<i64>>,
    /// When a notice of the account is due, ms, if that has changed; `None`: it has none anymore.
    pub notice_due: Option<Option<i64>>,
    /// An announcement to remove. Without it, another change has made its notices, and nothing is written.
    pub made: Option<Announcement>,
}

/// A change of a key's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordChange {
    /// There must be no record of this key.
    New(Vec<u8>),
    Changed {
        /// The head that was loaded. A charge that pauses the key changes it.
        expected: [u8; HEAD_BYTES],
        head: [u8; HEAD_BYTES],
        /// Whether the burst window becomes empty.
        clears_window: bool,
        /// The hashes of the allowed origins, if they have changed.
        origins: Option<Vec<u128>>,
    },
    /// Deletes the record, readable or not, and the key's events.
    Deleted,
}

impl Change {
    /// What has to be written so that the account as loaded becomes this value; `None`: the account is deleted.
    pub fn between(loaded: &Loaded, value: Option<&AccountValue>) -> Self {
        let old = AccountValue::decode(loaded).ok().flatten();
        let [old_rows, mut rows] =
            [old.as_ref(), value].map(|value| value.map(AccountValue::rows).unwrap_or_default());
        let is_gone = |name: &str| match (value, row::key_of(name)) {
            (None, _) => true,
            (Some(value), Some(key)) => !value.keys.contains_key(&key),
            (Some(_), None) => old_rows.contains_key(name) && !rows.contains_key(name),
        };
        let deleted = loaded.rows.keys().filter(|name| is_gone(name)).map(|name| (name.clone(), None));
        let mut change = Self {
            account: loaded.id,
            expected: loaded.version,
            exists: value.is_some(),
            rows: deleted.collect(),
            made: value.and_then(|value| value.made),
            ..Self::default()
        };
        rows.retain(|name, row| old_rows.get(name) != Some(row));
        change.rows.extend(rows.into_iter().map(|(name, row)| (name, Some(row))));
        let [old_due, due] = [old.as_ref(), value].map(|value| value.and_then(|value| value.outbox.due()));
        // What was due of an account that can't be read is not known.
        let is_deleted = value.is_none() && loaded.version.is_some();
        change.notice_due = (due != old_due || is_deleted).then_some(due);
        change.add_keys(loaded, old.as_ref(), value);
        change
    }

    fn add_keys(&mut self, loaded: &Loaded, old: Option<&AccountValue>, value: Option<&AccountValue>) {
        for id in loaded.keys() {
            if value.is_none_or(|value| !value.keys.contains_key(&id)) {
                self.records.insert(id, RecordChange::Deleted);
                self.expiry_notices.insert(id, None);
            }
        }
        let Some(value) = value else { return };
        for (id, key) in &value.keys {
            let Ok(key) = key else { continue };
            let old = old.and_then(|old| old.key(*id).ok());
            let notice = key.meta.expiry_notice;
            if old.and_then(|old| old.meta.expiry_notice) != notice {
                self.expiry_notices.insert(*id, notice);
            }
            let record = match old {
                Some(old) => RecordChange::between(&old.record, &key.record),
                None => Some(RecordChange::New(encode(&key.record))),
            };
            self.records.extend(record.map(|record| (*id, record)));
        }
        self.events.extend(value.new_events.iter().map(|(id, event)| (*id, to_line(event))));
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let (account, expected) = (self.account, self.expected);
        *self == Self { account, expected, exists: expected.is_some(), ..Self::default() }
    }
}

impl RecordChange {
    fn between(old: &KeyRecord, new: &KeyRecord) -> Option<Self> {
        let (expected, head) = (encode_head(old), encode_head(new));
        // No rule changes a window in another way.
        let clears_window = old.window != new.window;
        let origins = (old.origins != new.origins).then(|| new.origins.clone());
        let has_changed = expected != head || clears_window || origins.is_some();
        has_changed.then_some(Self::Changed { expected, head, clears_window, origins })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quota_api::{
        AccountAction, AccountChange, Actor, Contact, KeyChange, KeyState, NewSession, NoticeResult,
        Rejection, SessionKind, SettingsChange, StateChange,
    };

    use super::super::record::decode;
    use super::super::time::MS_PER_DAY;
    use super::super::transfer::ImportAccount;
    use super::super::value::notices_tests::{contact, notice, result};
    use super::super::value::tests::{
        LIMITS, NOW, ada, draft, id, key_mut, make_unreadable, pause, stored, with_keys,
    };
    use super::super::window::BurstWindow;
    use super::*;
    use crate::domain::value::StoredSession;

    const SESSION: StoredSession = StoredSession { kind: SessionKind::Session, expires_at: 5 };

    /// Writes a change as a store does.
    fn commit(loaded: &Loaded, change: &Change) -> Loaded {
        assert_eq!((change.account, change.expected), (loaded.id, loaded.version));
        let mut new = loaded.clone();
        for (name, row) in &change.rows {
            match row {
                Some(row) => drop(new.rows.insert(name.clone(), row.clone())),
                None => assert!(new.rows.remove(name).is_some(), "{name} was stored"),
            }
        }
        for (id, record) in &change.records {
            match record {
                RecordChange::New(record) => assert_eq!(new.records.insert(*id, record.clone()), None),
                RecordChange::Deleted => drop(new.records.remove(id)),
                RecordChange::Changed { expected, head, clears_window, origins } => {
                    let record = new.records.get_mut(id).unwrap();
                    assert_eq!(record[..HEAD_BYTES], *expected);
                    record[..HEAD_BYTES].copy_from_slice(head);
                    if *clears_window {
                        record[28..46].fill(0);
                    }
                    if let Some(origins) = origins {
                        let old_end = 200 + 16 * usize::from(u16::from_le_bytes([record[46], record[47]]));
                        record.splice(200..old_end, origins.iter().flat_map(|hash| hash.to_be_bytes()));
                        record[46..48].copy_from_slice(&(origins.len() as u16).to_le_bytes());
                    }
                }
            }
        }
        let next = loaded.version.map_or([1; 8], |version| version.map(|byte| byte.wrapping_add(1)));
        Loaded { version: change.exists.then_some(next), ..new }
    }

    fn change_of<T>(old: &AccountValue, change: impl FnOnce(&mut AccountValue) -> T) -> Change {
        let mut new = old.clone();
        change(&mut new);
        Change::between(&stored(old), Some(&new))
    }

    fn row_names(change: &Change) -> Vec<&str> {
        change.rows.keys().map(String::as_str).collect()
    }

    #[test]
    fn nothing_is_written_if_nothing_changes() {
        let mut value = with_keys(2);
        pause(&mut value, 1, NOW);
        let change = change_of(&value, |_| ());
        assert!(change.is_empty(), "{change:?}");
        let missing =
            Loaded { version: None, rows: BTreeMap::new(), records: BTreeMap::new(), ..stored(&value) };
        assert!(Change::between(&missing, None).is_empty());
    }

    #[test]
    fn each_part_of_a_change_is_something_to_write() {
        let empty = Change { expected: Some([1; 8]), exists: true, ..Change::default() };
        assert!(empty.is_empty());
        for change in [
            Change { exists: false, ..empty.clone() },
            Change { expected: None, ..empty.clone() },
            Change { rows: [("account".to_owned(), None)].into(), ..empty.clone() },
            Change { records: [(id(1), RecordChange::Deleted)].into(), ..empty.clone() },
            Change { events: vec![(id(1), String::new())], ..empty.clone() },
            Change { expiry_notices: [(id(1), None)].into(), ..empty.clone() },
            Change { notice_due: Some(None), ..empty.clone() },
        ] {
            assert!(!change.is_empty(), "{change:?}");
        }
    }

    #[test]
    fn new_account_is_written_with_its_keys() {
        let (mut value, keys) = (with_keys(1), stored(&with_keys(1)).rows);
        let missing =
            Loaded { version: None, rows: BTreeMap::new(), records: BTreeMap::new(), ..stored(&value) };
        key_mut(&mut value, 1).meta.expiry_notice = Some(5);
        value.account.contact = contact(true, false);
        value.add_notice(&notice(1), NOW);
        let change = Change::between(&missing, Some(&value));
        assert_eq!((change.expected, change.exists), (None, true));
        assert_eq!(row_names(&change), ["account", "creations", &row::key(id(1)), "outbox"]);
        assert_ne!(change.rows["account"].as_ref(), keys.get("account"));
        assert_eq!(
            change.records,
            [(id(1), RecordChange::New(encode(&value.key(id(1)).unwrap().record)))].into()
        );
        assert_eq!(change.expiry_notices, [(id(1), Some(5))].into());
        assert_eq!(change.notice_due, Some(Some(NOW)));
    }

    #[test]
    fn session_changes_only_its_row() {
        let mut value = with_keys(2);
        let change = change_of(&value, |value| value.sessions.insert("a".to_owned(), SESSION));
        let rows =
            [("sessions".to_owned(), Some(br#"{"a":{"kind":"session","expires_at":5}}"#.to_vec()))].into();
        let only_rows =
            Change { account: value.id(), expected: Some([1; 8]), exists: true, rows, ..Change::default() };
        assert_eq!(change, only_rows);
        value.sessions.insert("a".to_owned(), SESSION);
        let change = change_of(&value, |value| value.sessions.clear());
        assert_eq!(change, Change { rows: [("sessions".to_owned(), None)].into(), ..only_rows });
    }

    #[test]
    fn notice_is_due_as_the_outbox_says() {
        let mut value = with_keys(1);
        value.account.contact = contact(true, false);
        let added = change_of(&value, |value| value.add_notice(&notice(1), NOW));
        assert_eq!((row_names(&added), added.notice_due), (vec!["outbox"], Some(Some(NOW))));
        value.add_notice(&notice(1), NOW);
        let second = change_of(&value, |value| value.add_notice(&notice(2), NOW + 1));
        assert_eq!((row_names(&second), second.notice_due), (vec!["outbox"], None));
        let claimed = change_of(&value, |value| value.claim_notices(NOW));
        assert_eq!(claimed.notice_due, Some(Some(NOW + 60_000)));
        value.claim_notices(NOW);
        let finished = change_of(&value, |value| {
            assert!(value.finish_notice(result(NOW as u64, None, None), NOW));
        });
        assert_eq!(finished.notice_due, Some(None));
    }

    #[test]
    fn record_changes_by_head_origins_and_emptied_window() {
        let mut value = with_keys(2);
        pause(&mut value, 1, NOW + 5);
        let record_of = |change: Change| {
            assert_eq!(change.records.keys().copied().collect::<Vec<_>>(), [id(1)]);
            match &change.records[&id(1)] {
                RecordChange::Changed { expected, head, clears_window, origins } => {
                    (expected == head, *clears_window, origins.clone())
                }
                other => panic!("{other:?}"),
            }
        };
        let change_key = |change: KeyChange| {
            change_of(&value, |value| drop(value.change_key(id(1), &change, &Actor::Owner, NOW + 9)))
        };
        assert_eq!(record_of(change_key(KeyChange::State(StateChange::Resume))), (false, true, None));
        assert_eq!(record_of(change_key(KeyChange::State(StateChange::Deactivate))), (false, false, None));
        let origins = |json: &str| KeyChange::Settings(serde_json::from_str(json).unwrap());
        let restricted = record_of(change_key(origins(r#"{"allowed_origins": ["https://a.example"]}"#)));
        let hash = quota_api::origin_hash(b"https://a.example");
        assert_eq!(restricted, (false, false, Some(vec![hash])));
        let renamed = change_key(KeyChange::Settings(SettingsChange::rename("b")));
        assert_eq!((row_names(&renamed), renamed.records.len()), (vec![&*row::key(id(1))], 0));
        let renamed_event = format!("{} renamed renamed to b (by the owner)", NOW + 9);
        assert_eq!(renamed.events, [(id(1), renamed_event)]);

        let restrict = origins(r#"{"allowed_origins": ["https://a.example"]}"#);
        value.change_key(id(1), &restrict, &Actor::Owner, NOW).unwrap();
        value.new_events.clear();
        let other = origins(r#"{"allowed_origins": ["https://b.example"]}"#);
        let changed = change_of(&value, |value| value.change_key(id(1), &other, &Actor::Owner, NOW));
        let hash = quota_api::origin_hash(b"https://b.example");
        assert_eq!(record_of(changed), (true, false, Some(vec![hash])), "the head is the same");

        // A charge has not changed the head of an active key, but its window.
        let mut value = with_keys(1);
        key_mut(&mut value, 1).record.charge(NOW, &LIMITS);
        let emptied = change_of(&value, |value| {
            key_mut(value, 1).record.window = BurstWindow::default();
        });
        let RecordChange::Changed { expected, head, clears_window, .. } = emptied.records[&id(1)] else {
            panic!()
        };
        assert_eq!((expected == head, clears_window), (true, true));
    }

    #[test]
    fn deleted_key_is_gone_with_its_record_and_notice() {
        let mut value = with_keys(2);
        make_unreadable(&mut value, 2);
        let mut loaded = stored(&value);
        loaded.rows.insert(row::key(id(2)), b"damaged".to_vec());
        loaded.records.insert(id(2), Vec::new());
        let read = AccountValue::decode(&loaded).unwrap().unwrap();
        for n in [1, 2] {
            let mut value = read.clone();
            value.delete_key(id(n), NOW).unwrap();
            let change = Change::between(&loaded, Some(&value));
            assert_eq!(change.rows, [(row::key(id(n)), None)].into());
            assert_eq!(change.records, [(id(n), RecordChange::Deleted)].into());
            assert_eq!(change.expiry_notices, [(id(n), None)].into());
            assert!(change.exists && change.notice_due.is_none());
            assert_eq!(AccountValue::decode(&commit(&loaded, &change)), Ok(Some(value)));
        }
    }

    #[test]
    fn key_of_which_only_the_record_is_left_can_be_deleted() {
        let mut loaded = stored(&with_keys(2));
        loaded.rows.remove(&row::key(id(2)));
        let mut value = AccountValue::decode(&loaded).unwrap().unwrap();
        value.delete_key(id(2), NOW).unwrap();
        let change = Change::between(&loaded, Some(&value));
        assert_eq!((change.rows.len(), &change.records), (0, &[(id(2), RecordChange::Deleted)].into()));
    }

    #[test]
    fn rows_and_records_that_cannot_be_read_stay_as_they_are() {
        let mut loaded = stored(&with_keys(3));
        loaded.rows.insert(row::key(id(2)), b"damaged".to_vec());
        loaded.records.insert(id(3), b"damaged".to_vec());
        loaded.rows.insert("tokens".to_owned(), b"of a later version".to_vec());
        let mut value = AccountValue::decode(&loaded).unwrap().unwrap();
        assert!(Change::between(&loaded, Some(&value)).is_empty());
        let suspend = AccountChange { action: AccountAction::Suspend, reason: Some("abuse".to_owned()) };
        value.change(&suspend, &Actor::Operator, NOW);
        let change = Change::between(&loaded, Some(&value));
        assert_eq!(row_names(&change), ["account"]);
        assert_eq!((change.records.len(), change.events.len(), change.expiry_notices.len()), (1, 1, 0));
    }

    #[test]
    fn deleted_account_leaves_nothing_even_if_it_cannot_be_read() {
        let mut value = with_keys(3);
        value.sessions.insert("a".to_owned(), SESSION);
        let mut readable = stored(&value);
        readable.rows.insert("tokens".to_owned(), b"of a later version".to_vec());
        readable.rows.remove(&row::key(id(2)));
        readable.records.insert(id(3), Vec::new());
        let other = encode(&KeyRecord::new(quota_api::Scope::Ip, None, NOW));
        readable.records.insert(id(9), other.clone());
        let mut damaged = readable.clone();
        damaged.rows.insert("account".to_owned(), b"damaged".to_vec());
        assert!(AccountValue::decode(&damaged).is_err());
        for loaded in [readable, damaged] {
            let change = Change::between(&loaded, None);
            assert_eq!((change.exists, change.notice_due), (false, Some(None)));
            assert_eq!(change.expiry_notices, [1, 2, 3].map(|n| (id(n), None)).into());
            let left = commit(&loaded, &change);
            assert_eq!((left.version, left.rows.len()), (None, 0));
            assert_eq!(left.records, [(id(9), other.clone())].into());
        }
    }

    /// What one step of the test below does with an account.
    fn step(slot: &mut Option<AccountValue>, kind: u8, n: u8, now: i64) -> Result<(), Rejection> {
        let Some(value) = slot else {
            return AccountValue::create(slot, ada().account).map(drop);
        };
        let (key, actor) = (id(n), Actor::Owner);
        let has_copy = value.keys.contains_key(&id(n + 12));
        let mut change_key = |change| value.change_key(key, &change, &actor, now).map(drop);
        let expires_at = |days: i64| u32::try_from((now + days * MS_PER_DAY) / 1000).ok();
        match kind {
            0..=2 => {
                let mut draft = draft(n);
                draft.new.settings.expires_at = expires_at(9).filter(|_| n.is_multiple_of(2));
                draft.new.settings.allowed_origins =
                    vec!["https://a.example".to_owned(); usize::from(n % 3 / 2)];
                if value.keys.contains_key(&key) {
                    return Ok(());
                }
                value.create_key(draft, now).map(drop)
            }
            3 if has_copy => Ok(()),
            3 => value.rotate_key(key, draft(n + 12).digest, String::new(), 60, &actor, now).map(drop),
            4 => change_key(KeyChange::State(StateChange::Resume)),
            5 => change_key(KeyChange::State(StateChange::Deactivate)),
            6 => change_key(KeyChange::State(StateChange::Reactivate)),
            7 => change_key(KeyChange::DailyLimit(expires_at(0).filter(|_| n > 3))),
            8 => {
                let allowed_origins = Some(vec![format!("https://{n}.example"); usize::from(n % 3)]);
                let expires_at = expires_at(n.into()).unwrap().into();
                change_key(KeyChange::Settings(SettingsChange { name: None, expires_at, allowed_origins }))
            }
            9 => value.delete_key(key, now),
            10 => {
                let action = if n > 3 { AccountAction::Suspend } else { AccountAction::Restore };
                let reason = (n > 3).then(|| "abuse".to_owned());
                value.change(&AccountChange { action, reason }, &actor, now);
                Ok(())
            }
            11 => {
                let kinds = [SessionKind::RequestedLink, SessionKind::Link, SessionKind::Session];
                let (kind, id_sha256) = (kinds[usize::from(n % 3)], n.to_string());
                let ttl_seconds = u32::from(n) * 40;
                let new = NewSession { kind, id_sha256, ttl_seconds, expected_credential: None };
                value.add_session(&new, now).map(drop)
            }
            12 => {
                let expected = value.account.contact.clone();
                value.set_contact(&expected, &if n < 4 { Contact::default() } else { contact(true, n > 7) })
            }
            13 => {
                value.add_notice(&notice(n.into()), now);
                Ok(())
            }
            14 => {
                for claimed in value.claim_notices(now) {
                    let retry = (n > 5).then_some(u32::from(n));
                    if n > 2 {
                        let channel = claimed.channel;
                        let result = NoticeResult { channel, ..result(claimed.claim, retry, None) };
                        assert!(value.finish_notice(result, now));
                    }
                }
                Ok(())
            }
            15 => {
                value.add_expiry_notice(key, now);
                Ok(())
            }
            16 => {
                let keys = with_keys(3).keys.into_values().flatten().collect();
                let import = ImportAccount { account: ada().account, keys };
                AccountValue::import(slot, &import, &[id(2)].into(), now);
                Ok(())
            }
            _ => {
                *slot = slot.take().filter(|_| n > 2);
                Ok(())
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any sequence of changes and charges: what is committed is what is loaded next, and the indexes agree with it.
        #[test]
        fn committed_value_is_loaded_again(
            steps in prop::collection::vec((0u8..19, 1u8..12, 0i64..4), 0..80),
        ) {
            let mut loaded = Loaded { version: None, rows: BTreeMap::new(), records: BTreeMap::new(), ..stored(&ada()) };
            let (mut expiry_notices, mut notice_due, mut now) = (BTreeMap::new(), None, NOW);
            for (kind, n, days) in steps {
                now += days * MS_PER_DAY / 3;
                if kind == 18 {
                    for record in loaded.records.values_mut() {
                        let mut charged = decode(record).unwrap();
                        for _ in 0..n {
                            charged.charge(now, &LIMITS);
                        }
                        prop_assert!(n < 3 || charged.state != KeyState::Active);
                        *record = encode(&charged);
                    }
                    continue;
                }
                let mut value = AccountValue::decode(&loaded).unwrap();
                if step(&mut value, kind, n, now).is_err() {
                    continue;
                }
                let change = Change::between(&loaded, value.as_ref());
                loaded = commit(&loaded, &change);
                for (id, notice) in &change.expiry_notices {
                    match notice {
                        Some(notice) => drop(expiry_notices.insert(*id, *notice)),
                        None => drop(expiry_notices.remove(id)),
                    }
                }
                notice_due = change.notice_due.unwrap_or(notice_due);
                let events = value.as_mut().map(|value| std::mem::take(&mut value.new_events)).unwrap_or_default();
                prop_assert_eq!(change.events.len(), events.len());
                prop_assert_eq!(AccountValue::decode(&loaded), Ok(value.clone()));
                let again = Change::between(&loaded, value.as_ref());
                prop_assert!(again.is_empty(), "{:?}", again);
                let keys = value.iter().flat_map(|value| value.keys.values().flatten());
                let expected = keys.filter_map(|key| Some((key.meta.id(), key.meta.expiry_notice?)));
                prop_assert_eq!(&expiry_notices, &expected.collect());
                prop_assert_eq!(notice_due, value.as_ref().and_then(|value| value.outbox.due()));
                let names = loaded.rows.len() + loaded.records.len();
                prop_assert!(value.is_some() || names == 0, "{:?}", loaded);
            }
        }
    }
}
