//! The 429s of the public API (burst limit, daily quota, demo quota), exact to the request and the second, and the 500
//! during an outage.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quota_client::wire::{KeyState, Scope, StateChange};
use rustix::process::Signal;
use testkit::lookup::{JsonResponse, Lookup, Stack, WAIT_TIMEOUT};
use testkit::quota::Quota;
use testkit::redis::Redis;
use testkit::wait::{SLACK, eventually_ok};
use tokio::task::JoinSet;

const DAY: i64 = 86_400;

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// Sends a request that must get 429. Checks Retry-After and X-RateLimit-Reset against the clock of this machine, which
/// the store uses too. `wait` computes the expected Retry-After from the time of the charge.
async fn check_429(request: reqwest::RequestBuilder, limit: i64, wait: impl Fn(i64) -> i64) -> JsonResponse {
    let before = now();
    let response = JsonResponse::fetch(request).await;
    let after = now();
    assert_eq!((response.status, response.error_code()), (429, "rate_limit_exceeded"), "{response:?}");
    assert_eq!(
        (response.header_number("x-ratelimit-limit"), response.header_number("x-ratelimit-remaining")),
        (limit, 0)
    );
    assert_eq!(response.header("access-control-allow-origin"), "*");
    assert_eq!(response.body["docs"], "http://localhost:8080/docs#rate_limit_exceeded");
    let (retry_after, reset) =
        (response.header_number("retry-after"), response.header_number("x-ratelimit-reset"));
    let charged_at = reset - retry_after;
    // The time of a cached denial is too early by the duration of the store call that it comes from.
    assert!(
        (before - 1..=after).contains(&charged_at),
        "charged at {charged_at}, not within {before} - 1..={after}: {response:?}"
    );
    assert_eq!(retry_after, wait(charged_at), "{response:?}");
    response
}

fn seconds_to_midnight(now: i64) -> i64 {
    DAY - now % DAY
}

#[tokio::test]
async fn ietf_headers_have_the_values_of_the_contract_headers() {
    let stack = Stack::start(&["--daily-limit", "5"], &["--ratelimit-headers"]).await;
    let key = stack.key_with_scope(Scope::Geo).await;
    let before = now();
    let response = JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await;
    let after = now();
    assert_eq!(response.header("ratelimit-policy"), r#""daily";q=5;w=86400"#);
    let wait =
        response.header("ratelimit").strip_prefix(r#""daily";r=4;t="#).unwrap().parse::<i64>().unwrap();
    let reset = response.header_number("x-ratelimit-reset");
    assert!((reset - after..=reset - before).contains(&wait), "{before} {after} {response:?}");
}

#[tokio::test]
async fn key_is_paused_after_300_requests_per_minute() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key_with_scope(Scope::Geo).await;
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let request = stack.lookup.get_ip(&key.secret);
        clients.spawn(async move {
            let mut statuses = Vec::new();
            for _ in 0..75 {
                statuses.push(JsonResponse::fetch(request.try_clone().unwrap()).await.status);
            }
            statuses
        });
    }
    let statuses: Vec<u16> = clients.join_all().await.concat();
    assert_eq!(statuses, [200; 300], "300 requests do not pause the key");
    // Request 301, which pauses the key, and later requests get the same response and are not charged.
    for _ in 0..3 {
        let response = check_429(stack.lookup.get_ip(&key.secret), 300, |_| 60).await;
        assert_eq!(response.fields(), ["docs", "error", "message"], "no enterprise or signup field");
        let message = response.body["message"].as_str().unwrap();
        assert!(message.contains("300") && message.contains("paused"), "{message}");
        assert!(message.contains("http://localhost:8081"), "the message names the dashboard URL: {message}");
    }
    let client = stack.quota.client();
    let paused = key.fetch(&client).await;
    assert_eq!((paused.state, paused.used_today), (KeyState::Paused, 300));
    client.change_state(&key.key.id, None, StateChange::Resume).await.unwrap();
    assert_eq!(
        JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await.status,
        200,
        "resumed key is allowed immediately"
    );
}

