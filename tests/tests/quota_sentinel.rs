//! A Sentinel failover under load: clear errors for its seconds, then right again by itself.

use std::time::{Duration, Instant};

use e2e::loadgen::Load;
use e2e::quota::{Quota, outcome_of};
use e2e::sentinel::Sentinel;
use e2e::wait::eventually_ok;

const PATIENCE: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_millis(250);
const SLACK: Duration = Duration::from_millis(350);
const PACE: Duration = Duration::from_millis(4);

#[tokio::test]
async fn load_a_sentinel_failover_costs_clear_errors_for_its_seconds_and_ends_by_itself() {
    let mut set = Sentinel::start().await;
    let flags = ["--burst-limit", "60000", "--daily-limit", "1000000"];
    let mut quota = Quota::start_with(&set, &flags).await;
    quota.wait_ready(PATIENCE).await;
    let key = quota.new_key().await;
    let (client, batch) = (quota.client(), key.charges(1));
    let load = Load::start(8, move || {
        let (client, batch) = (client.clone(), batch.clone());
        async move {
            let outcome = outcome_of(&client.charge(&batch).await);
            tokio::time::sleep(PACE).await;
            outcome
        }
    });
    eventually_ok(PATIENCE, "calls", async || (load.completed() > 300).then_some(()).ok_or("too few")).await;
    let killed = Instant::now();
    set.servers[0].stop();
    set.wait_master(1).await;
    let promoted = Instant::now();
    let client = quota.client();
    eventually_ok(Duration::from_secs(2), "charges are allowed again", async || {
        match outcome_of(&client.charge(&key.charges(1)).await).as_str() {
            "Allowed" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    let back = Instant::now();
    eprintln!(
        "allowed again {:?} after the kill, {:?} after all agreed on the new master",
        back - killed,
        back - promoted
    );
    eventually_ok(PATIENCE, "calls afterwards", async || {
        (load.completed() > 1_000).then_some(()).ok_or("too few")
    })
    .await;
    let report = load.stop().await;
    eprintln!("{report}");
    assert!(report.outcomes().keys().all(|o| ["Allowed", "Unavailable"].contains(o)), "{report}");
    assert!(report.count("Unavailable") > 0 && report.slowest() < DEADLINE + SLACK, "{report}");
    let late = report.between(back + Duration::from_secs(2), Instant::now());
    assert_eq!(late.count("Unavailable"), 0, "{late}");
    // Replication is asynchronous: what the dead master had allowed in its last moment may be lost, nothing older.
    let read = async || client.key(&key.key.id, None).await;
    let used = eventually_ok(PATIENCE, "the key can be read", read).await.used_today as usize;
    let last_second = report.between(killed.checked_sub(Duration::from_secs(1)).unwrap(), killed + SLACK);
    let (allowed, may_be_lost) = (report.count("Allowed"), last_second.count("Allowed"));
    eprintln!("{allowed} allowed, {used} counted; at most {may_be_lost} might have been lost");
    assert!(used + may_be_lost >= allowed && used <= report.samples.len() + 500, "{used} of {allowed}");
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}
