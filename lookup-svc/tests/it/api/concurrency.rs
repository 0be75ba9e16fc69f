//! Concurrent requests: each gets its own verdict, even if other clients disconnect.

use futures_util::future::join_all;
use quota_client::wire::{RateLimit, Scope, Verdict};
use reqwest::Method;

use super::harness::{Harness, QuotaMode};

/// An allowed verdict that a test can recognize by its limit.
fn numbered(number: u32) -> Verdict {
    let rate_limit = RateLimit { limit: number, remaining: 1, reset: 1 };
    Verdict::Allowed { scope: Some(Scope::Ip), rate_limit }
}

#[tokio::test]
async fn batched_verdicts_reach_their_own_requests() {
    let harness = Harness::start().await;
    let keys: Vec<_> = (1..=100).map(|number| (number, harness.create_key(numbered(number)))).collect();
    join_all(keys.iter().map(async |(number, key)| {
        let response = harness.lookup(key, "").await;
        assert_eq!(response.rate_limit()[0], Some(&*number.to_string()));
    }))
    .await;
    let metrics = harness.kit.telemetry.prometheus_text();
    let calls = metrics
        .lines()
        .find_map(|line| line.strip_prefix("lookup_quota_batch_size_count{outcome=\"answered\"} "));
    let calls: usize = calls.unwrap().parse().unwrap();
    assert!(calls < keys.len(), "{calls} calls for {} charges", keys.len());
}

#[tokio::test]
async fn disconnected_clients_do_not_affect_others() {
    let harness = Harness::start().await;
    harness.quota.set_mode(QuotaMode::Hold);
    let key = harness.create_key(numbered(7));
    let disconnecting: Vec<_> = (0..20)
        .map(|_| tokio::spawn(harness.request(Method::GET, "/api/v1/ip").bearer_auth(&key).send()))
        .collect();
    harness.quota.wait_for_calls(1).await;
    disconnecting.iter().for_each(|client| client.abort());
    join_all(disconnecting).await;
    let (response, ()) =
        tokio::join!(harness.lookup(&key, ""), async { harness.quota.set_mode(QuotaMode::Normal) });
    assert_eq!((response.status, response.rate_limit()[0]), (200, Some("7")));
    assert_eq!(harness.lookup(&key, "").await.status, 200);
}
