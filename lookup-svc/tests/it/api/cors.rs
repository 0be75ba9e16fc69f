//! CORS: preflights and the headers of responses.

use quota_client::wire::{Scope, Verdict};
use reqwest::Method;

use super::harness::{Harness, QuotaMode, TestResponse, allowed};

#[tokio::test]
async fn preflight_needs_no_key_and_no_quota_call() {
    let harness = Harness::start().await;
    harness.quota.set_mode(QuotaMode::Fail);
    for path in ["/api/v1/ip", "/api/v1/ip/demo", "/api/v1/ip?scope=nonsense"] {
        let request = harness.request(Method::OPTIONS, path).header("origin", "https://page.example");
        let request = request.header("access-control-request-method", "GET");
        let response =
            TestResponse::send(request.header("access-control-request-headers", "authorization")).await;
        assert_eq!((response.status, &*response.text), (204, ""));
        let cors_header = |name: &str| response.header(&format!("access-control-{name}"));
        assert_eq!(cors_header("allow-origin"), Some("*"));
        assert_eq!(cors_header("allow-methods"), Some("GET, OPTIONS"));
        assert_eq!(cors_header("allow-headers"), Some("Authorization, Content-Type, X-Requested-With"));
        assert_eq!(cors_header("max-age"), Some("86400"));
        assert_eq!(response.header("content-type"), None);
    }
    assert_eq!(harness.quota.charge_count(), 0);
    TestResponse::send(harness.request(Method::OPTIONS, "/api/v1/nope")).await.assert_error(404, "not_found");
}

#[tokio::test]
async fn every_response_except_the_home_page_allows_any_origin() {
    let harness = Harness::start().await;
    let good = harness.create_key(allowed(Scope::Full));
    let inactive = harness.create_key(Verdict::Inactive);
    let mut responses = vec![harness.lookup(&good, "").await, harness.lookup(&inactive, "").await];
    for path in ["/docs", "/swagger", "/openapi.json", "/openapi.yaml", "/nope", "/api/v1/ip"] {
        responses.push(harness.get(path).await);
    }
    for response in responses {
        assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{response:?}");
        let exposed = response.header("access-control-expose-headers").unwrap();
        for name in ["Limit", "Remaining", "Reset", "Reason"] {
            assert!(exposed.contains(&format!("X-RateLimit-{name}")), "{exposed}");
        }
        assert!(exposed.contains("Retry-After"), "{exposed}");
    }
}
