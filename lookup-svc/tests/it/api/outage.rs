//! quota-svc unavailable: 500 within the deadline, never an uncharged lookup, automatic recovery.

use std::time::{Duration, Instant};

use quota_client::wire::{RateLimit, Scope, Verdict};

use super::harness::{Harness, QuotaMode, allowed};

#[tokio::test]
async fn lookup_without_verdict_gets_500_and_service_stays_ready() {
    let harness = Harness::start().await;
    let key = harness.create_key(allowed(Scope::Full));
    while !harness.kit.readiness.report().ready {
        tokio::task::yield_now().await;
    }
    harness.quota.set_mode(QuotaMode::Fail);
    for response in [harness.lookup(&key, "").await, harness.get("/api/v1/ip/demo").await] {
        response.assert_error(500, "internal_error");
        assert_eq!(response.field_names(), ["docs", "error", "message"]);
        assert_eq!((response.rate_limit(), response.header("retry-after")), ([None; 3], None));
    }
    assert!(harness.kit.readiness.report().ready, "an outage of quota-svc does not affect readiness");
    harness.quota.set_mode(QuotaMode::Normal);
    assert_eq!(harness.lookup(&key, "").await.status, 200);
}

#[tokio::test]
async fn lookup_with_unusable_verdict_gets_500() {
    let harness = Harness::start().await;
    let rate_limit = RateLimit { limit: 1, remaining: 1, reset: 1 };
    for verdict in [Verdict::Unavailable, Verdict::Allowed { scope: None, rate_limit }] {
        harness.lookup(&harness.create_key(verdict), "").await.assert_error(500, "internal_error");
    }
}

#[tokio::test]
async fn lookup_gets_500_at_the_deadline_if_quota_svc_hangs() {
    let deadline = Duration::from_millis(200);
    let harness = Harness::start_with(|config| config.quota.quota_deadline = deadline).await;
    harness.quota.set_mode(QuotaMode::Hang);
    let key = harness.create_key(allowed(Scope::Full));
    let started = Instant::now();
    harness.lookup(&key, "").await.assert_error(500, "internal_error");
    let elapsed = started.elapsed();
    assert!((deadline..Duration::from_secs(5)).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test]
async fn lookup_gets_500_immediately_if_the_queue_is_full() {
    let harness = Harness::start_with(|config| {
        config.quota.quota_queue = 1;
        config.quota.quota_in_flight = Some(1);
    })
    .await;
    harness.quota.set_mode(QuotaMode::Hang);
    let key = harness.create_key(allowed(Scope::Full));
    let started = Instant::now();
    // One charge is in flight and one is queued.
    let response = tokio::select! {
        response = harness.lookup(&key, "") => response,
        response = harness.lookup(&key, "") => response,
        response = harness.lookup(&key, "") => response,
    };
    response.assert_error(500, "internal_error");
    assert!(started.elapsed() < Duration::from_secs(6), "one of the three fails before its deadline");
}

#[tokio::test]
async fn service_is_ready_once_the_store_was_reached_and_stays_ready() {
    let harness = Harness::start_without_store("connection refused").await;
    let detail = || harness.kit.readiness.report().checks["lookup-store"].detail.clone();
    while !detail().contains("connection refused") {
        tokio::task::yield_now().await;
    }
    assert!(!harness.kit.readiness.report().ready);
    harness.quota.set_store_unavailable(None);
    while !harness.kit.readiness.report().ready {
        tokio::task::yield_now().await;
    }
    harness.quota.set_store_unavailable(Some("connection refused"));
    let key = harness.create_key(Verdict::Unavailable);
    harness.lookup(&key, "").await.assert_error(500, "internal_error");
    assert!(harness.kit.readiness.report().ready, "a later outage does not affect readiness");
}

#[tokio::test]
async fn unreachable_quota_svc_closes_the_connection_and_unavailable_store_does_not() {
    let harness = Harness::start().await;
    let key = harness.create_key(Verdict::Unavailable);
    let response = harness.lookup(&key, "").await;
    response.assert_error(500, "internal_error");
    assert_eq!(response.header("connection"), None, "another pod has the same store");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let harness = Harness::start_with(|config| config.quota.quota_url = format!("http://{closed}")).await;
    let response = harness.lookup(&harness.create_key(allowed(Scope::Full)), "").await;
    response.assert_error(500, "internal_error");
    assert_eq!(response.header("connection"), Some("close"));
}
