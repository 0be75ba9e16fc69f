//! What admins and the operator decide about accounts: roles, suspensions, the end of sessions.

use futures_util::future::join_all;
use quota_api::KeyChange;
use quota_api::{
    AccountAction, AccountChange, Actor, Event, EventKind, NewSession, Outcome, Role, Scope, SessionKind,
    StateChange, StoredAccount,
};
use quota_svc::domain::account::Login;
use quota_svc::domain::id::{AccountId, KeyId};

use super::harness::Harness;

fn admin() -> Actor {
    Actor::Admin("root@example.org".to_owned())
}

async fn change(harness: &Harness, account: AccountId, action: AccountAction) -> StoredAccount {
    let reason = (action == AccountAction::Suspend).then(|| "abuse".to_owned());
    harness.store.change_account(account, &AccountChange { action, reason }, &admin()).await.unwrap()
}

async fn keys_in(harness: &Harness, account: AccountId, count: usize) -> Vec<KeyId> {
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(harness.key_in(account, Scope::Full, None).await.unwrap());
    }
    keys
}

async fn outcomes(harness: &Harness, keys: &[KeyId]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for key in keys {
        outcomes.push(harness.outcome(*key).await);
    }
    outcomes
}

pub async fn suspension_denies_all_keys_and_its_end_restores_their_states(harness: &Harness) {
    let account = harness.account().await;
    let keys = keys_in(harness, account, 3).await;
    let deactivate = KeyChange::State(StateChange::Deactivate);
    harness.store.change_key(keys[1], None, &deactivate, &Actor::Owner).await.unwrap();
    harness.charge_and_count(keys[2], 301, Outcome::Allowed).await;
    let before = outcomes(harness, &keys).await;
    assert_eq!(before, [Outcome::Allowed, Outcome::Inactive, Outcome::Paused]);
    change(harness, account, AccountAction::Suspend).await;
    assert_eq!(outcomes(harness, &keys).await, [Outcome::Suspended; 3]);
    // Neither a change of the key nor a second suspension ends it.
    harness.store.change_key(keys[2], None, &KeyChange::State(StateChange::Resume), &admin()).await.unwrap();
    change(harness, account, AccountAction::Suspend).await;
    assert_eq!(outcomes(harness, &keys).await, [Outcome::Suspended; 3]);
    assert_eq!(harness.store.key(keys[0], None).await.unwrap().record.used, 1, "nothing is counted");
    change(harness, account, AccountAction::Restore).await;
    assert_eq!(
        outcomes(harness, &keys).await,
        [Outcome::Allowed, Outcome::Inactive, Outcome::Allowed],
        "the third was resumed meanwhile"
    );
    let kinds: Vec<_> = harness.store.events(keys[0], None).await.unwrap().iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::Restored, EventKind::Suspended, EventKind::Created]);
}

pub async fn keys_created_during_suspensions_agree_with_their_account(harness: &Harness) {
    let account = harness.account().await;
    for round in 0..6 {
        let action = if round % 2 == 0 { AccountAction::Suspend } else { AccountAction::Restore };
        let opposite = if round % 3 == 0 { AccountAction::Restore } else { AccountAction::Suspend };
        let creations = join_all((0..3).map(|_| harness.key_in(account, Scope::Ip, None)));
        let changes = async {
            tokio::join!(change(harness, account, action), change(harness, account, opposite));
        };
        let (created, ()) = tokio::join!(creations, changes);
        let suspended = harness.store.account(account).await.unwrap().account.standing.suspension.is_some();
        let expected = if suspended { Outcome::Suspended } else { Outcome::Allowed };
        for key in created {
            let key = key.unwrap();
            assert_eq!(harness.outcome(key).await, expected, "round {round}");
            harness.store.delete_key(key, None).await.unwrap();
        }
    }
}

pub async fn imported_keys_of_a_suspended_account_are_suspended(harness: &Harness) {
    let (account, origin) = (harness.account().await, Harness::embedded());
    let login = Login::parse(&harness.store.account(account).await.unwrap().account.login).unwrap();
    origin.store.create_account(&login, None).await.unwrap();
    let key = origin.key_in(account, Scope::Full, None).await.unwrap();
    change(harness, account, AccountAction::Suspend).await;
    let import = quota_svc::domain::transfer::ImportAccount {
        account: harness.store.account(account).await.unwrap().value.account,
        keys: vec![origin.store.key(key, None).await.unwrap().value],
    };
    assert_eq!(harness.store.import(&[import]).await.unwrap().keys_created, 1);
    assert_eq!(harness.outcome(key).await, Outcome::Suspended);
    change(harness, account, AccountAction::Restore).await;
    assert_eq!(harness.outcome(key).await, Outcome::Allowed);
}

pub async fn account_events_name_the_change_and_its_actor(harness: &Harness) {
    let account = harness.account().await;
    let session = "ab".repeat(32);
    let new = NewSession {
        kind: SessionKind::Session,
        id_sha256: session.clone(),
        ttl_seconds: 60,
        expected_credential: None,
    };
    harness.store.add_session(account, &new).await.unwrap();
    for action in [
        AccountAction::MakeAdmin,
        AccountAction::MakeAdmin,
        AccountAction::Suspend,
        AccountAction::Restore,
        AccountAction::PasswordLink,
        AccountAction::EndSessions,
        AccountAction::MakeOwner,
    ] {
        harness.advance(1);
        change(harness, account, action).await;
    }
    assert!(!harness.has_session(account, &session).await);
    let standing = harness.store.account(account).await.unwrap().value.account.standing;
    assert_eq!((standing.role, &standing.suspension), (Role::Owner, &None));
    let texts = |event: &Event| (event.kind, event.reason.clone());
    let by = "(by admin root@example.org)";
    assert_eq!(
        standing.events.iter().map(texts).collect::<Vec<_>>(),
        [
            (EventKind::RoleChanged, format!("is no longer an admin {by}")),
            (EventKind::SessionsEnded, format!("signed out everywhere {by}")),
            (EventKind::PasswordLink, format!("a link to set the password was created {by}")),
            (EventKind::Restored, format!("restored {by}")),
            (EventKind::Suspended, format!("abuse {by}")),
            (EventKind::RoleChanged, format!("became an admin {by}")),
        ],
        "the second MakeAdmin has no effect"
    );
}

pub async fn concurrent_account_changes_are_all_kept(harness: &Harness) {
    let account = harness.account().await;
    join_all((0..12).map(|_| change(harness, account, AccountAction::PasswordLink))).await;
    assert_eq!(harness.store.account(account).await.unwrap().account.standing.events.len(), 12);
}
