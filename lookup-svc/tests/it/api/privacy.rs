//! Metrics count requests but contain no client address, key or path. Readiness lists the geo databases.

use quota_client::wire::{Scope, Verdict};
use reqwest::Method;

use super::harness::{Harness, TestResponse, allowed, denied};

#[tokio::test]
async fn metrics_count_requests_without_client_data() {
    let harness = Harness::start().await;
    let good = harness.create_key(allowed(Scope::Full));
    let paused = harness.create_key(denied(Verdict::Paused, 300, 1, 60));
    let client = "203.0.113.77";
    let request =
        harness.request(Method::GET, "/api/v1/ip").bearer_auth(&good).header("x-forwarded-for", client);
    TestResponse::send(request).await;
    harness.lookup(&paused, "").await;
    harness.get("/api/v1/ip/secret-path?key=secret-value").await;
    harness.get("/api/v1/ip?key=not-a-key").await;
    harness.get("/api/v1/ip/demo").await;
    let metrics = harness.kit.telemetry.prometheus_text();
    for line in [
        r#"lookup_requests_total{operation="get_ip",outcome="success"} 1"#,
        r#"lookup_requests_total{operation="get_ip",outcome="paused"} 1"#,
        r#"lookup_requests_total{operation="get_ip",outcome="malformed_key"} 1"#,
        r#"lookup_requests_total{operation="get_demo",outcome="unknown_key"} 1"#,
        r#"lookup_client_ip_decisions_total{decision="xff"} 1"#,
        r#"lookup_quota_batch_size_count{outcome="answered"} 3"#,
        r#"lookup_quota_call_duration_seconds_count{outcome="answered"} 3"#,
        r#"geo_database_build_timestamp_seconds{database="built-in country data",kind="country"}"#,
        r#"geo_database_age_seconds{database="built-in country data",kind="country"}"#,
        r#"http_server_request_duration_seconds_count{operation="other",service="lookup-svc",status_class="4xx"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    for secret in [client, &*good, &*paused, "127.0.0.1", "secret", "not-a-key", "ipl_"] {
        assert!(!metrics.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn readiness_lists_loaded_databases() {
    let harness = Harness::start().await;
    // Background tasks set the conditions of readiness, so wait until all of them are ready.
    let mut report = harness.kit.readiness.report();
    while !report.ready {
        tokio::task::yield_now().await;
        report = harness.kit.readiness.report();
    }
    let detail = &report.checks["geo"].detail;
    assert!(
        detail.starts_with("only the built-in country data of 20") && detail.contains(" old;"),
        "{detail}"
    );
    assert!(report.checks.contains_key("lookup-edge"));
    assert!(report.checks["timezones"].detail.starts_with("20"), "a version: {report:?}");
}
