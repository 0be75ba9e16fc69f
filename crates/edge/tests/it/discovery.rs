//! Tests discovery against a fake Kubernetes API that serves lists and watches over HTTP.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use edge::{ConnectionFacts, Decision, DiscoveryStatus, Edge, EdgeArgs, EdgePolicy, Peer};
use http::{HeaderMap, Version};
use kube::runtime::utils::Backoff;
use testkit::kube_api::{KubeApi, Watch, bookmark, event, expired, slice};
use testkit::wait::within;
use tokio::sync::watch::Receiver;

/// A removal grace that does not end during a test.
const LONG_GRACE: Duration = Duration::from_secs(600);

/// A constant retry delay, short for a test but long enough to avoid a busy loop.
struct ShortDelay;

impl Iterator for ShortDelay {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }
}

impl Backoff for ShortDelay {
    fn reset(&mut self) {}
}

fn config(api: &KubeApi) -> kube::Config {
    let mut config = kube::Config::new(api.url().parse().unwrap());
    config.root_cert = api.certificate().map(|der| vec![der]);
    config
}

fn client(api: &KubeApi) -> kube::Client {
    edge::client_from(config(api)).unwrap()
}

fn policy() -> EdgePolicy {
    let args = EdgeArgs {
        trusted_proxies: vec!["192.0.2.0/24".to_owned()],
        discover_proxies: Some("ingress/envoy".to_owned()),
        ..EdgeArgs::default()
    };
    EdgePolicy::from_args(&args).unwrap()
}

fn discover(api: &KubeApi, removal_grace: Duration) -> (Edge, Receiver<DiscoveryStatus>) {
    let edge = Edge::with_client(policy(), client(api), removal_grace, Box::new(ShortDelay));
    let status = edge.status();
    (edge, status)
}

async fn wait_for(status: &mut Receiver<DiscoveryStatus>, want: DiscoveryStatus) {
    let _ = within("the expected discovery status", status.wait_for(|status| *status == want)).await.unwrap();
}

fn trusts(edge: &Edge, peer: &str) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", "203.0.113.7".parse().unwrap());
    let client = edge.identify(
        Peer::Address(peer.parse().unwrap()),
        &headers,
        ConnectionFacts::direct(Version::HTTP_11),
    );
    client.decision != Decision::PeerUntrusted
}

/// Starts discovery with one listed pod and waits for the watch.
async fn started(removal_grace: Duration) -> (Arc<KubeApi>, Edge, Receiver<DiscoveryStatus>, Watch) {
    let api = KubeApi::start().await;
    api.list("100", &[slice("envoy-a", "100", &["10.0.0.1"])]);
    let (edge, mut status) = discover(&api, removal_grace);
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    let watch = api.next_watch().await;
    (api, edge, status, watch)
}

#[tokio::test]
async fn edge_is_not_ready_before_first_list() {
    let api = KubeApi::start().await;
    api.respond_with(500);
    let (edge, mut status) = discover(&api, LONG_GRACE);
    api.wait_for_failures(3).await;
    assert_eq!(*status.borrow(), DiscoveryStatus::Waiting);
    assert!(!status.borrow().is_ready());
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "192.0.2.1"));
    api.list("100", &[slice("envoy-a", "100", &["10.0.0.1", "fd00::1"])]);
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.1") && trusts(&edge, "fd00::1") && trusts(&edge, "192.0.2.1"));
}

#[tokio::test]
async fn service_without_endpoints_is_ready() {
    let api = KubeApi::start().await;
    api.list("7", &[]);
    let (edge, mut status) = discover(&api, LONG_GRACE);
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 0 }).await;
    assert!(!trusts(&edge, "10.0.0.1"));
}

#[tokio::test]
async fn requests_select_only_slices_of_the_service() {
    let (api, _edge, _status, watch) = started(LONG_GRACE).await;
    let first = api.first_list_uri();
    for uri in [&first, &watch.uri] {
        assert!(uri.starts_with("/apis/discovery.k8s.io/v1/namespaces/ingress/endpointslices?"), "{uri}");
        assert!(uri.contains("labelSelector=kubernetes.io%2Fservice-name%3Denvoy"), "{uri}");
    }
    assert!(watch.uri.contains("resourceVersion=100"), "{}", watch.uri);
}

#[tokio::test]
async fn added_changed_and_deleted_slices_are_applied() {
    let (_api, edge, mut status, watch) = started(Duration::ZERO).await;
    watch.send(event("ADDED", slice("envoy-b", "101", &["10.0.0.2", "10.0.0.3"])));
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 3 }).await;
    watch.send(event("MODIFIED", slice("envoy-b", "102", &["10.0.0.3"])));
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(!trusts(&edge, "10.0.0.2") && trusts(&edge, "10.0.0.3"));
    watch.send(event("DELETED", slice("envoy-a", "103", &["10.0.0.1"])));
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.3"));
}

