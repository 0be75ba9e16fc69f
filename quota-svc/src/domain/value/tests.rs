//! Accounts and keys for tests, and the tests of the rules about accounts.

use api_key::KeyDigest;
use quota_api::{Limits, NewKey, Role, Scope, Standing};

use super::*;
use crate::domain::record::encode;

pub const NOW: i64 = 1_800_000_000_000;
/// Exceeded by the third request within a minute.
pub const LIMITS: Limits = Limits { daily: 100, burst: 2, demo: 1 };

pub fn ada() -> AccountValue {
    AccountValue::new(StoredAccount::new("ada".to_owned(), Some("hash".to_owned()), NOW))
}

/// An account with the keys 1 to `count`, and no new events.
pub fn with_keys(count: u8) -> AccountValue {
    let mut value = ada();
    for n in 1..=count {
        value.create_key(draft(n), NOW).unwrap();
    }
    value.new_events.clear();
    value
}

pub fn draft(n: u8) -> KeyDraft {
    let new = NewKey::new("a key", Scope::Geo);
    KeyDraft { new, digest: KeyDigest(bytes(n)), hint: format!("ipl_{n}"), actor: Actor::Owner }
}

pub fn id(n: u8) -> KeyId {
    KeyId(bytes(n))
}

/// `n` in the shard of the account.
fn bytes<const N: usize>(n: u8) -> [u8; N] {
    let mut bytes = [n; N];
    bytes[0] = AccountId::of("ada").0[0];
    bytes
}

pub fn key_mut(value: &mut AccountValue, n: u8) -> &mut StoredKey {
    value.keys.get_mut(&id(n)).unwrap().as_mut().unwrap()
}

pub fn pause(value: &mut AccountValue, n: u8, now: i64) {
    for _ in 0..3 {
        key_mut(value, n).record.charge(now, &LIMITS);
    }
}

pub fn make_unreadable(value: &mut AccountValue, n: u8) {
    let reason = "damaged".to_owned();
    let key = UnreadableKey { id: id(n).to_string(), name: None, hint: None, reason };
    value.keys.insert(id(n), Err(key));
}

/// The new events: number of the key, time since [`NOW`], kind and reason.
pub fn events(value: &AccountValue) -> Vec<(u8, i64, EventKind, &str)> {
    let event = |(id, event): &'_ (KeyId, Event)| (id.0[1], event.at - NOW, event.kind);
    value
        .new_events
        .iter()
        .map(|new| (new, event(new)))
        .map(|(new, (n, at, kind))| (n, at, kind, &*new.1.reason))
        .collect()
}

/// The account as a store has it.
pub fn stored(value: &AccountValue) -> Loaded {
    let records = value.keys.values().flatten().map(|key| (key.meta.id(), encode(&key.record)));
    Loaded { id: value.id(), version: Some([1; 8]), rows: value.rows(), records: records.collect(), now: NOW }
}

#[test]
fn account_without_version_does_not_exist() {
    let loaded = Loaded { version: None, ..stored(&ada()) };
    assert_eq!(AccountValue::decode(&loaded), Ok(None));
}

#[test]
fn account_with_sessions_notices_and_keys_round_trips() {
    let mut value = with_keys(2);
    pause(&mut value, 1, NOW);
    value.add_session(&session(1, 60), NOW).unwrap();
    value.outbox.last_claim = 7;
    let loaded = stored(&value);
    let names: Vec<_> = loaded.rows.keys().map(String::as_str).collect();
    assert_eq!(names, ["account", "creations", &row::key(id(1)), &row::key(id(2)), "outbox", "sessions"]);
    assert_eq!(AccountValue::decode(&loaded), Ok(Some(value)));
}

#[test]
fn empty_parts_have_no_rows() {
    let loaded = stored(&ada());
    assert_eq!(loaded.rows.keys().collect::<Vec<_>>(), ["account"]);
    assert_eq!(AccountValue::decode(&loaded), Ok(Some(ada())));
}

