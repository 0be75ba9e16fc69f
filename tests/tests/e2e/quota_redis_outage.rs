//! Redis is killed, is frozen, or is unreachable when quota-svc starts: errors arrive within the deadline, every
//! allowed charge is counted, and the recovery is automatic.

use std::time::{Duration, Instant};

use quota_client::wire::{Charge, NewAccount, Outcome};
use testkit::loadgen::{Load, Report};
use testkit::quota::{Quota, TestKey, first_outcome};
use testkit::redis::Redis;
use testkit::wait::{SLACK, eventually_ok};

/// Maximum time of a charge in quota-svc (`--store-timeout`).
const STORE_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum time of a charge in lookup-svc, including the queue.
const CHARGER_DEADLINE: Duration = Duration::from_millis(400);

/// Charges must succeed again this soon after Redis is back.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Delay between two calls of a worker. Without it, immediate errors would make the workers use all of the CPU.
const PACE: Duration = Duration::from_millis(4);

const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "60000", "--daily-limit", "1000000"];

/// Half of the workers use the batching charger as lookup-svc does, half send single charges without a client deadline.
struct TwoLoads {
    direct: Load,
    batched: Load,
}

impl TwoLoads {
    fn start(quota: &Quota, key: &TestKey) -> Self {
        let (client, batch) = (quota.client(), key.charges(1));
        let direct = Load::start(8, move || {
            let (client, batch) = (client.clone(), batch.clone());
            async move {
                let outcome = first_outcome(&client.charge(&batch).await);
                tokio::time::sleep(PACE).await;
                outcome
            }
        });
        let (charger, charge) = (quota.charger(), key.charges(1)[0]);
        let batched = Load::start(8, move || {
            let charger = charger.clone();
            async move {
                let outcome = charger.charge(charge).await;
                tokio::time::sleep(PACE).await;
                outcome
                    .map_or_else(|error| format!("{error:?}"), |verdict| format!("{:?}", verdict.outcome()))
            }
        });
        Self { direct, batched }
    }