#[tokio::test]
async fn removed_pod_stays_trusted_during_grace() {
    let (_api, edge, mut status, watch) = started(LONG_GRACE).await;
    watch.send(event("MODIFIED", slice("envoy-a", "101", &["10.0.0.2"])));
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.2"));

    let (_api, edge, mut status, watch) = started(Duration::from_millis(50)).await;
    watch.send(event("MODIFIED", slice("envoy-a", "101", &["10.0.0.2", "10.0.0.3", "10.0.0.4"])));
    // There are no more events: only expiry can reduce the count from 4 to 3.
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 3 }).await;
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.2"));
}

#[tokio::test]
async fn broken_watch_resumes_at_bookmark() {
    let (api, edge, mut status, watch) = started(LONG_GRACE).await;
    watch.send(bookmark("150"));
    watch.end();
    let watch = api.next_watch().await;
    assert!(watch.uri.contains("resourceVersion=150"), "{}", watch.uri);
    watch.send(event("ADDED", slice("envoy-b", "151", &["10.0.0.2"])));
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    // Breaks the connection in the middle of a line.
    watch.send("{\"type\":\"MODI".to_owned());
    watch.abort();
    let watch = api.next_watch().await;
    watch.send(event("ADDED", slice("envoy-c", "152", &["10.0.0.3"])));
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 3 }).await;
    assert!(trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.3"));
}

#[tokio::test]
async fn invalid_event_triggers_new_list() {
    let (api, edge, mut status, watch) = started(LONG_GRACE).await;
    api.list("200", &[slice("envoy-a", "200", &["10.0.0.1", "10.0.0.2"])]);
    watch.send("<html>502</html>\n".to_owned());
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.2"));
}

#[tokio::test]
async fn expired_version_event_triggers_new_list() {
    let (api, edge, mut status, watch) = started(Duration::ZERO).await;
    api.list("500", &[slice("envoy-z", "500", &["10.0.0.8", "10.0.0.9"])]);
    watch.send(expired());
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.9"));
    let watch = api.next_watch().await;
    assert!(watch.uri.contains("resourceVersion=500"), "{}", watch.uri);
}

#[tokio::test]
async fn expired_version_status_triggers_new_list() {
    let (api, edge, mut status, watch) = started(Duration::ZERO).await;
    api.reject_watches_from("100");
    api.list("500", &[slice("envoy-z", "500", &["10.0.0.8", "10.0.0.9"])]);
    watch.end();
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.9"));
    let watch = api.next_watch().await;
    assert!(watch.uri.contains("resourceVersion=500"), "{}", watch.uri);
}

#[tokio::test]
async fn api_outage_keeps_proxies_until_next_list() {
    let (api, edge, mut status, watch) = started(Duration::ZERO).await;
    api.close_connections();
    watch.abort();
    wait_for(&mut status, DiscoveryStatus::Stale { proxies: 1 }).await;
    api.wait_for_failures(3).await;
    assert!(status.borrow().is_ready());
    assert!(trusts(&edge, "10.0.0.1"));
    // A different outage: the API responds with errors.
    api.respond_with(503);
    api.wait_for_failures(3).await;
    assert_eq!(*status.borrow(), DiscoveryStatus::Stale { proxies: 1 });
    assert!(trusts(&edge, "10.0.0.1"));
    api.list("900", &[slice("envoy-a", "900", &["10.0.0.4"])]);
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.4"));
}

#[tokio::test]
async fn hanging_watch_triggers_new_list() {
    let api = KubeApi::start().await;
    api.list("100", &[slice("envoy-a", "100", &["10.0.0.1"])]);
    // As in `client_from`, but with a read timeout that is short enough for a test.
    let mut config = config(&api);
    config.default_retry = false;
    config.read_timeout = Some(Duration::from_millis(300));
    config.reset_reader_on_write = true;
    let client = kube::Client::try_from(config).unwrap();
    let edge = Edge::with_client(policy(), client, LONG_GRACE, Box::new(ShortDelay));
    let mut status = edge.status();
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    // Keeps the watch open without events.
    let _hanging = api.next_watch().await;
    api.list("200", &[slice("envoy-a", "200", &["10.0.0.1", "10.0.0.2"])]);
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.2"));
}

#[tokio::test]
async fn forbidden_list_keeps_edge_not_ready() {
    let api = KubeApi::start().await;
    api.respond_with(403);
    let (edge, status) = discover(&api, LONG_GRACE);
    api.wait_for_failures(3).await;
    assert!(!status.borrow().is_ready() && !trusts(&edge, "10.0.0.1"));
}

#[tokio::test]
async fn discovery_works_over_tls() {
    let api = KubeApi::start_tls().await;
    api.list("100", &[slice("envoy-a", "100", &["10.0.0.1"])]);
    let (edge, mut status) = discover(&api, LONG_GRACE);
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    api.next_watch().await.send(event("ADDED", slice("envoy-b", "101", &["10.0.0.2"])));
    wait_for(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.2"));
}

#[tokio::test]
async fn dropping_edge_closes_watch() {
    let (_api, edge, _status, watch) = started(LONG_GRACE).await;
    drop(edge);
    within("the end of the watch", watch.closed()).await;
}
