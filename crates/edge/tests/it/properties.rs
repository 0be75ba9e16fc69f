//! Property tests: no header can forge the client's address or cause a panic.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use edge::{
    ClientIpFrom, ConnectionFacts, Decision, Edge, EdgeArgs, Explanation, Peer, TrustedProxies, parse_entry,
    resolve,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;

fn trusted() -> TrustedProxies {
    TrustedProxies::new(["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()])
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from(bits))),
    ]
}

fn untrusted_ip() -> impl Strategy<Value = IpAddr> {
    any_ip().prop_filter("untrusted", |ip| !trusted().contains(*ip))
}

fn trusted_ip() -> impl Strategy<Value = IpAddr> {
    any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits >> 8 | 10 << 24)))
}

/// Arbitrary header values, valid lists of addresses, and nearly valid lists.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let bytes = vec(prop_oneof![Just(b'\t'), 32u8..=126, 128u8..=255], 0..80);
    let list = vec(any_ip(), 0..80).prop_map(|ips| join(&ips).into_bytes());
    let near = "[0-9a-f.:,\\[\\]% -]{0,60}".prop_map(String::into_bytes);
    prop_oneof![bytes, list, near]
}

fn join(ips: &[IpAddr]) -> String {
    ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn xff_headers(lines: &[Vec<u8>]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines {
        map.append("x-forwarded-for", HeaderValue::from_bytes(line).unwrap());
    }
    map
}

/// Starts an edge that trusts [`trusted`].
fn edge(client_ip_from: &str, colo: Option<&str>) -> Edge {
    let args = EdgeArgs {
        trusted_proxies: vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()],
        client_ip_from: client_ip_from.to_owned(),
        colo: colo.map(str::to_owned),
        ..EdgeArgs::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(Edge::start(&args)).unwrap()
}

/// Headers with arbitrary, nearly valid and valid values, some of them repeated.
fn any_headers() -> impl Strategy<Value = HeaderMap> {
    let name = proptest::sample::select(vec![
        "x-forwarded-for",
        "x-real-ip",
        "x-edge-http-protocol",
        "x-edge-tls-version",
        "x-edge-tls-cipher",
        "x-edge-rtt",
        "x-edge-colo",
        "user-agent",
    ]);
    let fact = proptest::sample::select(vec!["h2", "TLSv1.3", "1301", "12.5", "FRA", "", "-", "0", "x y"]);
    let value = prop_oneof![any_value(), fact.prop_map(|text| text.as_bytes().to_vec())];
    vec((name, value), 0..12).prop_map(|pairs| {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, HeaderValue::from_bytes(&value).unwrap());
        }
        map
    })
}

proptest! {
    #[test]
    fn explanation_has_the_result_of_identify(
        peer in prop_oneof![trusted_ip(), untrusted_ip()],
        headers in any_headers(),
        mode in 0usize..3,
        colo in proptest::option::of(Just("TXL")),
    ) {
        let edge = edge(["peer", "xff", "header:X-Real-IP"][mode], colo);
        let own = ConnectionFacts::direct(http::Version::HTTP_11).with_tls(Some("TLSv1.2"), Some("OWN"));
        let (explained, _) = edge.explain(peer, &headers, own);
        prop_assert_eq!(explained, edge.identify(Peer::Address(peer), &headers, own));
    }

    #[test]
    fn entries_left_of_client_change_nothing(
        client in untrusted_ip(),
        peer in trusted_ip(),
        hops in vec(trusted_ip(), 0..20),
        prefix in any_value(),
        previous_lines in vec(any_value(), 0..4),
    ) {
        let mut chain = vec![client];
        chain.extend(hops);
        let genuine = join(&chain).into_bytes();
        let mut forged = previous_lines;
        forged.push([prefix.as_slice(), b",", &genuine].concat());
        for sent in [vec![genuine], forged] {
            let got = resolve(peer, &xff_headers(&sent), &ClientIpFrom::Xff, &trusted(), &mut Explanation::default());
            prop_assert_eq!(got, (client.to_canonical(), Decision::Xff));
        }
    }

    #[test]
    fn untrusted_peer_is_the_client(peer in untrusted_ip(), sent in vec(any_value(), 0..4), mode in 0usize..3) {
        let header = ClientIpFrom::Header(HeaderName::from_static("x-forwarded-for"));
        let from = vec![ClientIpFrom::Peer, ClientIpFrom::Xff, header].swap_remove(mode);
        for set in [trusted(), TrustedProxies::new([])] {
            let got = resolve(peer, &xff_headers(&sent), &from, &set, &mut Explanation::default());
            prop_assert_eq!(got, (peer.to_canonical(), Decision::PeerUntrusted));
        }
    }

    #[test]
    fn addresses_round_trip_through_parser(ip in any_ip(), port in any::<u16>()) {
        let want = Some(ip.to_canonical());
        prop_assert_eq!(parse_entry(ip.to_string().as_bytes()), want);
        let socket = std::net::SocketAddr::new(ip, port).to_string();
        prop_assert_eq!(parse_entry(socket.as_bytes()), want);
    }

    #[test]
    fn result_is_never_ipv4_mapped(peer in any_ip(), sent in vec(any_value(), 0..4)) {
        let set = TrustedProxies::new(["0.0.0.0/1".parse().unwrap(), "::/1".parse().unwrap()]);
        let (ip, _) = resolve(peer, &xff_headers(&sent), &ClientIpFrom::Xff, &set, &mut Explanation::default());
        prop_assert_eq!(ip, ip.to_canonical());
    }
}
