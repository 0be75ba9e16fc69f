//! `selftest` as `helm test` runs it.

use lookup_svc::config::SelftestArgs;
use lookup_svc::selftest::run;
use quota_client::wire::{Outcome, Scope};

use crate::rig::{MIDNIGHT, Mood, Rig, allowed, refused};

#[tokio::test]
async fn it_passes_on_a_service_that_answers_and_fails_on_one_that_does_not() {
    let rig = Rig::start().await;
    let args = SelftestArgs { url: rig.url.clone() };
    rig.quota.demo(allowed(Scope::Geo));
    run(&args).await.unwrap();
    rig.quota.demo(refused(Outcome::DailyExceeded, 1_000, MIDNIGHT, 9));
    run(&args).await.unwrap();
    rig.quota.set(Mood::Broken);
    let words = run(&args).await.unwrap_err().to_string();
    assert!(words.contains("quota-svc"), "{words}");
    let elsewhere = SelftestArgs { url: format!("{}/elsewhere", rig.url) };
    let words = run(&elsewhere).await.unwrap_err().to_string();
    assert!(words.contains("missing_api_key"), "{words}");
}

#[tokio::test]
async fn it_says_so_when_nobody_listens() {
    service_kit::tls::install_crypto_provider();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let words = run(&SelftestArgs { url }).await.unwrap_err().to_string();
    assert!(words.contains("can not be reached"), "{words}");
}
