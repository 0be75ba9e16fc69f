//! Which fields a response has, and their values.

use quota_client::wire::Scope;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{Harness, TestResponse, allowed};

// The fields that each scope adds to those of the narrower scope.
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
/// The fields of `FULL` that the demo returns.
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
async fn key_scope_and_requested_scope_limit_the_fields() {
    let harness = Harness::start().await;
    for key_scope in [Scope::Ip, Scope::Geo, Scope::Full] {
        let key = harness.create_key(allowed(key_scope));
        assert_eq!(harness.lookup(&key, "").await.field_names(), expected(key_scope));
        assert_eq!(
            harness.lookup(&key, "?scope=").await.field_names(),
            expected(key_scope),
            "an empty scope counts as absent"
        );
        for (name, requested) in [("ip", Scope::Ip), ("geo", Scope::Geo), ("full", Scope::Full)] {
            let response = harness.lookup(&key, &format!("?scope={name}")).await;
            assert_eq!(
                response.field_names(),
                expected(key_scope.min(requested)),
                "{key_scope:?} key, scope={name}"
            );
            assert_eq!(response.json()["status"], "success");
        }
    }
}

#[tokio::test]
async fn unknown_scope_gets_400_without_a_charge() {
    let harness = Harness::start().await;
    let key = harness.create_key(allowed(Scope::Full));
    for scope in ["city", "GEO", "geo%20", "ip,geo", "null", "%F0%9F%8C%8D"] {
        let response = harness.lookup(&key, &format!("?scope={scope}")).await;
        assert_eq!(response.field_names(), ["docs", "error", "message"]);
        response.assert_error(400, "invalid_scope");
    }
    harness.lookup("not-a-key", "?scope=city").await.assert_error(400, "invalid_scope");
    assert_eq!(harness.quota.charge_count(), 0);
}

#[tokio::test]
async fn demo_returns_its_fixed_fields() {
    let harness = Harness::start().await;
    harness.quota.set_demo(allowed(Scope::Geo));
    for path in ["/api/v1/ip/demo", "/api/v1/ip/demo?scope=ip&key=x"] {
        let response = harness.get(path).await;
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.field_names(), sorted(&[&IP, &GEO, &DEMO]));
        assert_eq!(response.rate_limit()[1], Some("9876"));
    }
}

async fn lookup_with_headers(harness: &Harness, key: &str, headers: &[(&str, &str)]) -> Value {
    let request = harness.request(Method::GET, "/api/v1/ip").bearer_auth(key);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    TestResponse::send(request).await.json()
}

#[tokio::test]
async fn full_scope_returns_every_value() {
    let sample = testkit::mmdb::sample::file();
    let harness = Harness::start_with(|config| {
        config.edge.colo = Some("FRA".to_owned());
        config.geo.geo_db = vec![sample.path().to_owned()];
    })
    .await;
    let key = harness.create_key(allowed(Scope::Full));
    let headers = [
        ("x-forwarded-for", "216.160.83.7"),
        ("x-edge-http-protocol", "HTTP/2.0"),
        ("x-edge-tls-version", "TLSv1.3"),
        ("x-edge-tls-cipher", "TLS_AES_256_GCM_SHA384"),
        ("x-edge-rtt", "41"),
    ];
    let body = lookup_with_headers(&harness, &key, &headers).await;
    let expected = json!({
        "status": "success", "ip": "216.160.83.7", "ipv6": null,
        "city": "San Francisco", "region": "California", "region_code": "US-CA",
        "country": "US", "country_name": "United States", "continent": "NA",
        "latitude": 37.7697, "longitude": -122.3933,
        "timezone": "America/Los_Angeles", "timezone_offset": body["timezone_offset"],
        "postal_code": "94107", "asn": 64497, "org": "Example Network Two",
        "as": "AS64497 Example Network Two", "is_eu": false, "currency": "USD",
        "http_protocol": "HTTP/2", "tls_version": "TLSv1.3", "tls_cipher": "TLS_AES_256_GCM_SHA384",
        "rtt": 41, "colo": "FRA", "proxy": false, "hosting": false,
    });
    assert_eq!(body, expected);
    assert!(
        [-25_200, -28_800].contains(&body["timezone_offset"].as_i64().unwrap()),
        "standard or daylight saving time"
    );
}

#[tokio::test]
async fn fields_without_data_are_null() {
    let harness = Harness::start().await;
    let key = harness.create_key(allowed(Scope::Full));
    let body = lookup_with_headers(&harness, &key, &[("x-forwarded-for", "100.64.0.1")]).await;
    let mut non_null: Vec<_> = body
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, _)| name)
        .collect();
    non_null.sort();
    assert_eq!(non_null, ["ip", "status"]);
    assert_eq!(body.as_object().unwrap().len(), 26);
}

#[tokio::test]
async fn address_is_in_the_field_of_its_family() {
    let harness = Harness::start().await;
    let key = harness.create_key(allowed(Scope::Ip));
    for (client, ip, ipv6) in [
        ("89.160.20.9", json!("89.160.20.9"), Value::Null),
        ("2a02:cf40::7", Value::Null, json!("2a02:cf40::7")),
        ("::ffff:89.160.20.9", json!("89.160.20.9"), Value::Null),
    ] {
        let body = lookup_with_headers(&harness, &key, &[("x-forwarded-for", client)]).await;
        assert_eq!((&body["ip"], &body["ipv6"]), (&ip, &ipv6), "{client}");
    }
}

#[tokio::test]
async fn headers_of_untrusted_peer_are_ignored() {
    let harness = Harness::start_with(|config| config.edge.trusted_proxies.clear()).await;
    let key = harness.create_key(allowed(Scope::Full));
    let forged =
        [("x-forwarded-for", "216.160.83.7"), ("x-edge-tls-version", "TLSv1.3"), ("x-edge-rtt", "1000")];
    let body = lookup_with_headers(&harness, &key, &forged).await;
    assert_eq!(body["ip"], "127.0.0.1");
    assert_eq!(body["http_protocol"], "HTTP/1.1");
    assert_eq!((&body["tls_version"], &body["city"]), (&Value::Null, &Value::Null));
    // Measured on the socket: less than a millisecond on one machine, where the forged value is 1000.
    assert!(body["rtt"].as_u64().is_some_and(|rtt| rtt < 500), "{body}");
}