    async fn wait_for_more(&self, calls: usize) {
        let (direct, batched) = (self.direct.completed() + calls, self.batched.completed() + calls);
        eventually_ok(WAIT_TIMEOUT, "more calls", async || {
            let now = (self.direct.completed(), self.batched.completed());
            if now.0 >= direct && now.1 >= batched { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }

    async fn stop(self) -> (Report, Report) {
        let reports = (self.direct.stop().await, self.batched.stop().await);
        eprintln!("direct: {}\nbatched: {}", reports.0, reports.1);
        reports
    }
}

/// Checks that there are only expected outcomes, all within the deadline.
fn check_outcomes(direct: &Report, batched: &Report) {
    assert!(direct.outcomes().keys().all(|o| ["Allowed", "Unavailable"].contains(o)), "{direct}");
    assert!(direct.slowest() < STORE_TIMEOUT + SLACK, "{direct}");
    let expected = ["Allowed", "Unavailable", "TimedOut"];
    assert!(batched.outcomes().keys().all(|o| expected.contains(o)), "{batched}");
    assert!(batched.slowest() < CHARGER_DEADLINE + SLACK, "{batched}");
}

/// The count is at least the allowed charges and at most the sent ones.
async fn check_count(quota: &Quota, key: &TestKey, (direct, batched): (&Report, &Report)) {
    let allowed = direct.count("Allowed") + batched.count("Allowed");
    let sent = direct.samples.len() + batched.samples.len();
    // Reading a key uses another connection than charging it. That connection may recover slightly later.
    let client = quota.client();
    let read = async || client.key(&key.key.id, None).await;
    let used = eventually_ok(RECOVERY_TIMEOUT, "the key can be read", read).await.key.used_today as usize;
    assert!((allowed..=sent).contains(&used), "{allowed} allowed, {sent} sent, {used} counted");
}

async fn wait_allowed(quota: &Quota, key: &TestKey) {
    let client = quota.client();
    eventually_ok(WAIT_TIMEOUT, "charges are allowed again", async || {
        match first_outcome(&client.charge(&key.charges(1)).await).as_str() {
            "Allowed" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
}

#[tokio::test]
async fn load_charges_recover_within_2_s_of_redis_restart() {
    let mut redis = Redis::options().appendonly().start().await;
    let mut quota = Quota::start_with(&redis, &HIGH_LIMITS).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let key = quota.new_key().await;
    let loads = TwoLoads::start(&quota, &key);
    loads.wait_for_more(200).await;
    redis.stop();
    let killed = Instant::now();
    loads.wait_for_more(200).await;
    let (status, body) = quota.readiness().await;
    assert_eq!(status, 503, "{body}");
    assert!(quota.metric("quota_charges_total", "unavailable").await > 0.0);
    assert_eq!(quota.metric("quota_store_up", "").await, 0.0);
    redis.restart().await;
    let restarted = Instant::now();
    wait_allowed(&quota, &key).await;
    let took = restarted.elapsed();
    eprintln!("allowed again {took:?} after Redis was restarted, {:?} after it was killed", killed.elapsed());
    assert!(took < RECOVERY_TIMEOUT, "{took:?}");
    loads.wait_for_more(200).await;
    let (direct, batched) = loads.stop().await;
    check_outcomes(&direct, &batched);
    assert!(
        direct.count("Unavailable") > 0 && batched.count("Unavailable") > 0,
        "the outage affected both loads"
    );
    let late = direct.between(restarted + RECOVERY_TIMEOUT, Instant::now());
    assert_eq!(late.count("Unavailable"), 0, "{late}");
    check_count(&quota, &key, (&direct, &batched)).await;
    quota.wait_ready(RECOVERY_TIMEOUT).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn load_frozen_redis_delays_no_charge_beyond_its_deadline() {
    let redis = Redis::options().appendonly().start().await;
    let mut quota = Quota::start_with(&redis, &HIGH_LIMITS).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let key = quota.new_key().await;
    let loads = TwoLoads::start(&quota, &key);
    loads.wait_for_more(300).await;
    let before = quota.service.rss();
    redis.freeze();
    let frozen = Instant::now();
    let mut peak = before;
    while frozen.elapsed() < Duration::from_secs(3) {
        loads.wait_for_more(20).await;
        peak = peak.max(quota.service.rss());
    }
    redis.thaw();
    let thawed = Instant::now();
    wait_allowed(&quota, &key).await;
    let took = thawed.elapsed();
    eprintln!("allowed again {took:?} after the thaw; memory {before} -> at most {peak} bytes");
    assert!(took < RECOVERY_TIMEOUT, "{took:?}");
    assert!(peak < before + (8 << 20), "{before} -> {peak} bytes");
    loads.wait_for_more(100).await;
    let (direct, batched) = loads.stop().await;
    check_outcomes(&direct, &batched);
    assert!(direct.count("Unavailable") > 0, "the outage affected the load");
    check_count(&quota, &key, (&direct, &batched)).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn quota_svc_started_without_redis_is_not_ready_until_redis_starts() {
    let mut redis = Redis::start().await;
    redis.stop();
    let quota = Quota::start(&redis).await;
    let client = quota.client();
    let (status, body) = quota.readiness().await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("no connection to 127.0.0.1"), "{body}");
    let live = testkit::http::client().get(format!("{}/livez", quota.admin_url())).send().await.unwrap();
    assert_eq!(live.status(), 200, "quota-svc is live: a restart would not help");
    let started = Instant::now();
    assert_eq!(client.charge(&[Charge::Demo]).await.unwrap()[0].outcome(), Outcome::Unavailable);
    assert!(started.elapsed() < STORE_TIMEOUT + SLACK);
    let account = NewAccount { login: "early".to_owned(), credential: None };
    let error = client.create_account(&account).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(503), Some("store_unavailable")));
    redis.restart().await;
    let restarted = Instant::now();
    quota.wait_ready(RECOVERY_TIMEOUT).await;
    eprintln!("ready {:?} after Redis was started", restarted.elapsed());
    let key = quota.new_key().await;
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
}

#[tokio::test]
async fn idle_quota_svc_detects_redis_restart() {
    let mut redis = Redis::options().appendonly().start().await;
    // By default, Redis delays its writes to the file while the disk is busy, and the kill would lose them.
    redis.cli(&["CONFIG", "SET", "appendfsync", "always"]).await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let key = quota.new_key().await;
    redis.stop();
    eventually_ok(Duration::from_secs(3), "an idle quota-svc is not ready", async || {
        let (status, body) = quota.readiness().await;
        if status == 503 { Ok(()) } else { Err(body) }
    })
    .await;
    redis.restart().await;
    quota.wait_ready(RECOVERY_TIMEOUT).await;
    assert_eq!(key.charge(&quota.client(), 1).await, [Outcome::Allowed]);
}
