//! Flags that must be refused, with the message a stranger understands, and what the accepted ones mean.

use super::*;

fn policy(change: impl FnOnce(&mut EdgeArgs)) -> Result<EdgePolicy, EdgeError> {
    let mut args = EdgeArgs::default();
    change(&mut args);
    EdgePolicy::from_args(&args)
}

fn trusting(list: &[&str]) -> Result<EdgePolicy, EdgeError> {
    policy(|args| args.trusted_proxies = list.iter().map(|&s| s.to_owned()).collect())
}

fn message<T: fmt::Debug>(result: Result<T, EdgeError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn by_default_nobody_is_trusted() {
    let policy = policy(|_| {}).unwrap();
    assert!(policy.networks.is_empty() && policy.discover.is_none() && !policy.needs_kube());
    assert_eq!(policy.client_ip_from, ClientIpFrom::Xff);
    assert!(policy.to_string().contains("trusted proxies: none"), "{policy}");
}

#[test]
fn networks_addresses_and_empty_entries_are_read() {
    let policy =
        trusting(&["10.1.2.3/8", " 192.0.2.1", "", "2001:db8::/32", "::ffff:198.51.100.0/120"]).unwrap();
    let shown: Vec<_> = policy.networks.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32", "198.51.100.0/24"]);
}

#[test]
fn what_is_no_network_is_refused() {
    for value in ["10.0.0.0/33", "ingress", "10.0.0", "010.0.0.1", "fe80::1%eth0", "*"] {
        assert!(message(trusting(&["10.0.0.0/8", value])).contains(value), "{value}");
    }
}

#[test]
fn trusting_everybody_is_refused_in_every_disguise() {
    for list in [
        &["0.0.0.0/0"][..],
        &["::/0"],
        &["10.0.0.0/8", "1.2.3.4/0"],
        &["0.0.0.0/1", "128.0.0.0/1"],
        &["::ffff:0:0/96"],
        &["::/1", "8000::/2", "c000::/2"],
    ] {
        let text = message(trusting(list));
        assert!(text.contains("/0") && text.contains("--insecure-trust-any-proxy"), "{text}");
    }
}

#[test]
fn trusting_everybody_is_possible_when_said_aloud() {
    let allowed = policy(|args| {
        args.trusted_proxies = vec!["0.0.0.0/0".to_owned()];
        args.insecure_trust_any_proxy = true;
    });
    assert!(allowed.unwrap().to_string().contains("0.0.0.0/0"));
}

#[test]
fn the_source_of_the_address_is_one_of_three() {
    let from = |text| ClientIpFrom::parse(text);
    assert_eq!(from("peer").unwrap(), ClientIpFrom::Peer);
    assert_eq!(from("header:CF-Connecting-IP").unwrap().to_string(), "header:cf-connecting-ip");
    for wrong in ["", "XFF", "header", "header:", "header:a b", "forwarded", "header:X_Real_IP"] {
        assert!(from(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn header_names_with_underscores_are_refused() {
    let text = message(policy(|args| args.edge_colo_header = "X_Edge_Colo".to_owned()));
    assert!(text.contains("--edge-colo-header") && text.contains("X_Edge_Colo"), "{text}");
    assert!(policy(|args| args.edge_rtt_header = vec!["X-Edge-RTT".into(), "é".into()]).is_err());
}

#[test]
fn a_service_is_namespace_and_name() {
    let good = ServiceRef::parse("ingress/envoy-public").unwrap();
    assert_eq!(good.to_string(), "ingress/envoy-public");
    for wrong in [
        "",
        "/",
        "ingress",
        "ingress/",
        "/envoy",
        "a/b/c",
        "In/envoy",
        "ns/a,b=c",
        "ns/a b",
        &format!("ns/{}", "a".repeat(64)),
    ] {
        assert!(ServiceRef::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_zone_comes_before_the_fixed_place() {
    let place = |zone: &str, fixed: &str| {
        let policy = policy(|args| {
            args.colo_map = vec!["eu-central-1=FRA".to_owned(), String::new()];
            args.node_zone = Some(zone.to_owned());
            args.colo = Some(fixed.to_owned());
        });
        policy.unwrap().colo.map(|iata| iata.to_string())
    };
    assert_eq!(place("eu-central-1a", "AMS").as_deref(), Some("FRA"));
    assert_eq!(place("us-east-1a", "AMS").as_deref(), Some("AMS"));
    assert_eq!(place("", "AMS").as_deref(), Some("AMS"));
    assert_eq!(place("", ""), None);
}

#[test]
fn places_that_are_no_codes_are_refused() {
    assert!(message(policy(|args| args.colo = Some("fra".into()))).contains("--colo:"));
    for wrong in ["FRA", "=FRA", "zone=fra", "zone="] {
        assert!(message(policy(|args| args.colo_map = vec![wrong.into()])).contains("--colo-map"));
    }
}

#[test]
fn a_node_label_needs_the_node() {
    let label = |node: Option<&str>| {
        policy(|args| {
            args.colo_node_label = Some("example.org/iata".into());
            args.node_name = node.map(str::to_owned);
        })
    };
    assert!(message(label(None)).contains("--node-name"));
    assert!(label(Some("")).is_err());
    let policy = label(Some("node-1")).unwrap();
    assert!(policy.needs_kube() && policy.to_string().contains("example.org/iata"));
}

#[test]
fn the_summary_names_everything_that_is_believed() {
    let policy = policy(|args| {
        args.trusted_proxies = vec!["10.0.0.0/8".into()];
        args.discover_proxies = Some("ingress/envoy".into());
        args.colo = Some("FRA".into());
    });
    assert_eq!(
        policy.unwrap().to_string(),
        "trusted proxies: 10.0.0.0/8, endpoints of ingress/envoy; client IP from xff; facts from \
         x-edge-http-protocol, x-edge-tls-version, x-edge-tls-cipher, x-edge-rtt (ms), x-edge-colo; colo FRA"
    );
}
