//! Tests `Edge::identify` and startup as a service uses them.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use edge::{ClientInfo, ConnectionFacts, Decision, DiscoveryStatus, Edge, EdgeArgs, Peer};
use http::{HeaderMap, HeaderName, Version};

async fn edge(trusted: &[&str]) -> Edge {
    let args = EdgeArgs {
        trusted_proxies: trusted.iter().map(|&net| net.to_owned()).collect(),
        colo: Some("FRA".to_owned()),
        ..EdgeArgs::default()
    };
    Edge::start(&args).await.unwrap()
}

fn all_headers() -> HeaderMap {
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

fn identify<'h>(edge: &Edge, peer: &str, headers: &'h HeaderMap) -> ClientInfo<'h> {
    edge.identify(Peer::Address(peer.parse().unwrap()), headers, ConnectionFacts::direct(Version::HTTP_11))
}

#[tokio::test]
async fn all_headers_of_trusted_proxy_are_read() {
    let (edge, headers) = (edge(&["10.0.0.0/8"]).await, all_headers());
    let client = identify(&edge, "10.0.0.1", &headers);
    assert_eq!((client.ip.to_string().as_str(), client.decision), ("203.0.113.7", Decision::Xff));
    assert_eq!(client.facts.http_protocol, Some("HTTP/3"));
    assert_eq!(client.facts.tls_version, Some("TLSv1.3"));
    assert_eq!(client.facts.tls_cipher, Some("TLS_AES_256_GCM_SHA384"));
    assert_eq!(client.facts.rtt_ms, Some(41));
    assert_eq!(client.facts.colo.map(|colo| colo.to_string()).as_deref(), Some("SJC"));
}

#[tokio::test]
async fn headers_of_untrusted_peer_are_ignored() {
    for edge in [edge(&["10.0.0.0/8"]).await, edge(&[]).await] {
        let headers = all_headers();
        let forged = identify(&edge, "::ffff:198.51.100.1", &headers);
        let empty = HeaderMap::new();
        assert_eq!(forged, identify(&edge, "198.51.100.1", &empty));
        assert_eq!(forged.decision, Decision::PeerUntrusted);
        assert_eq!(forged.facts.http_protocol, Some("HTTP/1.1"));
        assert_eq!(
            (forged.facts.tls_version, forged.facts.tls_cipher, forged.facts.rtt_ms),
            (None, None, None)
        );
        assert_eq!(forged.facts.colo.map(|colo| colo.to_string()).as_deref(), Some("FRA"));
    }
}

#[tokio::test]
async fn facts_are_none_if_proxy_sends_none() {
    // The HTTP version of the connection to the proxy is not the client's.
    let edge = edge(&["10.0.0.0/8"]).await;
    let headers =
        HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), "198.51.100.1".parse().unwrap())]);
    let client = identify(&edge, "10.0.0.1", &headers);
    assert_eq!(
        (client.facts.http_protocol, client.facts.tls_version, client.facts.rtt_ms),
        (None, None, None)
    );
    assert_eq!(client.decision, Decision::Xff);
}

#[tokio::test]
async fn trusted_peer_without_xff_is_the_client() {
    let (edge, headers) = (edge(&["10.0.0.0/8"]).await, HeaderMap::new());
    let client = identify(&edge, "10.0.0.1", &headers);
    assert_eq!(
        (client.facts.http_protocol, client.facts.tls_version, client.facts.rtt_ms),
        (Some("HTTP/1.1"), None, None)
    );
    assert_eq!(client.decision, Decision::Missing);
}

#[tokio::test]
async fn headers_of_a_balancer_without_a_client_are_ignored() {
    let (edge, headers) = (edge(&["10.0.0.0/8"]).await, all_headers());
    let balancer = Peer::Balancer("::ffff:10.0.0.1".parse().unwrap());
    let own = ConnectionFacts::direct(Version::HTTP_2).behind_balancer(None);
    let client = edge.identify(balancer, &headers, own);
    assert_eq!((client.ip.to_string().as_str(), client.decision), ("10.0.0.1", Decision::Missing));
    assert_eq!((client.facts.http_protocol, client.facts.tls_version), (Some("HTTP/2"), None));
    assert_eq!((client.facts.rtt_ms, client.facts.rtt_from_socket), (None, false));
    assert_eq!(client.facts.colo.map(|colo| colo.to_string()).as_deref(), Some("FRA"));
}

