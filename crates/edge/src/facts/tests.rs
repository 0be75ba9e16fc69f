//! Tests the header values that proxies send, and values that must be ignored.

use http::HeaderValue;

use super::*;
use crate::config::{EdgeArgs, EdgePolicy};

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn names() -> FactHeaders {
    EdgePolicy::from_args(&EdgeArgs::default()).unwrap().fact_headers
}

fn read(headers: &HeaderMap) -> ConnectionFacts<'_> {
    names().read(headers, &mut Explanation::default())
}

fn select<'h>(decision: Decision, own: ConnectionFacts<'h>, headers: &'h HeaderMap) -> ConnectionFacts<'h> {
    names().select(decision, own, headers, &mut Explanation::default())
}

/// What a TLS connection to this process has.
fn own() -> ConnectionFacts<'static> {
    ConnectionFacts::direct(Version::HTTP_2).with_tls(Some("TLSv1.2"), Some("TLS_OWN"))
}

/// What a proxy sends.
fn sent() -> HeaderMap {
    headers(&[
        ("x-edge-http-protocol", "HTTP/3"),
        ("x-edge-tls-version", "TLSv1.3"),
        ("x-edge-tls-cipher", "TLS_SENT"),
        ("x-edge-rtt", "41"),
    ])
}

/// The facts in [`sent`].
const SENT: ConnectionFacts<'_> = ConnectionFacts {
    http_protocol: Some("HTTP/3"),
    tls_version: Some("TLSv1.3"),
    tls_cipher: Some("TLS_SENT"),
    rtt_ms: Some(41),
    rtt_from_socket: false,
    colo: None,
};

#[test]
fn direct_connection_has_its_own_facts() {
    let (direct, sent) = (ConnectionFacts::direct(Version::HTTP_11), sent());
    let facts = select(Decision::PeerUntrusted, direct, &sent);
    assert_eq!((facts.http_protocol, facts.tls_version), (Some("HTTP/1.1"), None));
    assert!(facts.rtt_from_socket);
    for headers in [&sent, &HeaderMap::new()] {
        assert_eq!(select(Decision::PeerUntrusted, own(), headers), own(), "an untrusted peer");
    }
}

