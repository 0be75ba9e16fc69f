//! Keys: how many, in which states, whose, and what is told of them.

use futures_util::future::join_all;
use quota_client::wire::{EventKind, KeyState, Outcome, Scope};
use quota_svc::domain::key::{Change, KeyName};
use quota_svc::store::StoreError;

use crate::bench::{Bench, DAY};

pub async fn fifty_creations_at_once_make_ten_keys(bench: &Bench) {
    let account = bench.account().await;
    let results = join_all((0..50).map(|_| bench.key_in(account, Scope::Full, None))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 10);
    let refused = results.iter().filter(|result| matches!(result, Err(StoreError::KeyLimitReached)));
    assert_eq!(refused.count(), 40);
    assert_eq!(bench.store.keys(account).await.unwrap().len(), 10);
}

pub async fn a_deleted_key_is_unknown_and_frees_its_place(bench: &Bench) {
    let account = bench.account().await;
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(bench.key_in(account, Scope::Geo, None).await.unwrap());
    }
    assert!(matches!(bench.key_in(account, Scope::Geo, None).await, Err(StoreError::KeyLimitReached)));
    bench.store.change_key(keys[3], None, &Change::Deactivate).await.unwrap();
    bench.store.delete_key(keys[3], Some(account)).await.unwrap();
    assert_eq!(bench.outcome(keys[3]).await, Outcome::UnknownKey);
    assert!(matches!(bench.store.delete_key(keys[3], None).await, Err(StoreError::KeyNotFound)));
    bench.step(1);
    let new = bench.key_in(account, Scope::Geo, None).await.unwrap();
    let listed: Vec<_> = bench.store.keys(account).await.unwrap().iter().map(|key| key.meta.id()).collect();
    assert_eq!(listed.len(), 10);
    assert_eq!(listed.last(), Some(&new), "oldest first");
}

pub async fn the_state_machine_is_the_documented_one(bench: &Bench) {
    use KeyState::{Active, Inactive, Paused};
    let key = bench.key().await;
    let change =
        async |change: Change| bench.store.change_key(key, None, &change).await.map(|key| key.record.state);
    assert_eq!(change(Change::Resume).await.unwrap(), Active);
    assert_eq!(change(Change::Reactivate).await.unwrap(), Active);
    assert_eq!(change(Change::Deactivate).await.unwrap(), Inactive);
    assert_eq!(bench.outcome(key).await, Outcome::Inactive);
    assert_eq!(change(Change::Deactivate).await.unwrap(), Inactive);
    assert!(matches!(change(Change::Resume).await, Err(StoreError::KeyInactive)));
    assert_eq!(change(Change::Reactivate).await.unwrap(), Active);
    assert_eq!(bench.charge_key(key, 301).await[300].outcome, Outcome::BurstExceeded);
    assert!(matches!(change(Change::Reactivate).await, Err(StoreError::KeyPaused)));
    assert_eq!(bench.store.key(key, None).await.unwrap().record.state, Paused);
    assert_eq!(change(Change::Resume).await.unwrap(), Active);
    bench.charge_key(key, 301).await;
    assert_eq!(change(Change::Deactivate).await.unwrap(), Inactive);
    bench.step(77);
    assert_eq!(change(Change::Reactivate).await.unwrap(), Active);
    assert_eq!(bench.store.key(key, None).await.unwrap().record.state_since, bench.now());
    assert_eq!(bench.outcome(key).await, Outcome::Allowed);
}

pub async fn another_account_cannot_see_or_touch_a_key(bench: &Bench) {
    let (owner, other) = (bench.account().await, bench.account().await);
    let key = bench.key_in(owner, Scope::Full, None).await.unwrap();
    let not_found = |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::KeyNotFound)));
    not_found(bench.store.key(key, Some(other)).await.map(drop));
    not_found(bench.store.events(key, Some(other)).await.map(drop));
    not_found(bench.store.delete_key(key, Some(other)).await);
    let name = KeyName::parse("stolen").unwrap();
    for change in [
        Change::Resume,
        Change::Deactivate,
        Change::Reactivate,
        Change::Rename(name),
        Change::DailyLimit(Some(1)),
    ] {
        not_found(bench.store.change_key(key, Some(other), &change).await.map(drop));
    }
    let unchanged = bench.store.key(key, Some(owner)).await.unwrap();
    assert_eq!((unchanged.meta.name.as_str(), unchanged.record.state), ("a key", KeyState::Active));
}

pub async fn every_change_is_an_event_and_old_ones_go(bench: &Bench) {
    let key = bench.key().await;
    for change in [Change::Deactivate, Change::Deactivate, Change::Reactivate, Change::DailyLimit(Some(5))] {
        bench.step(1);
        bench.store.change_key(key, None, &change).await.unwrap();
    }
    let events = bench.store.events(key, None).await.unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    use EventKind::{Created, Deactivated, LimitChanged, Reactivated};
    assert_eq!(kinds, [LimitChanged, Reactivated, Deactivated, Created], "newest first, no change no event");
    assert_eq!(events[0].at, bench.now());
    assert_eq!(events[0].reason, "daily limit set to 5");
    for n in 0..130 {
        let name = KeyName::parse(&format!("name {n}")).unwrap();
        bench.store.change_key(key, None, &Change::Rename(name)).await.unwrap();
    }
    let events = bench.store.events(key, None).await.unwrap();
    assert_eq!((events.len(), events[0].reason.as_str()), (100, "renamed to name 129"));
    bench.step(31 * DAY);
    assert_eq!(bench.store.events(key, None).await.unwrap(), []);
}

pub async fn names_and_limits_change(bench: &Bench) {
    let account = bench.account().await;
    let key = bench.key_in(account, Scope::Ip, Some(2)).await.unwrap();
    let name = KeyName::parse("Büro · 東京").unwrap();
    let renamed = bench.store.change_key(key, Some(account), &Change::Rename(name.clone())).await.unwrap();
    assert_eq!(renamed.meta.name, name);
    let outcomes: Vec<_> = bench.charge_key(key, 3).await.iter().map(|verdict| verdict.outcome).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Allowed, Outcome::DailyExceeded]);
    bench.store.change_key(key, None, &Change::DailyLimit(Some(4))).await.unwrap();
    let verdict = bench.charge_key(key, 1).await[0];
    assert_eq!((verdict.outcome, verdict.limit, verdict.remaining), (Outcome::Allowed, Some(4), Some(1)));
    bench.store.change_key(key, None, &Change::DailyLimit(Some(1))).await.unwrap();
    assert_eq!(bench.charge_key(key, 1).await[0].remaining, Some(0), "a lowered limit is never negative");
    bench.store.change_key(key, None, &Change::DailyLimit(None)).await.unwrap();
    assert_eq!(bench.charge_key(key, 1).await[0].limit, Some(10_000));
}
