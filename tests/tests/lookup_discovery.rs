//! lookup-svc in a cluster: trusted proxies and colo come from the Kubernetes API, which may be slow or unreachable.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use quota_client::wire::Scope;
use serde_json::Value;
use tempfile::TempDir;
use testkit::fault_proxy::Fault;
use testkit::kube_api::{DiscoveryApi, NODE, NODE_LABEL, SERVICE};
use testkit::lookup::{JsonResponse, WAIT_TIMEOUT};
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};
use testkit::wait::{eventually, eventually_ok};

/// Limits that polling never reaches.
const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
const LONG_TIMEOUTS: [&str; 4] = ["--quota-deadline", "10s", "--request-timeout", "12s"];
const LOCAL: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
const DISCOVER: [&str; 2] = ["--discover-proxies", SERVICE];

/// Two proxies on this machine, which owns all of 127.0.0.0/8.
const PROXY: &str = "127.0.0.1";
const OTHER_PROXY: &str = "127.0.0.2";
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
    async fn start(api: &DiscoveryApi, flags: &[&str]) -> Self {
        let store = tempfile::tempdir().unwrap();
        let quota = Quota::start_with(StoreChoice::File(store.path().join("quota.redb")), &HIGH_LIMITS).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let args = [&LOCAL, &LONG_TIMEOUTS, ["--quota-url", quota.url()].as_slice(), flags].concat();
        let kubeconfig = api.kubeconfig();
        let env = [("KUBECONFIG", kubeconfig.to_str().unwrap()), ("NODE_NAME", NODE)];
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

    /// The body of the response to a request that `peer` forwards for [`CLIENT`].
    async fn get_ip(&self, peer: &str) -> Value {
        let from: std::net::IpAddr = peer.parse().unwrap();
        let http = testkit::http::builder().local_address(from).build().unwrap();
        let request = http.get(&self.url).bearer_auth(&self.key).header("x-forwarded-for", CLIENT);
        let response = JsonResponse::fetch(request).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.body
    }

    /// Whether `peer` is treated as a trusted proxy and not as the client.
    async fn trusts(&self, peer: &str) -> bool {
        let ip = self.get_ip(peer).await["ip"].take();
        assert!(ip == CLIENT || ip == peer, "unexpected client address {ip}");
        ip == CLIENT
    }

    async fn wait_trusted(&self, peer: &str) {
        let what = format!("{peer} is trusted");
        eventually(WAIT_TIMEOUT, what, async || self.trusts(peer).await.then_some(())).await;
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
    let pod = Pod::start(&api, &DISCOVER).await;
    eventually(WAIT_TIMEOUT, "pod connects to the API", async || {
        (api.network.accepted_connections() > 0).then_some(())
    })
    .await;
    pod.wait_readiness(503, "the proxies have not been listed yet").await;
    assert!(!pod.trusts(PROXY).await);
    api.network.set(Fault::None);
    pod.wait_readiness(200, "proxy discovery: following").await;
    assert!(pod.trusts(PROXY).await);
}

#[tokio::test]
async fn api_unreachable_at_start_is_retried() {
    let api = DiscoveryApi::start(&[PROXY]).await;
    api.network.set(Fault::Refuse);
    let pod = Pod::start(&api, &DISCOVER).await;
    eventually(WAIT_TIMEOUT, "the failed attempt to list is logged", async || {
        pod.service.logs().contains("can't list endpoints").then_some(())
    })
    .await;
    assert_eq!(pod.readiness().await.0, 503);
    api.network.set(Fault::None);
    pod.wait_readiness(200, "proxy discovery: following").await;
    assert!(pod.trusts(PROXY).await);
}

#[tokio::test]
async fn new_proxy_is_trusted_and_removed_proxy_stays_trusted() {
    let api = DiscoveryApi::start(&[OTHER_PROXY]).await;
    let pod = Pod::start(&api, &DISCOVER).await;
    pod.wait_readiness(200, "proxy discovery: following").await;
    assert!(pod.trusts(OTHER_PROXY).await && !pod.trusts(PROXY).await);
    api.set_endpoints(&[PROXY]);
    pod.wait_trusted(PROXY).await;
    // The same event removed this proxy, but it stays trusted for one minute.
    assert!(pod.trusts(OTHER_PROXY).await);
    assert!(!pod.trusts("127.0.0.3").await);
}

#[tokio::test]
async fn known_proxies_stay_trusted_while_api_is_unreachable() {
    let api = DiscoveryApi::start(&[PROXY]).await;
    let pod = Pod::start(&api, &DISCOVER).await;
    pod.wait_trusted(PROXY).await;
    api.network.set(Fault::Refuse);
    pod.wait_readiness(200, "proxy discovery: stale").await;
    api.set_endpoints(&[PROXY, OTHER_PROXY]);
    assert!(pod.trusts(PROXY).await && !pod.trusts(OTHER_PROXY).await);
    api.network.set(Fault::None);
    pod.wait_trusted(OTHER_PROXY).await;
    pod.wait_readiness(200, "proxy discovery: following").await;
    assert!(pod.trusts(PROXY).await);
}

#[tokio::test]
async fn colo_flag_is_used_until_node_label_is_read() {
    let api = DiscoveryApi::start(&[]).await;
    api.network.set(Fault::Stall);
    let flags = ["--colo-node-label", NODE_LABEL.0, "--colo-map", "eu-central-1=FRA", "--colo", "TXL"];
    let pod = Pod::start(&api, &flags).await;
    // Readiness waits only for discovery, which is off here, and not for the colo.
    pod.wait_readiness(200, "proxy discovery: off").await;
    assert_eq!(pod.get_ip(PROXY).await["colo"], "TXL");
    api.network.set(Fault::None);
    eventually(WAIT_TIMEOUT, "colo comes from the node label", async || {
        (pod.get_ip(PROXY).await["colo"] == "FRA").then_some(())
    })
    .await;
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
