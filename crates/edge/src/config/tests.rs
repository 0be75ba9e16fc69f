//! Tests which flags are rejected, with which messages, and the effect of valid flags.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    edge: EdgeArgs,
}

#[test]
fn list_flags_accept_commas_and_repetition() {
    let flags = [
        "x",
        "--trusted-proxies",
        "10.0.0.0/8,192.0.2.1",
        "--trusted-proxies",
        "::1",
        "--colo-map",
        "a=FRA,b=AMS",
        "--edge-rtt-unit",
        "us",
    ];
    let edge = Cli::try_parse_from(flags).unwrap().edge;
    assert_eq!(edge.trusted_proxies, ["10.0.0.0/8", "192.0.2.1", "::1"]);
    assert_eq!(edge.colo_map, ["a=FRA", "b=AMS"]);
    assert_eq!(edge.edge_rtt_unit, RttUnit::Us);
}

#[test]
fn environment_variables_are_named_after_flags() {
    let command = <Cli as clap::CommandFactory>::command();
    for arg in command.get_arguments().filter(|arg| arg.get_id() != "help") {
        let flag = arg.get_long().unwrap().replace('-', "_").to_uppercase();
        assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(flag.as_str()));
    }
}

fn policy(change: impl FnOnce(&mut EdgeArgs)) -> anyhow::Result<EdgePolicy> {
    let mut args = EdgeArgs::default();
    change(&mut args);
    EdgePolicy::from_args(&args)
}

fn trusting(list: &[&str]) -> anyhow::Result<EdgePolicy> {
    policy(|args| args.trusted_proxies = list.iter().map(|&s| s.to_owned()).collect())
}

fn message<T: fmt::Debug>(result: anyhow::Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn no_proxy_is_trusted_by_default() {
    let policy = policy(|_| {}).unwrap();
    assert!(policy.networks.is_empty() && policy.discover.is_none());
    assert_eq!(policy.client_ip_from, ClientIpFrom::Xff);
    assert!(policy.to_string().contains("trusted proxies: none"), "{policy}");
}

#[test]
fn trusted_proxies_accept_networks_and_addresses() {
    let policy =
        trusting(&["10.1.2.3/8", " 192.0.2.1", "", "2001:db8::/32", "::ffff:198.51.100.0/120"]).unwrap();
    let shown: Vec<_> = policy.networks.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32", "198.51.100.0/24"]);
}

#[test]
fn invalid_networks_are_rejected() {
    for value in ["10.0.0.0/33", "ingress", "10.0.0", "010.0.0.1", "fe80::1%eth0", "*"] {
        assert!(message(trusting(&["10.0.0.0/8", value])).contains(value), "{value}");
    }
}

#[test]
fn trusting_every_address_is_rejected() {
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
fn insecure_flag_allows_trusting_every_address() {
    let allowed = policy(|args| {
        args.trusted_proxies = vec!["0.0.0.0/0".to_owned()];
        args.insecure_trust_any_proxy = true;
    });
    assert!(allowed.unwrap().to_string().contains("0.0.0.0/0"));
}

#[test]
fn client_ip_source_is_peer_xff_or_header() {
    let from = client_ip_from;
    assert_eq!(from("peer").unwrap(), ClientIpFrom::Peer);
    let header = ClientIpFrom::Header(HeaderName::from_static("cf-connecting-ip"));
    assert_eq!(from("header:CF-Connecting-IP").unwrap(), header);
    for invalid in ["", "XFF", "header", "header:", "header:a b", "forwarded", "header:X_Real_IP"] {
        assert!(from(invalid).is_err(), "{invalid:?}");
    }
}

#[test]
fn header_names_with_underscores_are_rejected() {
    let text = message(policy(|args| args.edge_colo_header = "X_Edge_Colo".to_owned()));
    assert!(text.contains("--edge-colo-header") && text.contains("X_Edge_Colo"), "{text}");
    assert!(policy(|args| args.edge_rtt_header = vec!["X-Edge-RTT".into(), "é".into()]).is_err());
}

#[test]
fn service_requires_namespace_and_name() {
    assert_eq!(service("ingress/envoy-public").unwrap(), ("ingress".to_owned(), "envoy-public".to_owned()));
    for invalid in [
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
        assert!(service(invalid).is_err(), "{invalid:?}");
    }
}

#[test]
fn zone_takes_precedence_over_colo_flag() {
    let colo = |zone: &str, flag: &str| {
        let policy = policy(|args| {
            args.colo_map = vec!["eu-central-1=FRA".to_owned(), String::new()];
            args.node_zone = Some(zone.to_owned());
            args.colo = Some(flag.to_owned());
        });
        policy.unwrap().colo.map(|iata| iata.to_string())
    };
    assert_eq!(colo("eu-central-1a", "AMS").as_deref(), Some("FRA"));
    assert_eq!(colo("us-east-1a", "AMS").as_deref(), Some("AMS"));
    assert_eq!(colo("", "AMS").as_deref(), Some("AMS"));
    assert_eq!(colo("", ""), None);
}

#[test]
fn invalid_iata_codes_are_rejected() {
    assert!(message(policy(|args| args.colo = Some("fra".into()))).contains("--colo:"));
    for invalid in ["FRA", "=FRA", "zone=fra", "zone="] {
        assert!(message(policy(|args| args.colo_map = vec![invalid.into()])).contains("--colo-map"));
    }
}

#[test]
fn summary_lists_all_trusted_sources() {
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
