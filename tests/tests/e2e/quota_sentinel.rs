//! During a Sentinel failover, charges fail with a clear error. Afterward they succeed again without intervention.

use std::time::{Duration, Instant};

use testkit::loadgen::Load;
use testkit::quota::{Quota, first_outcome};
use testkit::sentinel::SentinelSet;
use testkit::wait::{SLACK, eventually_ok};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time of a charge in quota-svc (`--store-timeout`).
const STORE_TIMEOUT: Duration = Duration::from_millis(250);
/// Delay between two calls of a worker. Without it, immediate errors would make the workers use all of the CPU.
const PACE: Duration = Duration::from_millis(4);

#[tokio::test]
async fn load_sentinel_failover_gives_unavailable_and_recovers() {
    let mut set = SentinelSet::start().await;
    let flags = ["--burst-limit", "60000", "--daily-limit", "1000000"];
    let mut quota = Quota::start_with(&set, &flags).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let key = quota.new_key().await;
    let (client, batch) = (quota.client(), key.charges(1));
    let load = Load::start(8, move || {
        let (client, batch) = (client.clone(), batch.clone());
        async move {
            let outcome = first_outcome(&client.charge(&batch).await);
            tokio::time::sleep(PACE).await;
            outcome
        }
    });
    eventually_ok(WAIT_TIMEOUT, "more than 300 calls", async || {
        (load.completed() > 300).then_some(()).ok_or("too few")
    })
    .await;
    let killed = Instant::now();
    set.servers[0].stop();
    set.wait_for_master(1).await;
    let promoted = Instant::now();
    let client = quota.client();
    eventually_ok(Duration::from_secs(2), "charges are allowed again", async || {
        match first_outcome(&client.charge(&key.charges(1)).await).as_str() {
            "Allowed" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    let recovered = Instant::now();
    eprintln!(
        "allowed again {:?} after the kill, {:?} after all sentinels agreed on the new master",
        recovered - killed,
        recovered - promoted
    );
    eventually_ok(WAIT_TIMEOUT, "more than 1,000 calls", async || {
        (load.completed() > 1_000).then_some(()).ok_or("too few")
    })
    .await;
    let report = load.stop().await;
    eprintln!("{report}");
    assert!(report.outcomes().keys().all(|o| ["Allowed", "Unavailable"].contains(o)), "{report}");
    assert!(report.count("Unavailable") > 0 && report.slowest() < STORE_TIMEOUT + SLACK, "{report}");
    let late = report.between(recovered + Duration::from_secs(2), Instant::now());
    assert_eq!(late.count("Unavailable"), 0, "{late}");
    // Lower bound: replication is asynchronous, so the charges of the old master's last second may be lost, but no older
    // ones. Upper bound: the recovery check also sent charges, at most 500 of them, and the report does not contain these.
    let read = async || client.key(&key.key.id, None).await;
    let used = eventually_ok(WAIT_TIMEOUT, "the key can be read", read).await.key.used_today as usize;
    let last_second =
        report.between(killed.checked_sub(Duration::from_secs(1)).unwrap(), killed + 2 * STORE_TIMEOUT);
    let (allowed, may_be_lost) = (report.count("Allowed"), last_second.count("Allowed"));
    eprintln!("{allowed} allowed, {used} counted; at most {may_be_lost} might have been lost");
    assert!(
        used + may_be_lost >= allowed && used <= report.samples.len() + 500,
        "{allowed} allowed, {used} counted"
    );
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn sentinels_with_a_password_need_the_flag() {
    let set = SentinelSet::start_with_password("sentinel-secret").await;
    let file = set.sentinels[0].dir().join("password");
    std::fs::write(&file, "sentinel-secret\n").expect("temporary directory is writable");
    let flags = ["--redis-sentinel-password-file", file.to_str().expect("valid path")];
    let quota = Quota::start_with(&set, &flags).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    quota.new_key().await;
    let without = Quota::start(&set).await;
    eventually_ok(WAIT_TIMEOUT, "the log names the reason", async || {
        let logs = without.service.logs();
        if logs.contains("can't connect to the store") && logs.contains("NOAUTH") {
            Ok(())
        } else {
            Err(logs)
        }
    })
    .await;
    assert_eq!(without.readiness().await.0, 503);
}
