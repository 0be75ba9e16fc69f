//! Stored data that can't be read: it blocks nothing else, is listed, and can be deleted.

use std::collections::BTreeSet;

use quota_api::{Outcome, Rejection, Scope};
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::store::StoreError;
use redb::{Database, ReadableTable, StorageBackend, TableDefinition};

use super::harness::Harness;

/// The part of the stored data to damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Record,
    /// A key's metadata.
    Meta,
    Account,
}

/// Overwrites a row of a closed store file. `id` is that of the account or the key, in hexadecimal digits.
pub fn damage_file(file: impl StorageBackend, part: Part, id: &str) {
    let bytes = KeyId::from_hex(id).unwrap().0;
    let ending = match part {
        Part::Record => [&[2], &bytes[..]].concat(),
        Part::Meta => format!("k:{id}").into_bytes(),
        Part::Account => [&bytes[..], b"account"].concat(),
    };
    let table: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows-1");
    let database = Database::builder().create_with_backend(file).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(table).unwrap();
        let mut names = table.iter().unwrap().map(|row| row.unwrap().0.value().to_vec());
        let name = names.find(|name| name.ends_with(&ending)).expect("the row exists");
        drop(names);
        table.insert(&name[..], &b"damaged"[..]).unwrap();
    }
    transaction.commit().unwrap();
}

/// `damage` makes a part of an account or key unreadable and returns a store with that data.
pub async fn can_be_listed_and_deleted(
    harness: Harness,
    damage: impl AsyncFn(Harness, Part, String) -> Harness,
) {
    let (account, other) = (harness.account().await, harness.account().await);
    let [good, bad_record, bad_meta] = create_keys(&harness, account).await;
    let harness = damage(harness, Part::Record, bad_record.to_string()).await;
    let harness = damage(harness, Part::Meta, bad_meta.to_string()).await;
    let listed = ids(&harness, account).await;
    assert_eq!(listed, (vec![good], BTreeSet::from([bad_record, bad_meta])));
    let store = &harness.store;
    let named =
        store.keys(account).await.unwrap().value.unreadable.into_iter().filter(|key| key.name.is_some());
    let named: Vec<_> = named.map(|key| key.id).collect();
    assert_eq!(named, [bad_record.to_string()], "its metadata is readable");
    for bad in [bad_record, bad_meta] {
        assert!(
            matches!(store.key(bad, Some(account)).await, Err(StoreError::Rejected(Rejection::UnreadableKey { id, .. })) if id == bad.to_string())
        );
        assert!(matches!(
            store.key(bad, Some(other)).await,
            Err(StoreError::Rejected(Rejection::KeyNotFound))
        ));
        assert!(matches!(
            store.delete_key(bad, Some(other)).await,
            Err(StoreError::Rejected(Rejection::KeyNotFound))
        ));
    }
    assert_eq!(harness.outcome(bad_record).await, Outcome::Unavailable);
    store.delete_key(bad_record, Some(account)).await.unwrap();
    assert_eq!(ids(&harness, account).await, (vec![good], BTreeSet::from([bad_meta])));
    assert_eq!(harness.outcome(bad_record).await, Outcome::UnknownKey);
    store.delete_account(account, None).await.unwrap();
    for key in [good, bad_meta] {
        assert_eq!(harness.outcome(key).await, Outcome::UnknownKey);
    }
    unreadable_account_can_be_deleted(harness, other, damage).await;
}

async fn unreadable_account_can_be_deleted(
    harness: Harness,
    account: AccountId,
    damage: impl AsyncFn(Harness, Part, String) -> Harness,
) {
    let ([key, unreadable_key, _], readable) =
        (create_keys(&harness, account).await, harness.account().await);
    let harness = damage(harness, Part::Record, unreadable_key.to_string()).await;
    // An operator deletes a key whose record names no account.
    harness.store.delete_key(unreadable_key, None).await.unwrap();
    assert_not_found(harness.store.delete_key(unreadable_key, None).await);
    let harness = damage(harness, Part::Account, account.to_string()).await;
    let store = &harness.store;
    let (mut accounts, mut unreadable, mut cursor) = (Vec::new(), Vec::new(), None);
    loop {
        let page = store.page(cursor.as_deref(), 100).await.unwrap();
        accounts.extend(page.accounts.iter().map(|value| AccountId::of(&value.account.login)));
        unreadable.extend(page.unreadable);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((accounts, unreadable), (vec![readable], vec![account]));
    assert!(
        matches!(store.account(account).await, Err(StoreError::Rejected(Rejection::UnreadableAccount { id })) if id == account.to_string())
    );
    store.delete_account(account, None).await.unwrap();
    assert!(matches!(store.account(account).await, Err(StoreError::Rejected(Rejection::AccountNotFound))));
    assert_eq!(harness.outcome(key).await, Outcome::UnknownKey);
}

fn assert_not_found(result: Result<(), StoreError>) {
    assert!(matches!(result, Err(StoreError::Rejected(Rejection::KeyNotFound))), "{result:?}");
}

async fn create_keys(harness: &Harness, account: AccountId) -> [KeyId; 3] {
    let create = async || harness.key_in(account, Scope::Full, None).await.unwrap();
    [create().await, create().await, create().await]
}

/// The IDs of readable and of unreadable keys.
async fn ids(harness: &Harness, account: AccountId) -> (Vec<KeyId>, BTreeSet<KeyId>) {
    let listing = harness.store.keys(account).await.unwrap();
    let unreadable = listing.unreadable.iter().map(|key| KeyId::from_hex(&key.id).unwrap());
    (listing.keys.iter().map(|key| key.meta.id()).collect(), unreadable.collect())
}