#[test]
fn account_with_a_damaged_row_is_unreadable() {
    let other = to_json(&StoredAccount::new("bob".to_owned(), None, 1));
    for (name, json) in [("account", &*other), ("account", "{}"), ("sessions", "[1]")] {
        let mut loaded = stored(&with_keys(1));
        loaded.rows.insert(name.to_owned(), json.into());
        let rejected = Err(Rejection::UnreadableAccount { id: AccountId::of("ada").to_string() });
        assert_eq!(AccountValue::decode(&loaded), rejected, "{name} {json}");
    }
    let mut loaded = stored(&ada());
    loaded.rows.clear();
    assert!(AccountValue::decode(&loaded).is_err(), "no row");
}

#[test]
fn damaged_outbox_is_empty() {
    let undeliverable = r#"{"queues":{"mail":{"notices":[{"kind":"key.paused","key":"x","at":1,"limit":1}],"due":1,"claim":0,"attempts":0}},"last_claim":0}"#;
    for json in [
        "x",
        "{}",
        undeliverable,
        &undeliverable.replace("\"x\"", &format!("\"{}\"", id(1))).replace("\"at\":1", "\"at\":-1"),
    ] {
        let mut loaded = stored(&with_keys(1));
        loaded.rows.insert("outbox".to_owned(), json.into());
        assert_eq!(AccountValue::decode(&loaded).unwrap().unwrap(), with_keys(1), "{json}");
    }
}

#[test]
fn key_with_damaged_data_is_unreadable() {
    const META: &str = "its metadata is missing or invalid";
    let record_of = |account| {
        let mut key = with_keys(1).key(id(1)).unwrap().clone();
        key.record.account = account;
        Some(encode(&key.record))
    };
    let (own, foreign) = (record_of(AccountId::of("ada")), record_of(AccountId::of("bob")));
    let meta_of = |n| Some(with_keys(2).key(id(n)).unwrap().meta.to_json());
    for (meta, record, has_meta, reason) in [
        (Some(b"{}".to_vec()), own.clone(), false, META),
        (meta_of(2), own.clone(), false, META),
        (None, own, false, META),
        (meta_of(1), None, true, "the record is too short (0 bytes)"),
        (meta_of(1), Some(Vec::new()), true, "the record is too short (0 bytes)"),
        (
            meta_of(1),
            Some(vec![9; 300]),
            true,
            "the record has format version 9, which this quota-svc does not support",
        ),
        (meta_of(1), foreign, true, "its record names another account"),
    ] {
        let mut loaded = stored(&with_keys(1));
        loaded.rows.remove(&row::key(id(1)));
        loaded.rows.extend(meta.map(|meta| (row::key(id(1)), meta)));
        loaded.records = record.map(|record| (id(1), record)).into_iter().collect();
        let value = AccountValue::decode(&loaded).unwrap().unwrap();
        assert_eq!(value.keys.len(), 1, "{reason}");
        let unreadable = value.keys[&id(1)].as_ref().unwrap_err();
        assert_eq!((&*unreadable.id, &*unreadable.reason), (&*id(1).to_string(), reason));
        let (name, hint) = (unreadable.name.as_deref(), unreadable.hint.as_deref());
        assert_eq!((name, hint), has_meta.then_some(("a key", "ipl_1")).unzip(), "{reason}");
        let rejection = Rejection::UnreadableKey { id: id(1).to_string(), reason: reason.to_owned() };
        assert_eq!(value.key(id(1)), Err(rejection));
    }
}

#[test]
fn record_of_another_account_adds_no_key() {
    let mut loaded = stored(&ada());
    let mut other = with_keys(1);
    key_mut(&mut other, 1).record.account = AccountId::of("bob");
    loaded.records = stored(&other).records;
    assert_eq!(AccountValue::decode(&loaded), Ok(Some(ada())));
}

#[test]
fn existing_account_is_not_created_again() {
    let (mut slot, account) = (None, ada().account);
    assert_eq!(AccountValue::create(&mut slot, account.clone()), Ok(account.clone()));
    assert_eq!(slot, Some(ada()));
    assert_eq!(AccountValue::create(&mut slot, account), Err(Rejection::AccountExists));
}

