//! Tests known attacks that forge the client's address.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::IpAddr;

use edge::{ClientIpFrom, Decision, Explanation, TrustedProxies, resolve};
use http::{HeaderMap, HeaderName, HeaderValue};

const PROXY: &str = "10.0.0.5";
const CLIENT: &str = "203.0.113.7";

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}

fn trusted() -> TrustedProxies {
    TrustedProxies::new(["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()])
}

fn header(name: &'static str) -> ClientIpFrom {
    ClientIpFrom::Header(HeaderName::from_static(name))
}

fn resolved(
    peer: &str,
    from: &ClientIpFrom,
    set: &TrustedProxies,
    pairs: &[(&str, &str)],
) -> (String, Decision) {
    resolved_headers(peer, from, set, &headers(pairs))
}

fn resolved_headers(
    peer: &str,
    from: &ClientIpFrom,
    set: &TrustedProxies,
    headers: &HeaderMap,
) -> (String, Decision) {
    let peer = peer.parse::<IpAddr>().unwrap();
    let (ip, decision) = resolve(peer, headers, from, set, &mut Explanation::default());
    (ip.to_string(), decision)
}

/// Resolves X-Forwarded-For lines from the trusted proxy.
fn xff(lines: &[&str]) -> (String, Decision) {
    let pairs: Vec<_> = lines.iter().map(|line| ("X-Forwarded-For", *line)).collect();
    resolved(PROXY, &ClientIpFrom::Xff, &trusted(), &pairs)
}

fn expected(ip: &str, decision: Decision) -> (String, Decision) {
    (ip.to_owned(), decision)
}

#[test]
fn headers_are_ignored_without_trusted_proxies() {
    // CVE-2020-28483 in gin: forwarded addresses were trusted by default.
    let forged = [
        ("X-Forwarded-For", "1.1.1.1"),
        ("X-Real-IP", "1.1.1.1"),
        ("CF-Connecting-IP", "1.1.1.1"),
        ("Forwarded", "for=1.1.1.1"),
    ];
    for peer in [CLIENT, PROXY, "127.0.0.1", "::1"] {
        let got = resolved(peer, &ClientIpFrom::Xff, &TrustedProxies::new([]), &forged);
        assert_eq!(got, expected(peer, Decision::PeerUntrusted));
    }
}

#[test]
fn private_and_loopback_peers_are_not_trusted() {
    for peer in ["10.0.1.5", "192.168.0.1", "172.16.0.1", "127.0.0.1", "::1", "fd01::1", "fe80::1"] {
        let got = resolved(peer, &ClientIpFrom::Xff, &trusted(), &[("X-Forwarded-For", "1.1.1.1")]);
        assert_eq!(got, expected(peer, Decision::PeerUntrusted));
    }
}

#[test]
fn rightmost_untrusted_entry_is_the_client() {
    for line in [
        CLIENT,
        "1.1.1.1, 203.0.113.7",
        "127.0.0.1,10.0.0.9,203.0.113.7",
        "1.1.1.1, 203.0.113.7, 10.0.0.9",
        "1.1.1.1, 203.0.113.7 ,\t10.0.0.9, fd00::9",
        "unknown, 203.0.113.7, 10.0.0.9",
        "1.1.1.1,,203.0.113.7",
    ] {
        assert_eq!(xff(&[line]), expected(CLIENT, Decision::Xff), "{line}");
    }
}

#[test]
fn multiple_xff_lines_are_joined() {
    assert_eq!(xff(&["1.1.1.1", CLIENT]), expected(CLIENT, Decision::Xff));
    assert_eq!(xff(&["1.1.1.1", "203.0.113.7, 10.0.0.9", "10.0.0.8"]), expected(CLIENT, Decision::Xff));
    assert_eq!(xff(&[CLIENT, "10.0.0.9"]), expected(CLIENT, Decision::Xff));
}

#[test]
fn entries_left_of_invalid_entry_are_ignored() {
    for bad in [
        "unknown",
        "_hidden",
        "",
        "-",
        "proxy.local",
        "010.0.0.9",
        "0x0a.0.0.9",
        "fe80::1%eth0",
        "10.0.0.9:",
        "\"10.0.0.9\"",
        "10.0.0.9 10.0.0.8",
    ] {
        let line = format!("{CLIENT}, {bad}");
        assert_eq!(xff(&[&line]), expected(PROXY, Decision::Fallback), "{bad:?}");
        let line = format!("{CLIENT}, {bad}, 10.0.0.9");
        assert_eq!(xff(&[&line]), expected("10.0.0.9", Decision::Fallback), "{bad:?}");
        assert_eq!(xff(&[CLIENT, bad]), expected(PROXY, Decision::Fallback), "{bad:?}");
    }
}

#[test]
fn non_ascii_bytes_left_of_client_are_ignored() {
    let mut map = HeaderMap::new();
    let line = HeaderValue::from_bytes(b"\xff\xfe, 1.1.1.1, 203.0.113.7").unwrap();
    map.append("x-forwarded-for", line);
    let got = resolved_headers(PROXY, &ClientIpFrom::Xff, &trusted(), &map);
    assert_eq!(got, expected(CLIENT, Decision::Xff));
}

#[test]
fn ports_and_brackets_are_accepted() {
    // Azure Application Gateway and AWS load balancers with xff_client_port append the port.
    for (line, want) in [
        ("203.0.113.7:51234", CLIENT),
        ("1.1.1.1:1, 203.0.113.7:51234, 10.0.0.9:8443", CLIENT),
        ("[2001:db8::7]:51234", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("2001:DB8::7, [fd00::9]:443", "2001:db8::7"),
    ] {
        assert_eq!(xff(&[line]), expected(want, Decision::Xff), "{line}");
    }
}

#[test]
fn mapped_addresses_are_treated_as_ipv4() {
    let pairs = [("X-Forwarded-For", "::ffff:203.0.113.7, [::ffff:10.0.0.9]:80")];
    let got = resolved("::ffff:10.0.0.5", &ClientIpFrom::Xff, &trusted(), &pairs);
    assert_eq!(got, expected(CLIENT, Decision::Xff));
    let got = resolved("::ffff:203.0.113.7", &ClientIpFrom::Xff, &trusted(), &pairs);
    assert_eq!(got, expected(CLIENT, Decision::PeerUntrusted));
}

#[test]
fn trusted_google_frontend_address_is_skipped() {
    let set = TrustedProxies::new(["130.211.0.0/22".parse().unwrap(), "198.51.100.20/32".parse().unwrap()]);
    let pairs = [("X-Forwarded-For", "1.1.1.1,203.0.113.7,198.51.100.20")];
    let got = resolved("130.211.1.9", &ClientIpFrom::Xff, &set, &pairs);
    assert_eq!(got, expected(CLIENT, Decision::Xff));
}

#[test]
fn all_trusted_chain_yields_leftmost_entry() {
    assert_eq!(xff(&["10.0.0.7, 10.0.0.8"]), expected("10.0.0.7", Decision::XffAllTrusted));
}

#[test]
fn other_headers_do_not_replace_removed_header() {
    // CVE-2021-32813 in Traefik, and similar CVEs later: a client's `Connection: X-Forwarded-For` made a proxy remove
    // X-Forwarded-For.
    let remaining = [
        ("Connection", "X-Forwarded-For"),
        ("X-Real-IP", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
        ("X-Client-IP", "1.1.1.1"),
    ];
    assert_eq!(
        resolved(PROXY, &ClientIpFrom::Xff, &trusted(), &remaining),
        expected(PROXY, Decision::Missing)
    );
    let header = header("x-real-ip");
    let remaining = [("Connection", "X-Real-IP"), ("X-Forwarded-For", "127.0.0.1")];
    assert_eq!(resolved(PROXY, &header, &trusted(), &remaining), expected(PROXY, Decision::Missing));
}

#[test]
fn unconfigured_provider_headers_are_ignored() {
    // Azure copies X-Azure-ClientIP from the client's X-Forwarded-For. Cloudflare and Akamai forward a client's
    // True-Client-IP unless they are configured to set it.
    let names = [
        "X-Azure-ClientIP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "X-Real-IP",
        "X-Client-IP",
        "X-Cluster-Client-IP",
        "Fastly-Client-IP",
        "Forwarded",
    ];
    let forged = names.map(|name| (name, "1.1.1.1"));
    let with = |pair| [forged.as_slice(), &[pair]].concat();
    let got = resolved(PROXY, &ClientIpFrom::Xff, &trusted(), &with(("X-Forwarded-For", CLIENT)));
    assert_eq!(got, expected(CLIENT, Decision::Xff));
    let socket = header("x-azure-socketip");
    let got = resolved(PROXY, &socket, &trusted(), &with(("X-Azure-SocketIP", CLIENT)));
    assert_eq!(got, expected(CLIENT, Decision::Header));
}

#[test]
fn header_names_with_underscores_are_ignored() {
    let pairs = [("X_Forwarded_For", "1.1.1.1"), ("X-Forwarded_For", "1.1.1.1"), ("X-Forwarded-For", CLIENT)];
    assert_eq!(resolved(PROXY, &ClientIpFrom::Xff, &trusted(), &pairs), expected(CLIENT, Decision::Xff));
    let header = header("x-real-ip");
    assert_eq!(
        resolved(PROXY, &header, &trusted(), &[("X_Real_IP", "1.1.1.1")]),
        expected(PROXY, Decision::Missing)
    );
}

#[test]
fn long_list_neither_hides_client_nor_is_fully_read() {
    let flood = "1.1.1.1, ".repeat(500) + CLIENT;
    assert_eq!(xff(&[&flood]), expected(CLIENT, Decision::Xff));
    let hops = |count| format!("{CLIENT}{}", ", 10.0.0.9".repeat(count));
    assert_eq!(xff(&[&hops(edge::MAX_HOPS - 1)]), expected(CLIENT, Decision::Xff));
    assert_eq!(xff(&[&hops(edge::MAX_HOPS)]), expected("10.0.0.9", Decision::Fallback));
}

#[test]
fn repeated_client_ip_header_is_rejected() {
    let from = header("cf-connecting-ip");
    let name = "CF-Connecting-IP";
    for (values, want) in [
        (&[CLIENT][..], expected(CLIENT, Decision::Header)),
        (&[" 203.0.113.7:443 "], expected(CLIENT, Decision::Header)),
        (&[CLIENT, CLIENT], expected(PROXY, Decision::Fallback)),
        (&["1.1.1.1", CLIENT], expected(PROXY, Decision::Fallback)),
        (&["1.1.1.1, 203.0.113.7"], expected(PROXY, Decision::Fallback)),
        (&["", CLIENT], expected(PROXY, Decision::Fallback)),
        (&[""], expected(PROXY, Decision::Fallback)),
        (&["-"], expected(PROXY, Decision::Fallback)),
        (&["localhost"], expected(PROXY, Decision::Fallback)),
        (&[], expected(PROXY, Decision::Missing)),
    ] {
        let pairs: Vec<_> = values.iter().map(|value| (name, *value)).collect();
        assert_eq!(resolved(PROXY, &from, &trusted(), &pairs), want, "{values:?}");
        let outside = resolved(CLIENT, &from, &trusted(), &pairs);
        assert_eq!(outside, expected(CLIENT, Decision::PeerUntrusted));
    }
}

#[test]
fn peer_mode_ignores_headers() {
    let pairs = [("X-Forwarded-For", "1.1.1.1"), ("X-Real-IP", "1.1.1.1")];
    assert_eq!(resolved(PROXY, &ClientIpFrom::Peer, &trusted(), &pairs), expected(PROXY, Decision::Peer));
}

#[test]
fn decision_labels_are_unique() {
    let labels: std::collections::HashSet<_> =
        Decision::ALL.iter().map(|decision| decision.as_str()).collect();
    assert_eq!(labels.len(), Decision::ALL.len());
}
