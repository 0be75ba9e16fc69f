//! The documented lifecycle of a key, from the demo to a resumed key, with the standalone binary and with three
//! services on Redis.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use testkit::http;
use testkit::lookup::{JsonResponse, Lookup, WAIT_TIMEOUT};
use testkit::process::{Service, binary};
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use testkit::wait::eventually;
use tokio::process::Command;

/// The URLs of a running installation.
struct Installation {
    api_url: String,
    /// The quota-svc that the operator's commands use.
    quota_url: String,
    /// The token of that quota-svc.
    token_file: PathBuf,
    /// Maximum time until a change takes effect in the API; zero if the API and the operator's
    /// commands use the same quota-svc.
    max_staleness: Duration,
}

impl Installation {
    /// Runs an operator command of quota-svc and returns its JSON output.
    async fn run_cli(&self, arguments: &str) -> Value {
        let mut command = Command::new(binary("quota-svc"));
        command.args(["--quota-url", &self.quota_url, "--output", "json"]).args(arguments.split(' '));
        command.arg("--quota-token-file").arg(&self.token_file);
        let output = command.kill_on_drop(true).output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "quota-svc {arguments}: {stderr}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    async fn demo(&self) -> JsonResponse {
        JsonResponse::fetch(http::client().get(format!("{}/api/v1/ip/demo", self.api_url))).await
    }

    async fn get_ip(&self, key: &str) -> JsonResponse {
        JsonResponse::fetch(http::client().get(format!("{}/api/v1/ip", self.api_url)).bearer_auth(key)).await
    }

    /// Sends requests with the key until one gets `status`, within the maximum staleness.
    async fn wait_status(&self, key: &str, status: u16) -> JsonResponse {
        let first = self.get_ip(key).await;
        if self.max_staleness.is_zero() || first.status == status {
            assert_eq!(first.status, status, "{first:?}");
            return first;
        }
        eventually(self.max_staleness, format!("status is {status}"), async || {
            Some(self.get_ip(key).await).filter(|response| response.status == status)
        })
        .await
    }
}

/// Runs the documented steps: demo, account, key, burst limit, resume, further changes. Returns the key.
async fn run_lifecycle(installation: &Installation) -> String {
    // Use up the demo quota. The error has a sign-up URL.
    assert_eq!(installation.demo().await.status, 200);
    assert_eq!(installation.demo().await.status, 200);
    let denied = installation.demo().await;
    assert_eq!((denied.status, denied.error_code()), (429, "rate_limit_exceeded"));
    assert!(denied.body["signup"].is_string(), "{denied:?}");
    assert_eq!(denied.header("x-ratelimit-reason"), "demo");
    // Create an account and a key, and send the first request.
    installation.run_cli("account create visitor@example.com").await;
    let created =
        installation.run_cli("key create --account visitor@example.com --name first --scope geo").await;
    let (key, id) = (created["key"].as_str().unwrap().to_owned(), created["id"].as_str().unwrap().to_owned());
    let response = installation.wait_status(&key, 200).await;
    assert_eq!(
        (response.fields().len(), response.header_number("x-ratelimit-remaining")),
        (19, 9_999),
        "{response:?}"
    );
    exceed_burst_limit(installation, &key).await;
    let listed = installation.run_cli("key list --account visitor@example.com").await;
    let listed = &listed["keys"][0];
    assert_eq!((&listed["state"], &listed["used_today"]), (&"paused".into(), &300.into()), "{listed}");
    assert!(!listed.to_string().contains(&key), "the key is shown only once");
    // Resume the key. This does not reset its daily quota.
    installation.run_cli(&format!("key resume {id}")).await;
    let resumed = installation.wait_status(&key, 200).await;
    assert_eq!(resumed.header_number("x-ratelimit-remaining"), 9_699);
    change_key(installation, &key, &id).await;
    key
}

/// Exceeds the burst limit: exactly 300 requests pass, the next one pauses the key, and it stays paused.
/// `run_lifecycle` has already sent the first of the 300.
async fn exceed_burst_limit(installation: &Installation, key: &str) {
    let request = http::client().get(format!("{}/api/v1/ip", installation.api_url)).bearer_auth(key);
    for sent in 2..=300 {
        let response = JsonResponse::fetch(request.try_clone().unwrap()).await;
        assert_eq!(response.status, 200, "request {sent}: {response:?}");
    }
    for reason in ["burst", "paused"] {
        let response = JsonResponse::fetch(request.try_clone().unwrap()).await;
        assert_eq!((response.status, response.error_code()), (429, "rate_limit_exceeded"), "{response:?}");
        assert_eq!(response.header("x-ratelimit-reason"), reason);
        assert_eq!(
            (response.header_number("retry-after"), response.header_number("x-ratelimit-limit")),
            (60, 300)
        );
        assert!(
            response.body["message"].as_str().is_some_and(|message| message.contains("paused")),
            "{response:?}"
        );
    }
}