fn import_of(keys: impl IntoIterator<Item = u8>) -> ImportAccount {
    let mut from = ada();
    from.account.standing.role = Role::Admin;
    let key = |n| {
        let mut key = ada().create_key(draft(n), NOW).unwrap();
        key.meta.settings.expires_at = Some(u32::try_from(NOW / 1000).unwrap() + 30 * 86_400);
        key
    };
    ImportAccount { account: from.account, keys: keys.into_iter().map(key).collect() }
}

#[test]
fn import_creates_what_is_missing() {
    let (mut slot, none) = (None, BTreeSet::new());
    let report = AccountValue::import(&mut slot, &import_of(1..=3), &none, NOW);
    assert_eq!(report, ImportReport { accounts_created: 1, keys_created: 3, ..ImportReport::default() });
    let value = slot.as_ref().unwrap();
    assert_eq!(value.account.standing, Standing { role: Role::Admin, ..Standing::default() });
    let imported = (1, 0, EventKind::Imported, "imported (by the operator)");
    assert_eq!((value.new_events.len(), events(value)[0]), (3, imported));
    assert_eq!(value.key(id(1)).unwrap().meta.expiry_notice, Some(NOW + 23 * 86_400_000));
    assert_eq!(value.key(id(1)).unwrap().meta.created_at, NOW);

    let before = slot.clone();
    let report = AccountValue::import(&mut slot, &import_of(1..=3), &none, NOW + 1);
    assert_eq!(report, ImportReport { accounts_kept: 1, keys_kept: 3, ..ImportReport::default() });
    assert_eq!(slot, before);
}

#[test]
fn import_refuses_taken_keys_and_an_eleventh_key() {
    let mut slot = Some(with_keys(8));
    make_unreadable(slot.as_mut().unwrap(), 2);
    let taken = BTreeSet::from([id(1), id(9)]);
    let report = AccountValue::import(&mut slot, &import_of([1, 2, 9, 10, 11, 12]), &taken, NOW);
    let expected =
        ImportReport { keys_kept: 2, keys_created: 2, keys_refused: 2, accounts_kept: 1, ..report };
    assert_eq!((report, report.accounts_created), (expected, 0));
    let value = slot.unwrap();
    assert!(value.account.standing.is_default(), "an existing account stays as it is");
    assert_eq!(value.keys.keys().map(|id| id.0[1]).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 10, 11]);
}

#[test]
fn imported_old_key_belongs_to_a_successor_without_another_one() {
    let successors = [(1, 2), (3, 12), (4, 2), (5, 1), (6, 6), (7, 9), (9, 7)];
    let mut import = import_of(1..=9);
    for (n, successor) in successors {
        import.keys[n - 1].meta.successor = Some(id(successor));
    }
    let mut slot = Some(ada());
    slot.as_mut().unwrap().create_key(draft(20), NOW).unwrap();
    slot.as_mut().unwrap().create_key(draft(21), NOW).unwrap();
    let report = AccountValue::import(&mut slot, &import, &BTreeSet::new(), NOW);
    assert_eq!((report.keys_created, report.keys_refused), (9, 0), "with two old keys, the account has 11");
    let value = slot.unwrap();
    let successor = |n| value.key(id(n)).unwrap().meta.successor;
    assert_eq!(
        [1, 2, 3, 4, 5, 6, 7, 8].map(successor),
        [Some(id(2)), None, None, None, None, None, None, None]
    );
    assert_eq!((successor(9), value.key(id(1)).unwrap().meta.expiry_notice), (Some(id(7)), None));
}

fn change(value: &mut AccountValue, action: AccountAction, now: i64) {
    let reason = (action == AccountAction::Suspend).then(|| "abuse".to_owned());
    value.change(&AccountChange { action, reason }, &Actor::Admin("root".to_owned()), now);
}

