//! SPEC section 2.1: which fields a request gets, and what is in them.

use quota_client::wire::Scope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::rig::{Answer, Rig, allowed};

const IP: [&str; 3] = ["status", "ip", "ipv6"];
const GEO: [&str; 16] = [
    "city",
    "region",
    "region_code",
    "country",
    "country_name",
    "continent",
    "latitude",
    "longitude",
    "timezone",
    "timezone_offset",
    "postal_code",
    "asn",
    "org",
    "as",
    "is_eu",
    "currency",
];
const FULL: [&str; 7] = ["http_protocol", "tls_version", "tls_cipher", "rtt", "colo", "proxy", "hosting"];
const DEMO: [&str; 4] = ["http_protocol", "tls_version", "rtt", "colo"];

fn sorted(parts: &[&[&'static str]]) -> Vec<&'static str> {
    let mut names = parts.concat();
    names.sort_unstable();
    names
}

fn expected(scope: Scope) -> Vec<&'static str> {
    match scope {
        Scope::Ip => sorted(&[&IP]),
        Scope::Geo => sorted(&[&IP, &GEO]),
        Scope::Full => sorted(&[&IP, &GEO, &FULL]),
    }
}

#[tokio::test]
async fn the_scope_of_the_key_and_of_the_request_limit_the_fields() {
    let rig = Rig::start().await;
    for own in [Scope::Ip, Scope::Geo, Scope::Full] {
        let key = rig.key(allowed(own));
        assert_eq!(rig.lookup(&key, "").await.names(), expected(own));
        assert_eq!(rig.lookup(&key, "?scope=").await.names(), expected(own), "empty is not given");
        for (name, wanted) in [("ip", Scope::Ip), ("geo", Scope::Geo), ("full", Scope::Full)] {
            let answer = rig.lookup(&key, &format!("?scope={name}")).await;
            assert_eq!(answer.names(), expected(own.min(wanted)), "a {own:?} key asked for {name}");
            assert_eq!(answer.json()["status"], "success");
        }
    }
}

#[tokio::test]
async fn a_scope_that_does_not_exist_is_refused_before_anything_is_charged() {
    let rig = Rig::start().await;
    let key = rig.key(allowed(Scope::Full));
    for scope in ["city", "GEO", "geo%20", "ip,geo", "null", "%F0%9F%8C%8D"] {
        let answer = rig.lookup(&key, &format!("?scope={scope}")).await;
        assert_eq!(answer.names(), ["docs", "error", "message"]);
        answer.error(400, "invalid_scope");
    }
    rig.lookup("not-a-key", "?scope=city").await.error(400, "invalid_scope");
    assert_eq!(rig.quota.charges(), 0);
}

#[tokio::test]
async fn the_demo_has_its_fixed_fields_and_numbers() {
    let rig = Rig::start().await;
    rig.quota.demo(allowed(Scope::Geo));
    for path in ["/api/v1/ip/demo", "/api/v1/ip/demo?scope=ip&key=x"] {
        let answer = rig.get(path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.names(), sorted(&[&IP, &GEO, &DEMO]));
        assert_eq!(answer.limit()[1], Some("9876"));
    }
}

async fn seen_from(rig: &Rig, key: &str, headers: &[(&str, &str)]) -> Value {
    let request = rig.request(Method::GET, "/api/v1/ip").bearer_auth(key);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    Answer::of(request).await.json()
}

#[tokio::test]
async fn everything_that_is_known_is_told() {
    let rig = Rig::with(|config| config.edge.colo = Some("FRA".to_owned())).await;
    let key = rig.key(allowed(Scope::Full));
    let headers = [
        ("x-forwarded-for", "198.51.100.7"),
        ("x-edge-http-protocol", "HTTP/2.0"),
        ("x-edge-tls-version", "TLSv1.3"),
        ("x-edge-tls-cipher", "TLS_AES_256_GCM_SHA384"),
        ("x-edge-rtt", "41"),
    ];
    let body = seen_from(&rig, &key, &headers).await;
    let told = json!({
        "status": "success", "ip": "198.51.100.7", "ipv6": null,
        "city": "San Francisco", "region": "California", "region_code": "US-CA",
        "country": "US", "country_name": "United States", "continent": "NA",
        "latitude": 37.7697, "longitude": -122.3933,
        "timezone": "America/Los_Angeles", "timezone_offset": body["timezone_offset"],
        "postal_code": "94107", "asn": 64497, "org": "Example Network Two",
        "as": "AS64497 Example Network Two", "is_eu": false, "currency": "USD",
        "http_protocol": "HTTP/2", "tls_version": "TLSv1.3", "tls_cipher": "TLS_AES_256_GCM_SHA384",
        "rtt": 41, "colo": "FRA", "proxy": false, "hosting": false,
    });
    assert_eq!(body, told);
    assert!([-25_200, -28_800].contains(&body["timezone_offset"].as_i64().unwrap()), "by the season");
}

#[tokio::test]
async fn what_is_not_known_is_null_and_not_absent() {
    let rig = Rig::start().await;
    let key = rig.key(allowed(Scope::Full));
    let body = seen_from(&rig, &key, &[("x-forwarded-for", "100.64.0.1")]).await;
    let mut known: Vec<_> = body
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, _)| name)
        .collect();
    known.sort();
    assert_eq!(known, ["ip", "status"]);
    assert_eq!(body.as_object().unwrap().len(), 26);
}

#[tokio::test]
async fn an_address_is_told_in_the_field_of_its_family() {
    let rig = Rig::start().await;
    let key = rig.key(allowed(Scope::Ip));
    for (client, ip, ipv6) in [
        ("203.0.113.9", json!("203.0.113.9"), Value::Null),
        ("2001:db8::7", Value::Null, json!("2001:db8::7")),
        ("::ffff:203.0.113.9", json!("203.0.113.9"), Value::Null),
    ] {
        let body = seen_from(&rig, &key, &[("x-forwarded-for", client)]).await;
        assert_eq!((&body["ip"], &body["ipv6"]), (&ip, &ipv6), "{client}");
    }
}

#[tokio::test]
async fn without_a_trusted_proxy_the_socket_alone_counts() {
    let rig = Rig::with(|config| config.edge.trusted_proxies.clear()).await;
    let key = rig.key(allowed(Scope::Full));
    let forged =
        [("x-forwarded-for", "198.51.100.7"), ("x-edge-tls-version", "TLSv1.3"), ("x-edge-rtt", "1")];
    let body = seen_from(&rig, &key, &forged).await;
    assert_eq!(body["ip"], "127.0.0.1");
    assert_eq!(body["http_protocol"], "HTTP/1.1");
    assert_eq!(
        (&body["tls_version"], &body["rtt"], &body["city"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
}
