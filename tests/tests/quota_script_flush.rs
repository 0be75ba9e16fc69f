//! SCRIPT FLUSH under load: nobody notices.

use std::time::{Duration, Instant};

use e2e::loadgen::Load;
use e2e::quota::{Quota, outcome_of};
use e2e::redis::Redis;

#[tokio::test]
async fn load_scripts_that_redis_forgets_under_load_are_noticed_by_nobody() {
    let redis = Redis::start().await;
    // A busy machine may be slow; what is judged here is that nothing is lost.
    let flags = ["--burst-limit", "60000", "--daily-limit", "1000000", "--store-timeout", "5s"];
    let quota = Quota::start_with(&redis, &flags).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    let key = quota.new_key().await;
    let (client, batch) = (quota.client(), key.charges(3));
    let load = Load::start(8, move || {
        let (client, batch) = (client.clone(), batch.clone());
        async move { outcome_of(&client.charge(&batch).await) }
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
    assert_eq!(key.now(&quota.client()).await.used_today as usize, 3 * report.samples.len());
}
