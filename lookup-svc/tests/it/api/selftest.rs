//! The command `selftest`, which `helm test` runs.

use std::time::Duration;

use lookup_svc::config::SelftestArgs;
use lookup_svc::selftest::{self, RETRY_FOR};
use quota_client::wire::{Scope, Verdict};
use testkit::tls::TlsFiles;

use super::harness::{Harness, MIDNIGHT, QuotaMode, allowed, denied};

fn args_for(url: String) -> SelftestArgs {
    SelftestArgs { url, ca_file: None, connect_to: None, admin_url: None }
}

/// Runs the command without retries.
async fn run(args: &SelftestArgs) -> anyhow::Result<()> {
    selftest::run(args, Duration::ZERO).await
}

#[tokio::test]
async fn selftest_passes_only_if_api_and_quota_svc_respond() {
    let harness = Harness::start().await;
    let args = args_for(harness.url.clone());
    harness.quota.set_demo(allowed(Scope::Geo));
    run(&args).await.unwrap();
    harness.quota.set_demo(denied(Verdict::DailyExceeded, 1_000, MIDNIGHT, 9));
    run(&args).await.unwrap();
    harness.quota.set_mode(QuotaMode::Fail);
    let message = run(&args).await.unwrap_err().to_string();
    assert!(message.contains("quota-svc"), "{message}");
    let wrong_path = args_for(format!("{}/wrong-path", harness.url));
    let message = run(&wrong_path).await.unwrap_err().to_string();
    assert!(message.contains("missing_api_key"), "{message}");
}

/// A port that refuses connections, and its URL.
fn closed_port() -> (std::net::SocketAddr, String) {
    service_kit::runtime::install_crypto_provider();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (addr, format!("http://{addr}"))
}

#[tokio::test]
async fn selftest_of_closed_port_fails_with_cant_reach() {
    let message = run(&args_for(closed_port().1)).await.unwrap_err().to_string();
    assert!(message.contains("can't reach"), "{message}");
}

/// The error with its causes.
async fn error(args: &SelftestArgs) -> String {
    format!("{:#}", run(args).await.unwrap_err())
}

#[tokio::test]
async fn selftest_of_https_checks_the_certificate_and_its_host() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = TlsFiles::create(folder.path());
    let harness = Harness::start_with(|config| {
        config.service.tls.tls_cert = vec![files.cert.clone()];
        config.service.tls.tls_key = vec![files.key.clone()];
    })
    .await;
    harness.quota.set_demo(allowed(Scope::Geo));
    let addr = harness.url.strip_prefix("http://").unwrap();
    let trusting = |url: &str| SelftestArgs { ca_file: Some(files.ca.clone()), ..args_for(url.to_owned()) };
    run(&trusting(&format!("https://{addr}"))).await.unwrap();
    // As in `helm test`: the public URL, through a Service with another name.
    let through = |url: &str| SelftestArgs { connect_to: Some(addr.to_owned()), ..trusting(url) };
    run(&through("https://localhost")).await.unwrap();
    let foreign = error(&through("https://ip.example")).await;
    assert!(foreign.contains("not valid for"), "{foreign}");
    let unknown = error(&args_for(format!("https://{addr}"))).await;
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
    let other = TlsFiles::create(other.path());
    let args = SelftestArgs { ca_file: Some(other.ca), ..trusting(&format!("https://{addr}")) };
    let wrong = error(&args).await;
    assert!(wrong.contains("certificate"), "{wrong}");
    for (file, reason) in
        [(files.key.clone(), "no certificate"), (folder.path().join("none"), "can't use --ca-file")]
    {
        let message = error(&SelftestArgs { ca_file: Some(file), ..trusting("https://localhost") }).await;
        assert!(message.contains(reason), "{message}");
    }
}

#[tokio::test]
async fn selftest_retries_until_the_port_opens() {
    let (addr, url) = closed_port();
    // Its first attempt fails while lookup-svc still loads its data.
    let selftest = tokio::spawn(async move { selftest::run(&args_for(url), RETRY_FOR).await });
    let harness = Harness::start_with(|config| config.service.listen = addr).await;
    harness.quota.set_demo(allowed(Scope::Geo));
    selftest.await.unwrap().unwrap();
}
