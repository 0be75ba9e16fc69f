//! Accounts, credentials and sessions.

use std::collections::HashSet;

use quota_api::{Rejection, Scope, SetCredential};
use quota_svc::domain::account::Login;
use quota_svc::domain::id::AccountId;
use quota_svc::store::StoreError;

use super::harness::{Harness, new_session, random};

pub async fn duplicate_login_in_other_case_is_rejected(harness: &Harness) {
    let login = format!("Ada-{}", random());
    let parsed = Login::parse(&login).unwrap();
    let account = harness.store.create_account(&parsed, Some("secret")).await.unwrap();
    assert_eq!((account.created_at, account.credential_version), (harness.now(), 1));
    let duplicate = harness.store.create_account(&Login::parse(&login.to_uppercase()).unwrap(), None).await;
    assert!(matches!(duplicate, Err(StoreError::Rejected(Rejection::AccountExists))));
    assert_eq!(harness.store.account(parsed.account_id()).await.unwrap().account, account);
    let unknown = Login::parse(&random()).unwrap().account_id();
    assert!(matches!(
        harness.store.account(unknown).await,
        Err(StoreError::Rejected(Rejection::AccountNotFound))
    ));
}

pub async fn listing_returns_every_account_once(harness: &Harness) {
    let mut created = HashSet::new();
    for _ in 0..25 {
        created.insert(harness.account().await);
    }
    let (mut listed, mut cursor) = (HashSet::new(), None::<String>);
    loop {
        let page = harness.store.page(cursor.as_deref(), 7).await.unwrap();
        assert_eq!(page.total, 25);
        for account in &page.accounts {
            assert!(listed.insert(AccountId::of(&account.account.login)), "listed twice");
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, created);
}

pub async fn account_deletion_deletes_keys(harness: &Harness) {
    let account = harness.account().await;
    let key = harness.key_in(account, Scope::Full, None).await.unwrap();
    harness.store.add_session(account, &new_session(&"a".repeat(64), 60, None)).await.unwrap();
    harness.store.delete_account(account, None).await.unwrap();
    assert!(matches!(
        harness.store.account(account).await,
        Err(StoreError::Rejected(Rejection::AccountNotFound))
    ));
    assert!(matches!(harness.store.key(key, None).await, Err(StoreError::Rejected(Rejection::KeyNotFound))));
    assert!(matches!(
        harness.store.delete_account(account, None).await,
        Err(StoreError::Rejected(Rejection::AccountNotFound))
    ));
    assert!(matches!(
        harness.key_in(account, Scope::Ip, None).await,
        Err(StoreError::Rejected(Rejection::AccountNotFound))
    ));
    assert_eq!(harness.store.page(None, 100).await.unwrap().total, 0);
    assert_eq!(harness.outcome(key).await, quota_api::Outcome::UnknownKey);
}

pub async fn credential_change_checks_version_and_revokes_sessions(harness: &Harness) {
    let account = harness.account().await;
    let (kept, other) = ("a".repeat(64), "b".repeat(64));
    let set = async |expected_version, credential: &str, keep_session, keep_all_sessions| {
        let credential = credential.to_owned();
        let change = SetCredential {
            credential,
            expected_version,
            expected_credential: None,
            keep_session,
            keep_all_sessions,
        };
        harness.store.set_credential(account, &change).await
    };
    assert_eq!(set(0, "one", None, None).await.unwrap(), 1);
    for session in [&kept, &other] {
        harness.store.add_session(account, &new_session(session, 3_600, None)).await.unwrap();
    }
    let stale = set(0, "two", None, None).await;
    assert!(matches!(stale, Err(StoreError::Rejected(Rejection::CredentialConflict))));
    assert!(harness.has_session(account, &other).await);
    assert_eq!(set(1, "two", None, Some(true)).await.unwrap(), 2);
    assert!(harness.has_session(account, &other).await);
    assert_eq!(set(2, "three", Some(kept.clone()), None).await.unwrap(), 3);
    assert!(harness.has_session(account, &kept).await);
    assert!(!harness.has_session(account, &other).await);
    assert_eq!(harness.store.account(account).await.unwrap().account.credential.as_deref(), Some("three"));
}

pub async fn session_with_an_outdated_credential_is_rejected(harness: &Harness) {
    let login = Login::parse(&random()).unwrap();
    harness.store.create_account(&login, Some("old")).await.unwrap();
    let account = login.account_id();
    let add_session = async |session: &str, expected: &str| {
        harness.store.add_session(account, &new_session(&session.repeat(64), 60, Some(expected))).await
    };
    add_session("a", "old").await.unwrap();
    let change = SetCredential {
        credential: "new".to_owned(),
        expected_version: 1,
        expected_credential: Some("old".to_owned()),
        ..SetCredential::default()
    };
    assert_eq!(harness.store.set_credential(account, &change).await.unwrap(), 2);
    assert!(matches!(
        add_session("b", "old").await,
        Err(StoreError::Rejected(Rejection::CredentialConflict))
    ));
    assert!(!harness.has_session(account, &"b".repeat(64)).await);
    add_session("c", "new").await.unwrap();

    // The same login, registered again: the version is the same as that of the deleted account.
    harness.store.delete_account(account, None).await.unwrap();
    assert!(matches!(add_session("d", "new").await, Err(StoreError::Rejected(Rejection::AccountNotFound))));
    harness.store.create_account(&login, Some("other")).await.unwrap();
    assert!(matches!(
        add_session("e", "old").await,
        Err(StoreError::Rejected(Rejection::CredentialConflict))
    ));
    assert!(matches!(
        harness.store.set_credential(account, &change).await,
        Err(StoreError::Rejected(Rejection::CredentialConflict))
    ));
    assert!(!harness.has_session(account, &"e".repeat(64)).await);
    harness.store.delete_account(account, None).await.unwrap();
    harness.store.create_account(&login, None).await.unwrap();
    assert!(matches!(
        add_session("f", "old").await,
        Err(StoreError::Rejected(Rejection::CredentialConflict))
    ));
}

pub async fn account_deletion_with_an_outdated_credential_is_rejected(harness: &Harness) {
    let login = Login::parse(&random()).unwrap();
    harness.store.create_account(&login, Some("old")).await.unwrap();
    let account = login.account_id();
    let key = harness.key_in(account, Scope::Full, None).await.unwrap();
    let change = SetCredential {
        credential: "new".to_owned(),
        expected_version: 1,
        expected_credential: Some("old".to_owned()),
        ..SetCredential::default()
    };
    harness.store.set_credential(account, &change).await.unwrap();
    let delete = async |expected| harness.store.delete_account(account, Some(expected)).await;
    assert!(matches!(delete("old").await, Err(StoreError::Rejected(Rejection::CredentialConflict))));
    assert_eq!(harness.outcome(key).await, quota_api::Outcome::Allowed);
    harness.key_in(account, Scope::Full, None).await.unwrap();
    delete("new").await.unwrap();
    assert!(matches!(delete("new").await, Err(StoreError::Rejected(Rejection::AccountNotFound))));

    // The same login, registered again by somebody else.
    harness.store.create_account(&login, Some("other")).await.unwrap();
    assert!(matches!(delete("new").await, Err(StoreError::Rejected(Rejection::CredentialConflict))));
    assert_eq!(harness.store.account(account).await.unwrap().account.credential.as_deref(), Some("other"));
}

pub async fn sessions_expire_and_at_most_ten_are_active(harness: &Harness) {
    let account = harness.account().await;
    let session = |n: usize| format!("{n:064x}");
    for n in 0..12 {
        harness.store.add_session(account, &new_session(&session(n), 600 + n as u32, None)).await.unwrap();
    }
    let mut active = Vec::new();
    for n in 0..12 {
        active.push(harness.has_session(account, &session(n)).await);
    }
    assert_eq!(active.iter().filter(|active| **active).count(), 10);
    assert_eq!(active[..2], [false, false], "the sessions that expire first are revoked");
    harness.store.revoke_session(account, &session(11)).await.unwrap();
    harness.store.revoke_session(account, &session(11)).await.unwrap();
    assert!(!harness.has_session(account, &session(11)).await);
    harness.advance(610_500);
    assert!(!harness.has_session(account, &session(10)).await);
}

pub async fn invalid_cursor_is_rejected(harness: &Harness) {
    harness.account().await;
    for cursor in ["", "x", "-1", "99999"] {
        let page = harness.store.page(Some(cursor), 10).await;
        assert!(matches!(page, Err(StoreError::InvalidCursor)), "{cursor:?}");
    }
}
