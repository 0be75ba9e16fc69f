//! Clients that disconnect or use unknown or paused keys do not affect other clients. Paused keys do not load the store.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use quota_client::wire::{Scope, StateChange};
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::loadgen::{Load, Report};
use testkit::lookup::{JsonResponse, Lookup, Stack, WAIT_TIMEOUT, unknown_key};
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use testkit::wait::eventually;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Limits that these tests never reach.
const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];

fn check_all_200(report: &Report) {
    assert!(report.count("200") > 0 && report.count("200") == report.samples.len(), "{report}");
}

#[tokio::test]
async fn client_disconnecting_after_charge_is_charged_once() {
    let redis = Redis::start().await;
    let quota =
        Quota::start_with(&redis, &[HIGH_LIMITS.as_slice(), &["--store-timeout", "10s"]].concat()).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let proxy = FaultProxy::start(quota.addr());
    let lookup = Lookup::start_with_long_timeouts(&format!("http://{}", proxy.addr()), &[]).await;
    let (leaving_key, staying_key, client) = (quota.new_key().await, quota.new_key().await, quota.client());
    proxy.set(Fault::Delay(Duration::from_millis(300)));
    let load = Load::http(4, lookup.ip_requests(&staying_key.secret));
    for disconnects in 1..=5 {
        let mut socket = TcpStream::connect(lookup.addr()).await.unwrap();
        let request = format!(
            "GET /api/v1/ip HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {}\r\n\r\n",
            leaving_key.secret
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        eventually(WAIT_TIMEOUT, "charge is counted", async || {
            (leaving_key.fetch(&client).await.used_today == disconnects).then_some(())
        })
        .await;
        // The proxy delays the verdict by 300 ms, so the client disconnects before it gets a response.
        drop(socket);
    }
    let calls = load.completed();
    eventually(WAIT_TIMEOUT, "other requests continue", async || {
        (load.completed() > calls + 8).then_some(())
    })
    .await;
    let report = load.stop().await;
    check_all_200(&report);
    assert_eq!(
        staying_key.fetch(&client).await.used_today as usize,
        report.samples.len(),
        "each request of the load was counted once"
    );
    assert_eq!(
        leaving_key.fetch(&client).await.used_today,
        5,
        "each request of a disconnected client was counted once"
    );
    let panics = lookup.service.logs().contains("panic");
    assert!(!panics, "{}", lookup.service.logs());
}

/// Number of charge script calls in Redis.
async fn charge_script_calls(redis: &Redis) -> u64 {
    let stats = redis.info("cmdstat_evalsha").await.unwrap_or_default();
    let calls = stats.split(',').find_map(|part| part.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn unknown_keys_under_load_get_401_and_valid_key_200() {
    let stack = Stack::start(&HIGH_LIMITS, &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let valid = Load::http(2, stack.lookup.ip_requests(&key.secret));
    eventually(WAIT_TIMEOUT, "valid requests", async || (valid.completed() > 50).then_some(())).await;
    let (url, http) = (stack.lookup.url() + "/api/v1/ip", testkit::http::client());
    let unknown = Load::http(32, move || http.get(&url).bearer_auth(unknown_key()));
    eventually(WAIT_TIMEOUT, "requests with unknown keys", async || {
        (unknown.completed() > 3_000).then_some(())
    })
    .await;
    let (unknown, valid) = (unknown.stop().await, valid.stop().await);
    assert_eq!(unknown.count("401"), unknown.samples.len(), "{unknown}");
    check_all_200(&valid);
    assert_eq!(
        key.fetch(&stack.quota.client()).await.used_today as usize,
        valid.samples.len(),
        "counted exactly"
    );
}

#[tokio::test]
async fn paused_key_is_denied_from_cache_until_resumed() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let flags = ["--store-timeout", "10s", "--burst-limit", "5"];
    let quotas = [Quota::start_with(store.clone(), &flags).await, Quota::start_with(store, &flags).await];
    let mut lookups = Vec::new();
    for quota in &quotas {
        quota.wait_ready(WAIT_TIMEOUT).await;
        lookups.push(Lookup::start_with_long_timeouts(quota.url(), &[]).await);
    }
    let key = quotas[0].new_key().await;
    for status in [200, 200, 200, 200, 200, 429] {
        assert_eq!(JsonResponse::fetch(lookups[0].get_ip(&key.secret)).await.status, status);
    }
    let (before, since) = (charge_script_calls(&redis).await, Instant::now());
    let loads: Vec<_> = lookups.iter().map(|lookup| Load::http(4, lookup.ip_requests(&key.secret))).collect();
    for load in loads {
        eventually(WAIT_TIMEOUT, "many denials", async || (load.completed() > 1_000).then_some(())).await;
        let report = load.stop().await;
        assert_eq!(report.count("429"), report.samples.len(), "{report}");
    }
    // Each quota-svc calls the store again about every 2 s. Up to 4 charges (one per worker) arrive before
    // the reply, and each of them calls the store.
    let max_calls = 2 * (since.elapsed().as_secs() / 2 + 1) * 4;
    let calls = charge_script_calls(&redis).await - before;
    assert!(calls <= max_calls, "{calls} script calls in {:?} for more than 2,000 requests", since.elapsed());
    assert_eq!(
        JsonResponse::fetch(lookups[1].get_ip(&key.secret)).await.status,
        429,
        "the other quota-svc has cached the denial too"
    );
    quotas[0].client().change_state(&key.key.id, None, StateChange::Resume).await.unwrap();
    let resumed = Instant::now();
    assert_eq!(
        JsonResponse::fetch(lookups[0].get_ip(&key.secret)).await.status,
        200,
        "the quota-svc that resumed the key allows it immediately"
    );
    eventually(WAIT_TIMEOUT, "the other quota-svc allows the key", async || {
        (JsonResponse::fetch(lookups[1].get_ip(&key.secret)).await.status == 200).then_some(())
    })
    .await;
    assert!(resumed.elapsed() < Duration::from_millis(2_500), "{:?}", resumed.elapsed());
}
