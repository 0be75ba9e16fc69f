//! Discovery against a real HTTP server that speaks the list and watch protocol of Kubernetes.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

#[path = "support/fake_api.rs"]
mod fake_api;

use std::sync::Arc;
use std::time::Duration;

use edge::{DiscoveryStatus, Edge, EdgeArgs, EdgePolicy, node_label};
use fake_api::{FakeApi, Steady, Watch, bookmark, event, gone, slice, within};
use http::{HeaderMap, Version};
use tokio::sync::watch::Receiver;

const LONG: Duration = Duration::from_secs(600);

fn policy() -> EdgePolicy {
    let args = EdgeArgs {
        trusted_proxies: vec!["192.0.2.0/24".to_owned()],
        discover_proxies: Some("ingress/envoy".to_owned()),
        ..EdgeArgs::default()
    };
    EdgePolicy::from_args(&args).unwrap()
}

fn follow(api: &FakeApi, grace: Duration) -> (Edge, Receiver<DiscoveryStatus>) {
    let edge = Edge::with_client(policy(), Some(api.client()), grace, || Box::new(Steady));
    let status = edge.status();
    (edge, status)
}

async fn until(status: &mut Receiver<DiscoveryStatus>, want: DiscoveryStatus) {
    let _ = within("status", status.wait_for(|now| *now == want)).await.unwrap();
}

fn trusts(edge: &Edge, peer: &str) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", "203.0.113.7".parse().unwrap());
    let caller = edge.identify(peer.parse().unwrap(), &headers, Version::HTTP_11);
    caller.decision.is_trusted()
}

/// Listed with one pod, and the watch open.
async fn started(grace: Duration) -> (Arc<FakeApi>, Edge, Receiver<DiscoveryStatus>, Watch) {
    let api = FakeApi::start().await;
    api.list("100", &[slice("envoy-a", "100", &["10.0.0.1"])]);
    let (edge, mut status) = follow(&api, grace);
    until(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    let watch = api.next_watch().await;
    (api, edge, status, watch)
}

#[tokio::test]
async fn not_ready_and_nobody_trusted_before_the_first_list() {
    let api = FakeApi::start().await;
    api.answer(500);
    let (edge, mut status) = follow(&api, LONG);
    api.failed_requests(3).await;
    assert_eq!(*status.borrow(), DiscoveryStatus::Waiting);
    assert!(!status.borrow().is_ready());
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "192.0.2.1"));
    api.list("100", &[slice("envoy-a", "100", &["10.0.0.1", "fd00::1"])]);
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.1") && trusts(&edge, "fd00::1") && trusts(&edge, "192.0.2.1"));
}

#[tokio::test]
async fn a_service_without_endpoints_is_listed_and_ready() {
    let api = FakeApi::start().await;
    api.list("7", &[]);
    let (edge, mut status) = follow(&api, LONG);
    until(&mut status, DiscoveryStatus::Following { proxies: 0 }).await;
    assert!(!trusts(&edge, "10.0.0.1"));
}

#[tokio::test]
async fn only_the_slices_of_the_service_in_its_namespace_are_asked_for() {
    let (api, _edge, _status, watch) = started(LONG).await;
    let first = api.first_list();
    for uri in [&first, &watch.uri] {
        assert!(uri.starts_with("/apis/discovery.k8s.io/v1/namespaces/ingress/endpointslices?"), "{uri}");
        assert!(uri.contains("labelSelector=kubernetes.io%2Fservice-name%3Denvoy"), "{uri}");
    }
    assert!(watch.uri.contains("resourceVersion=100"), "{}", watch.uri);
}