/// The texts about a field.
fn explained(edge: &Edge, peer: &str, headers: &[(&'static str, &str)], field: &str) -> Vec<String> {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
    let own = ConnectionFacts::direct(Version::HTTP_11);
    let (_, explained) = edge.explain(peer.parse().unwrap(), &headers, own);
    explained.into_iter().filter(|(of, _)| *of == field).map(|(_, text)| text).collect()
}

#[tokio::test]
async fn each_hop_and_fact_is_explained() {
    let edge = edge(&["10.0.0.0/8"]).await;
    let forwarded = ("x-forwarded-for", "192.0.2.1, 203.0.113.7, 10.9.9.9");
    let sent = [forwarded, ("x-edge-rtt", "fast"), ("x-edge-colo", "SJC")];
    assert_eq!(
        explained(&edge, "10.0.0.1", &sent, "ip"),
        [
            "The peer 10.0.0.1 is a trusted proxy (10.0.0.0/8 in --trusted-proxies).",
            "Entry 1 of X-Forwarded-For, counted from the right, is \"10.9.9.9\": 10.9.9.9 is another trusted proxy (10.0.0.0/8 in --trusted-proxies).",
            "Entry 2 of X-Forwarded-For, counted from the right, is \"203.0.113.7\": 203.0.113.7 is not a trusted proxy, so it is the client.",
            "Entries further to the left, if any, were not read: a client can send anything there.",
        ]
    );
    let source = |peer, sent, field| explained(&edge, peer, sent, field).join("; ");
    assert_eq!(source("10.0.0.1", &sent, "rtt"), "header x-edge-rtt has an invalid value: \"fast\"");
    assert_eq!(source("10.0.0.1", &sent, "colo"), "header x-edge-colo");
    assert_eq!(source("10.0.0.1", &sent, "tls_version"), "the peer sent no header x-edge-tls-version");
    let own = "the connection to this service, which `explain` does not open";
    assert_eq!(source("10.0.0.1", &[], "rtt"), format!("the peer sent no header x-edge-rtt; {own}"));
    assert_eq!(source("203.0.113.1", &sent, "tls_cipher"), own);
    assert_eq!(source("203.0.113.1", &sent, "colo"), "--colo, or the zone of this node");
    let untrusted = source("203.0.113.1", &sent, "ip");
    assert!(
        untrusted.starts_with("The peer 203.0.113.1 is not a trusted proxy, so it is the client"),
        "{untrusted}"
    );
}

#[tokio::test]
async fn headers_that_are_not_read_are_listed() {
    let edge = edge(&["10.0.0.0/8"]).await;
    let sent = [("x-forwarded-for", "192.0.2.1"), ("x-real-ip", "192.0.2.2")];
    let unused = "Not used for the address or the connection facts: x-real-ip.".to_owned();
    let trusted = explained(&edge, "10.0.0.1", &sent, "ip");
    assert!(trusted.ends_with(std::slice::from_ref(&unused)), "{trusted:?}");
    let ignored = "Ignored, because the peer is not trusted: x-forwarded-for.".to_owned();
    let untrusted = explained(&edge, "203.0.113.1", &sent, "ip");
    assert!(untrusted.ends_with(&[ignored, unused]), "{untrusted:?}");
    let hint = explained(&edge, "10.0.0.1", &sent[1..], "ip").pop().unwrap();
    assert!(hint.contains("lookup-svc can also read x-real-ip"), "{hint}");
}

#[tokio::test]
async fn proxy_protocol_requires_trusted_proxies() {
    let error = edge(&[]).await.require_trusted_proxies().unwrap_err().to_string();
    assert!(error.contains("--proxy-protocol requires --trusted-proxies or --discover-proxies"), "{error}");
    assert!(edge(&["10.0.0.1"]).await.require_trusted_proxies().is_ok());
}

#[tokio::test]
async fn edge_without_discovery_is_ready() {
    let edge = edge(&["10.0.0.0/8"]).await;
    assert_eq!(*edge.status().borrow(), DiscoveryStatus::Off);
    assert!(edge.status().borrow().is_ready());
}

#[tokio::test]
async fn trusting_every_address_fails_at_start() {
    let args = EdgeArgs { trusted_proxies: vec!["0.0.0.0/0".to_owned()], ..EdgeArgs::default() };
    let text = Edge::start(&args).await.unwrap_err().to_string();
    assert!(text.contains("--insecure-trust-any-proxy"), "{text}");
}
