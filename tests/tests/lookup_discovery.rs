//! lookup-svc as it runs in a cluster: the proxies it believes and its place come from a Kubernetes API, which may be
//! slow or away.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use e2e::fault_proxy::Fault;
use e2e::kube_api::{KubeApi, NODE, NODE_LABEL, SERVICE};
use e2e::lookup::{Answer, PATIENCE};
use e2e::process::Service;
use e2e::quota::{Quota, StoreChoice};
use e2e::wait::{eventually, eventually_ok};
use quota_client::wire::Scope;
use serde_json::Value;
use tempfile::TempDir;

/// Limits that no polling reaches.
const GENEROUS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
const PATIENT: [&str; 4] = ["--quota-deadline", "10s", "--request-timeout", "12s"];
const LOCAL: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
const DISCOVERING: [&str; 2] = ["--discover-proxies", SERVICE];

/// Two proxies: all of 127.0.0.0/8 is this machine.
const PROXY: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";
/// Whom every request is forwarded for.
const CLIENT: &str = "203.0.113.7";

/// A lookup-svc that believes nobody but whom it discovers, so not [`e2e::lookup::Lookup`]; killed when dropped.
struct Pod {
    service: Service,
    url: String,
    readyz_url: String,
    key: String,
    _quota: Quota,
    _store: TempDir,
}

impl Pod {
    async fn start(api: &KubeApi, flags: &[&str]) -> Self {
        let store = tempfile::tempdir().unwrap();
        let quota = Quota::start_with(StoreChoice::File(store.path().join("quota.redb")), &GENEROUS).await;
        quota.wait_ready(PATIENCE).await;
        let args = [&LOCAL, &PATIENT, ["--quota-url", quota.url()].as_slice(), flags].concat();
        let kubeconfig = api.kubeconfig();
        let env = [("KUBECONFIG", kubeconfig.to_str().unwrap()), ("NODE_NAME", NODE)];
        let mut service = Service::spawn("lookup-svc", &args, &env);
        Self {
            url: format!("http://{}/api/v1/ip", service.listening("lookup").await),
            readyz_url: format!("http://{}/readyz", service.listening("admin").await),
            key: quota.key_of(Scope::Full).await.secret,
            service,
            _quota: quota,
            _store: store,
        }
    }

