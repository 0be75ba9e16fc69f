//! Under load, quota-svc is killed, pods are replaced one by one, and lookup-svc is stopped: requests are served or
//! fail with a clear error.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
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

/// A lookup-svc and its sidecar quota-svc.
struct Pod {
    lookup: Lookup,
    quota: Quota,
}

impl Pod {
    async fn start(store: &StoreChoice) -> Self {
        let quota =
            Quota::start_with(store.clone(), &[&HIGH_LIMITS[..], &["--drain-delay", "0s"]].concat()).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let lookup = Lookup::start_with_long_timeouts(quota.url(), &[]).await;
        Self { lookup, quota }
    }

    fn url(&self) -> String {
        self.lookup.url() + "/api/v1/ip"
    }
}

/// The ready pods of a Kubernetes Service.
type Endpoints = Arc<Mutex<Vec<String>>>;

/// Stops a pod like Kubernetes: lookup-svc first. Its endpoint is removed some time after it reports not ready. The
/// sidecar stops once lookup-svc has exited.
async fn stop_pod(mut pod: Pod, endpoints: &Endpoints, load: &Load) {
    pod.lookup.service.term();
    eventually(WAIT_TIMEOUT, "pod reports not ready", async || {
        (pod.lookup.readiness().await == 503).then_some(())
    })
    .await;
    // Endpoint removal is delayed: until then, the pod still gets requests and must serve them.
    more_calls(load, 4 * WORKERS).await;
    endpoints.lock().unwrap().retain(|url| *url != pod.url());
    let status = pod.lookup.service.wait_exit(WAIT_TIMEOUT).await;
    assert_eq!(status.code(), Some(0), "{}", pod.lookup.service.logs());
    pod.quota.service.term();
    let status = pod.quota.service.wait_exit(WAIT_TIMEOUT).await;
    assert_eq!(status.code(), Some(0), "{}", pod.quota.service.logs());
}

#[tokio::test]
async fn rolling_pods_under_load_fails_no_request() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let mut pods = vec![Pod::start(&store).await, Pod::start(&store).await];
    let key = pods[0].quota.new_key().await;
    let endpoints: Endpoints = Arc::new(Mutex::new(pods.iter().map(Pod::url).collect()));
    let (http, secret, current_endpoints) = (testkit::http::client(), key.secret.clone(), endpoints.clone());
    let turn = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let load = Load::http(WORKERS, move || {
        let ready = current_endpoints.lock().unwrap();
        let next = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % ready.len();
        http.get(&ready[next]).bearer_auth(&secret)
    });
    more_calls(&load, 10 * WORKERS).await;
    for _ in 0..2 {
        let new = Pod::start(&store).await;
        endpoints.lock().unwrap().push(new.url());
        pods.push(new);
        more_calls(&load, 4 * WORKERS).await;
        stop_pod(pods.remove(0), &endpoints, &load).await;
    }
    more_calls(&load, 10 * WORKERS).await;
    let report = load.stop().await;
    eprintln!("{report}");
    assert_eq!(report.count("200"), report.samples.len(), "{report}");
    let counted = key.fetch(&pods[0].quota.client()).await.used_today as usize;
    assert_eq!(counted, report.samples.len(), "each request is counted once");
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
