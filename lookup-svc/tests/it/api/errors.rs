//! Every error with its status, body and headers.

use quota_client::wire::{Scope, Verdict};
use reqwest::{Body, Method};

use super::harness::{DASHBOARD, DOCS, Harness, MIDNIGHT, TestResponse, allowed, denied};

#[tokio::test]
async fn burst_and_paused_key_get_the_same_429() {
    let harness = Harness::start().await;
    for outcome in [Verdict::BurstExceeded, Verdict::Paused] {
        let response = harness.lookup(&harness.create_key(denied(outcome, 300, 1_700_000_060, 60)), "").await;
        let body = response.assert_error(429, "rate_limit_exceeded");
        let message = body["message"].as_str().unwrap();
        assert!(
            message.contains("paused") && message.contains("300") && message.contains(DASHBOARD),
            "{message}"
        );
        assert_eq!(response.field_names(), ["docs", "error", "message"], "neither enterprise nor signup");
        assert_eq!(response.rate_limit(), [Some("300"), Some("0"), Some("1700000060")]);
        assert_eq!(response.header("retry-after"), Some("60"));
    }
}

#[tokio::test]
async fn used_up_daily_quota_gets_429_with_enterprise_link() {
    let harness = Harness::start().await;
    let response = harness
        .lookup(&harness.create_key(denied(Verdict::DailyExceeded, 10_000, MIDNIGHT, 1_234)), "")
        .await;
    let body = response.assert_error(429, "rate_limit_exceeded");
    assert_eq!(body["enterprise"], format!("{DOCS}#enterprise"));
    assert_eq!(response.field_names(), ["docs", "enterprise", "error", "message"]);
    assert_eq!(response.rate_limit(), [Some("10000"), Some("0"), Some(&*MIDNIGHT.to_string())]);
    assert_eq!(response.header("retry-after"), Some("1234"));
}

#[tokio::test]
async fn used_up_demo_quota_gets_429_with_signup_link() {
    let harness = Harness::start().await;
    harness.quota.set_demo(denied(Verdict::DailyExceeded, 1_000, MIDNIGHT, 77));
    let response = harness.get("/api/v1/ip/demo").await;
    let body = response.assert_error(429, "rate_limit_exceeded");
    assert_eq!(body["signup"], format!("{DASHBOARD}/#sign-up"));
    assert_eq!(response.field_names(), ["docs", "error", "message", "signup"]);
    assert_eq!(response.rate_limit(), [Some("1000"), Some("0"), Some(&*MIDNIGHT.to_string())]);
    assert_eq!(response.header("retry-after"), Some("77"));
}

#[tokio::test]
async fn signup_and_enterprise_urls_are_configurable() {
    let harness = Harness::start_with(|config| {
        config.signup_url = Some("https://join.example".to_owned());
        config.enterprise_url = Some("https://sales.example".to_owned());
    })
    .await;
    harness.quota.set_demo(denied(Verdict::DailyExceeded, 1_000, MIDNIGHT, 1));
    assert_eq!(harness.get("/api/v1/ip/demo").await.json()["signup"], "https://join.example");
    let key = harness.create_key(denied(Verdict::DailyExceeded, 5, MIDNIGHT, 1));
    assert_eq!(harness.lookup(&key, "").await.json()["enterprise"], "https://sales.example");
}

#[tokio::test]
async fn unknown_paths_get_404() {
    let harness = Harness::start().await;
    for path in [
        "/nope",
        "/api",
        "/api/",
        "/api/v1",
        "/api/v1/ip/",
        "/api/v1/ip/demo/x",
        "/api/v2/ip",
        "//",
        "/livez",
        "/metrics",
    ] {
        harness.get(path).await.assert_error(404, "not_found");
    }
}

#[tokio::test]
async fn other_methods_get_405_without_a_charge() {
    let harness = Harness::start().await;
    let key = harness.create_key(allowed(Scope::Full));
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::TRACE] {
            let response = TestResponse::send(harness.request(method, path).bearer_auth(&key)).await;
            response.assert_error(405, "method_not_allowed");
            assert_eq!(response.header("allow"), Some("GET, OPTIONS"));
        }
        let head = TestResponse::send(harness.request(Method::HEAD, path).bearer_auth(&key)).await;
        assert_eq!((head.status, head.header("allow"), &*head.text), (405, Some("GET, OPTIONS"), ""));
        assert_eq!(head.header("access-control-allow-origin"), Some("*"));
    }
    let page = TestResponse::send(harness.request(Method::POST, "/docs")).await;
    page.assert_error(405, "method_not_allowed");
    assert_eq!(page.header("allow"), Some("GET, HEAD"));
    assert_eq!(harness.quota.charge_count(), 0);
}

#[tokio::test]
async fn large_body_gets_413_and_small_body_is_ignored() {
    let harness = Harness::start().await;
    let key = harness.create_key(allowed(Scope::Ip));
    let with_body =
        |bytes: usize| harness.request(Method::GET, "/api/v1/ip").bearer_auth(&key).body(vec![b'x'; bytes]);
    TestResponse::send(with_body(65 * 1024)).await.assert_error(413, "payload_too_large");
    assert_eq!(harness.quota.charge_count(), 0);
    assert_eq!(TestResponse::send(with_body(2)).await.status, 200);
}

#[tokio::test]
async fn unfinished_body_gets_408() {
    let harness = Harness::start_with(|config| {
        config.request_timeout = std::time::Duration::from_millis(300);
        config.quota.quota_deadline = std::time::Duration::from_millis(100);
    })
    .await;
    let unfinished = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    // Without this header the client would not send a GET body of unknown length.
    let request = harness.request(Method::GET, "/api/v1/ip").header("transfer-encoding", "chunked");
    let request = request.body(Body::wrap_stream(unfinished));
    TestResponse::send(request).await.assert_error(408, "request_timeout");
}

#[tokio::test]
async fn oversized_headers_get_431() {
    let harness = Harness::start().await;
    let request = harness.request(Method::GET, "/api/v1/ip").header("x-long", "x".repeat(17 * 1024));
    TestResponse::send(request).await.assert_error(431, "headers_too_large");
}