/// Deactivates and reactivates the key and changes its daily limit.
async fn change_key(installation: &Installation, key: &str, id: &str) {
    installation.run_cli(&format!("key deactivate {id}")).await;
    assert_eq!(installation.wait_status(key, 403).await.error_code(), "inactive_api_key");
    installation.run_cli(&format!("key reactivate {id}")).await;
    installation.wait_status(key, 200).await;
    // 302 requests have been allowed so far: 300, one after the resume and one just now.
    installation.run_cli(&format!("key set-limit {id} --daily-limit 302")).await;
    let used_up = installation.wait_status(key, 429).await;
    assert!(used_up.body["enterprise"].is_string(), "{used_up:?}");
    assert_eq!(used_up.header_number("x-ratelimit-limit"), 302);
    assert_eq!(used_up.header("x-ratelimit-reason"), "daily");
    installation.run_cli(&format!("key set-limit {id} --daily-limit 1000")).await;
    assert_eq!(installation.wait_status(key, 200).await.header_number("x-ratelimit-remaining"), 697);
}

async fn standalone(work_dir: &Path) -> (Service, Installation) {
    let data_dir = work_dir.join("data");
    let data = data_dir.to_str().unwrap();
    let args =
        ["--data-dir", data, "--listen", "127.0.0.1:0", "--quota-listen", "127.0.0.1:0", "--demo-limit", "2"];
    let more = ["--admin-listen", "127.0.0.1:0", "--log-level", "info"];
    // The environment variable must work like the flag --dashboard-listen.
    let env = [("DASHBOARD_LISTEN", "127.0.0.1:0")];
    let mut service = Service::spawn("ip-lookup", &[args.as_slice(), &more].concat(), &env);
    let quota_url = format!("http://{}", service.listen_addr("quota").await);
    let api_url = format!("http://{}", service.listen_addr("lookup").await);
    let token_file = data_dir.join("quota-token");
    (service, Installation { api_url, quota_url, token_file, max_staleness: Duration::ZERO })
}

#[tokio::test]
async fn standalone_key_lifecycle_survives_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (mut service, installation) = standalone(dir.path()).await;
    let printed = eventually(WAIT_TIMEOUT, "first key is printed", async || {
        let stdout = service.stdout();
        stdout.split_whitespace().find(|word| word.starts_with("ipl_")).map(str::to_owned)
    })
    .await;
    assert_eq!(installation.get_ip(&printed).await.fields().len(), 26, "the first key returns all fields");
    let key = run_lifecycle(&installation).await;
    service.term();
    assert!(service.wait_exit(WAIT_TIMEOUT).await.success());
    let (_service, installation) = standalone(dir.path()).await;
    let response = installation.get_ip(&key).await;
    assert_eq!(
        (response.status, response.header_number("x-ratelimit-remaining")),
        (200, 696),
        "usage survives the restart: {response:?}"
    );
    assert_eq!(installation.demo().await.status, 429, "demo usage survives too");
}

/// As in a cluster: the sidecar of lookup-svc only charges, and the quota-svc of the dashboard changes keys.
#[tokio::test]
async fn key_lifecycle_works_on_three_services() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let flags = ["--store-timeout", "10s", "--demo-limit", "2"];
    let sidecar =
        Quota::start_with(store.clone(), &[flags.as_slice(), &["--serve", "charges"]].concat()).await;
    let dashboard_quota = Quota::start_with(store, &flags).await;
    sidecar.wait_ready(WAIT_TIMEOUT).await;
    dashboard_quota.wait_ready(WAIT_TIMEOUT).await;
    let lookup = Lookup::start_with_long_timeouts(sidecar.url(), &[]).await;
    let (api_url, quota_url) = (lookup.url(), dashboard_quota.url().to_owned());
    // Cached denials can be 2 s old. Busy machines get more time.
    let max_staleness = Duration::from_secs(4);
    run_lifecycle(&Installation {
        api_url,
        quota_url,
        token_file: testkit::process::token_file().to_owned(),
        max_staleness,
    })
    .await;
}
