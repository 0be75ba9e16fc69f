//! Under load, quota-svc is killed and lookup-svc is stopped: requests are served or fail with a clear error.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use quota_client::wire::Scope;
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::loadgen::Load;
use testkit::lookup::{JsonResponse, Lookup, Stack, WAIT_TIMEOUT};
use testkit::ports::ReservedPort;
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use testkit::wait::{SLACK, eventually, eventually_ok};

/// Limits that these tests never reach, and a store timeout that even a busy machine meets.
const HIGH_LIMITS: [&str; 6] =
    ["--burst-limit", "65535", "--daily-limit", "1000000", "--store-timeout", "10s"];
const WORKERS: usize = 8;

/// Waits for `count` more calls.
async fn more_calls(load: &Load, count: usize) {
    let wanted = load.completed() + count;
    eventually(WAIT_TIMEOUT, "more calls", async || (load.completed() >= wanted).then_some(())).await;
}

/// The status, and the error code if there is one.
async fn outcome(request: reqwest::RequestBuilder) -> String {
    let response = JsonResponse::fetch(request).await;
    format!("{} {}", response.status, response.error_code()).trim_end().to_owned()
}

/// Starts the sidecar quota-svc on a fixed port, with the data of `store`, and waits until it is ready.
async fn start_sidecar(port: &ReservedPort, redis: &Redis, store: &StoreChoice) -> Service {
    let (listen, url) = (port.addr().to_string(), redis.url());
    let local_flags = ["--listen", &listen, "--admin-listen", "127.0.0.1:0", "--serve", "charges"];
    let store_flags = ["--redis-url", &url, "--key-prefix", store.prefix()];
    let mut service =
        Service::spawn("quota-svc", &[&local_flags[..], &store_flags, &HIGH_LIMITS].concat(), &[]);
    service.listen_addr("quota").await;
    // A pod gets requests only when it is ready. A listening process may still be connecting to Redis.
    let (admin, client) = (service.listen_addr("admin").await, testkit::http::client());
    let check = async || client.get(format!("http://{admin}/readyz")).send().await?.error_for_status();
    eventually_ok(WAIT_TIMEOUT, "sidecar is ready", check).await;
    service
}

#[tokio::test]
async fn requests_get_500_only_while_sidecar_is_down() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    // A second quota-svc, which is not killed, creates the key and reads its usage.
    let observer = Quota::start_with(store.clone(), &HIGH_LIMITS).await;
    observer.wait_ready(WAIT_TIMEOUT).await;
    let key = observer.new_key().await;
    let port = ReservedPort::new();
    let mut quota = start_sidecar(&port, &redis, &store).await;
    let lookup = Lookup::start_with_long_timeouts(&format!("http://{}", port.addr()), &[]).await;
    assert_eq!(JsonResponse::fetch(lookup.get_ip(&key.secret)).await.status, 200);
    let next_request = lookup.ip_requests(&key.secret);
    let load = Load::start(WORKERS, move || outcome(next_request()));
    let mut outages = Vec::new();
    for _ in 0..5 {
        more_calls(&load, 10 * WORKERS).await;
        let killed = Instant::now();
        quota.kill();
        more_calls(&load, 3 * WORKERS).await;
        quota = start_sidecar(&port, &redis, &store).await;
        outages.push((killed, Instant::now()));
    }
    more_calls(&load, 10 * WORKERS).await;
    let report = load.stop().await;
    let (served, failed) = (report.count("200"), report.count("500 internal_error"));
    eprintln!("{} kills: {report}", outages.len());
    assert_eq!(served + failed, report.samples.len(), "only 200 and 500: {report}");
    assert!(failed > 0, "the kills caused errors: {report}");
    for sample in report.samples.iter().filter(|sample| sample.outcome != "200") {
        let (start, end) = (sample.at, sample.at + sample.latency);
        let in_outage = outages.iter().any(|(killed, back)| start < *back && end >= *killed);
        assert!(in_outage, "error while the sidecar was running: {sample:?}");
        assert!(sample.latency < SLACK, "must fail without waiting: {sample:?}");
    }
    // Subtracts the request before the load. Charges in flight at a kill may or may not be counted.
    let counted = key.fetch(&observer.client()).await.used_today as usize - 1;
    assert!((served..=served + outages.len() * WORKERS).contains(&counted), "{counted} counted, {report}");
    assert_eq!(lookup.readiness().await, 200);
    assert!(!lookup.service.logs().contains("panic"));
}

#[tokio::test]
async fn sigterm_under_load_finishes_requests_in_flight() {
    let stack = Stack::start(&HIGH_LIMITS[..4], &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let proxy = FaultProxy::start(stack.quota.addr());
    let (drain, grace) = (Duration::from_millis(500), Duration::from_secs(15));
    let flags = ["--drain-delay", "500ms", "--grace", "15s"];
    let mut lookup = Lookup::start_with_long_timeouts(&format!("http://{}", proxy.addr()), &flags).await;
    // Opens keep-alive connections, one per worker.
    let load = Load::http(WORKERS, lookup.ip_requests(&key.secret));
    more_calls(&load, 10 * WORKERS).await;
    // Every response now takes longer than the drain delay.
    proxy.set(Fault::Delay(3 * drain));
    let bytes_before = proxy.request_bytes();
    eventually(WAIT_TIMEOUT, "charges are in flight", async || {
        (proxy.request_bytes() > bytes_before).then_some(())
    })
    .await;
    let term = Instant::now();
    lookup.service.term();
    let status = lookup.service.wait_exit(drain + grace).await;
    let took = term.elapsed();
    let report = load.stop().await;
    let before: HashSet<_> =
        report.samples.iter().filter(|s| s.at < term).map(|s| s.outcome.as_str()).collect();
    let finished = report.samples.iter().filter(|s| s.at < term && s.at + s.latency > term + drain).count();
    eprintln!("exited after {took:?}; {finished} requests finished after the drain delay; {report}");
    assert_eq!(status.code(), Some(0), "{}", lookup.service.logs());
    assert_eq!(before, HashSet::from(["200"]), "requests sent before SIGTERM get 200: {report}");
    assert!(finished > 0, "requests were in flight when the listener closed: {report}");
    assert!(took >= drain, "exits only after the drain delay: {took:?}");
}