#[tokio::test]
async fn added_changed_and_deleted_slices_are_followed() {
    let (_api, edge, mut status, watch) = started(Duration::ZERO).await;
    watch.send(event("ADDED", slice("envoy-b", "101", &["10.0.0.2", "10.0.0.3"])));
    until(&mut status, DiscoveryStatus::Following { proxies: 3 }).await;
    watch.send(event("MODIFIED", slice("envoy-b", "102", &["10.0.0.3"])));
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(!trusts(&edge, "10.0.0.2") && trusts(&edge, "10.0.0.3"));
    watch.send(event("DELETED", slice("envoy-a", "103", &["10.0.0.1"])));
    until(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.3"));
}

#[tokio::test]
async fn a_removed_pod_is_trusted_for_the_grace_and_then_forgotten() {
    let (_api, edge, mut status, watch) = started(LONG).await;
    watch.send(event("MODIFIED", slice("envoy-a", "101", &["10.0.0.2"])));
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.2"));

    let (_api, edge, mut status, watch) = started(Duration::from_millis(50)).await;
    watch.send(event("MODIFIED", slice("envoy-a", "101", &["10.0.0.2", "10.0.0.3", "10.0.0.4"])));
    // No further event comes: only the clock can bring the count from 4 to 3.
    until(&mut status, DiscoveryStatus::Following { proxies: 3 }).await;
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.2"));
}

#[tokio::test]
async fn a_broken_stream_is_resumed_where_the_bookmark_stood() {
    let (api, edge, mut status, watch) = started(LONG).await;
    watch.send(bookmark("150"));
    watch.end();
    let watch = api.next_watch().await;
    assert!(watch.uri.contains("resourceVersion=150"), "{}", watch.uri);
    watch.send(event("ADDED", slice("envoy-b", "151", &["10.0.0.2"])));
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    // In the middle of a line, and the connection with it.
    watch.send("{\"type\":\"MODI".to_owned());
    watch.cut();
    let watch = api.next_watch().await;
    watch.send(event("ADDED", slice("envoy-c", "152", &["10.0.0.3"])));
    until(&mut status, DiscoveryStatus::Following { proxies: 3 }).await;
    assert!(trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.3"));
}

#[tokio::test]
async fn nonsense_in_the_stream_leads_to_a_new_list() {
    let (api, edge, mut status, watch) = started(LONG).await;
    api.list("200", &[slice("envoy-a", "200", &["10.0.0.1", "10.0.0.2"])]);
    watch.send("<html>502</html>\n".to_owned());
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.2"));
}

#[tokio::test]
async fn an_expired_version_in_the_stream_leads_to_a_new_list() {
    let (api, edge, mut status, watch) = started(Duration::ZERO).await;
    api.list("500", &[slice("envoy-z", "500", &["10.0.0.8", "10.0.0.9"])]);
    watch.send(gone());
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.9"));
    let watch = api.next_watch().await;
    assert!(watch.uri.contains("resourceVersion=500"), "{}", watch.uri);
}

#[tokio::test]
async fn an_expired_version_by_status_leads_to_a_new_list() {
    let (api, edge, mut status, watch) = started(Duration::ZERO).await;
    api.refuse_watches_from("100");
    api.list("500", &[slice("envoy-z", "500", &["10.0.0.8", "10.0.0.9"])]);
    watch.end();
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.9"));
    let watch = api.next_watch().await;
    assert!(watch.uri.contains("resourceVersion=500"), "{}", watch.uri);
}

#[tokio::test]
async fn while_the_api_is_away_the_known_proxies_stay_and_its_return_is_noticed() {
    let (api, edge, mut status, watch) = started(Duration::ZERO).await;
    api.hang_up();
    watch.cut();
    until(&mut status, DiscoveryStatus::Stale { proxies: 1 }).await;
    api.failed_requests(3).await;
    assert!(status.borrow().is_ready());
    assert!(trusts(&edge, "10.0.0.1"));
    // Another kind of absence: it answers, but with errors.
    api.answer(503);
    api.failed_requests(3).await;
    assert_eq!(*status.borrow(), DiscoveryStatus::Stale { proxies: 1 });
    assert!(trusts(&edge, "10.0.0.1"));
    api.list("900", &[slice("envoy-a", "900", &["10.0.0.4"])]);
    until(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    assert!(!trusts(&edge, "10.0.0.1") && trusts(&edge, "10.0.0.4"));
}

#[tokio::test]
async fn a_watch_that_falls_silent_is_given_up_and_the_proxies_are_listed_anew() {
    let api = FakeApi::start().await;
    api.list("100", &[slice("envoy-a", "100", &["10.0.0.1"])]);
    // The client of `client_from`, with a patience that a test can wait out.
    let mut config = api.config();
    config.default_retry = false;
    config.read_timeout = Some(Duration::from_millis(300));
    config.reset_reader_on_write = true;
    let client = kube::Client::try_from(config).unwrap();
    let edge = Edge::with_client(policy(), Some(client), LONG, || Box::new(Steady));
    let mut status = edge.status();
    until(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    // Held to the end: it says nothing, and does not end either.
    let _silent = api.next_watch().await;
    api.list("200", &[slice("envoy-a", "200", &["10.0.0.1", "10.0.0.2"])]);
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.2"));
}

#[tokio::test]
async fn an_api_that_forbids_us_keeps_us_unready() {
    let api = FakeApi::start().await;
    api.answer(403);
    let (edge, status) = follow(&api, LONG);
    api.failed_requests(3).await;
    assert!(!status.borrow().is_ready() && !trusts(&edge, "10.0.0.1"));
}

#[tokio::test]
async fn the_api_is_asked_over_tls_as_in_a_cluster() {
    let api = FakeApi::start_tls().await;
    api.list("100", &[slice("envoy-a", "100", &["10.0.0.1"])]);
    let (edge, mut status) = follow(&api, LONG);
    until(&mut status, DiscoveryStatus::Following { proxies: 1 }).await;
    api.next_watch().await.send(event("ADDED", slice("envoy-b", "101", &["10.0.0.2"])));
    until(&mut status, DiscoveryStatus::Following { proxies: 2 }).await;
    assert!(trusts(&edge, "10.0.0.2"));
}

#[tokio::test]
async fn discovery_ends_with_its_edge() {
    let (_api, edge, _status, watch) = started(LONG).await;
    drop(edge);
    within("the watch to be closed", watch.closed()).await;
}

#[tokio::test]
async fn the_node_s_label_is_read() {
    let api = FakeApi::start().await;
    api.node("node-1", &[("example.org/iata", "FRA")]);
    let read = |node, label| node_label(api.client(), node, label);
    assert_eq!(read("node-1", "example.org/iata").await.unwrap().as_deref(), Some("FRA"));
    assert_eq!(read("node-1", "example.org/other").await.unwrap(), None);
    assert!(read("node-2", "example.org/iata").await.is_err());
}

#[tokio::test]
async fn the_place_comes_from_the_header_then_the_node_then_the_zone() {
    let api = FakeApi::start().await;
    api.answer(500);
    let args = EdgeArgs {
        trusted_proxies: vec!["192.0.2.1".to_owned()],
        colo_node_label: Some("topology.kubernetes.io/zone".to_owned()),
        node_name: Some("node-1".to_owned()),
        colo_map: vec!["eu-central-1=FRA".to_owned(), "zone-b=AMS".to_owned()],
        node_zone: Some("zone-b".to_owned()),
        colo: Some("TXL".to_owned()),
        ..EdgeArgs::default()
    };
    let policy = EdgePolicy::from_args(&args).unwrap();
    let edge = Edge::with_client(policy, Some(api.client()), LONG, || Box::new(Steady));
    let place = |peer: &str, headers: &HeaderMap| {
        let caller = edge.identify(peer.parse().unwrap(), headers, Version::HTTP_2);
        caller.colo.map(|colo| colo.to_string())
    };
    api.failed_requests(2).await;
    assert_eq!(place("203.0.113.7", &HeaderMap::new()).as_deref(), Some("AMS"));
    api.node("node-1", &[("topology.kubernetes.io/zone", "eu-central-1b")]);
    within("the node", async {
        while edge.colo().map(|colo| colo.to_string()).as_deref() != Some("FRA") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let headers = HeaderMap::from_iter([("x-edge-colo".parse().unwrap(), "SJC".parse().unwrap())]);
    assert_eq!(place("192.0.2.1", &headers).as_deref(), Some("SJC"));
    assert_eq!(place("203.0.113.7", &headers).as_deref(), Some("FRA"));
}
