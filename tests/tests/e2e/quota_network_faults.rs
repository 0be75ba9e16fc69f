//! A network that delays, drips, resets and half-closes: no reply reaches the wrong charge, and errors arrive within
//! the deadline.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quota_client::wire::{NewKey, Outcome, Scope, Verdict};
use quota_client::{BatchConfig, ChargeError, Charger, QuotaClient};
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::loadgen::{Load, Report};
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::redis::Redis;
use testkit::wait::{SLACK, eventually_ok};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time of a charge in quota-svc (`--store-timeout`).
const STORE_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum time of a charge in lookup-svc, including the queue.
const CHARGER_DEADLINE: Duration = Duration::from_millis(400);
/// Delay between two calls of a worker. Without it, immediate errors would make the workers use all of the CPU.
const PACE: Duration = Duration::from_millis(4);

const FLAGS: [&str; 2] = ["--burst-limit", "60000"];

const FAULTS: [Fault; 7] = [
    Fault::Delay(Duration::from_millis(60)),
    Fault::Delay(Duration::from_millis(330)),
    Fault::Drip(Duration::from_millis(1)),
    Fault::ResetAfter(40),
    Fault::ResetAfter(0),
    Fault::HalfClose,
    Fault::Stall,
];

/// Keys with different daily limits and scopes, so that each verdict shows which key it belongs to.
async fn distinguishable_keys(quota: &Quota) -> Arc<Vec<TestKey>> {
    let mut keys = Vec::new();
    for (i, scope) in [Scope::Ip, Scope::Geo, Scope::Full, Scope::Ip].into_iter().enumerate() {
        let daily_limit = Some(1_000_000 + u32::try_from(i).unwrap());
        let new = NewKey { daily_limit, ..NewKey::new(&format!("key {i}"), scope) };
        keys.push(TestKey::create(&quota.client(), &new).await);
    }
    Arc::new(keys)
}

/// The outcome of a charge of `key`, or `wrong` for an unexpected outcome or the verdict of another key.
fn outcome_for(key: &TestKey, verdict: &Verdict) -> &'static str {
    let own = (Some(key.key.settings.scope), key.key.daily_limit);
    match verdict {
        Verdict::Allowed { scope, rate_limit } if (*scope, rate_limit.limit) == own => "Allowed",
        Verdict::Unavailable => "Unavailable",
        _ => "wrong",
    }
}

/// Sends batches that each contain all keys, in changing order.
fn mixed_batches(client: QuotaClient, keys: Arc<Vec<TestKey>>) -> Load {
    let turn = Arc::new(AtomicUsize::new(0));
    Load::start(6, move || {
        let (client, keys, turn) = (client.clone(), keys.clone(), turn.fetch_add(1, Ordering::Relaxed));
        async move {
            let order: Vec<&TestKey> = (0..keys.len()).map(|i| &keys[(i + turn) % keys.len()]).collect();
            let batch: Vec<_> = order.iter().flat_map(|key| key.charges(1)).collect();
            let result = client.charge(&batch).await;
            tokio::time::sleep(PACE).await;
            let Ok(verdicts) = result else { return "failed".to_owned() };
            let outcomes: Vec<_> = order.iter().zip(&verdicts).map(|(key, v)| outcome_for(key, v)).collect();
            let uniform =
                outcomes.len() == order.len() && outcomes.iter().all(|outcome| *outcome == outcomes[0]);
            if uniform { outcomes[0].to_owned() } else { format!("mixed: {outcomes:?}") }
        }
    })
}

/// Sends single charges as lookup-svc does; the charger batches them.
fn single_charges(charger: Charger, keys: Arc<Vec<TestKey>>) -> Load {
    let turn = Arc::new(AtomicUsize::new(0));
    Load::start(12, move || {
        let (charger, keys) = (charger.clone(), keys.clone());
        let turn = turn.fetch_add(1, Ordering::Relaxed) % keys.len();
        async move {
            let outcome = match charger.charge(keys[turn].charges(1)[0]).await {
                Ok(verdict) => outcome_for(&keys[turn], &verdict).to_owned(),
                Err(error) => format!("{error:?}"),
            };
            tokio::time::sleep(PACE).await;
            outcome
        }
    })
}

