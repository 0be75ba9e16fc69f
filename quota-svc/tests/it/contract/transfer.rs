//! Import into a store.

use quota_api::{EventKind, KeySettings, KeyState, Outcome, Role, Scope, Standing, StoredAccount};
use quota_svc::domain::id::AccountId;
use quota_svc::domain::key::{KeyMeta, StoredKey};
use quota_svc::domain::notice::next_expiry_notice;
use quota_svc::domain::transfer::ImportAccount;

use super::harness::{DAY, Harness, random};
use super::notices::webhook_contact;

/// An account with `key_count` new keys, as a backup would contain it.
fn account_to_import(login: &str, key_count: usize, now: i64) -> ImportAccount {
    let id = AccountId::of(login);
    let account = StoredAccount {
        credential_version: 4,
        contact: webhook_contact(),
        standing: Standing { role: Role::Admin, ..Standing::default() },
        ..StoredAccount::new(login.to_owned(), Some("hash".to_owned()), 123)
    };
    let keys = (0..key_count).map(|n| {
        let key = id.generate_key().unwrap();
        let settings = KeySettings {
            expires_at: Some(4_000_000_000),
            allowed_origins: vec!["https://a.example".to_owned(); n % 2],
            ..KeySettings::new(&format!("key {n}"), Scope::Geo)
        };
        let meta = KeyMeta {
            expiry_notice: next_expiry_notice(4_000_000_000, now),
            ..KeyMeta::new(id, key.digest(), key.hint(), 200 + n as i64, settings)
        };
        StoredKey::new(meta, None, now)
    });
    ImportAccount { keys: keys.collect(), account }
}

fn id_of(import: &ImportAccount) -> AccountId {
    AccountId::of(&import.account.login)
}

pub async fn import_adds_missing_and_keeps_existing(harness: &Harness) {
    let login = format!("ada-{}", random());
    let first = account_to_import(&login, 6, harness.now());
    let more = account_to_import(&login, 6, harness.now());
    let other = account_to_import(&random(), 2, harness.now());
    let report = harness.store.import(&[first.clone(), other]).await.unwrap();
    assert_eq!((report.accounts_created, report.keys_created), (2, 8));
    let report = harness.store.import(std::slice::from_ref(&first)).await.unwrap();
    assert_eq!((report.accounts_kept, report.keys_kept, report.keys_created), (1, 6, 0));
    let report = harness.store.import(&[more]).await.unwrap();
    assert_eq!((report.keys_created, report.keys_refused), (4, 2), "an account has at most ten keys");
    let account = harness.store.account(id_of(&first)).await.unwrap();
    assert_eq!(account.account, first.account);
    let keys = harness.store.keys(id_of(&first)).await.unwrap().value.keys;
    assert_eq!(keys.len(), 10);
    assert!(first.keys.iter().all(|key| keys.contains(key)));
}

pub async fn imported_keys_keep_their_state_and_usage(harness: &Harness) {
    let mut account = account_to_import(&random(), 2, harness.now());
    let today = (harness.now() / DAY) as u32;
    account.keys[0].record.daily_limit = Some(100);
    account.keys[0].record.set_used_on(today, 99);
    account.keys[0].record.set_used_on(today - 2, 7);
    (account.keys[1].record.state, account.keys[1].record.state_since) = (KeyState::Inactive, 55);
    harness.store.import(std::slice::from_ref(&account)).await.unwrap();
    let [used, inactive] = [0, 1].map(|n| account.keys[n].meta.id());
    let verdicts = harness.charge_key(used, 2).await;
    assert_eq!([verdicts[0].outcome(), verdicts[1].outcome()], [Outcome::Allowed, Outcome::DailyExceeded]);
    assert_eq!(harness.store.key(used, None).await.unwrap().record.used_on(today - 2, today), 7);
    assert_eq!(harness.outcome(inactive).await, Outcome::Inactive);
    assert_eq!(harness.store.events(used, None).await.unwrap()[0].kind, EventKind::Imported);
}

pub async fn import_skips_keys_that_another_account_holds(harness: &Harness) {
    let owner = account_to_import(&random(), 1, harness.now());
    harness.store.import(std::slice::from_ref(&owner)).await.unwrap();
    let in_same_shard = |login: &String| AccountId::of(login).shard() == id_of(&owner).shard();
    let login = std::iter::repeat_with(random).find(in_same_shard).unwrap();
    let mut other = account_to_import(&login, 1, harness.now());
    let mut held = owner.keys[0].clone();
    held.meta.account = id_of(&other);
    other.keys.push(held);
    for created in [1, 0] {
        let report = harness.store.import(std::slice::from_ref(&other)).await.unwrap();
        let keys = (report.keys_created, report.keys_kept, report.keys_refused);
        assert_eq!(keys, (created, 1 - created, 1));
    }
    assert_eq!(harness.store.keys(id_of(&other)).await.unwrap().keys, other.keys[..1]);
    assert_eq!(harness.store.keys(id_of(&owner)).await.unwrap().keys, owner.keys);
}
