//! The whole edge, as a service asks it.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use edge::{Caller, Decision, DiscoveryStatus, Edge, EdgeArgs};
use http::{HeaderMap, HeaderName, Version};

async fn edge(trusted: &[&str]) -> Edge {
    let args = EdgeArgs {
        trusted_proxies: trusted.iter().map(|&net| net.to_owned()).collect(),
        colo: Some("FRA".to_owned()),
        ..EdgeArgs::default()
    };
    Edge::start(&args).await.unwrap()
}

fn full() -> HeaderMap {
    let pairs = [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-edge-http-protocol", "HTTP/3.0"),
        ("x-edge-tls-version", "1.3"),
        ("x-edge-tls-cipher", "1302"),
        ("x-edge-rtt", "41"),
        ("x-edge-colo", "SJC"),
    ];
    pairs.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).into_iter().collect()
}

fn ask<'h>(edge: &Edge, peer: &str, headers: &'h HeaderMap) -> Caller<'h> {
    edge.identify(peer.parse().unwrap(), headers, Version::HTTP_11)
}

#[tokio::test]
async fn from_a_trusted_proxy_everything_is_read() {
    let (edge, headers) = (edge(&["10.0.0.0/8"]).await, full());
    let caller = ask(&edge, "10.0.0.1", &headers);
    assert_eq!((caller.ip.to_string().as_str(), caller.decision), ("203.0.113.7", Decision::Xff));
    assert_eq!(caller.http_protocol, Some("HTTP/3"));
    assert_eq!(caller.tls_version, Some("TLSv1.3"));
    assert_eq!(caller.tls_cipher, Some("TLS_AES_256_GCM_SHA384"));
    assert_eq!(caller.rtt_ms, Some(41));
    assert_eq!(caller.colo.map(|colo| colo.to_string()).as_deref(), Some("SJC"));
}

#[tokio::test]
async fn from_anybody_else_nothing_is_read() {
    for edge in [edge(&["10.0.0.0/8"]).await, edge(&[]).await] {
        let headers = full();
        let forged = ask(&edge, "::ffff:198.51.100.1", &headers);
        let empty = HeaderMap::new();
        assert_eq!(forged, ask(&edge, "198.51.100.1", &empty));
        assert_eq!(forged.decision, Decision::PeerUntrusted);
        assert_eq!(forged.http_protocol, Some("HTTP/1.1"));
        assert_eq!((forged.tls_version, forged.tls_cipher, forged.rtt_ms), (None, None, None));
        assert_eq!(forged.colo.map(|colo| colo.to_string()).as_deref(), Some("FRA"));
    }
}

#[tokio::test]
async fn a_trusted_proxy_that_tells_no_facts_leaves_them_unknown() {
    // Our own connection to the proxy is not the client's: its version says nothing about it.
    let edge = edge(&["10.0.0.0/8"]).await;
    let headers =
        HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), "198.51.100.1".parse().unwrap())]);
    let caller = ask(&edge, "10.0.0.1", &headers);
    assert_eq!((caller.http_protocol, caller.tls_version, caller.rtt_ms), (None, None, None));
    assert_eq!(caller.decision, Decision::Xff);
}

#[tokio::test]
async fn a_trusted_peer_that_forwards_nobody_is_the_client_itself() {
    let (edge, headers) = (edge(&["10.0.0.0/8"]).await, HeaderMap::new());
    let caller = ask(&edge, "10.0.0.1", &headers);
    assert_eq!((caller.http_protocol, caller.tls_version, caller.rtt_ms), (Some("HTTP/1.1"), None, None));
    assert_eq!(caller.decision, Decision::Missing);
}

#[tokio::test]
async fn without_discovery_the_edge_is_ready_and_says_its_policy() {
    let edge = edge(&["10.0.0.0/8"]).await;
    assert_eq!(*edge.status().borrow(), DiscoveryStatus::Off);
    assert!(edge.status().borrow().is_ready());
    assert!(edge.summary().contains("10.0.0.0/8") && edge.summary().contains("FRA"), "{}", edge.summary());
}

#[tokio::test]
async fn a_wrong_flag_refuses_to_start() {
    let args = EdgeArgs { trusted_proxies: vec!["0.0.0.0/0".to_owned()], ..EdgeArgs::default() };
    let text = Edge::start(&args).await.unwrap_err().to_string();
    assert!(text.contains("--insecure-trust-any-proxy"), "{text}");
}
