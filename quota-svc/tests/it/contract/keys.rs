//! Keys: their maximum number, states, owner and events.

use futures_util::future::join_all;
use quota_api::{Actor, EventKind, KeyState, NewKey, Outcome, Scope, StateChange};
use quota_api::{KeyChange, Rejection};
use quota_svc::store::StoreError;
use testkit::quota::rate_limit;

use super::harness::{DAY, Harness, draft, rename};

pub async fn concurrent_creations_stop_at_ten_keys(harness: &Harness) {
    let account = harness.account().await;
    let results = join_all((0..50).map(|_| harness.key_in(account, Scope::Full, None))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 10);
    let rejected = results
        .iter()
        .filter(|result| matches!(result, Err(StoreError::Rejected(Rejection::KeyLimitReached))));
    assert_eq!(rejected.count(), 40);
    assert_eq!(harness.store.keys(account).await.unwrap().keys.len(), 10);
}

pub async fn deleted_key_is_unknown_and_frees_its_slot(harness: &Harness) {
    let account = harness.account().await;
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(harness.key_in(account, Scope::Geo, None).await.unwrap());
    }
    assert!(matches!(
        harness.key_in(account, Scope::Geo, None).await,
        Err(StoreError::Rejected(Rejection::KeyLimitReached))
    ));
    harness
        .store
        .change_key(keys[3], None, &KeyChange::State(StateChange::Deactivate), &Actor::Operator)
        .await
        .unwrap();
    harness.store.delete_key(keys[3], Some(account)).await.unwrap();
    assert_eq!(harness.outcome(keys[3]).await, Outcome::UnknownKey);
    assert!(matches!(
        harness.store.delete_key(keys[3], None).await,
        Err(StoreError::Rejected(Rejection::KeyNotFound))
    ));
    harness.advance(1);
    let new = harness.key_in(account, Scope::Geo, None).await.unwrap();
    let listed = harness.store.keys(account).await.unwrap().value.keys;
    let listed: Vec<_> = listed.iter().map(|key| key.meta.id()).collect();
    assert_eq!(listed.len(), 10);
    assert_eq!(listed.last(), Some(&new), "keys are listed oldest first");
}

pub async fn key_state_transitions_match_documentation(harness: &Harness) {
    use KeyState::{Active, Inactive, Paused};
    let key = harness.key().await;
    let state_after = async |change: KeyChange| {
        harness.store.change_key(key, None, &change, &Actor::Operator).await.map(|key| key.record.state)
    };
    assert_eq!(state_after(KeyChange::State(StateChange::Resume)).await.unwrap(), Active);
    assert_eq!(state_after(KeyChange::State(StateChange::Reactivate)).await.unwrap(), Active);
    assert_eq!(state_after(KeyChange::State(StateChange::Deactivate)).await.unwrap(), Inactive);
    assert_eq!(harness.outcome(key).await, Outcome::Inactive);
    assert_eq!(state_after(KeyChange::State(StateChange::Deactivate)).await.unwrap(), Inactive);
    assert!(matches!(
        state_after(KeyChange::State(StateChange::Resume)).await,
        Err(StoreError::Rejected(Rejection::KeyInactive))
    ));
    assert_eq!(state_after(KeyChange::State(StateChange::Reactivate)).await.unwrap(), Active);
    assert_eq!(harness.charge_key(key, 301).await[300].outcome(), Outcome::BurstExceeded);
    assert!(matches!(
        state_after(KeyChange::State(StateChange::Reactivate)).await,
        Err(StoreError::Rejected(Rejection::KeyPaused))
    ));
    assert_eq!(harness.store.key(key, None).await.unwrap().record.state, Paused);
    assert_eq!(state_after(KeyChange::State(StateChange::Resume)).await.unwrap(), Active);
    harness.charge_key(key, 301).await;
    assert_eq!(state_after(KeyChange::State(StateChange::Deactivate)).await.unwrap(), Inactive);
    harness.advance(77);
    assert_eq!(state_after(KeyChange::State(StateChange::Reactivate)).await.unwrap(), Active);
    assert_eq!(harness.store.key(key, None).await.unwrap().record.state_since, harness.now());
    assert_eq!(harness.outcome(key).await, Outcome::Allowed);
}

