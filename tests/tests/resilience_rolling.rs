//! quota-svc killed, whole pods rolled, lookup-svc stopped under load: who asks meanwhile is answered (F5, F16).
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::fault_proxy::{Fault, FaultProxy};
use e2e::loadgen::Load;
use e2e::lookup::{Answer, Lookup, PATIENCE, Stack};
use e2e::ports::ReservedPort;
use e2e::process::Service;
use e2e::quota::{Quota, StoreChoice};
use e2e::redis::Redis;
use e2e::wait::{eventually, eventually_ok};
use quota_client::wire::Scope;

/// Limits that no load of these tests reaches, and a deadline that no busy machine breaks.
const GENEROUS: [&str; 6] = ["--burst-limit", "65535", "--daily-limit", "1000000", "--store-timeout", "10s"];
const WORKERS: usize = 8;

/// Waits until so many more calls have ended.
async fn more_calls(load: &Load, count: usize) {
    let wanted = load.completed() + count;
    eventually(PATIENCE, "more calls", async || (load.completed() >= wanted).then_some(())).await;
}

/// The status, and the code where it is an error.
async fn outcome(request: reqwest::RequestBuilder) -> String {
    let answer = Answer::of(request).await;
    format!("{} {}", answer.status, answer.error()).trim_end().to_owned()
}

/// The sidecar on a port that stays its own, in the state of `store`.
async fn sidecar(port: &ReservedPort, redis: &Redis, store: &StoreChoice) -> Service {
    let (listen, url) = (port.addr().to_string(), redis.url());
    let own = ["--listen", &listen, "--admin-listen", "127.0.0.1:0", "--serve", "charges"];
    let place = ["--redis-url", &url, "--key-prefix", store.prefix()];
    let mut service = Service::spawn("quota-svc", &[&own[..], &place, &GENEROUS].concat(), &[]);
    service.listening("quota").await;
    // A pod gets requests when its containers are ready: a port that listens may still be connecting to Redis.
    let (admin, client) = (service.listening("admin").await, e2e::http::client());
    let ask = async || client.get(format!("http://{admin}/readyz")).send().await?.error_for_status();
    eventually_ok(PATIENCE, "the sidecar is ready", ask).await;
    service
}

#[tokio::test]
async fn a_killed_sidecar_costs_clear_errors_until_it_is_back_and_not_one_after() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    // Looks on: creates the key and reads its count while the other one dies.
    let onlooker = Quota::start_with(store.clone(), &GENEROUS).await;
    onlooker.wait_ready(PATIENCE).await;
    let key = onlooker.new_key().await;
    let port = ReservedPort::new();
    let mut quota = sidecar(&port, &redis, &store).await;
    let lookup = Lookup::start_patient(&format!("http://{}", port.addr()), &[]).await;
    assert_eq!(Answer::of(lookup.ask(&key.secret)).await.status, 200);
    let asking = lookup.asking(&key.secret);
    let load = Load::start(WORKERS, move || outcome(asking()));
    let mut away = Vec::new();
    for _ in 0..5 {
        more_calls(&load, 10 * WORKERS).await;
        let killed = Instant::now();
        quota.kill();
        more_calls(&load, 3 * WORKERS).await;
        quota = sidecar(&port, &redis, &store).await;
        away.push((killed, Instant::now()));
    }
    more_calls(&load, 10 * WORKERS).await;
    let report = load.stop().await;
    let (served, failed) = (report.count("200"), report.count("500 internal_error"));
    eprintln!("{} kills: {report}", away.len());
    assert_eq!(served + failed, report.samples.len(), "clear errors only: {report}");
    assert!(failed > 0, "the kills were felt: {report}");
    for sample in report.samples.iter().filter(|sample| sample.outcome != "200") {
        let (from, to) = (sample.at, sample.at + sample.latency);
        let felt = away.iter().any(|(killed, back)| from < *back && to >= *killed);
        assert!(felt, "an error while the sidecar was up: {sample:?}");
        assert!(sample.latency < Duration::from_secs(2), "refused at once, not waited for: {sample:?}");
    }
    // The one of before the load was counted too; what was on its way at a kill may have been.
    let counted = key.now(&onlooker.client()).await.used_today as usize - 1;
    assert!((served..=served + away.len() * WORKERS).contains(&counted), "{counted} counted, {report}");
    assert_eq!(lookup.readiness().await, 200);
    assert!(!lookup.service.logs().contains("panic"));
}

/// A lookup-svc with the quota-svc of its pod.
struct Pod {
    lookup: Lookup,
    quota: Quota,
}

impl Pod {
    async fn start(store: &StoreChoice) -> Self {
        let quota =
            Quota::start_with(store.clone(), &[&GENEROUS[..], &["--drain-delay", "0s"]].concat()).await;
        quota.wait_ready(PATIENCE).await;
        let lookup = Lookup::start_patient(quota.url(), &[]).await;
        Self { lookup, quota }
    }

    fn url(&self) -> String {
        self.lookup.url() + "/api/v1/ip"
    }
}

/// What a Service of Kubernetes knows: the pods that are ready.
type Endpoints = Arc<Mutex<Vec<String>>>;