#[test]
fn suspension_and_its_end_apply_to_all_readable_keys() {
    let mut value = with_keys(3);
    make_unreadable(&mut value, 3);
    pause(&mut value, 2, NOW);
    change(&mut value, AccountAction::Suspend, NOW + 1);
    change(&mut value, AccountAction::Suspend, NOW + 2);
    let flags = |value: &AccountValue| [1, 2].map(|n| value.key(id(n)).unwrap().record.suspended);
    assert_eq!(flags(&value), [true; 2]);
    assert_eq!(value.account.standing.events[0].reason, "abuse (by admin root)");
    change(&mut value, AccountAction::Restore, NOW + 3);
    assert_eq!(flags(&value), [false; 2]);
    let (suspended, restored) =
        ("suspended with its account (by the system)", "restored with its account (by the system)");
    let expected = [
        (1, 1, EventKind::Suspended, suspended),
        (2, 1, EventKind::Suspended, suspended),
        (1, 3, EventKind::Restored, restored),
        (2, 3, EventKind::Restored, restored),
    ];
    assert_eq!(events(&value), expected, "a repeated suspension and a pause add none");
}

#[test]
fn new_and_imported_keys_of_a_suspended_account_are_suspended() {
    let mut value = ada();
    change(&mut value, AccountAction::Suspend, NOW);
    assert!(value.create_key(draft(1), NOW).unwrap().record.suspended);
    let mut slot = Some(value);
    AccountValue::import(&mut slot, &import_of([2]), &BTreeSet::new(), NOW);
    let mut value = slot.unwrap();
    assert!(value.key(id(2)).unwrap().record.suspended);
    change(&mut value, AccountAction::Restore, NOW);
    assert!(!value.create_key(draft(3), NOW).unwrap().record.suspended);
}

#[test]
fn only_end_sessions_ends_sessions() {
    use AccountAction::{EndSessions, MakeAdmin, MakeOwner, PasswordLink, Restore, Suspend};
    for action in [MakeAdmin, MakeOwner, PasswordLink, Restore, Suspend, EndSessions] {
        let mut value = ada();
        value.add_session(&session(1, 60), NOW).unwrap();
        change(&mut value, action, NOW);
        assert_eq!(value.has_session(&session(1, 0).id_sha256, NOW), action != EndSessions, "{action:?}");
    }
}

fn session(n: u8, ttl_seconds: u32) -> NewSession {
    NewSession {
        kind: SessionKind::Session,
        id_sha256: format!("{n:064x}"),
        ttl_seconds,
        expected_credential: None,
    }
}

fn sessions(value: &AccountValue, now: i64) -> Vec<u8> {
    (1..=12).filter(|n| value.has_session(&session(*n, 0).id_sha256, now)).collect()
}

#[test]
fn session_ends_when_it_expires() {
    let mut value = ada();
    value.add_session(&session(1, 60), NOW).unwrap();
    assert_eq!(sessions(&value, NOW + 59_999), [1]);
    assert!(sessions(&value, NOW + 60_000).is_empty());
    value.add_session(&session(2, 60), NOW + 59_999).unwrap();
    assert_eq!(value.sessions.len(), 2);
    value.add_session(&session(3, 60), NOW + 60_000).unwrap();
    assert_eq!(value.sessions.len(), 2, "the expired one was dropped");
}

