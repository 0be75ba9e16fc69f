//! How a request passes its key, and the errors for missing, malformed, unknown and inactive keys.

use quota_client::wire::{Scope, Verdict};
use reqwest::Method;

use super::harness::{DASHBOARD, Harness, MIDNIGHT, TestResponse, allowed};

#[tokio::test]
async fn key_is_read_from_header_or_query_string() {
    let harness = Harness::start().await;
    let key = harness.create_key(allowed(Scope::Ip));
    for response in [harness.lookup(&key, "").await, harness.get(&format!("/api/v1/ip?key={key}")).await] {
        assert_eq!(response.status, 200, "{response:?}");
        let reset = MIDNIGHT.to_string();
        assert_eq!(response.rate_limit(), [Some("10000"), Some("9876"), Some(&*reset)]);
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("retry-after"), None);
    }
    assert_eq!(harness.quota.charge_count(), 2);
}

#[tokio::test]
async fn bearer_token_wins_over_query_string_and_empty_token_counts_as_missing() {
    let harness = Harness::start().await;
    let (good, unknown) = (harness.create_key(allowed(Scope::Ip)), harness.create_key(Verdict::UnknownKey));
    let both = harness.lookup(&unknown, &format!("?key={good}")).await;
    both.assert_error(401, "invalid_api_key");
    let swapped = harness.lookup(&good, &format!("?key={unknown}")).await;
    assert_eq!(swapped.status, 200);
    for authorization in ["Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Token x"] {
        let with_query = harness.request(Method::GET, &format!("/api/v1/ip?key={good}"));
        let response = TestResponse::send(with_query.header("authorization", authorization)).await;
        assert_eq!(response.status, 200, "{authorization:?} has no Bearer token");
        let alone = harness.request(Method::GET, "/api/v1/ip").header("authorization", authorization);
        TestResponse::send(alone).await.assert_error(401, "missing_api_key");
    }
    let lower = harness.request(Method::GET, "/api/v1/ip").header("authorization", format!("bearer {good}"));
    assert_eq!(TestResponse::send(lower).await.status, 200, "the scheme is case-insensitive");
}

#[tokio::test]
async fn repeated_parameter_uses_first_value() {
    let harness = Harness::start().await;
    let (good, unknown) = (harness.create_key(allowed(Scope::Full)), harness.create_key(Verdict::UnknownKey));
    assert_eq!(harness.get(&format!("/api/v1/ip?key={good}&key={unknown}")).await.status, 200);
    harness.get(&format!("/api/v1/ip?key={unknown}&key={good}")).await.assert_error(401, "invalid_api_key");
    harness.get(&format!("/api/v1/ip?key=&key={good}")).await.assert_error(401, "missing_api_key");
    let narrowed = harness.lookup(&good, "?scope=ip&scope=full").await;
    assert_eq!(narrowed.field_names(), ["ip", "ipv6", "status"]);
}

#[tokio::test]
async fn missing_key_gets_401_without_quota_call() {
    let harness = Harness::start().await;
    for path in ["/api/v1/ip", "/api/v1/ip?key=", "/api/v1/ip?key", "/api/v1/ip?scope=nonsense"] {
        let response = harness.get(path).await;
        let body = response.assert_error(401, "missing_api_key");
        let message = body["message"].as_str().unwrap();
        assert!(message.contains("Authorization: Bearer") && message.contains("key=<API_KEY>"), "{message}");
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
        assert_eq!(response.field_names(), ["docs", "error", "message"]);
        assert_eq!(response.rate_limit(), [None, None, None]);
    }
    assert_eq!(harness.quota.charge_count(), 0);
}

#[tokio::test]
async fn malformed_key_gets_401_without_quota_call() {
    let harness = Harness::start().await;
    let key = harness.create_key(allowed(Scope::Full));
    let mistyped = format!("{}{}", &key[..41], if key.ends_with('0') { '1' } else { '0' });
    for malformed in ["x", "ipl_", &key[..41], &mistyped, &format!("{key}0"), "ipl_%C3%A4", "%00"] {
        let response = harness.get(&format!("/api/v1/ip?key={malformed}")).await;
        response.assert_error(401, "invalid_api_key");
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
    }
    let bytes = http::HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap();
    let not_utf8 =
        harness.request(Method::GET, &format!("/api/v1/ip?key={key}")).header("authorization", bytes);
    TestResponse::send(not_utf8).await.assert_error(401, "invalid_api_key");
    assert_eq!(harness.quota.charge_count(), 0, "no call to quota-svc");
}

#[tokio::test]
async fn unknown_key_gets_401_and_inactive_key_403() {
    let harness = Harness::start().await;
    let unknown = harness.lookup(&harness.create_key(Verdict::UnknownKey), "").await;
    unknown.assert_error(401, "invalid_api_key");
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer"));
    let inactive = harness.lookup(&harness.create_key(Verdict::Inactive), "").await;
    let body = inactive.assert_error(403, "inactive_api_key");
    assert!(body["message"].as_str().unwrap().contains(DASHBOARD), "{body}");
    assert_eq!(inactive.header("www-authenticate"), None);
    for response in [unknown, inactive] {
        assert_eq!(response.field_names(), ["docs", "error", "message"]);
        assert_eq!((response.rate_limit(), response.header("retry-after")), ([None; 3], None));
    }
}
