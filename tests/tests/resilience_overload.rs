//! Open-loop load (requests are sent without waiting for responses) of ten times the capacity: throughput stays at its
//! peak, excess requests fail immediately, and memory does not grow.
//!
//! On one machine the CPU time of the load generator would be the limit. So the capacity is small and known: every
//! response of quota-svc is delayed, one charge is in flight at a time, and the queue is scaled down to match. It holds
//! about 0.1 s of work, like the default of 4,096 charges at 40,000 per second.

use std::time::{Duration, Instant};

use quota_client::wire::Scope;
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::loadgen::{Load, Report, Sample};
use testkit::lookup::{JsonResponse, Lookup, Stack};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
/// Duration of a charge, so at most 50 per second.
const SERVICE_TIME: Duration = Duration::from_millis(20);
/// At most four queued charges: about 0.1 s of work.
const SMALL_QUEUE: [&str; 6] = ["--quota-in-flight", "1", "--quota-batch", "1", "--quota-queue", "4"];
const DURATION: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(10);

/// The status, and the error code if there is one.
async fn outcome(request: reqwest::RequestBuilder) -> String {
    let response = JsonResponse::fetch(request).await;
    format!("{} {}", response.status, response.error_code()).trim_end().to_owned()
}

/// Measures the capacity in requests per second, with a few clients that wait for their responses.
async fn measure_peak(lookup: &Lookup, key: &str) -> f64 {
    let next_request = lookup.ip_requests(key);
    let (load, started) = (Load::start(4, move || outcome(next_request())), Instant::now());
    // Sleeps, because it measures throughput over time.
    sleep(DURATION).await;
    let report = load.stop().await;
    assert_eq!(report.count("200"), report.samples.len(), "all served within the capacity: {report}");
    report.samples.len() as f64 / started.elapsed().as_secs_f64()
}

/// Sends `rate` requests per second without waiting for responses, then waits for the last response. Returns the report
/// and the elapsed seconds.
async fn open_loop(lookup: &Lookup, key: &str, rate: f64) -> (Report, f64) {
    let (next_request, started) = (lookup.ip_requests(key), Instant::now());
    let (mut calls, mut tick) = (JoinSet::new(), interval(TICK));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while started.elapsed() < DURATION {
        tick.tick().await;
        // Counts by the clock, not by ticks, to catch up after a late tick.
        while (calls.len() as f64) < rate * started.elapsed().as_secs_f64() {
            let request = next_request();
            calls.spawn(async move {
                let at = Instant::now();
                let outcome = outcome(request).await;
                Sample { at, latency: at.elapsed(), outcome }
            });
        }
    }
    let samples = calls.join_all().await;
    (Report { samples }, started.elapsed().as_secs_f64())
}

fn with_outcome(report: &Report, outcome: &str) -> Report {
    Report { samples: report.samples.iter().filter(|s| s.outcome == outcome).cloned().collect() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_at_ten_times_capacity_keeps_peak_throughput() {
    let stack = Stack::start(&HIGH_LIMITS, &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let proxy = FaultProxy::start(stack.quota.addr());
    proxy.set(Fault::Delay(SERVICE_TIME));
    // Not the lookup-svc of the stack: this one uses the proxy and has the default deadlines.
    let lookup = Lookup::start(&format!("http://{}", proxy.addr()), &SMALL_QUEUE).await;
    let peak = measure_peak(&lookup, &key.secret).await;
    let before = lookup.service.rss();
    let (report, took) = open_loop(&lookup, &key.secret, 10.0 * peak).await;
    let growth = lookup.service.peak_rss().saturating_sub(before);
    let (served, failed) = (with_outcome(&report, "200"), with_outcome(&report, "500 internal_error"));
    let goodput = served.samples.len() as f64 / took;
    let offered = report.samples.len() as f64 / DURATION.as_secs_f64();
    eprintln!(
        "peak {peak:.0}/s, offered {offered:.0}/s, goodput {goodput:.0}/s, memory grew by {growth} bytes"
    );
    eprintln!("served: {served}\nfailed: {failed}");
    assert_eq!(served.samples.len() + failed.samples.len(), report.samples.len(), "{report}");
    assert!(offered >= 8.0 * peak, "the load was too low: {offered:.0}/s at a capacity of {peak:.0}/s");
    assert!(goodput >= 0.9 * peak, "{goodput:.0}/s of {peak:.0}/s");
    assert!(served.percentile(0.99) < Duration::from_millis(250), "{served}");
    assert!(failed.percentile(0.5) < Duration::from_millis(50), "fails immediately: {failed}");
    assert!(report.slowest() < Duration::from_secs(1), "no request hangs: {report}");
    assert!(growth < 20 * 1024 * 1024, "memory grew by {growth} bytes");
    // Recovers after the overload.
    assert_eq!(JsonResponse::fetch(lookup.get_ip(&key.secret)).await.status, 200);
    let counted = key.fetch(&stack.quota.client()).await.used_today as usize;
    assert!(counted > served.samples.len(), "all served requests are counted");
    assert!(!lookup.service.logs().contains("panic"));
}