    /// The whole answer to a request that comes from `peer` and is forwarded for [`CLIENT`].
    async fn ask(&self, peer: &str) -> Value {
        let from: std::net::IpAddr = peer.parse().unwrap();
        let http = e2e::http::builder().local_address(from).build().unwrap();
        let request = http.get(&self.url).bearer_auth(&self.key).header("x-forwarded-for", CLIENT);
        let answer = Answer::of(request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Whether `peer` is taken for a proxy, and not for the client itself.
    async fn believes(&self, peer: &str) -> bool {
        let ip = self.ask(peer).await["ip"].take();
        assert!(ip == CLIENT || ip == peer, "{ip} is neither of the two");
        ip == CLIENT
    }

    async fn comes_to_believe(&self, peer: &str) {
        let what = format!("{peer} is believed");
        eventually(PATIENCE, what, async || self.believes(peer).await.then_some(())).await;
    }

    /// The status of `/readyz`, and what it says about the edge.
    async fn readiness(&self) -> (u16, String) {
        let answer = Answer::of(e2e::http::client().get(&self.readyz_url)).await;
        let detail = answer.body["checks"]["lookup-edge"]["detail"].as_str();
        (answer.status, detail.unwrap_or_default().to_owned())
    }

    async fn becomes(&self, status: u16, detail: &str) {
        eventually_ok(PATIENCE, format!("/readyz says {status} {detail}"), async || {
            let now = self.readiness().await;
            if now == (status, detail.to_owned()) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
}

#[tokio::test]
async fn it_is_not_ready_and_believes_nobody_until_the_api_has_answered() {
    let api = KubeApi::start(&[PROXY]).await;
    api.network.set(Fault::Stall);
    let pod = Pod::start(&api, &DISCOVERING).await;
    eventually(PATIENCE, "the API is asked", async || (api.network.accepted() > 0).then_some(())).await;
    pod.becomes(503, "the proxies have not been listed yet").await;
    assert!(!pod.believes(PROXY).await);
    api.network.set(Fault::None);
    pod.becomes(200, "proxy discovery: following").await;
    assert!(pod.believes(PROXY).await);
}

#[tokio::test]
async fn an_api_that_is_away_at_the_start_is_asked_again() {
    let api = KubeApi::start(&[PROXY]).await;
    api.network.set(Fault::Refuse);
    let pod = Pod::start(&api, &DISCOVERING).await;
    eventually(PATIENCE, "it has asked in vain", async || {
        pod.service.logs().contains("endpoints can't be listed").then_some(())
    })
    .await;
    assert_eq!(pod.readiness().await.0, 503);
    api.network.set(Fault::None);
    pod.becomes(200, "proxy discovery: following").await;
    assert!(pod.believes(PROXY).await);
}

#[tokio::test]
async fn a_proxy_that_comes_is_believed_and_one_that_goes_may_finish_its_requests() {
    let api = KubeApi::start(&[OTHER]).await;
    let pod = Pod::start(&api, &DISCOVERING).await;
    pod.becomes(200, "proxy discovery: following").await;
    assert!(pod.believes(OTHER).await && !pod.believes(PROXY).await);
    api.set_endpoints(&[PROXY]);
    pod.comes_to_believe(PROXY).await;
    // It has left in the same event, and is trusted for a minute more.
    assert!(pod.believes(OTHER).await);
    assert!(!pod.believes("127.0.0.3").await);
}

#[tokio::test]
async fn the_known_proxies_stay_while_the_api_is_away_and_its_return_is_noticed() {
    let api = KubeApi::start(&[PROXY]).await;
    let pod = Pod::start(&api, &DISCOVERING).await;
    pod.comes_to_believe(PROXY).await;
    api.network.set(Fault::Refuse);
    pod.becomes(200, "proxy discovery: stale").await;
    api.set_endpoints(&[PROXY, OTHER]);
    assert!(pod.believes(PROXY).await && !pod.believes(OTHER).await);
    api.network.set(Fault::None);
    pod.comes_to_believe(OTHER).await;
    pod.becomes(200, "proxy discovery: following").await;
    assert!(pod.believes(PROXY).await);
}

#[tokio::test]
async fn the_place_is_read_from_the_node_s_label_and_is_the_fixed_one_until_then() {
    let api = KubeApi::start(&[]).await;
    api.network.set(Fault::Stall);
    let flags = ["--colo-node-label", NODE_LABEL.0, "--colo-map", "eu-central-1=FRA", "--colo", "TXL"];
    let pod = Pod::start(&api, &flags).await;
    // A place is no reason to wait: only discovery is.
    pod.becomes(200, "proxy discovery: off").await;
    assert_eq!(pod.ask(PROXY).await["colo"], "TXL");
    api.network.set(Fault::None);
    eventually(PATIENCE, "the place is the node's", async || {
        (pod.ask(PROXY).await["colo"] == "FRA").then_some(())
    })
    .await;
}

#[tokio::test]
async fn where_no_api_is_configured_it_does_not_start_and_says_so() {
    let nowhere = [("KUBECONFIG", "/nonexistent/kubeconfig")];
    let mut service = Service::spawn("lookup-svc", &[LOCAL.as_slice(), &DISCOVERING].concat(), &nowhere);
    let status = service.wait_exit(PATIENCE).await;
    assert!(!status.success());
    eventually(PATIENCE, "the reason is logged", async || {
        service.logs().contains("no Kubernetes API is configured here").then_some(())
    })
    .await;
}
