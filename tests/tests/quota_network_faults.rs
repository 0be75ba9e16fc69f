//! A network that delays, drips, cuts and half-closes: no answer reaches the wrong charge, errors come in time.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use e2e::fault_proxy::{Fault, FaultProxy};
use e2e::loadgen::{Load, Report};
use e2e::quota::{Quota, StoreChoice, TestKey};
use e2e::redis::Redis;
use e2e::wait::eventually_ok;
use quota_client::wire::{ChargeRequest, NewKey, Outcome, Scope, Verdict};
use quota_client::{BatchConfig, ChargeError, Charger, QuotaClient};

const PATIENCE: Duration = Duration::from_secs(20);
const RECOVERED_WITHIN: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_millis(250);
const CHARGER_DEADLINE: Duration = Duration::from_millis(400);
const SLACK: Duration = Duration::from_millis(350);
const PACE: Duration = Duration::from_millis(4);

const FLAGS: [&str; 2] = ["--burst-limit", "60000"];

const FAULTS: [Fault; 7] = [
    Fault::Delay(Duration::from_millis(60)),
    Fault::Delay(Duration::from_millis(330)),
    Fault::Drip(Duration::from_millis(1)),
    Fault::CutAfter(40),
    Fault::CutAfter(0),
    Fault::HalfClose,
    Fault::Stall,
];

/// Keys that a verdict can be told apart by: each has a daily limit and a scope of its own.
async fn tell_tale_keys(quota: &Quota) -> Arc<Vec<TestKey>> {
    let mut keys = Vec::new();
    for (i, scope) in [Scope::Ip, Scope::Geo, Scope::Full, Scope::Ip].into_iter().enumerate() {
        let daily_limit = Some(1_000_000 + u32::try_from(i).unwrap());
        let new = NewKey { name: format!("key {i}"), scope, daily_limit };
        keys.push(TestKey::create(&quota.client(), &new).await);
    }
    Arc::new(keys)
}

/// What came of one charge of `key`; a verdict that is another key's is `wrong`.
fn judge(key: &TestKey, verdict: &Verdict) -> &'static str {
    let own = (verdict.limit, verdict.scope) == (Some(key.key.daily_limit), Some(key.key.scope));
    match verdict.outcome {
        Outcome::Allowed if own => "Allowed",
        Outcome::Unavailable => "Unavailable",
        _ => "wrong",
    }
}

/// Calls with all keys, each time in another order.
fn mixed_batches(client: QuotaClient, keys: Arc<Vec<TestKey>>) -> Load {
    let turn = Arc::new(AtomicUsize::new(0));
    Load::start(6, move || {
        let (client, keys, turn) = (client.clone(), keys.clone(), turn.fetch_add(1, Ordering::Relaxed));
        async move {
            let order: Vec<&TestKey> = (0..keys.len()).map(|i| &keys[(i + turn) % keys.len()]).collect();
            let batch =
                ChargeRequest { charges: order.iter().flat_map(|key| key.charges(1).charges).collect() };
            let answer = client.charge(&batch).await;
            tokio::time::sleep(PACE).await;
            let Ok(answer) = answer else { return "broken".to_owned() };
            let outcomes: Vec<_> = order.iter().zip(&answer.verdicts).map(|(key, v)| judge(key, v)).collect();
            let whole =
                outcomes.len() == order.len() && outcomes.iter().all(|outcome| *outcome == outcomes[0]);
            if whole { outcomes[0].to_owned() } else { format!("mixed: {outcomes:?}") }
        }
    })
}

/// Single charges as lookup-svc makes them, gathered by the client.
fn single_charges(charger: Charger, keys: Arc<Vec<TestKey>>) -> Load {
    let turn = Arc::new(AtomicUsize::new(0));
    Load::start(12, move || {
        let (charger, keys) = (charger.clone(), keys.clone());
        let turn = turn.fetch_add(1, Ordering::Relaxed) % keys.len();
        async move {
            let outcome = match charger.charge(&keys[turn].sha256).await {
                Ok(verdict) => judge(&keys[turn], &verdict).to_owned(),
                Err(error) => format!("{error:?}"),
            };
            tokio::time::sleep(PACE).await;
            outcome
        }
    })
}

