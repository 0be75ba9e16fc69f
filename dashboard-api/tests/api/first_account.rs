//! `--first-account-dir`: an account and its key from files.

use std::sync::mpsc;
use std::time::Duration;

use dashboard_api::first_account::FirstAccount;
use testkit::quota::{Quota, StoreChoice};

use crate::harness::PASSWORD;

#[tokio::test]
async fn first_account_whose_key_is_refused_is_never_reported_as_created() {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota::start(StoreChoice::File(dir.path().join("store"))).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    let of_another_account = quota.new_key().await.secret;
    for (name, text) in [("login", "grace"), ("password", PASSWORD), ("api-key", &of_another_account)] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let first_account = FirstAccount::read(dir.path()).unwrap();
    let (sender, reports) = mpsc::channel();
    let client = quota.client();
    let task = tokio::spawn(async move {
        first_account.create(&client, |reason| sender.send(reason).unwrap()).await;
    });
    // The second time, the account exists already.
    let reports = tokio::task::spawn_blocking(move || {
        [(); 2].map(|()| reports.recv_timeout(Duration::from_secs(20)).expect("another attempt fails"))
    });
    for report in reports.await.unwrap() {
        assert!(report.contains("the API key was refused"), "{report}");
    }
    task.abort();
}
