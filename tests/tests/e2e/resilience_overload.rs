//! Ten times the requests that can be served: the excess fails at once, the others are served, and memory does not grow.

use quota_client::wire::Scope;
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::lookup::{JsonResponse, Lookup, Stack};
use tokio::task::JoinSet;

const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
/// One charge in flight and four queued.
const SMALL_QUEUE: [&str; 6] = ["--quota-in-flight", "1", "--quota-batch", "1", "--quota-queue", "4"];
const CAPACITY: usize = 5;
const ROUNDS: usize = 40;

/// The status, and the error code if there is one.
async fn outcome(request: reqwest::RequestBuilder) -> String {
    let response = JsonResponse::fetch(request).await;
    format!("{} {}", response.status, response.error_code()).trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_the_capacity_fail_at_once_and_the_others_are_served() {
    let stack = Stack::start(&HIGH_LIMITS, &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let proxy = FaultProxy::start(stack.quota.addr());
    // Not the lookup-svc of the stack: this one uses the proxy.
    let url = format!("http://{}", proxy.addr());
    let lookup = Lookup::start_with_long_timeouts(&url, &SMALL_QUEUE).await;
    let next_request = lookup.ip_requests(&key.secret);
    assert_eq!(outcome(next_request()).await, "200");
    let before = lookup.service.rss();
    let mut served = 1;
    for round in 0..ROUNDS {
        // quota-svc gets no charge until all excess requests have their response, so these did not wait for it.
        proxy.set(Fault::Stall);
        let mut requests = JoinSet::new();
        for _ in 0..10 * CAPACITY {
            requests.spawn(outcome(next_request()));
        }
        for _ in 0..9 * CAPACITY {
            let outcome = requests.join_next().await.expect("a request").expect("no panic");
            assert_eq!(outcome, "500 internal_error", "round {round}");
        }
        proxy.set(Fault::None);
        // One charge less is served if the queue was full before its first charge was taken out. Never less than that:
        // no overload has taken a place for good.
        let last = requests.join_all().await;
        let count = last.iter().filter(|outcome| *outcome == "200").count();
        assert!(count >= CAPACITY - 1, "round {round}: {last:?}");
        served += count;
    }
    let growth = lookup.service.peak_rss().saturating_sub(before);
    assert!(growth < 20 * 1024 * 1024, "memory grew by {growth} bytes");
    let counted = key.fetch(&stack.quota.client()).await.used_today as usize;
    assert_eq!(counted, served, "only served requests are counted");
    assert!(!lookup.service.logs().contains("panic"));
}