/// Ends a pod as Kubernetes does: lookup-svc first, its endpoint leaves a while after it said that it is not ready,
/// and the sidecar goes when lookup-svc is gone.
async fn end_pod(mut pod: Pod, endpoints: &Endpoints, load: &Load) {
    pod.lookup.service.term();
    eventually(PATIENCE, "it says that it is not ready", async || {
        (pod.lookup.readiness().await == 503).then_some(())
    })
    .await;
    // The news takes its time: until then clients are sent here, and must be served.
    more_calls(load, 4 * WORKERS).await;
    endpoints.lock().unwrap().retain(|url| *url != pod.url());
    let ended = pod.lookup.service.wait_exit(PATIENCE).await;
    assert_eq!(ended.code(), Some(0), "{}", pod.lookup.service.logs());
    pod.quota.service.term();
    let ended = pod.quota.service.wait_exit(PATIENCE).await;
    assert_eq!(ended.code(), Some(0), "{}", pod.quota.service.logs());
}

#[tokio::test]
async fn pods_that_are_rolled_under_load_fail_not_one_request() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let mut pods = vec![Pod::start(&store).await, Pod::start(&store).await];
    let key = pods[0].quota.new_key().await;
    let endpoints: Endpoints = Arc::new(Mutex::new(pods.iter().map(Pod::url).collect()));
    let (http, secret, known) = (e2e::http::client(), key.secret.clone(), endpoints.clone());
    let turn = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let load = Load::http(WORKERS, move || {
        let ready = known.lock().unwrap();
        let next = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % ready.len();
        http.get(&ready[next]).bearer_auth(&secret)
    });
    more_calls(&load, 10 * WORKERS).await;
    for _ in 0..2 {
        let new = Pod::start(&store).await;
        endpoints.lock().unwrap().push(new.url());
        pods.push(new);
        more_calls(&load, 4 * WORKERS).await;
        end_pod(pods.remove(0), &endpoints, &load).await;
    }
    more_calls(&load, 10 * WORKERS).await;
    let report = load.stop().await;
    eprintln!("{report}");
    assert_eq!(report.count("200"), report.samples.len(), "{report}");
    let counted = key.now(&pods[0].quota.client()).await.used_today as usize;
    assert_eq!(counted, report.samples.len(), "each counted once");
}

#[tokio::test]
async fn sigterm_under_load_lets_what_is_under_way_finish_and_ends_in_time() {
    let stack = Stack::start(&GENEROUS[..4], &[]).await;
    let key = stack.key(Scope::Full).await;
    let proxy = FaultProxy::start(stack.quota.addr());
    let (drain, grace) = (Duration::from_millis(500), Duration::from_secs(15));
    let flags = ["--drain-delay", "500ms", "--grace", "15s"];
    let mut lookup = Lookup::start_patient(&format!("http://{}", proxy.addr()), &flags).await;
    // Warm keep-alive connections, one for each worker.
    let load = Load::http(WORKERS, lookup.asking(&key.secret));
    more_calls(&load, 10 * WORKERS).await;
    // Every answer now takes longer than new connections are taken after the signal.
    proxy.set(Fault::Delay(3 * drain));
    let asked = proxy.requested();
    eventually(PATIENCE, "charges are under way", async || (proxy.requested() > asked).then_some(())).await;
    let term = Instant::now();
    lookup.service.term();
    let status = lookup.service.wait_exit(drain + grace).await;
    let took = term.elapsed();
    let report = load.stop().await;
    let before: HashSet<_> =
        report.samples.iter().filter(|s| s.at < term).map(|s| s.outcome.as_str()).collect();
    let finished = report.samples.iter().filter(|s| s.at < term && s.at + s.latency > term + drain).count();
    eprintln!("ended after {took:?}; {finished} requests finished after it took no more; {report}");
    assert_eq!(status.code(), Some(0), "{}", lookup.service.logs());
    assert_eq!(before, HashSet::from(["200"]), "{report}");
    assert!(finished > 0, "some were under way when the listener closed: {report}");
    assert!(took >= drain, "it goes on accepting meanwhile: {took:?}");
}

#[tokio::test]
async fn a_second_sigterm_ends_it_at_once_whatever_is_under_way() {
    let stack = Stack::start(&GENEROUS[..4], &[]).await;
    let key = stack.key(Scope::Full).await;
    let proxy = FaultProxy::start(stack.quota.addr());
    // With the delay and the grace as they are shipped: 5 s and 25 s.
    let mut lookup = Lookup::start_patient(&format!("http://{}", proxy.addr()), &[]).await;
    let load = Load::http(WORKERS, lookup.asking(&key.secret));
    more_calls(&load, 4 * WORKERS).await;
    proxy.set(Fault::Stall);
    lookup.service.term();
    eventually(PATIENCE, "the first signal is understood", async || {
        lookup.service.logs().contains("a second signal ends at once").then_some(())
    })
    .await;
    assert!(lookup.service.is_running(), "requests are under way");
    let second = Instant::now();
    lookup.service.term();
    let status = lookup.service.wait_exit(Duration::from_secs(3)).await;
    eprintln!("ended {:?} after the second signal", second.elapsed());
    assert_eq!(status.code(), Some(1), "not a clean stop, and it says so");
    assert!(lookup.service.logs().contains("second signal: ending at once"), "{}", lookup.service.logs());
    let report = load.stop().await;
    assert!(report.count("200") < report.samples.len(), "what was under way is lost: {report}");
}