/// Sets one fault after another, each for 60 calls, and waits for the recovery after each.
async fn inject_faults(proxy: &FaultProxy, load: &Load, client: &QuotaClient, key: &TestKey) {
    for fault in FAULTS {
        proxy.set(fault);
        let target = load.completed() + 60;
        eventually_ok(WAIT_TIMEOUT, format!("calls under {fault:?}"), async || {
            let now = load.completed();
            if now >= target { Ok(()) } else { Err(now) }
        })
        .await;
        proxy.set(Fault::None);
        let started = std::time::Instant::now();
        eventually_ok(RECOVERY_TIMEOUT, format!("recovery after {fault:?}"), async || {
            match client.charge(&key.charges(1)).await {
                Ok(verdicts) if outcome_for(key, &verdicts[0]) == "Allowed" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        eprintln!("{fault:?}: recovered after {:?}", started.elapsed());
    }
}

/// The counts are at least the allowed charges and at most the sent ones.
async fn check_counts(quota: &Quota, keys: &[TestKey], report: &Report, charges_per_call: usize) {
    let mut used = 0;
    for key in keys {
        used += key.fetch(&quota.client()).await.used_today as usize;
    }
    let (allowed, sent) =
        (report.count("Allowed") * charges_per_call, report.samples.len() * charges_per_call);
    // The recovery checks of `inject_faults` charge too, and are not in the report: one every 5 ms for at most 2 s.
    let probes = 400 * FAULTS.len();
    assert!((allowed..=sent + probes).contains(&used), "{allowed} allowed, {sent} sent, {used} counted");
}

#[tokio::test]
async fn load_faulty_network_to_redis_mixes_up_no_replies() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.addr());
    let store = StoreChoice::url(format!("redis://{}", proxy.addr()));
    // A second quota-svc without the proxy creates the keys and reads the counts: the faults affect only charges.
    let direct = Quota::start_with(store.with_url(redis.url()), &FLAGS).await;
    let mut quota = Quota::start_with(store, &FLAGS).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    direct.wait_ready(WAIT_TIMEOUT).await;
    let keys = distinguishable_keys(&direct).await;
    let load = mixed_batches(quota.client(), keys.clone());
    inject_faults(&proxy, &load, &quota.client(), &keys[0]).await;
    let report = load.stop().await;
    eprintln!("{report}");
    assert!(report.outcomes().keys().all(|o| ["Allowed", "Unavailable"].contains(o)), "{report}");
    assert!(report.slowest() < STORE_TIMEOUT + SLACK, "{report}");
    check_counts(&direct, &keys, &report, keys.len()).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn load_faulty_network_to_quota_svc_mixes_up_no_verdicts() {
    let redis = Redis::start().await;
    let mut quota = Quota::start_with(&redis, &FLAGS).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let keys = distinguishable_keys(&quota).await;
    let proxy = FaultProxy::start(quota.addr());
    let client = testkit::quota::client(&format!("http://{}", proxy.addr()), CHARGER_DEADLINE);
    let charger = Charger::new(client.charge_service(), BatchConfig::default(), Arc::new(()));
    let load = single_charges(charger, keys.clone());
    inject_faults(&proxy, &load, &client, &keys[0]).await;
    let report = load.stop().await;
    eprintln!("{report}");
    let expected = ["Allowed", "Unreachable", "Unavailable", "TimedOut"];
    assert!(report.outcomes().keys().all(|outcome| expected.contains(outcome)), "{report}");
    assert!(report.slowest() < CHARGER_DEADLINE + SLACK, "{report}");
    check_counts(&quota, &keys, &report, 1).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn charge_with_lost_redis_reply_is_counted_once() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.addr());
    let store = StoreChoice::url(format!("redis://{}", proxy.addr()));
    let direct = Quota::start(store.with_url(redis.url())).await;
    let quota = Quota::start(store).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    direct.wait_ready(WAIT_TIMEOUT).await;
    let key = direct.new_key().await;
    let client = quota.client();
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
    proxy.set(Fault::Blackhole);
    assert_eq!(key.charge(&client, 5).await, [Outcome::Unavailable; 5]);
    assert!(proxy.discarded_bytes() > 0, "Redis replied, and the reply was discarded");
    proxy.set(Fault::None);
    assert_eq!(key.fetch(&direct.client()).await.used_today, 6);
    let mut attempts = 0;
    eventually_ok(RECOVERY_TIMEOUT, "charges are allowed again", async || {
        attempts += 1;
        let outcome = key.charge(&client, 1).await[0];
        if outcome == Outcome::Allowed { Ok(()) } else { Err(format!("{outcome:?}")) }
    })
    .await;
    let used = key.fetch(&direct.client()).await.used_today;
    assert!((7..=6 + attempts).contains(&used), "{used} counted after {attempts} more charges");
}

#[tokio::test]
async fn charge_with_lost_response_is_counted_once() {
    let redis = Redis::start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let key = quota.new_key().await;
    let proxy = FaultProxy::start(quota.addr());
    let client = testkit::quota::client(&format!("http://{}", proxy.addr()), CHARGER_DEADLINE);
    let charger = Charger::new(client.charge_service(), BatchConfig::default(), Arc::new(()));
    charger.charge(key.charges(1)[0]).await.unwrap();
    proxy.set(Fault::Blackhole);
    assert_eq!(charger.charge(key.charges(1)[0]).await.unwrap_err(), ChargeError::TimedOut);
    proxy.set(Fault::None);
    assert_eq!(key.fetch(&quota.client()).await.used_today, 2);
    proxy.set(Fault::ResetAfter(0));
    assert_eq!(charger.charge(key.charges(1)[0]).await.unwrap_err(), ChargeError::Unreachable);
    assert_eq!(key.fetch(&quota.client()).await.used_today, 3);
}
