//! lookup-svc in a cluster: it is ready once it knows its proxies. `crates/edge/tests/it/discovery.rs` tests discovery itself.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

use quota_client::wire::Scope;
use tempfile::TempDir;
use testkit::fault_proxy::Fault;
use testkit::kube_api::{DiscoveryApi, SERVICE};
use testkit::lookup::{JsonResponse, WAIT_TIMEOUT};
use testkit::process::{Service, binary};
use testkit::quota::{Quota, StoreChoice};
use testkit::wait::{eventually, eventually_ok};

/// Limits that polling never reaches.
const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
const LONG_TIMEOUTS: [&str; 4] = ["--quota-deadline", "10s", "--request-timeout", "12s"];
const LOCAL: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
const DISCOVER: [&str; 2] = ["--discover-proxies", SERVICE];

/// The proxy, on this machine.
const PROXY: &str = "127.0.0.1";
/// The client address in the forwarding header of every request.
const CLIENT: &str = "203.0.113.7";

/// A lookup-svc that trusts only discovered proxies (unlike [`testkit::lookup::Lookup`]); killed when dropped.
struct Pod {
    service: Service,
    url: String,
    readyz_url: String,
    key: String,
    _quota: Quota,
    _store: TempDir,
}

impl Pod {
    async fn start(api: &DiscoveryApi) -> Self {
        let store = tempfile::tempdir().unwrap();
        let quota = Quota::start_with(StoreChoice::File(store.path().join("quota.redb")), &HIGH_LIMITS).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let args = [&LOCAL, &LONG_TIMEOUTS, ["--quota-url", quota.url()].as_slice(), &DISCOVER].concat();
        let kubeconfig = api.kubeconfig();
        let env = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
        let mut service = Service::spawn("lookup-svc", &args, &env);
        Self {
            url: format!("http://{}/api/v1/ip", service.listen_addr("lookup").await),
            readyz_url: format!("http://{}/readyz", service.listen_addr("admin").await),
            key: quota.key_with_scope(Scope::Full).await.secret,
            service,
            _quota: quota,
            _store: store,
        }
    }

    /// Whether the proxy is trusted and not treated as the client.
    async fn trusts_proxy(&self) -> bool {
        let request = testkit::http::client().get(&self.url).bearer_auth(&self.key);
        let response = JsonResponse::fetch(request.header("x-forwarded-for", CLIENT)).await;
        assert_eq!(response.status, 200, "{response:?}");
        let ip = &response.body["ip"];
        assert!(ip == CLIENT || ip == PROXY, "unexpected client address {ip}");
        ip == CLIENT
    }

    /// Runs the command of `helm test`. Returns whether it succeeds, and its output.
    fn selftest(&self) -> (bool, String) {
        let url = self.url.trim_end_matches("/api/v1/ip");
        let admin_url = self.readyz_url.trim_end_matches("/readyz");
        let mut command = Command::new(binary("lookup-svc"));
        let output = command.args(["selftest", "--url", url, "--admin-url", admin_url]).output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }

    /// The status of `/readyz`, and its detail about the edge.
    async fn readiness(&self) -> (u16, String) {
        let response = JsonResponse::fetch(testkit::http::client().get(&self.readyz_url)).await;
        let detail = response.body["checks"]["lookup-edge"]["detail"].as_str();
        (response.status, detail.unwrap_or_default().to_owned())
    }

    async fn wait_readiness(&self, status: u16, detail: &str) {
        eventually_ok(WAIT_TIMEOUT, format!("/readyz reports {status} {detail}"), async || {
            let current = self.readiness().await;
            if current == (status, detail.to_owned()) { Ok(()) } else { Err(format!("{current:?}")) }
        })
        .await;
    }
}

#[tokio::test]
async fn pod_is_not_ready_until_proxies_are_listed() {
    let api = DiscoveryApi::start(&[PROXY]).await;
    api.network.set(Fault::Stall);
    let pod = Pod::start(&api).await;
    eventually(WAIT_TIMEOUT, "pod connects to the API", async || {
        (api.network.accepted_connections() > 0).then_some(())
    })
    .await;
    pod.wait_readiness(503, "the proxies have not been listed yet").await;
    assert!(!pod.trusts_proxy().await);
    api.network.set(Fault::None);
    pod.wait_readiness(200, "proxy discovery: following").await;
    assert!(pod.trusts_proxy().await);
    let (passed, output) = pod.selftest();
    assert!(passed && output.contains("lookup_discovered_proxies"), "{output}");
}

#[tokio::test]
async fn missing_kubernetes_config_prevents_start() {
    let env = [("KUBECONFIG", "/nonexistent/kubeconfig")];
    let mut service = Service::spawn("lookup-svc", &[LOCAL.as_slice(), &DISCOVER].concat(), &env);
    let status = service.wait_exit(WAIT_TIMEOUT).await;
    assert!(!status.success());
    eventually(WAIT_TIMEOUT, "the reason is logged", async || {
        service.logs().contains("no Kubernetes configuration found").then_some(())
    })
    .await;
}

#[tokio::test]
async fn service_without_endpoints_is_logged_and_fails_the_selftest() {
    let api = DiscoveryApi::start(&[]).await;
    let pod = Pod::start(&api).await;
    pod.wait_readiness(200, "proxy discovery: following").await;
    eventually(WAIT_TIMEOUT, "the warning is logged", async || {
        pod.service.logs().contains("discovery trusts no proxy").then_some(())
    })
    .await;
    let (passed, output) = pod.selftest();
    assert!(!passed && output.contains("discovery has found no proxy"), "{output}");
}