#[test]
fn eleventh_session_revokes_the_one_that_expires_first() {
    let mut value = ada();
    for n in 1..=10 {
        value.add_session(&session(n, if n == 4 { 50 } else { 60 }), NOW).unwrap();
    }
    assert_eq!(sessions(&value, NOW).len(), 10);
    value.add_session(&session(11, 10), NOW).unwrap();
    assert_eq!(sessions(&value, NOW), [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn sessions_and_links_have_places_of_their_own() {
    use SessionKind::{Link, RequestedLink, Session};
    let hour = 3_600;
    // The kinds and lifetimes of what is there, that of a new one, and which of the former are left if it is added.
    for (there, new, left) in [
        (vec![(Link, 60), (RequestedLink, 60), (Link, 60)], (Session, 60), Some(&[1, 2, 3][..])),
        (vec![(Session, 60); 10], (Link, 60), Some(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])),
        (vec![(Link, hour), (Link, 60), (Link, hour)], (Link, 60), Some(&[1, 3])),
        (vec![(Link, 60), (RequestedLink, hour), (RequestedLink, 60)], (Link, 60), Some(&[1, 2])),
        (vec![(Link, 60), (RequestedLink, 60), (Link, 60)], (RequestedLink, hour), Some(&[1, 3])),
        (vec![(Link, 60), (Link, 60), (Link, 60)], (RequestedLink, hour), None),
        (vec![(RequestedLink, 60), (RequestedLink, 61), (Link, 60)], (RequestedLink, hour), Some(&[2, 3])),
        // Requested 10 minutes before, and a moment later.
        (vec![(RequestedLink, hour - 600)], (RequestedLink, hour), Some(&[1])),
        (vec![(RequestedLink, hour - 599)], (RequestedLink, hour), None),
        (vec![(RequestedLink, hour)], (Link, hour), Some(&[1])),
    ] {
        let mut value = ada();
        for (n, (kind, ttl)) in (1..).zip(&there) {
            let id_sha256 = session(n, 0).id_sha256;
            let expires_at = NOW + i64::from(*ttl) * 1000;
            value.sessions.insert(id_sha256, StoredSession { kind: *kind, expires_at });
        }
        let before = sessions(&value, NOW);
        let added = value.add_session(&NewSession { kind: new.0, ..session(12, new.1) }, NOW);
        assert_eq!(added, Ok(left.is_some()), "{there:?} {new:?}");
        let expected = left.map_or(before, |left| [left, &[12]].concat());
        assert_eq!(sessions(&value, NOW), expected, "{there:?} {new:?}");
    }
}

#[test]
fn outdated_credential_is_rejected() {
    let mut value = ada();
    let expecting = |credential: &str| Some(credential.to_owned());
    assert_eq!(value.check_credential(None), Ok(()));
    assert_eq!(value.check_credential(Some("hash")), Ok(()));
    assert_eq!(value.check_credential(Some("old")), Err(Rejection::CredentialConflict));
    let outdated = NewSession { expected_credential: expecting("old"), ..session(1, 60) };
    assert_eq!(value.add_session(&outdated, NOW), Err(Rejection::CredentialConflict));
    let current = NewSession { expected_credential: expecting("hash"), ..session(1, 60) };
    assert_eq!(value.add_session(&current, NOW), Ok(true));
    for (expected_version, expected_credential) in [(0, None), (2, None), (1, expecting("old"))] {
        let change = SetCredential {
            credential: "new".to_owned(),
            expected_version,
            expected_credential,
            ..SetCredential::default()
        };
        assert_eq!(value.clone().set_credential(&change), Err(Rejection::CredentialConflict), "{change:?}");
    }
    value.account.credential = None;
    assert_eq!(value.check_credential(Some("hash")), Err(Rejection::CredentialConflict));
}

#[test]
fn new_credential_revokes_all_sessions_but_the_kept_ones() {
    for (keep_session, keep_all_sessions, left) in
        [(None, None, &[][..]), (None, Some(false), &[]), (Some(2), None, &[2]), (None, Some(true), &[1, 2])]
    {
        let mut value = ada();
        for n in [1, 2] {
            value.add_session(&session(n, 60), NOW).unwrap();
        }
        let change = SetCredential {
            credential: "new".to_owned(),
            expected_version: 1,
            expected_credential: Some("hash".to_owned()),
            keep_session: keep_session.map(|n| session(n, 0).id_sha256),
            keep_all_sessions,
        };
        assert_eq!(value.set_credential(&change), Ok(2));
        let account = &value.account;
        assert_eq!((account.credential.as_deref(), account.credential_version), (Some("new"), 2));
        assert_eq!(sessions(&value, NOW), left, "{change:?}");
    }
}

#[test]
fn contact_is_replaced_only_if_it_is_the_expected_one() {
    let (mut value, contact) = (ada(), super::notices::tests::contact(true, true));
    assert_eq!(value.set_contact(&contact, &contact), Err(Rejection::ContactConflict));
    assert_eq!(value.set_contact(&Contact::default(), &contact), Ok(()));
    assert_eq!(value.account.contact, contact);
    assert_eq!(value.set_contact(&Contact::default(), &contact), Err(Rejection::ContactConflict));
}