#[tokio::test]
async fn exceeded_daily_quota_gets_429_with_enterprise_url() {
    let stack =
        Stack::start(&["--daily-limit", "3"], &["--enterprise-url", "https://sales.example/more"]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    for remaining in [2, 1, 0] {
        let response = JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await;
        assert_eq!((response.status, response.header_number("x-ratelimit-remaining")), (200, remaining));
        assert_eq!(response.header_number("x-ratelimit-limit"), 3);
    }
    for _ in 0..2 {
        let response = check_429(stack.lookup.get_ip(&key.secret), 3, seconds_to_midnight).await;
        assert_eq!(response.fields(), ["docs", "enterprise", "error", "message"], "no signup field");
        assert_eq!(response.body["enterprise"], "https://sales.example/more");
    }
    assert_eq!(key.fetch(&stack.quota.client()).await.used_today, 3);
}

#[tokio::test]
async fn exceeded_demo_quota_gets_429_with_signup_url() {
    let stack = Stack::start(&["--demo-limit", "2"], &["--signup-url", "https://join.example/"]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    for remaining in [1, 0] {
        let response = JsonResponse::fetch(stack.lookup.get("/api/v1/ip/demo")).await;
        assert_eq!((response.status, response.header_number("x-ratelimit-remaining")), (200, remaining));
    }
    for _ in 0..2 {
        let response = check_429(stack.lookup.get("/api/v1/ip/demo"), 2, seconds_to_midnight).await;
        assert_eq!(response.fields(), ["docs", "error", "message", "signup"], "no enterprise field");
        assert_eq!(response.body["signup"], "https://join.example");
    }
    assert_eq!(
        JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await.status,
        200,
        "a key has its own quota"
    );
}

/// Uses the default deadlines, with which every response arrives within one second.
#[tokio::test]
async fn requests_get_500_in_time_until_store_is_back() {
    // Redis syncs every write to disk, because it is killed milliseconds after the key was created.
    let mut redis = Redis::options().appendonly().directive("appendfsync always").start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let lookup = Lookup::start(quota.url(), &[]).await;
    let key = quota.new_key().await;
    wait_200(&lookup, &key.secret).await;
    redis.freeze();
    check_500(&lookup, &key.secret).await;
    redis.stop();
    check_500(&lookup, &key.secret).await;
    assert_eq!(
        lookup.readiness().await,
        200,
        "lookup-svc stays ready: otherwise the ingress would respond instead"
    );
    redis.restart().await;
    wait_200(&lookup, &key.secret).await;
}

#[tokio::test]
async fn hung_quota_svc_makes_lookup_svc_not_ready_and_close_connections() {
    let redis = Redis::start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let lookup = Lookup::start(quota.url(), &[]).await;
    let key = quota.new_key().await;
    wait_200(&lookup, &key.secret).await;
    quota.service.signal(Signal::STOP);
    eventually_ok(WAIT_TIMEOUT, "lookup-svc is not ready", async || match lookup.readiness().await {
        503 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    let response = JsonResponse::fetch(lookup.get_ip(&key.secret)).await;
    assert_eq!((response.status, response.header("connection")), (500, "close"), "{response:?}");
    quota.service.signal(Signal::CONT);
    wait_200(&lookup, &key.secret).await;
    eventually_ok(WAIT_TIMEOUT, "lookup-svc is ready", async || match lookup.readiness().await {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}

/// Waits until a request with the key gets 200.
async fn wait_200(lookup: &Lookup, key: &str) {
    eventually_ok(WAIT_TIMEOUT, "a 200 response", async || {
        let response = JsonResponse::fetch(lookup.get_ip(key)).await;
        if response.status == 200 { Ok(()) } else { Err(format!("{response:?}")) }
    })
    .await;
}

async fn check_500(lookup: &Lookup, key: &str) {
    for request in [lookup.get_ip(key), lookup.get("/api/v1/ip/demo")] {
        let started = Instant::now();
        let response = JsonResponse::fetch(request).await;
        assert_eq!((response.status, response.error_code()), (500, "internal_error"), "{response:?}");
        assert!(started.elapsed() < SLACK, "{:?}", started.elapsed());
        assert_eq!(response.fields(), ["docs", "error", "message"]);
        assert_eq!(response.header("access-control-allow-origin"), "*");
        assert!(response.header("retry-after").is_empty() && response.header("x-ratelimit-limit").is_empty());
    }
}
