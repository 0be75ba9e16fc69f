//! Redis killed, frozen or away from the start: clear errors in time, nothing over-admitted, right again by itself.

use std::time::{Duration, Instant};

use e2e::loadgen::{Load, Report};
use e2e::quota::{Quota, TestKey, outcome_of};
use e2e::redis::Redis;
use e2e::wait::eventually_ok;
use quota_client::wire::{NewAccount, Outcome};

/// What a charge may take in quota-svc (`--store-timeout`), and what a busy test machine may add.
const DEADLINE: Duration = Duration::from_millis(250);
/// What a charge may take in lookup-svc, the queue included.
const CHARGER_DEADLINE: Duration = Duration::from_millis(400);
const SLACK: Duration = Duration::from_millis(350);

/// faults.md: right again within this of the restart.
const RECOVERED_WITHIN: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two calls of one worker: refusals come at once, and the machine is for more than this test.
const PACE: Duration = Duration::from_millis(4);

const UNHURRIED: [&str; 4] = ["--burst-limit", "60000", "--daily-limit", "1000000"];

/// Half of the workers call as lookup-svc does, half of them one by one without a deadline of their own.
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
                let outcome = outcome_of(&client.charge(&batch).await);
                tokio::time::sleep(PACE).await;
                outcome
            }
        });
        let (charger, sha256) = (quota.charger(), key.sha256);
        let batched = Load::start(8, move || {
            let charger = charger.clone();
            async move {
                let outcome = charger.charge(&sha256).await;
                tokio::time::sleep(PACE).await;
                outcome.map_or_else(|error| format!("{error:?}"), |verdict| format!("{:?}", verdict.outcome))
            }
        });
        Self { direct, batched }
    }

    async fn wait_for_more(&self, calls: usize) {
        let (direct, batched) = (self.direct.completed() + calls, self.batched.completed() + calls);
        eventually_ok(PATIENCE, "more calls", async || {
            let now = (self.direct.completed(), self.batched.completed());
            if now.0 >= direct && now.1 >= batched { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }

    async fn stop(self) -> (Report, Report) {
        let reports = (self.direct.stop().await, self.batched.stop().await);
        eprintln!("one by one: {}\nas lookup-svc: {}", reports.0, reports.1);
        reports
    }
}

/// Only clear outcomes, all in time.
fn check(direct: &Report, batched: &Report) {
    assert!(direct.outcomes().keys().all(|o| ["Allowed", "Unavailable"].contains(o)), "{direct}");
    assert!(direct.slowest() < DEADLINE + SLACK, "{direct}");
    let clear = ["Allowed", "Unavailable", "TimedOut"];
    assert!(batched.outcomes().keys().all(|o| clear.contains(o)), "{batched}");
    assert!(batched.slowest() < CHARGER_DEADLINE + SLACK, "{batched}");
}

/// Never counted less than answered, never more than asked.
async fn check_count(quota: &Quota, key: &TestKey, (direct, batched): (&Report, &Report)) {
    let allowed = direct.count("Allowed") + batched.count("Allowed");
    let asked = direct.samples.len() + batched.samples.len();
    // Accounts and keys have a connection of their own, which may be back a moment later.
    let client = quota.client();
    let read = async || client.key(&key.key.id, None).await;
    let used = eventually_ok(RECOVERED_WITHIN, "the key can be read", read).await.used_today as usize;
    assert!((allowed..=asked).contains(&used), "{allowed} allowed, {asked} asked, {used} counted");
}

async fn allowed_again(quota: &Quota, key: &TestKey) {
    let client = quota.client();
    eventually_ok(PATIENCE, "charges are allowed again", async || {
        match outcome_of(&client.charge(&key.charges(1)).await).as_str() {
            "Allowed" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
}

#[tokio::test]
async fn load_redis_killed_costs_clear_errors_only_and_is_right_again_within_two_seconds() {
    let mut redis = Redis::options().appendonly().start().await;
    let mut quota = Quota::start_with(&redis, &UNHURRIED).await;
    quota.wait_ready(PATIENCE).await;
    let key = quota.new_key().await;
    let loads = TwoLoads::start(&quota, &key);
    loads.wait_for_more(200).await;
    redis.stop();
    let killed = Instant::now();
    loads.wait_for_more(200).await;
    let (status, why) = quota.readiness().await;
    assert_eq!(status, 503, "{why}");
    assert!(quota.metric("quota_charges_total", "unavailable").await > 0.0);
    assert_eq!(quota.metric("quota_store_up", "").await, 0.0);
    redis.restart().await;
    let restarted = Instant::now();
    allowed_again(&quota, &key).await;
    let took = restarted.elapsed();
    eprintln!("allowed again {took:?} after Redis was back, {:?} after it was killed", killed.elapsed());
    assert!(took < RECOVERED_WITHIN, "{took:?}");
    loads.wait_for_more(200).await;
    let (direct, batched) = loads.stop().await;
    check(&direct, &batched);
    assert!(direct.count("Unavailable") > 0 && batched.count("Unavailable") > 0, "the outage was seen");
    let late = direct.between(restarted + RECOVERED_WITHIN, Instant::now());
    assert_eq!(late.count("Unavailable"), 0, "{late}");
    check_count(&quota, &key, (&direct, &batched)).await;
    quota.wait_ready(RECOVERED_WITHIN).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn load_redis_frozen_for_three_seconds_ends_every_charge_in_time_with_flat_memory() {
    let redis = Redis::options().appendonly().start().await;
    let mut quota = Quota::start_with(&redis, &UNHURRIED).await;
    quota.wait_ready(PATIENCE).await;
    let key = quota.new_key().await;
    let loads = TwoLoads::start(&quota, &key);
    loads.wait_for_more(300).await;
    let before = quota.service.rss();
    redis.freeze();
    let frozen = Instant::now();
    let mut most = before;
    while frozen.elapsed() < Duration::from_secs(3) {
        loads.wait_for_more(20).await;
        most = most.max(quota.service.rss());
    }
    redis.thaw();
    let thawed = Instant::now();
    allowed_again(&quota, &key).await;
    let took = thawed.elapsed();
    eprintln!("allowed again {took:?} after the thaw; memory {before} -> at most {most} bytes");
    assert!(took < RECOVERED_WITHIN, "{took:?}");
    assert!(most < before + (8 << 20), "{before} -> {most} bytes");
    loads.wait_for_more(100).await;
    let (direct, batched) = loads.stop().await;
    check(&direct, &batched);
    assert!(direct.count("Unavailable") > 0, "the outage was seen");
    check_count(&quota, &key, (&direct, &batched)).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn it_starts_while_redis_is_away_says_so_and_comes_back_by_itself() {
    let mut redis = Redis::start().await;
    redis.stop();
    let quota = Quota::start(&redis).await;
    let client = quota.client();
    let (status, why) = quota.readiness().await;
    assert_eq!(status, 503, "{why}");
    assert!(why.contains("no connection to 127.0.0.1"), "{why}");
    let live = e2e::http::client().get(format!("{}/livez", quota.admin_url())).send().await.unwrap();
    assert_eq!(live.status(), 200, "it lives: restarting it would not help");
    let asked = Instant::now();
    let demo = quota_client::wire::Charge { key_sha256: None, demo: Some(true) };
    let batch = quota_client::wire::ChargeRequest { charges: vec![demo] };
    assert_eq!(client.charge(&batch).await.unwrap().verdicts[0].outcome, Outcome::Unavailable);
    assert!(asked.elapsed() < DEADLINE + SLACK);
    let account = NewAccount { login: "early".to_owned(), credential: None };
    let refused = client.create_account(&account).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(503), Some("store_unavailable")));
    redis.restart().await;
    let back = Instant::now();
    quota.wait_ready(RECOVERED_WITHIN).await;
    eprintln!("ready {:?} after Redis came", back.elapsed());
    let key = quota.new_key().await;
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
}

#[tokio::test]
async fn a_restart_of_redis_between_two_charges_is_noticed_without_a_charge() {
    let mut redis = Redis::options().appendonly().start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(PATIENCE).await;
    let key = quota.new_key().await;
    redis.stop();
    eventually_ok(Duration::from_secs(3), "an idle quota-svc says that Redis is away", async || {
        let (status, why) = quota.readiness().await;
        if status == 503 { Ok(()) } else { Err(why) }
    })
    .await;
    redis.restart().await;
    quota.wait_ready(RECOVERED_WITHIN).await;
    assert_eq!(key.charge(&quota.client(), 1).await, [Outcome::Allowed]);
}
