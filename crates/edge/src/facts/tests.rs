//! Tests the header values that proxies send, and values that must be ignored.

use http::HeaderValue;

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn names() -> FactHeaders {
    FactHeaders::from_args(&EdgeArgs::default()).unwrap()
}

#[test]
fn missing_headers_yield_no_facts() {
    assert_eq!(names().read(&HeaderMap::new()), ConnectionFacts::default());
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
    let facts = names().read(&map);
    assert_eq!(facts.http_protocol, Some("HTTP/2"));
    assert_eq!(facts.tls_version, Some("TLSv1.3"));
    assert_eq!(facts.tls_cipher, Some("TLS_AES_128_GCM_SHA256"));
    assert_eq!(facts.rtt_ms, Some(12));
    assert_eq!(facts.colo, Iata::parse(b"SJC"));
}

#[test]
fn http_versions_are_normalized() {
    for (value, want) in [
        ("HTTP/1.0", Some("HTTP/1.0")),
        ("HTTP/1.1", Some("HTTP/1.1")),
        ("http/1.1", Some("HTTP/1.1")),
        ("HTTP/2", Some("HTTP/2")),
        ("HTTP/2.0", Some("HTTP/2")),
        ("h2", Some("HTTP/2")),
        ("HTTP/3.0", Some("HTTP/3")),
        ("h3", Some("HTTP/3")),
        ("HTTP/", None),
        ("HTTP/4", None),
        ("HTTP/0.9", None),
        ("SPDY/3.1", None),
    ] {
        assert_eq!(values::protocol(value), want, "{value}");
    }
}

#[test]
fn tls_versions_are_normalized() {
    for (value, want) in [
        ("TLSv1.3", Some("TLSv1.3")),
        ("TLS1.3", Some("TLSv1.3")),
        ("tlsv1.3", Some("TLSv1.3")),
        ("1.3", Some("TLSv1.3")),
        ("QUIC", Some("TLSv1.3")),
        ("TLSv1.2", Some("TLSv1.2")),
        ("TLSv1.1", Some("TLSv1.1")),
        ("TLSv1", Some("TLSv1.0")),
        ("TLSv1.0", Some("TLSv1.0")),
        ("SSLv3", Some("SSLv3")),
        ("none", None),
        ("TLSv1.4", None),
        ("TLS", None),
        ("v1.3", None),
        ("1.33", None),
    ] {
        assert_eq!(values::tls_version(value), want, "{value}");
    }
}

#[test]
fn round_trip_times_are_rounded_to_milliseconds() {
    use RttUnit::{Ms, Us};
    for (value, unit, want) in [
        ("23", Ms, Some(23)),
        ("23.4", Ms, Some(23)),
        ("23.5", Ms, Some(24)),
        ("0.2", Ms, Some(0)),
        ("23456", Us, Some(23)),
        ("23500", Us, Some(24)),
        ("400", Us, Some(0)),
        ("60000", Ms, Some(60_000)),
        ("60000000", Us, Some(60_000)),
        ("60001", Ms, None),
        ("99999999999999999999999999", Us, None),
        ("0", Ms, None),
        ("0.0", Us, None),
        ("-1", Ms, None),
        ("1e3", Ms, None),
        ("inf", Ms, None),
        ("nan", Ms, None),
        ("1.2.3", Ms, None),
        (".", Ms, None),
        ("12ms", Ms, None),
    ] {
        assert_eq!(values::rtt(value, unit), want, "{value} {unit:?}");
    }
}

#[test]
fn first_nonzero_round_trip_header_is_used() {
    let mut args = EdgeArgs::default();
    args.edge_rtt_header.push("X-Edge-RTT-Quic".to_owned());
    let names = FactHeaders::from_args(&args).unwrap();
    let quic = headers(&[("x-edge-rtt", "0"), ("x-edge-rtt-quic", "31")]);
    assert_eq!(names.read(&quic).rtt_ms, Some(31));
    let tcp = headers(&[("x-edge-rtt", "17"), ("x-edge-rtt-quic", "0")]);
    assert_eq!(names.read(&tcp).rtt_ms, Some(17));
}

#[test]
fn empty_and_malformed_values_are_ignored() {
    let long = "A".repeat(MAX_VALUE_LEN + 1);
    for value in ["", " ", "-", "a b", "a,b", "a;b", "<script>", "\"TLSv1.3\"", "TLS\tv1", long.as_str()] {
        let map = headers(&[
            ("x-edge-http-protocol", value),
            ("x-edge-tls-version", value),
            ("x-edge-tls-cipher", value),
            ("x-edge-rtt", value),
            ("x-edge-colo", value),
        ]);
        assert_eq!(names().read(&map), ConnectionFacts::default(), "{value:?}");
    }
    let mut map = HeaderMap::new();
    map.insert("x-edge-tls-cipher", HeaderValue::from_bytes(b"AES\xff").unwrap());
    assert_eq!(names().read(&map).tls_cipher, None);
}

#[test]
fn value_of_maximum_length_is_read() {
    let long = "A".repeat(MAX_VALUE_LEN);
    assert_eq!(names().read(&headers(&[("x-edge-tls-cipher", &long)])).tls_cipher, Some(long.as_str()));
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
    assert_eq!(names().read(&map), ConnectionFacts::default());
}

#[test]
fn header_names_with_underscores_are_ignored() {
    let map = headers(&[("x_edge_tls_version", "TLSv1.3"), ("x_edge-colo", "FRA"), ("x_edge_rtt", "5")]);
    assert_eq!(names().read(&map), ConnectionFacts::default());
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