/// One fault after another, each for as long as it takes to be met, and recovery after each.
async fn work_through(proxy: &FaultProxy, load: &Load, client: &QuotaClient, key: &TestKey) {
    for fault in FAULTS {
        proxy.set(fault);
        let enough = load.completed() + 60;
        eventually_ok(PATIENCE, format!("calls under {fault:?}"), async || {
            let now = load.completed();
            if now >= enough { Ok(()) } else { Err(now) }
        })
        .await;
        proxy.set(Fault::None);
        let started = std::time::Instant::now();
        eventually_ok(RECOVERED_WITHIN, format!("recovery after {fault:?}"), async || {
            match client.charge(&key.charges(1)).await {
                Ok(answer) if judge(key, &answer.verdicts[0]) == "Allowed" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        eprintln!("{fault:?}: right again after {:?}", started.elapsed());
    }
}

/// Never counted less than answered, never more than asked.
async fn check_counts(quota: &Quota, keys: &[TestKey], report: &Report, charges_each: usize) {
    let mut used = 0;
    for key in keys {
        used += key.now(&quota.client()).await.used_today as usize;
    }
    let (allowed, asked) = (report.count("Allowed") * charges_each, report.samples.len() * charges_each);
    // Those of `work_through` itself, one or more for each fault, are not in the report.
    let probes = 400 * FAULTS.len();
    assert!((allowed..=asked + probes).contains(&used), "{allowed} allowed, {asked} asked, {used} counted");
}

#[tokio::test]
async fn load_a_bad_network_to_redis_mixes_up_no_answers_and_delays_nothing_beyond_its_deadline() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.addr());
    let store = StoreChoice::url(format!("redis://{}", proxy.addr()));
    // Keys and counts are looked at by another way, so that only charges meet the faults.
    let direct = Quota::start_with(store.through(redis.url()), &FLAGS).await;
    let mut quota = Quota::start_with(store, &FLAGS).await;
    quota.wait_ready(PATIENCE).await;
    direct.wait_ready(PATIENCE).await;
    let keys = tell_tale_keys(&direct).await;
    let load = mixed_batches(quota.client(), keys.clone());
    work_through(&proxy, &load, &quota.client(), &keys[0]).await;
    let report = load.stop().await;
    eprintln!("{report}");
    assert!(report.outcomes().keys().all(|o| ["Allowed", "Unavailable"].contains(o)), "{report}");
    assert!(report.slowest() < DEADLINE + SLACK, "{report}");
    check_counts(&direct, &keys, &report, keys.len()).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn load_a_bad_network_to_quota_svc_mixes_up_no_answers_and_delays_nothing_beyond_its_deadline() {
    let redis = Redis::start().await;
    let mut quota = Quota::start_with(&redis, &FLAGS).await;
    quota.wait_ready(PATIENCE).await;
    let keys = tell_tale_keys(&quota).await;
    let proxy = FaultProxy::start(quota.addr());
    let client = QuotaClient::new(&format!("http://{}", proxy.addr()), CHARGER_DEADLINE).unwrap();
    let charger = Charger::new(client.clone(), BatchConfig::default(), Arc::new(()));
    let load = single_charges(charger, keys.clone());
    work_through(&proxy, &load, &client, &keys[0]).await;
    let report = load.stop().await;
    eprintln!("{report}");
    let clear = ["Allowed", "Unavailable", "TimedOut"];
    assert!(report.outcomes().keys().all(|outcome| clear.contains(outcome)), "{report}");
    assert!(report.slowest() < CHARGER_DEADLINE + SLACK, "{report}");
    check_counts(&quota, &keys, &report, 1).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn a_charge_whose_reply_is_lost_after_redis_applied_it_is_counted_once_and_never_sent_again() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.addr());
    let store = StoreChoice::url(format!("redis://{}", proxy.addr()));
    let direct = Quota::start(store.through(redis.url())).await;
    let quota = Quota::start(store).await;
    quota.wait_ready(PATIENCE).await;
    direct.wait_ready(PATIENCE).await;
    let key = direct.new_key().await;
    let client = quota.client();
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
    proxy.set(Fault::Blackhole);
    assert_eq!(key.charge(&client, 5).await, [Outcome::Unavailable; 5]);
    assert!(proxy.swallowed() > 0, "Redis answered, and the answer was lost");
    proxy.set(Fault::None);
    assert_eq!(key.now(&direct.client()).await.used_today, 6);
    let mut attempts = 0;
    eventually_ok(RECOVERED_WITHIN, "charges are allowed again", async || {
        attempts += 1;
        let outcome = key.charge(&client, 1).await[0];
        if outcome == Outcome::Allowed { Ok(()) } else { Err(format!("{outcome:?}")) }
    })
    .await;
    let used = key.now(&direct.client()).await.used_today;
    assert!((7..=6 + attempts).contains(&used), "{used} counted after {attempts} more");
}

#[tokio::test]
async fn a_charge_whose_verdict_is_lost_on_the_way_to_the_client_is_counted_once() {
    let redis = Redis::start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(PATIENCE).await;
    let key = quota.new_key().await;
    let proxy = FaultProxy::start(quota.addr());
    let client = QuotaClient::new(&format!("http://{}", proxy.addr()), CHARGER_DEADLINE).unwrap();
    let charger = Charger::new(client, BatchConfig::default(), Arc::new(()));
    charger.charge(&key.sha256).await.unwrap();
    proxy.set(Fault::Blackhole);
    assert_eq!(charger.charge(&key.sha256).await.unwrap_err(), ChargeError::TimedOut);
    proxy.set(Fault::None);
    assert_eq!(key.now(&quota.client()).await.used_today, 2);
    proxy.set(Fault::CutAfter(0));
    assert_eq!(charger.charge(&key.sha256).await.unwrap_err(), ChargeError::Unavailable);
    assert_eq!(key.now(&quota.client()).await.used_today, 3);
}
