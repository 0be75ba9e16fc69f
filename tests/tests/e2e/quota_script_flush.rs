//! SCRIPT FLUSH, which makes Redis forget the charge script, fails no charge under load.

use std::time::{Duration, Instant};

use testkit::loadgen::Load;
use testkit::quota::{Quota, first_outcome};
use testkit::redis::Redis;

#[tokio::test]
async fn script_flush_under_load_fails_no_charge() {
    let redis = Redis::start().await;
    // A long timeout: a slow machine must not make charges fail here.
    let flags = ["--burst-limit", "60000", "--daily-limit", "1000000", "--store-timeout", "5s"];
    let quota = Quota::start_with(&redis, &flags).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    let key = quota.new_key().await;
    let (client, batch) = (quota.client(), key.charges(3));
    let load = Load::start(8, move || {
        let (client, batch) = (client.clone(), batch.clone());
        async move { first_outcome(&client.charge(&batch).await) }
    });
    let (start, mut flushes) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(1500) || flushes < 20 {
        redis.cli(&["SCRIPT", "FLUSH"]).await;
        flushes += 1;
    }
    let report = load.stop().await;
    eprintln!("{flushes} flushes: {report}");
    assert_eq!(report.count("Allowed"), report.samples.len(), "{report}");
    assert!(report.samples.len() > 100, "{report}");
    assert_eq!(key.fetch(&quota.client()).await.used_today as usize, 3 * report.samples.len());
}
