//! Accounts, credentials and sessions.

use std::collections::HashSet;

use quota_client::wire::Scope;
use quota_svc::domain::account::Login;
use quota_svc::store::StoreError;

use crate::bench::{Bench, random};

pub async fn a_login_is_taken_once_whatever_its_case(bench: &Bench) {
    let login = format!("Ada-{}", random());
    let parsed = Login::parse(&login).unwrap();
    let account = bench.store.create_account(&parsed, Some("secret")).await.unwrap();
    assert_eq!((account.created_at, account.credential_version), (bench.now(), 1));
    let again = bench.store.create_account(&Login::parse(&login.to_uppercase()).unwrap(), None).await;
    assert!(matches!(again, Err(StoreError::AccountExists)));
    assert_eq!(bench.store.account(parsed.account_id()).await.unwrap(), account);
    let nobody = Login::parse(&random()).unwrap().account_id();
    assert!(matches!(bench.store.account(nobody).await, Err(StoreError::AccountNotFound)));
}

pub async fn accounts_are_listed_page_by_page(bench: &Bench) {
    let mut made = HashSet::new();
    for _ in 0..25 {
        made.insert(bench.account().await);
    }
    let (mut seen, mut cursor) = (HashSet::new(), None::<String>);
    loop {
        let page = bench.store.accounts(cursor.as_deref(), 7).await.unwrap();
        assert_eq!(page.total, 25);
        for account in &page.items {
            assert!(seen.insert(account.id()), "listed twice");
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, made);
}

pub async fn a_deleted_account_takes_its_keys_along(bench: &Bench) {
    let account = bench.account().await;
    let key = bench.key_in(account, Scope::Full, None).await.unwrap();
    bench.store.add_session(account, &"a".repeat(64), 60).await.unwrap();
    assert_eq!(bench.store.delete_account(account).await.unwrap(), [key]);
    assert!(matches!(bench.store.account(account).await, Err(StoreError::AccountNotFound)));
    assert!(matches!(bench.store.key(key, None).await, Err(StoreError::KeyNotFound)));
    assert!(matches!(bench.store.delete_account(account).await, Err(StoreError::AccountNotFound)));
    assert!(matches!(bench.key_in(account, Scope::Ip, None).await, Err(StoreError::AccountNotFound)));
    assert_eq!(bench.store.accounts(None, 100).await.unwrap().total, 0);
    assert_eq!(bench.outcome(key).await, quota_client::wire::Outcome::UnknownKey);
}

pub async fn a_credential_changes_only_from_the_expected_version_and_ends_other_sessions(bench: &Bench) {
    let account = bench.account().await;
    let (kept, other) = ("a".repeat(64), "b".repeat(64));
    assert_eq!(bench.store.set_credential(account, 0, "one", None).await.unwrap(), 1);
    for session in [&kept, &other] {
        bench.store.add_session(account, session, 3_600).await.unwrap();
    }
    let stale = bench.store.set_credential(account, 0, "two", None).await;
    assert!(matches!(stale, Err(StoreError::VersionConflict)));
    assert!(bench.store.has_session(account, &other).await.unwrap());
    assert_eq!(bench.store.set_credential(account, 1, "two", Some(&kept)).await.unwrap(), 2);
    assert!(bench.store.has_session(account, &kept).await.unwrap());
    assert!(!bench.store.has_session(account, &other).await.unwrap());
    assert_eq!(bench.store.account(account).await.unwrap().credential.as_deref(), Some("two"));
}

pub async fn sessions_end_by_themselves_and_ten_live_at_once(bench: &Bench) {
    let account = bench.account().await;
    let session = |n: usize| format!("{n:064x}");
    for n in 0..12 {
        bench.store.add_session(account, &session(n), 600 + n as u32).await.unwrap();
    }
    let mut alive = Vec::new();
    for n in 0..12 {
        alive.push(bench.store.has_session(account, &session(n)).await.unwrap());
    }
    assert_eq!(alive.iter().filter(|alive| **alive).count(), 10);
    assert_eq!(alive[..2], [false, false], "the ones that end first made room");
    bench.store.end_session(account, &session(11)).await.unwrap();
    bench.store.end_session(account, &session(11)).await.unwrap();
    assert!(!bench.store.has_session(account, &session(11)).await.unwrap());
    bench.step(610_500);
    assert!(!bench.store.has_session(account, &session(10)).await.unwrap());
}