#[test]
fn connection_behind_a_balancer_has_no_round_trip_time_and_the_tls_of_the_proxy_header() {
    let tls = |version, cipher| Some((version, cipher));
    let passed_through = own().behind_balancer(None);
    let direct = ConnectionFacts::direct(Version::HTTP_11);
    let sent = sent();
    for (balancer, version, cipher) in [
        (passed_through, Some("TLSv1.2"), Some("TLS_OWN")),
        (direct.behind_balancer(None), None, None),
        (
            direct.behind_balancer(tls(Some("TLSv1.3"), Some("ECDHE-RSA-AES128-GCM-SHA256"))),
            Some("TLSv1.3"),
            Some("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ),
        // The connection from the load balancer has TLS, too.
        (own().behind_balancer(tls(Some("TLSv1.3"), None)), Some("TLSv1.3"), None),
        (own().behind_balancer(tls(Some("unknown"), Some("a b"))), None, None),
    ] {
        let facts = select(Decision::PeerUntrusted, balancer, &sent);
        assert_eq!((facts.tls_version, facts.tls_cipher), (version, cipher));
        assert!(!facts.rtt_from_socket && facts.rtt_ms.is_none());
    }
    assert_eq!(passed_through.http_protocol, Some("HTTP/2"));
    assert_eq!(select(Decision::Missing, passed_through, &HeaderMap::new()), passed_through);
    assert_eq!(select(Decision::Xff, passed_through, &sent), SENT, "a proxy in front of the balancer");
}

#[test]
fn trusted_proxy_that_forwards_an_address_or_is_the_client_by_policy_has_only_the_facts_it_sends() {
    let forwarded =
        [Decision::Peer, Decision::Xff, Decision::XffAllTrusted, Decision::Header, Decision::Fallback];
    for decision in forwarded {
        assert_eq!(select(decision, own(), &sent()), SENT, "{decision:?}");
        let nothing_sent = HeaderMap::new();
        assert_eq!(select(decision, own(), &nothing_sent), ConnectionFacts::default(), "{decision:?}");
    }
}

#[test]
fn trusted_peer_without_an_address_has_what_it_sends_and_else_its_own_facts() {
    assert_eq!(select(Decision::Missing, own(), &sent()), SENT);
    assert_eq!(select(Decision::Missing, own(), &HeaderMap::new()), own());
    let version_only = headers(&[("x-edge-tls-version", "TLSv1.3")]);
    let facts = select(Decision::Missing, own(), &version_only);
    assert_eq!((facts.tls_version, facts.tls_cipher), (Some("TLSv1.3"), None), "not a mixture");
    assert_eq!((facts.http_protocol, facts.rtt_from_socket), (Some("HTTP/2"), true));
    let cipher_only = headers(&[("x-edge-tls-cipher", "1301")]);
    let facts = select(Decision::Missing, own(), &cipher_only);
    assert_eq!((facts.tls_version, facts.tls_cipher), (None, Some("TLS_AES_128_GCM_SHA256")));
}

#[test]
fn missing_headers_yield_no_facts() {
    assert_eq!(read(&HeaderMap::new()), ConnectionFacts::default());
}

#[test]
fn all_headers_are_read() {
    let map = headers(&[
        ("x-edge-http-protocol", "HTTP/2.0"),
        ("x-edge-tls-version", "TLSv1.3"),
        ("x-edge-tls-cipher", "AEAD-AES128-GCM-SHA256"),
        ("x-edge-rtt", "12.4"),
        ("x-edge-colo", "230b030023ae2822-SJC"),
    ]);
    let facts = read(&map);
    assert_eq!(facts.http_protocol, Some("HTTP/2"));
    assert_eq!(facts.tls_version, Some("TLSv1.3"));
    assert_eq!(facts.tls_cipher, Some("TLS_AES_128_GCM_SHA256"));
    assert_eq!(facts.rtt_ms, Some(12));
    assert_eq!(facts.colo, Iata::parse(b"SJC"));
}

#[test]
fn first_nonzero_round_trip_header_is_used() {
    let mut args = EdgeArgs::default();
    args.edge_rtt_header.push("X-Edge-RTT-Quic".to_owned());
    let names = EdgePolicy::from_args(&args).unwrap().fact_headers;
    let quic = headers(&[("x-edge-rtt", "0"), ("x-edge-rtt-quic", "31")]);
    assert_eq!(names.read(&quic, &mut Explanation::default()).rtt_ms, Some(31));
    let tcp = headers(&[("x-edge-rtt", "17"), ("x-edge-rtt-quic", "0")]);
    assert_eq!(names.read(&tcp, &mut Explanation::default()).rtt_ms, Some(17));
}

#[test]
fn empty_and_malformed_values_are_ignored() {
    let long = "A".repeat(64 + 1);
    for value in ["", " ", "-", "a b", "a,b", "a;b", "<script>", "\"TLSv1.3\"", "TLS\tv1", long.as_str()] {
        let map = headers(&[
            ("x-edge-http-protocol", value),
            ("x-edge-tls-version", value),
            ("x-edge-tls-cipher", value),
            ("x-edge-rtt", value),
            ("x-edge-colo", value),
        ]);
        assert_eq!(read(&map), ConnectionFacts::default(), "{value:?}");
    }
    let mut map = HeaderMap::new();
    map.insert("x-edge-tls-cipher", HeaderValue::from_bytes(b"AES\xff").unwrap());
    assert_eq!(read(&map).tls_cipher, None);
}

#[test]
fn value_of_maximum_length_is_read() {
    let long = "A".repeat(64);
    assert_eq!(read(&headers(&[("x-edge-tls-cipher", &long)])).tls_cipher, Some(long.as_str()));
}

#[test]
fn repeated_headers_are_ignored_even_if_equal() {
    let map = headers(&[
        ("x-edge-tls-version", "TLSv1.2"),
        ("x-edge-tls-version", "TLSv1.3"),
        ("x-edge-colo", "FRA"),
        ("x-edge-colo", "FRA"),
        ("x-edge-rtt", "5"),
        ("x-edge-rtt", ""),
    ]);
    assert_eq!(read(&map), ConnectionFacts::default());
}

#[test]
fn header_names_with_underscores_are_ignored() {
    let map = headers(&[("x_edge_tls_version", "TLSv1.3"), ("x_edge-colo", "FRA"), ("x_edge_rtt", "5")]);
    assert_eq!(read(&map), ConnectionFacts::default());
}

#[test]
fn direct_connection_has_http_version_and_rtt_of_its_socket() {
    for (version, want) in [
        (Version::HTTP_09, None),
        (Version::HTTP_10, Some("HTTP/1.0")),
        (Version::HTTP_11, Some("HTTP/1.1")),
        (Version::HTTP_2, Some("HTTP/2")),
        (Version::HTTP_3, Some("HTTP/3")),
    ] {
        assert_eq!(
            ConnectionFacts::direct(version),
            ConnectionFacts { http_protocol: want, rtt_from_socket: true, ..ConnectionFacts::default() }
        );
    }
}
