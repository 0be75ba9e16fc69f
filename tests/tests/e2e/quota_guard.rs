//! By default, quota-svc listens only on loopback. It rejects requests from browsers, and with `--serve charges` it
//! serves only charges.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use quota_client::wire::{Charge, Outcome};
use reqwest::Method;
use tempfile::TempDir;
use testkit::http;
use testkit::process::Service;
use testkit::process::TOKEN;
use testkit::quota::{Quota, StoreChoice};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

async fn start(flags: &[&str]) -> (Quota, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota::start_with(StoreChoice::File(dir.path().join("quota.redb")), flags).await;
    (quota, dir)
}

async fn send(quota: &Quota, method: Method, path: &str, header: Option<(&str, &str)>) -> (u16, String) {
    let mut request = http::client().request(method, format!("{}{path}", quota.url())).bearer_auth(TOKEN);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test]
async fn requests_with_origin_or_foreign_host_get_403() {
    let (quota, _dir) = start(&[]).await;
    for path in ["/internal/v1/accounts", "/internal/v1/charges", "/nowhere"] {
        for header in [
            ("origin", "http://127.0.0.1:8082"),
            ("origin", "null"),
            ("host", "example.org"),
            ("host", "127.0.0.1.example.org"),
            ("host", "192.168.1.1:8082"),
        ] {
            let (status, body) = send(&quota, Method::GET, path, Some(header)).await;
            assert_eq!(status, 403, "{path} with {header:?}: {body}");
            assert!(body.contains("\"forbidden\""), "{body}");
        }
    }
    for host in ["localhost:8082", "127.0.0.1", "[::1]:8082"] {
        let (status, body) = send(&quota, Method::GET, "/internal/v1/accounts", Some(("host", host))).await;
        assert_eq!(status, 200, "{host}: {body}");
    }
}

#[tokio::test]
async fn charges_only_sidecar_gives_404_for_other_operations() {
    let (quota, _dir) = start(&["--serve", "charges"]).await;
    let id = "0".repeat(32);
    for (method, path) in [
        (Method::GET, "/internal/v1/accounts".to_owned()),
        (Method::POST, "/internal/v1/commands".to_owned()),
        (Method::GET, format!("/internal/v1/accounts/{id}")),
        (Method::GET, format!("/internal/v1/accounts/{id}/keys")),
        (Method::GET, format!("/internal/v1/keys/{id}")),
        (Method::GET, "/internal/v1/export".to_owned()),
    ] {
        let (status, body) = send(&quota, method.clone(), &path, None).await;
        assert_eq!(status, 404, "{method} {path}: {body}");
        assert!(body.contains("\"not_found\""), "{body}");
    }
    let verdicts = quota.client().charge(&[Charge::Demo]).await.unwrap();
    assert_eq!(verdicts[0].outcome(), Outcome::Allowed);
}

#[tokio::test]
async fn listening_beyond_loopback_requires_allow_remote() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quota.redb");
    let flags =
        ["--admin-listen", "127.0.0.1:0", "--listen", "0.0.0.0:0", "--store-file", file.to_str().unwrap()];
    let mut rejected = Service::spawn("quota-svc", &flags, &[]);
    let status = rejected.wait_exit(WAIT_TIMEOUT).await;
    assert!(!status.success());
    testkit::wait::eventually(WAIT_TIMEOUT, "the error names the flag", async || {
        rejected.logs().contains("--allow-remote").then_some(())
    })
    .await;
    let flags = [&flags[..], &["--allow-remote"]].concat();
    let mut allowed = Service::spawn("quota-svc", &flags, &[]);
    assert!(allowed.listen_addr("quota").await.ip().is_unspecified());
}
