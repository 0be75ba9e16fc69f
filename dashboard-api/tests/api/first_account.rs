//! `--first-account-dir`: an account and its key from files.

use std::sync::mpsc;
use std::time::Duration;

use dashboard_api::first_account::FirstAccount;
use quota_client::wire::{NewAccount, NewKey, Scope};
use testkit::quota::{Quota, StoreChoice};

use crate::harness::PASSWORD;

#[tokio::test]
async fn first_account_whose_key_is_refused_is_never_reported_as_created() {
    let of_another_account = "the API key was refused: another account has it";
    // Keys of `lise` are in the shard of `grace`.
    for (login, reason) in [("lise", of_another_account), ("ada", "quota-svc key generate LOGIN")] {
        check_refused(login, reason).await;
    }
}

/// Creates `grace` with a key that the account `holder` has.
async fn check_refused(holder: &str, reason: &str) {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota::start(StoreChoice::File(dir.path().join("store"))).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    let account = NewAccount { login: holder.to_owned(), credential: None };
    let account = quota.client().create_account(&account).await.unwrap().id;
    let key = NewKey::new("first key", Scope::Full);
    let key = quota.client().create_key(&account, &key).await.unwrap().secret;
    for (name, text) in [("login", "grace"), ("password", PASSWORD), ("api-key", &key)] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let first_account = FirstAccount::read(dir.path()).unwrap();
    let (sender, reports) = mpsc::channel();
    let client = quota.client();
    let task = tokio::spawn(async move {
        first_account.create(&client, |reason| sender.send(reason).unwrap()).await;
    });
    // The second time, the account may exist already.
    let reports = tokio::task::spawn_blocking(move || {
        [(); 2].map(|()| reports.recv_timeout(Duration::from_secs(20)).expect("another attempt fails"))
    });
    for report in reports.await.unwrap() {
        assert!(report.contains(reason), "{report}");
    }
    task.abort();
}
