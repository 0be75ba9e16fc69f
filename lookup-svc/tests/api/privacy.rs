//! What is counted is counted, and no metric tells who asked.

use quota_client::wire::{Outcome, Scope};
use reqwest::Method;

use crate::rig::{Answer, Rig, allowed, refused};

#[tokio::test]
async fn requests_are_counted_by_bounded_labels_and_name_nobody() {
    let rig = Rig::start().await;
    let good = rig.key(allowed(Scope::Full));
    let paused = rig.key(refused(Outcome::Paused, 300, 1, 60));
    let client = "203.0.113.77";
    let marked = rig.request(Method::GET, "/api/v1/ip").bearer_auth(&good).header("x-forwarded-for", client);
    Answer::of(marked).await;
    rig.lookup(&paused, "").await;
    rig.get("/api/v1/ip/secret-path?key=secret-value").await;
    rig.get("/api/v1/ip?key=malformed").await;
    rig.get("/api/v1/ip/demo").await;
    let metrics = rig.kit.telemetry.prometheus_text();
    for line in [
        r#"lookup_requests_total{operation="get_ip",outcome="success"} 1"#,
        r#"lookup_requests_total{operation="get_ip",outcome="paused"} 1"#,
        r#"lookup_requests_total{operation="get_ip",outcome="malformed_key"} 1"#,
        r#"lookup_requests_total{operation="get_demo",outcome="unknown_key"} 1"#,
        r#"lookup_client_ip_decisions_total{decision="xff"} 1"#,
        r#"lookup_quota_batch_size_count{outcome="answered"} 3"#,
        r#"geo_database_build_timestamp_seconds{database="built-in sample",kind="city"}"#,
        r#"geo_database_age_seconds{database="built-in sample",kind="city"}"#,
        r#"http_server_request_duration_seconds_count{operation="other",service="lookup-svc",status_class="4xx"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    for secret in [client, &*good, &*paused, "127.0.0.1", "secret", "malformed=", "ipl_"] {
        assert!(!metrics.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn readiness_says_which_databases_are_loaded() {
    let rig = Rig::start().await;
    let report = rig.kit.readiness.report();
    // The report is made by a task of its own; wait for it, not for a time.
    let mut waiting = report;
    while !waiting.ready {
        tokio::task::yield_now().await;
        waiting = rig.kit.readiness.report();
    }
    assert!(waiting.checks["geo"].detail.contains("built-in sample"), "{waiting:?}");
    assert!(waiting.checks.contains_key("lookup-edge"));
}
