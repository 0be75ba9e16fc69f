//! Replaces the chart's pods one by one under load, with SIGTERM and the chart's grace period: no request fails, and each is counted once.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::chart::pod::Pod;
use e2e::chart::release::{create_key, get, render, start_store};
use e2e::chart::venv_tool;
use testkit::http;
use testkit::loadgen::Load;
use testkit::lookup::WAIT_TIMEOUT;
use testkit::tools::{require_tool, require_valkey};
use testkit::wait::eventually_ok;

const DAILY_LIMIT: usize = 10_000_000;

#[tokio::test]
async fn rolling_restart_fails_no_request() {
    replace_pods("quota.nativeSidecar=true", 2).await;
}

/// As a plain container, quota-svc gets SIGTERM together with lookup-svc. It must keep serving until lookup-svc has
/// finished its last request.
#[tokio::test]
async fn slow_rolling_restart_with_plain_sidecar_fails_no_request() {
    replace_pods("quota.nativeSidecar=false", 1).await;
}

/// Replaces `count` of two pods as Kubernetes does (starts a new one, then stops an old one) while four clients send
/// requests.
async fn replace_pods(values: &str, count: usize) {
    if !require_tool("redis-cli") || require_valkey().is_none() || venv_tool("helm").is_none() {
        return;
    }
    let limits = format!("quota.dailyLimit={DAILY_LIMIT},quota.burstLimit=60000");
    let chart = render(&["--set", values, "--set", &limits]);
    let workload = chart.object("Deployment", "-lookup-svc").clone();
    let grace = Duration::from_secs(
        workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap(),
    );
    let (_valkey, services) = start_store(&chart).await;
    let dashboard = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;
    let key = create_key(&dashboard);
    let mut pods =
        vec![Pod::start(&chart, &workload, &services).await, Pod::start(&chart, &workload, &services).await];
    // The addresses that kube-proxy would have: those of the ready pods, updated with a delay.
    let endpoints = Arc::new(Mutex::new(pods.iter().map(|pod| pod.addr(8080)).collect::<Vec<_>>()));
    let (client, turn) = (http::client(), Arc::new(AtomicUsize::new(0)));
    let load = {
        let (endpoints, client, key) = (endpoints.clone(), client.clone(), key.clone());
        Load::http(4, move || {
            let ready = endpoints.lock().unwrap();
            let next = turn.fetch_add(1, Ordering::Relaxed);
            client.get(format!("http://{}/api/v1/ip", ready[next % ready.len()])).bearer_auth(&key)
        })
    };
    for _ in 0..count {
        let new = Pod::start(&chart, &workload, &services).await;
        endpoints.lock().unwrap().push(new.addr(8080));
        let mut old = pods.remove(0);
        let (addr, admin) = (old.addr(8080), old.addr(9080));
        let stop = async { old.stop(grace).await };
        let remove = async {
            // The Service sends requests to the pod until its readiness probe fails, and a little longer, but less than the
            // pod's drain delay: so few requests that a slow machine completes them in that time.
            eventually_ok(WAIT_TIMEOUT, "the stopping pod is not ready", async || {
                let status = get(format!("http://{admin}/readyz")).await.0;
                if status == 503 { Ok(()) } else { Err(status) }
            })
            .await;
            let before = load.completed();
            eventually_ok(WAIT_TIMEOUT, "30 more requests", async || {
                let more = load.completed() - before;
                if more > 30 { Ok(()) } else { Err(more) }
            })
            .await;
            endpoints.lock().unwrap().retain(|endpoint| *endpoint != addr);
        };
        tokio::join!(stop, remove);
        pods.push(new);
    }
    let report = load.stop().await;
    assert_eq!(report.count("200"), report.samples.len(), "{report}");
    assert!(report.samples.len() > 30 * count, "{report}");
    let last = client.get(format!("http://{}/api/v1/ip", pods[0].addr(8080))).bearer_auth(&key);
    let last = last.send().await.unwrap();
    let remaining = last.headers()["x-ratelimit-remaining"].to_str().unwrap().parse::<usize>().unwrap();
    assert_eq!(remaining, DAILY_LIMIT - report.samples.len() - 1, "each request is counted once");
}
