//! Who may call quota-svc and what it serves: loopback only, no browsers, charges alone in a sidecar.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use e2e::http;
use e2e::process::Service;
use e2e::quota::{Quota, StoreChoice};
use quota_client::wire::{Charge, ChargeRequest, Outcome};
use reqwest::Method;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

async fn start(flags: &[&str]) -> (Quota, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota::start_with(StoreChoice::File(dir.path().join("quota.redb")), flags).await;
    (quota, dir)
}

async fn status_with(
    quota: &Quota,
    method: Method,
    path: &str,
    header: Option<(&str, &str)>,
) -> (u16, String) {
    let mut request = http::client().request(method, format!("{}{path}", quota.url()));
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn a_request_with_an_origin_or_for_a_foreign_host_is_refused_on_every_path() {
    let (quota, _dir) = start(&[]).await;
    for path in ["/internal/v1/accounts", "/internal/v1/charges", "/openapi.json", "/nowhere"] {
        for header in [
            ("origin", "http://127.0.0.1:8082"),
            ("origin", "null"),
            ("host", "example.org"),
            ("host", "127.0.0.1.example.org"),
            ("host", "192.168.1.1:8082"),
        ] {
            let (status, body) = status_with(&quota, Method::GET, path, Some(header)).await;
            assert_eq!(status, 403, "{path} with {header:?}: {body}");
            assert!(body.contains("\"forbidden\""), "{body}");
        }
    }
    for host in ["localhost:8082", "127.0.0.1", "[::1]:8082"] {
        let (status, body) =
            status_with(&quota, Method::GET, "/internal/v1/accounts", Some(("host", host))).await;
        assert_eq!(status, 200, "{host}: {body}");
    }
}

#[tokio::test]
async fn a_sidecar_that_serves_charges_serves_nothing_else() {
    let (quota, _dir) = start(&["--serve", "charges"]).await;
    let id = "0".repeat(32);
    for (method, path) in [
        (Method::GET, "/internal/v1/accounts".to_owned()),
        (Method::POST, "/internal/v1/accounts".to_owned()),
        (Method::DELETE, format!("/internal/v1/accounts/{id}")),
        (Method::PUT, format!("/internal/v1/accounts/{id}/credential")),
        (Method::GET, format!("/internal/v1/accounts/{id}/keys")),
        (Method::GET, format!("/internal/v1/keys/{id}")),
        (Method::POST, format!("/internal/v1/keys/{id}/resume")),
        (Method::GET, "/internal/v1/export".to_owned()),
        (Method::POST, "/internal/v1/import".to_owned()),
    ] {
        let (status, body) = status_with(&quota, method.clone(), &path, None).await;
        assert_eq!(status, 404, "{method} {path}: {body}");
        assert!(body.contains("\"not_found\""), "{body}");
    }
    let demo = Charge { key_sha256: None, demo: Some(true) };
    let answer = quota.client().charge(&ChargeRequest { charges: vec![demo] }).await.unwrap();
    assert_eq!(answer.verdicts[0].outcome, Outcome::Allowed);
}

#[tokio::test]
async fn listening_beyond_loopback_is_refused_unless_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quota.redb");
    let everywhere =
        ["--admin-listen", "127.0.0.1:0", "--listen", "0.0.0.0:0", "--store-file", file.to_str().unwrap()];
    let mut refused = Service::spawn("quota-svc", &everywhere, &[]);
    let status = refused.wait_exit(PATIENCE).await;
    assert!(!status.success());
    e2e::wait::eventually(PATIENCE, "it says what to do", async || {
        refused.logs().contains("--allow-remote").then_some(())
    })
    .await;
    let asked_for = [&everywhere[..], &["--allow-remote"]].concat();
    let mut allowed = Service::spawn("quota-svc", &asked_for, &[]);
    assert!(allowed.listening("quota").await.ip().is_unspecified());
}
