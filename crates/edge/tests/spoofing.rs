//! Every known way to lie about one's address, and what a request counts for nevertheless.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use std::net::IpAddr;

use edge::{ClientIpFrom, Decision, TrustedSet, resolve};
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

fn trusted() -> TrustedSet {
    TrustedSet::new(["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()])
}

fn seen(peer: &str, from: &ClientIpFrom, set: &TrustedSet, pairs: &[(&str, &str)]) -> (String, Decision) {
    let client = resolve(peer.parse::<IpAddr>().unwrap(), &headers(pairs), from, set);
    (client.ip.to_string(), client.decision)
}

/// One or several X-Forwarded-For lines, from the trusted proxy.
fn xff(lines: &[&str]) -> (String, Decision) {
    let pairs: Vec<_> = lines.iter().map(|line| ("X-Forwarded-For", *line)).collect();
    seen(PROXY, &ClientIpFrom::Xff, &trusted(), &pairs)
}

fn is(ip: &str, decision: Decision) -> (String, Decision) {
    (ip.to_owned(), decision)
}

#[test]
fn with_no_proxy_configured_no_header_is_read() {
    // gin's CVE-2020-28483: forwarded addresses were believed by default.
    let lies = [
        ("X-Forwarded-For", "1.1.1.1"),
        ("X-Real-IP", "1.1.1.1"),
        ("CF-Connecting-IP", "1.1.1.1"),
        ("Forwarded", "for=1.1.1.1"),
    ];
    for peer in [CLIENT, PROXY, "127.0.0.1", "::1"] {
        let got = seen(peer, &ClientIpFrom::Xff, &TrustedSet::default(), &lies);
        assert_eq!(got, is(peer, Decision::PeerUntrusted));
    }
}

#[test]
fn private_and_loopback_peers_are_not_trusted_by_themselves() {
    for peer in ["10.0.1.5", "192.168.0.1", "172.16.0.1", "127.0.0.1", "::1", "fd01::1", "fe80::1"] {
        let got = seen(peer, &ClientIpFrom::Xff, &trusted(), &[("X-Forwarded-For", "1.1.1.1")]);
        assert_eq!(got, is(peer, Decision::PeerUntrusted));
    }
}

#[test]
fn the_rightmost_untrusted_entry_wins() {
    for line in [
        CLIENT,
        "1.1.1.1, 203.0.113.7",
        "127.0.0.1,10.0.0.9,203.0.113.7",
        "1.1.1.1, 203.0.113.7, 10.0.0.9",
        "1.1.1.1, 203.0.113.7 ,\t10.0.0.9, fd00::9",
        "unknown, 203.0.113.7, 10.0.0.9",
        "1.1.1.1,,203.0.113.7",
    ] {
        assert_eq!(xff(&[line]), is(CLIENT, Decision::Xff), "{line}");
    }
}

#[test]
fn several_lines_are_one_list() {
    assert_eq!(xff(&["1.1.1.1", CLIENT]), is(CLIENT, Decision::Xff));
    assert_eq!(xff(&["1.1.1.1", "203.0.113.7, 10.0.0.9", "10.0.0.8"]), is(CLIENT, Decision::Xff));
    assert_eq!(xff(&[CLIENT, "10.0.0.9"]), is(CLIENT, Decision::Xff));
}

#[test]
fn an_unreadable_entry_ends_the_walk_before_the_client_s_own_words() {
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
        assert_eq!(xff(&[&line]), is(PROXY, Decision::Fallback), "{bad:?}");
        let line = format!("{CLIENT}, {bad}, 10.0.0.9");
        assert_eq!(xff(&[&line]), is("10.0.0.9", Decision::Fallback), "{bad:?}");
        assert_eq!(xff(&[CLIENT, bad]), is(PROXY, Decision::Fallback), "{bad:?}");
    }
}

#[test]
fn bytes_beyond_ascii_to_the_left_change_nothing() {
    let mut map = HeaderMap::new();
    let line = HeaderValue::from_bytes(b"\xff\xfe, 1.1.1.1, 203.0.113.7").unwrap();
    map.append("x-forwarded-for", line);
    let client = resolve(PROXY.parse().unwrap(), &map, &ClientIpFrom::Xff, &trusted());
    assert_eq!(client.ip.to_string(), CLIENT);
}

#[test]
fn ports_and_brackets_are_accepted() {
    // Azure's Application Gateway and AWS's xff_client_port write address and port.
    for (line, want) in [
        ("203.0.113.7:51234", CLIENT),
        ("1.1.1.1:1, 203.0.113.7:51234, 10.0.0.9:8443", CLIENT),
        ("[2001:db8::7]:51234", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("2001:DB8::7, [fd00::9]:443", "2001:db8::7"),
    ] {
        assert_eq!(xff(&[line]), is(want, Decision::Xff), "{line}");
    }
}

#[test]
fn mapped_addresses_are_ipv4_on_both_ends() {
    let pairs = [("X-Forwarded-For", "::ffff:203.0.113.7, [::ffff:10.0.0.9]:80")];
    let got = seen("::ffff:10.0.0.5", &ClientIpFrom::Xff, &trusted(), &pairs);
    assert_eq!(got, is(CLIENT, Decision::Xff));
    let got = seen("::ffff:203.0.113.7", &ClientIpFrom::Xff, &trusted(), &pairs);
    assert_eq!(got, is(CLIENT, Decision::PeerUntrusted));
}

#[test]
fn google_s_client_is_second_from_the_right_with_the_rule_s_address_trusted() {
    let set = TrustedSet::new(["130.211.0.0/22".parse().unwrap(), "198.51.100.20/32".parse().unwrap()]);
    let pairs = [("X-Forwarded-For", "1.1.1.1,203.0.113.7,198.51.100.20")];
    let got = seen("130.211.1.9", &ClientIpFrom::Xff, &set, &pairs);
    assert_eq!(got, is(CLIENT, Decision::Xff));
}

#[test]
fn a_chain_of_proxies_alone_gives_its_leftmost() {
    assert_eq!(xff(&["10.0.0.7, 10.0.0.8"]), is("10.0.0.7", Decision::XffAllTrusted));
}

#[test]
fn a_header_that_was_deleted_on_the_way_gives_the_proxy_and_not_another_header() {
    // Traefik's CVE-2021-32813 and its successors: `Connection: X-Forwarded-For` made a hop drop it.
    let left = [
        ("Connection", "X-Forwarded-For"),
        ("X-Real-IP", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
        ("X-Client-IP", "1.1.1.1"),
    ];
    assert_eq!(seen(PROXY, &ClientIpFrom::Xff, &trusted(), &left), is(PROXY, Decision::Missing));
    let header = ClientIpFrom::parse("header:X-Real-IP").unwrap();
    let left = [("Connection", "X-Real-IP"), ("X-Forwarded-For", "127.0.0.1")];
    assert_eq!(seen(PROXY, &header, &trusted(), &left), is(PROXY, Decision::Missing));
}

#[test]
fn headers_of_providers_that_are_not_configured_are_not_read() {
    // Azure's X-Azure-ClientIP is the client's own X-Forwarded-For; Cloudflare and Akamai pass a client's True-Client-IP
    // on where they don't set it.
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
    let lies = names.map(|name| (name, "1.1.1.1"));
    let with = |pair| [lies.as_slice(), &[pair]].concat();
    let got = seen(PROXY, &ClientIpFrom::Xff, &trusted(), &with(("X-Forwarded-For", CLIENT)));
    assert_eq!(got, is(CLIENT, Decision::Xff));
    let socket = ClientIpFrom::Header(HeaderName::from_static("x-azure-socketip"));
    let got = seen(PROXY, &socket, &trusted(), &with(("X-Azure-SocketIP", CLIENT)));
    assert_eq!(got, is(CLIENT, Decision::Header));
}

#[test]
fn underscore_twins_are_other_headers() {
    let twins = [("X_Forwarded_For", "1.1.1.1"), ("X-Forwarded_For", "1.1.1.1"), ("X-Forwarded-For", CLIENT)];
    assert_eq!(seen(PROXY, &ClientIpFrom::Xff, &trusted(), &twins), is(CLIENT, Decision::Xff));
    let header = ClientIpFrom::parse("header:X-Real-IP").unwrap();
    assert_eq!(seen(PROXY, &header, &trusted(), &[("X_Real_IP", "1.1.1.1")]), is(PROXY, Decision::Missing));
}

#[test]
fn a_long_list_neither_hides_the_client_nor_is_walked_for_ever() {
    let flood = "1.1.1.1, ".repeat(500) + CLIENT;
    assert_eq!(xff(&[&flood]), is(CLIENT, Decision::Xff));
    let hops = |count| format!("{CLIENT}{}", ", 10.0.0.9".repeat(count));
    assert_eq!(xff(&[&hops(edge::MAX_HOPS - 1)]), is(CLIENT, Decision::Xff));
    assert_eq!(xff(&[&hops(edge::MAX_HOPS)]), is("10.0.0.9", Decision::Fallback));
}

#[test]
fn a_single_header_counts_only_if_there_is_exactly_one() {
    let from = ClientIpFrom::parse("header:CF-Connecting-IP").unwrap();
    let name = "CF-Connecting-IP";
    for (values, want) in [
        (&[CLIENT][..], is(CLIENT, Decision::Header)),
        (&[" 203.0.113.7:443 "], is(CLIENT, Decision::Header)),
        (&[CLIENT, CLIENT], is(PROXY, Decision::Fallback)),
        (&["1.1.1.1", CLIENT], is(PROXY, Decision::Fallback)),
        (&["1.1.1.1, 203.0.113.7"], is(PROXY, Decision::Fallback)),
        (&["", CLIENT], is(PROXY, Decision::Fallback)),
        (&[""], is(PROXY, Decision::Fallback)),
        (&["-"], is(PROXY, Decision::Fallback)),
        (&["localhost"], is(PROXY, Decision::Fallback)),
        (&[], is(PROXY, Decision::Missing)),
    ] {
        let pairs: Vec<_> = values.iter().map(|value| (name, *value)).collect();
        assert_eq!(seen(PROXY, &from, &trusted(), &pairs), want, "{values:?}");
        let outside = seen(CLIENT, &from, &trusted(), &pairs);
        assert_eq!(outside, is(CLIENT, Decision::PeerUntrusted));
    }
}

#[test]
fn peer_mode_reads_no_header_at_all() {
    let pairs = [("X-Forwarded-For", "1.1.1.1"), ("X-Real-IP", "1.1.1.1")];
    assert_eq!(seen(PROXY, &ClientIpFrom::Peer, &trusted(), &pairs), is(PROXY, Decision::Peer));
}

#[test]
fn every_decision_has_its_own_label() {
    let labels: std::collections::HashSet<_> = Decision::ALL.map(Decision::label).into();
    assert_eq!(labels.len(), Decision::ALL.len());
}
