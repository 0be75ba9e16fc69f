//! Three pairs of lookup-svc and quota-svc on a Redis Cluster that loses a master under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::cluster::RedisCluster;
use testkit::loadgen::{Load, Report};
use testkit::lookup::{JsonResponse, Lookup};
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::wait::{SLACK, eventually, eventually_ok};

const PAIRS: usize = 3;
/// Workers per key. It is also the maximum number of a key's charges in flight.
const WORKERS: usize = 2;
const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Consecutive 200s, over all pairs, that count as recovered.
const CONSECUTIVE: usize = 12;

/// Sends requests to the pairs in turn. The outcome is the status and the error code.
fn start_load(lookups: &[Lookup], key: &TestKey) -> Load {
    let requests: Arc<Vec<_>> =
        Arc::new(lookups.iter().map(|lookup| lookup.ip_requests(&key.secret)).collect());
    let turn = Arc::new(AtomicUsize::new(0));
    Load::start(WORKERS, move || {
        let request = requests[turn.fetch_add(1, Ordering::Relaxed) % requests.len()]();
        async move {
            let response = JsonResponse::fetch(request).await;
            format!("{} {}", response.status, response.error_code()).trim_end().to_owned()
        }
    })
}

async fn more_calls(load: &Load, count: usize) {
    let wanted = load.completed() + count;
    eventually(WAIT_TIMEOUT, "more calls", async || (load.completed() >= wanted).then_some(())).await;
}

/// Waits until all pairs serve the key reliably. Returns the number of served and failed requests.
async fn wait_recovered(lookups: &[Lookup], key: &TestKey) -> (usize, usize) {
    let (mut served, mut failed) = (0, 0);
    eventually_ok(WAIT_TIMEOUT, "key is served again", async || {
        for i in 0..CONSECUTIVE {
            let response = JsonResponse::fetch(lookups[i % lookups.len()].get_ip(&key.secret)).await;
            if response.status != 200 {
                failed += 1;
                return Err(format!("{response:?}"));
            }
            served += 1;
        }
        Ok(())
    })
    .await;
    (served, failed)
}

fn check_responses(report: &Report) {
    let expected = report.count("200") + report.count("500 internal_error");
    assert_eq!(expected, report.samples.len(), "only 200 and 500: {report}");
    assert!(report.slowest() < REQUEST_TIMEOUT + SLACK, "no request hangs: {report}");
}

/// Checks the daily count of the key. At most `lost` of the served requests may be missing in it. Failed requests
/// may be counted: their charge may have been written before the error.
async fn check_count(quota: &Quota, key: &TestKey, (served, failed): (usize, usize), lost: usize) {
    // Retries, because reads use another connection than charges: the first read after the failover may fail.
    let client = quota.client();
    let read = async || client.key(&key.key.id, None).await;
    let counted = eventually_ok(WAIT_TIMEOUT, "key can be read", read).await.key.used_today as usize;
    eprintln!("{counted} counted, {served} served, {failed} failed");
    assert!(counted + lost >= served, "{counted} counted, {served} served");
    assert!(counted <= served + failed, "{counted} counted, {served} served, {failed} failed");
}

fn served_and_failed(report: &Report) -> (usize, usize) {
    let served = report.count("200");
    (served, report.samples.len() - served)
}

#[tokio::test]
async fn lost_cluster_master_gets_500_then_recovers() {
    let mut cluster = RedisCluster::start(3, 1).await;
    for node in &cluster.nodes {
        // With the default, `yes`, the whole cluster stops when one master is down.
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let store = StoreChoice::from(&cluster);
    let (mut quotas, mut lookups) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let quota = Quota::start_with(store.clone(), &HIGH_LIMITS).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        lookups.push(Lookup::start(quota.url(), &[]).await);
        quotas.push(quota);
    }
    let keys = quotas[0].key_on_each_master(&cluster).await;
    let record = keys[0].record(&cluster.nodes).await;
    let loads = keys.each_ref().map(|key| start_load(&lookups, key));
    for load in &loads {
        more_calls(load, 50).await;
    }
    cluster.nodes[0].stop();
    let killed = Instant::now();
    // Node 3 is the replica of node 0.
    eventually(WAIT_TIMEOUT, "replica is promoted", async || {
        (cluster.master_of(&record).await == 3).then_some(())
    })
    .await;
    let promoted = killed.elapsed();
    let probes = wait_recovered(&lookups, &keys[0]).await;
    let recovered = killed.elapsed();
    for load in &loads {
        more_calls(load, 50).await;
    }
    let [affected, others @ ..] = loads;
    let affected = affected.stop().await;
    let outage = affected.between(killed, killed + recovered);
    eprintln!("promoted after {promoted:?}, recovered after {recovered:?}; during the outage {outage}");
    check_responses(&affected);
    assert!(outage.count("500 internal_error") > 0, "expected errors after the kill: {outage}");
    for (load, key) in others.into_iter().zip(&keys[1..]) {
        let report = load.stop().await;
        eprintln!("on another master: {report}");
        check_responses(&report);
        let during_outage = report.between(killed, killed + recovered);
        assert!(during_outage.count("200") > 0, "other masters keep serving: {during_outage}");
        check_count(&quotas[1], key, served_and_failed(&report), 0).await;
    }
    // Replication is asynchronous: charges that the dead master had not replicated yet are lost.
    let (served, failed) = served_and_failed(&affected);
    check_count(&quotas[1], &keys[0], (served + probes.0, failed + probes.1), WORKERS).await;
    cluster.nodes[0].restart().await;
    cluster.wait_healthy().await;
    for key in &keys {
        wait_recovered(&lookups, key).await;
    }
    for (quota, lookup) in quotas.iter_mut().zip(&lookups) {
        quota.wait_ready(WAIT_TIMEOUT).await;
        assert!(!quota.service.logs().contains("panic") && !lookup.service.logs().contains("panic"));
    }
}
