//! The command `selftest`, which `helm test` runs.

use lookup_svc::config::SelftestArgs;
use lookup_svc::selftest::run;
use quota_client::wire::{Outcome, Scope};

use crate::harness::{Harness, MIDNIGHT, QuotaMode, allowed, denied};

#[tokio::test]
async fn selftest_passes_only_if_api_and_quota_svc_respond() {
    let harness = Harness::start().await;
    let args = SelftestArgs { url: harness.url.clone() };
    harness.quota.set_demo(allowed(Scope::Geo));
    run(&args).await.unwrap();
    harness.quota.set_demo(denied(Outcome::DailyExceeded, 1_000, MIDNIGHT, 9));
    run(&args).await.unwrap();
    harness.quota.set_mode(QuotaMode::Fail);
    let message = run(&args).await.unwrap_err().to_string();
    assert!(message.contains("quota-svc"), "{message}");
    let wrong_path = SelftestArgs { url: format!("{}/wrong-path", harness.url) };
    let message = run(&wrong_path).await.unwrap_err().to_string();
    assert!(message.contains("missing_api_key"), "{message}");
}

#[tokio::test]
async fn selftest_of_closed_port_fails_with_cant_reach() {
    service_kit::tls::install_crypto_provider();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let message = run(&SelftestArgs { url }).await.unwrap_err().to_string();
    assert!(message.contains("can't reach"), "{message}");
}