pub async fn key_of_another_account_is_not_found(harness: &Harness) {
    let (owner, other) = (harness.account().await, harness.account().await);
    let key = harness.key_in(owner, Scope::Full, None).await.unwrap();
    let assert_not_found = |result: Result<(), StoreError>| {
        assert!(matches!(result, Err(StoreError::Rejected(Rejection::KeyNotFound))))
    };
    assert_not_found(harness.store.key(key, Some(other)).await.map(drop));
    assert_not_found(harness.store.events(key, Some(other)).await.map(drop));
    assert_not_found(harness.store.delete_key(key, Some(other)).await);
    for change in [
        KeyChange::State(StateChange::Resume),
        KeyChange::State(StateChange::Deactivate),
        KeyChange::State(StateChange::Reactivate),
        rename("stolen"),
        KeyChange::DailyLimit(Some(1)),
    ] {
        assert_not_found(
            harness.store.change_key(key, Some(other), &change, &Actor::Operator).await.map(drop),
        );
    }
    let unchanged = harness.store.key(key, Some(owner)).await.unwrap();
    assert_eq!((unchanged.meta.settings.name.as_str(), unchanged.record.state), ("a key", KeyState::Active));
}

pub async fn changes_add_events_and_old_events_are_dropped(harness: &Harness) {
    let key = harness.key().await;
    for change in [
        KeyChange::State(StateChange::Deactivate),
        KeyChange::State(StateChange::Deactivate),
        KeyChange::State(StateChange::Reactivate),
        KeyChange::DailyLimit(Some(5)),
    ] {
        harness.advance(1);
        harness.store.change_key(key, None, &change, &Actor::Operator).await.unwrap();
    }
    let events = harness.store.events(key, None).await.unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    use EventKind::{Created, Deactivated, LimitChanged, Reactivated};
    assert_eq!(
        kinds,
        [LimitChanged, Reactivated, Deactivated, Created],
        "newest first; a change without effect adds no event"
    );
    assert_eq!(events[0].at, harness.now());
    assert_eq!(events[0].reason, "daily limit set to 5 (by the operator)");
    for n in 0..130 {
        harness.store.change_key(key, None, &rename(&format!("name {n}")), &Actor::Owner).await.unwrap();
    }
    let events = harness.store.events(key, None).await.unwrap();
    assert_eq!((events.len(), events[0].reason.as_str()), (100, "renamed to name 129 (by the owner)"));
    harness.advance(31 * DAY);
    assert_eq!(harness.store.events(key, None).await.unwrap(), []);
}

pub async fn events_name_the_actor(harness: &Harness) {
    let account = harness.account().await;
    let key = account.generate_key().unwrap();
    let draft = draft(&key, NewKey::new("a key", Scope::Ip));
    let key = harness.store.create_key(account, draft).await.unwrap().meta.id();
    for (change, actor) in [
        (KeyChange::State(StateChange::Deactivate), Actor::Operator),
        (KeyChange::State(StateChange::Reactivate), Actor::Owner),
        (rename("new name"), Actor::Owner),
        (KeyChange::DailyLimit(Some(5)), Actor::Operator),
        (KeyChange::DailyLimit(None), Actor::System),
    ] {
        harness.advance(1);
        harness.store.change_key(key, None, &change, &actor).await.unwrap();
    }
    let events = harness.store.events(key, None).await.unwrap();
    let reasons: Vec<_> = events.iter().rev().map(|event| event.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "created (by the owner)",
            "deactivated (by the operator)",
            "reactivated (by the owner)",
            "renamed to new name (by the owner)",
            "daily limit set to 5 (by the operator)",
            "daily limit set to the default (by the system)",
        ]
    );
}

pub async fn name_and_daily_limit_can_be_changed(harness: &Harness) {
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Ip, Some(2)).await.unwrap();
    let renamed = harness.store.change_key(key, Some(account), &rename("Büro · 東京"), &Actor::Owner).await;
    assert_eq!(renamed.unwrap().meta.settings.name, "Büro · 東京");
    let outcomes: Vec<_> = harness.charge_key(key, 3).await.iter().map(|verdict| verdict.outcome()).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Allowed, Outcome::DailyExceeded]);
    harness.store.change_key(key, None, &KeyChange::DailyLimit(Some(4)), &Actor::Operator).await.unwrap();
    let limit_and_remaining = async || {
        let verdict = harness.charge_key(key, 1).await[0];
        rate_limit(&verdict).map(|rate_limit| (rate_limit.limit, rate_limit.remaining))
    };
    assert_eq!(limit_and_remaining().await, Some((4, 1)));
    harness.store.change_key(key, None, &KeyChange::DailyLimit(Some(1)), &Actor::Operator).await.unwrap();
    assert_eq!(limit_and_remaining().await, Some((1, 0)), "remaining is never negative");
    harness.store.change_key(key, None, &KeyChange::DailyLimit(None), &Actor::Operator).await.unwrap();
    assert_eq!(limit_and_remaining().await, Some((10_000, 9_996)));
}
