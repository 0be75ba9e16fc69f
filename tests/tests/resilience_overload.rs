//! Ten times what the service can do, whether or not it answers (F14): it goes on doing what it can, refuses the rest
//! at once, and nothing piles up.
//!
//! On one machine the load's own processor time would be the limit, so the capacity is made small and known instead:
//! quota-svc's answers take a while, one charge travels at a time, and the queue is short in the same measure: about
//! a tenth of a second of work, which 4,096 charges are at 40,000 a second.

use std::time::{Duration, Instant};

use e2e::fault_proxy::{Fault, FaultProxy};
use e2e::loadgen::{Load, Report, Sample};
use e2e::lookup::{Answer, Lookup, Stack};
use quota_client::wire::Scope;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

const GENEROUS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
/// What a charge takes; so at most 50 a second.
const SERVICE_TIME: Duration = Duration::from_millis(20);
/// Four charges that wait, a tenth of a second.
const NARROW: [&str; 6] = ["--quota-in-flight", "1", "--quota-batch", "1", "--quota-queue", "4"];
const SPAN: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(10);

/// The status, and the code where it is an error.
async fn outcome(request: reqwest::RequestBuilder) -> String {
    let answer = Answer::of(request).await;
    format!("{} {}", answer.status, answer.error()).trim_end().to_owned()
}

/// As much as it can do: a few clients that wait for their answers.
async fn peak(lookup: &Lookup, key: &str) -> f64 {
    let asking = lookup.asking(key);
    let (load, started) = (Load::start(4, move || outcome(asking())), Instant::now());
    // Time itself is what is measured against.
    sleep(SPAN).await;
    let report = load.stop().await;
    assert_eq!(report.count("200"), report.samples.len(), "within its capacity: {report}");
    report.samples.len() as f64 / started.elapsed().as_secs_f64()
}

/// Asks `rate` times a second for a while, whatever comes back, and waits for the last answer.
async fn open_loop(lookup: &Lookup, key: &str, rate: f64) -> (Report, f64) {
    let (asking, started) = (lookup.asking(key), Instant::now());
    let (mut calls, mut tick) = (JoinSet::new(), interval(TICK));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while started.elapsed() < SPAN {
        tick.tick().await;
        // By the clock and not by the ticks: a late tick is made up for.
        while (calls.len() as f64) < rate * started.elapsed().as_secs_f64() {
            let request = asking();
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

fn only(report: &Report, outcome: &str) -> Report {
    Report { samples: report.samples.iter().filter(|s| s.outcome == outcome).cloned().collect() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_of_ten_times_the_capacity_is_served_as_far_as_it_goes_and_refused_beyond_at_once() {
    let stack = Stack::start(&GENEROUS, &[]).await;
    let key = stack.key(Scope::Full).await;
    let proxy = FaultProxy::start(stack.quota.addr());
    proxy.set(Fault::Delay(SERVICE_TIME));
    // With the deadlines as they are shipped.
    let lookup = Lookup::start(&format!("http://{}", proxy.addr()), &NARROW).await;
    let peak = peak(&lookup, &key.secret).await;
    let before = lookup.service.rss();
    let (report, took) = open_loop(&lookup, &key.secret, 10.0 * peak).await;
    let grown = lookup.service.peak_rss().saturating_sub(before);
    let (served, refused) = (only(&report, "200"), only(&report, "500 internal_error"));
    let goodput = served.samples.len() as f64 / took;
    let offered = report.samples.len() as f64 / SPAN.as_secs_f64();
    eprintln!("peak {peak:.0}/s, offered {offered:.0}/s, goodput {goodput:.0}/s, {grown} bytes more");
    eprintln!("served: {served}\nrefused: {refused}");
    assert_eq!(served.samples.len() + refused.samples.len(), report.samples.len(), "{report}");
    assert!(offered >= 8.0 * peak, "the load was one: {offered:.0}/s to {peak:.0}/s");
    assert!(goodput >= 0.9 * peak, "{goodput:.0}/s of {peak:.0}/s");
    assert!(served.percentile(0.99) < Duration::from_millis(250), "{served}");
    assert!(refused.percentile(0.5) < Duration::from_millis(50), "refused at once: {refused}");
    assert!(report.slowest() < Duration::from_secs(1), "none hangs: {report}");
    assert!(grown < 20 * 1024 * 1024, "{grown} bytes more");
    // Afterwards it is as before.
    assert_eq!(Answer::of(lookup.ask(&key.secret)).await.status, 200);
    let counted = key.now(&stack.quota.client()).await.used_today as usize;
    assert!(counted > served.samples.len(), "what was served is counted");
    assert!(!lookup.service.logs().contains("panic"));
}
