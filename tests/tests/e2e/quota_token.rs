//! The token of quota-svc (`--quota-token-file`): every request needs it, on loopback too, and every client sends it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use quota_client::{QuotaClient, QuotaToken};
use reqwest::Method;
use tempfile::TempDir;
use testkit::http;
use testkit::lookup::{Lookup, WAIT_TIMEOUT};
use testkit::process::{Service, binary};
use testkit::quota::{Quota, StoreChoice};
use testkit::wait::{eventually, eventually_ok};
use tokio::process::Command;

const TOKEN: &str = "correct-token-0123456789-abcdefghij";

fn write_token(dir: &Path, name: &str, token: &str) -> PathBuf {
    let file = dir.join(name);
    std::fs::write(&file, format!("{token}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// A quota-svc that requires [`TOKEN`], and the file with the token.
async fn start() -> (Quota, PathBuf, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = write_token(dir.path(), "token", TOKEN);
    let store = StoreChoice::File(dir.path().join("quota.redb"));
    let quota = Quota::start_with(store, &["--quota-token-file", file.to_str().unwrap()]).await;
    (quota, file, dir)
}

/// Runs `quota-svc account list` in `dir` and returns whether it succeeded, with its error message.
async fn list_accounts(dir: &Path, quota_url: &str, flags: &[&str]) -> (bool, String) {
    let mut command = Command::new(binary("quota-svc"));
    command.args(["--quota-url", quota_url]).args(flags).args(["account", "list"]).current_dir(dir);
    let output = command.kill_on_drop(true).output().await.unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn requests_without_the_right_token_get_401() {
    let (quota, _file, _dir) = start().await;
    let wrong = ["", "Bearer wrong", "Bearer correct-token-0123456789-abcdefghi_", &format!("Basic {TOKEN}")];
    for (method, path) in [
        (Method::GET, "/internal/v1/export"),
        (Method::GET, "/internal/v1/accounts"),
        (Method::POST, "/internal/v1/commands"),
        (Method::POST, "/internal/v1/charges"),
        (Method::GET, "/nowhere"),
    ] {
        let request = || http::client().request(method.clone(), format!("{}{path}", quota.url()));
        let mut requests = vec![request(), request().header("Origin", "http://evil.example")];
        requests.extend(wrong.map(|value| request().header("Authorization", value)));
        requests.push(request().bearer_auth(TOKEN).bearer_auth(TOKEN));
        for request in requests {
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401, "{method} {path}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            let body = response.text().await.unwrap();
            assert!(
                body.contains("\"unauthorized\"") && !body.contains("correct-token"),
                "{method} {path}: {body}"
            );
        }
        assert_ne!(request().bearer_auth(TOKEN).send().await.unwrap().status(), 401, "{method} {path}");
    }
    assert_eq!(quota.readiness().await.0, 200, "the admin port needs no token");
    assert!(!quota.service.logs().contains("correct-token"), "{}", quota.service.logs());
}

#[tokio::test]
async fn clients_send_the_token_of_their_file() {
    let (quota, file, dir) = start().await;
    let token = QuotaToken::load(&file).unwrap();
    let client = QuotaClient::new(quota.url(), WAIT_TIMEOUT).unwrap().with_token(&token);
    assert_eq!(client.list_accounts(None, 1).await.unwrap().total, 0);

    let flags = ["--quota-token-file", file.to_str().unwrap()];
    let (ok, stderr) = list_accounts(dir.path(), quota.url(), &flags).await;
    assert!(ok, "{stderr}");
    let (ok, stderr) = list_accounts(dir.path(), quota.url(), &[]).await;
    assert!(!ok && stderr.contains("--quota-token-file"), "{stderr}");

    let lookup = Lookup::start_with_long_timeouts(quota.url(), &flags).await;
    let demo = async |lookup: &Lookup| lookup.get("/api/v1/ip/demo").send().await.unwrap().status().as_u16();
    assert_eq!(demo(&lookup).await, 200);
    let other = write_token(dir.path(), "other", &TOKEN.to_uppercase());
    let lookup =
        Lookup::start_with_long_timeouts(quota.url(), &["--quota-token-file", other.to_str().unwrap()]).await;
    assert_eq!(demo(&lookup).await, 500);
    eventually(WAIT_TIMEOUT, "lookup-svc logs what to set", async || {
        lookup.service.logs().contains("--quota-token-file").then_some(())
    })
    .await;
}

/// As when Kubernetes replaces the file that both containers of a pod mount, and then one of them restarts.
#[tokio::test]
async fn replaced_token_file_is_read_by_quota_svc_and_its_clients() {
    let (quota, file, _dir) = start().await;
    let lookup =
        Lookup::start_with_long_timeouts(quota.url(), &["--quota-token-file", file.to_str().unwrap()]).await;
    let demo = async || lookup.get("/api/v1/ip/demo").send().await.unwrap().status().as_u16();
    let client = || {
        let token = QuotaToken::load(&file).unwrap();
        QuotaClient::new(quota.url(), WAIT_TIMEOUT).unwrap().with_token(&token)
    };
    let old = client();
    assert_eq!((demo().await, old.list_accounts(None, 1).await.unwrap().total), (200, 0));
    std::fs::write(&file, TOKEN.to_uppercase()).unwrap();
    let new = client();
    eventually_ok(WAIT_TIMEOUT, "quota-svc accepts the new token", async || {
        new.list_accounts(None, 1).await.map_err(|error| error.to_string())
    })
    .await;
    let raw = http::client().get(format!("{}/internal/v1/status", quota.url())).bearer_auth(TOKEN);
    assert_eq!(raw.send().await.unwrap().status(), 401, "quota-svc no longer accepts the old token");
    eventually_ok(WAIT_TIMEOUT, "a client with the old token reads the new one", async || {
        old.list_accounts(None, 1).await.map_err(|error| error.to_string())
    })
    .await;
    eventually_ok(WAIT_TIMEOUT, "lookup-svc reads the new token", async || match demo().await {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}

#[tokio::test]
async fn dashboard_sends_the_token_of_its_file() {
    let (quota, file, dir) = start().await;
    let key = dir.path().join("session.key");
    std::fs::write(&key, [7; 32]).unwrap();
    let args = [
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--insecure-cookies",
        "--quota-url",
        quota.url(),
        "--session-key-file",
        key.to_str().unwrap(),
        "--quota-token-file",
        file.to_str().unwrap(),
    ];
    let mut dashboard = Service::spawn("dashboard-api", &args, &[]);
    let url = format!("http://{}", dashboard.listen_addr("dashboard").await);
    let body = serde_json::json!({"login": "ada@example.com", "password": "correct horse battery"});
    let request = http::client().post(format!("{url}/api/v1/account")).json(&body);
    let response = request.header("origin", &url).header("x-csrf-token", "1").send().await.unwrap();
    assert_eq!(response.status(), 201, "{}", dashboard.logs());
}

#[tokio::test]
async fn unusable_token_file_is_rejected_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let short = write_token(dir.path(), "short", "too-short");
    let store = dir.path().join("quota.redb");
    for (file, reason) in [(short, "openssl rand"), (dir.path().join("missing"), "can't read")] {
        let flags = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--store-file"];
        let flags =
            [&flags[..], &[store.to_str().unwrap(), "--quota-token-file", file.to_str().unwrap()]].concat();
        let mut service = Service::spawn("quota-svc", &flags, &[]);
        assert!(!service.wait_exit(WAIT_TIMEOUT).await.success());
        eventually_ok(WAIT_TIMEOUT, "the error is logged", async || {
            let logs = service.logs();
            if logs.contains(reason) && logs.contains(file.to_str().unwrap()) { Ok(()) } else { Err(logs) }
        })
        .await;
        assert!(!service.logs().contains("too-short"));
    }
}

#[tokio::test]
async fn missing_token_file_is_rejected_at_start() {
    let dir = tempfile::tempdir().unwrap();
    for program in ["quota-svc", "lookup-svc", "dashboard-api"] {
        let mut command = Command::new(binary(program));
        command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]).current_dir(dir.path());
        match program {
            "quota-svc" => command.args(["--store-file", "quota.redb"]),
            "dashboard-api" => command.args(["--insecure-cookies"]),
            _ => &mut command,
        };
        let output = command.kill_on_drop(true).output().await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains("--quota-token-file is missing"), "{stderr}");
    }
}

#[tokio::test]
async fn standalone_creates_a_token_that_commands_do_not_send_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let any = "127.0.0.1:0";
    let ports = ["--listen", any, "--dashboard-listen", any, "--quota-listen", any, "--admin-listen", any];
    let flags = [&ports[..], &["--log-level", "info", "--data-dir", data.to_str().unwrap()]].concat();
    let mut service = Service::spawn("ip-lookup", &flags, &[]);
    let quota_url = format!("http://{}", service.listen_addr("quota").await);
    service.listen_addr("admin").await;
    let export = http::client().get(format!("{quota_url}/internal/v1/export")).send().await.unwrap();
    assert_eq!(export.status(), 401);
    let file = data.join("quota-token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let (ok, stderr) = list_accounts(dir.path(), &quota_url, &[]).await;
    assert!(!ok && stderr.contains("--quota-token-file") && stderr.contains("--data-dir"), "{stderr}");
    let flags = ["--quota-token-file", file.to_str().unwrap()];
    let (ok, stderr) = list_accounts(dir.path(), &quota_url, &flags).await;
    assert!(ok, "{stderr}");
    let token = std::fs::read_to_string(&file).unwrap();
    assert!(!service.logs().contains(token.trim()) && !service.stdout().contains(token.trim()));
}
