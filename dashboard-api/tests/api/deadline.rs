//! All calls to quota-svc of one request share a deadline of 3 s.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::fault_proxy::Fault;

use crate::harness::{Harness, PASSWORD};

/// The deadline, and as much again for a busy machine.
const AT_MOST: Duration = Duration::from_secs(6);

#[tokio::test]
async fn request_gets_503_within_the_deadline_while_quota_svc_is_frozen() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    harness.proxy.set(Fault::Stall);
    let started = Instant::now();
    let response = ada.get("/keys").await;
    assert!(started.elapsed() < AT_MOST, "{:?}", started.elapsed());
    assert_eq!(response.status_and_code(), "503 unavailable");
    harness.proxy.set(Fault::None);
    assert_eq!(ada.get("/keys").await.status, 200);
}

#[tokio::test]
async fn calls_of_one_request_share_its_deadline() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    // A password change makes four calls. Each is in time alone.
    harness.proxy.set(Fault::Delay(Duration::from_millis(1100)));
    let started = Instant::now();
    let change = json!({"current_password": PASSWORD, "new_password": "another password"});
    let response = ada.put("/account/password", change.clone()).await;
    assert_eq!(response.status_and_code(), "503 unavailable");
    assert!(started.elapsed() < AT_MOST, "{:?}", started.elapsed());
    harness.proxy.set(Fault::None);
    assert_eq!(ada.put("/account/password", change).await.status, 204, "the password was not changed");
}
