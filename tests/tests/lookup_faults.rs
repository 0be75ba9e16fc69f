//! Clients that leave, keys that nobody has, keys that are paused: others are served, and the store has its peace (F17 to F19).
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use e2e::fault_proxy::{Fault, FaultProxy};
use e2e::loadgen::{Load, Report};
use e2e::lookup::{Answer, Lookup, PATIENCE, Stack, unknown_key};
use e2e::quota::{Quota, StoreChoice};
use e2e::redis::Redis;
use e2e::wait::eventually;
use quota_client::wire::Scope;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Limits that no load of these tests reaches.
const GENEROUS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];

fn check_all_200(report: &Report) {
    assert!(report.count("200") > 0 && report.count("200") == report.samples.len(), "{report}");
}

#[tokio::test]
async fn a_client_that_leaves_between_charge_and_answer_is_charged_and_disturbs_nobody() {
    let redis = Redis::start().await;
    let quota = Quota::start_with(&redis, &[GENEROUS.as_slice(), &["--store-timeout", "10s"]].concat()).await;
    quota.wait_ready(PATIENCE).await;
    let proxy = FaultProxy::start(quota.addr());
    let lookup = Lookup::start_patient(&format!("http://{}", proxy.addr()), &[]).await;
    let (leaver, stayer, client) = (quota.new_key().await, quota.new_key().await, quota.client());
    proxy.set(Fault::Delay(Duration::from_millis(300)));
    let load = Load::http(4, lookup.asking(&stayer.secret));
    for gone in 1..=5 {
        let mut socket = TcpStream::connect(lookup.addr()).await.unwrap();
        let ask =
            format!("GET /api/v1/ip HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {}\r\n\r\n", leaver.secret);
        socket.write_all(ask.as_bytes()).await.unwrap();
        eventually(PATIENCE, "the charge is counted", async || {
            (leaver.now(&client).await.used_today == gone).then_some(())
        })
        .await;
        // The verdict is on its way for some 300 ms more.
        drop(socket);
    }
    let calls = load.completed();
    eventually(PATIENCE, "others go on", async || (load.completed() > calls + 8).then_some(())).await;
    let report = load.stop().await;
    check_all_200(&report);
    assert_eq!(
        stayer.now(&client).await.used_today as usize,
        report.samples.len(),
        "each of theirs was counted once"
    );
    assert_eq!(leaver.now(&client).await.used_today, 5, "and each of those that nobody waited for");
    let panics = lookup.service.logs().contains("panic");
    assert!(!panics, "{}", lookup.service.logs());
}

/// How often the store was asked to judge.
async fn judgements(redis: &Redis) -> u64 {
    let stats = redis.info("cmdstat_evalsha").await.unwrap_or_default();
    let calls = stats.split(',').find_map(|part| part.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn malformed_keys_cost_no_store_call() {
    let stack = Stack::start(&GENEROUS, &[]).await;
    let key = stack.key(Scope::Full).await;
    let good = &key.secret;
    assert_eq!(Answer::of(stack.lookup.ask(good)).await.status, 200);
    let before = judgements(&stack.redis).await;
    assert!(before > 0, "a charge is a script call");
    let other = if good.ends_with('0') { '1' } else { '0' };
    let wrong_sum = format!("{}{other}", &good[..41]);
    for malformed in
        ["x", "ipl_", &good[..41], &good[1..], &wrong_sum, &good.to_uppercase(), &format!("{good}0")]
    {
        for _ in 0..20 {
            let answer = Answer::of(stack.lookup.ask(malformed)).await;
            assert_eq!((answer.status, answer.error()), (401, "invalid_api_key"), "{malformed}");
        }
    }
    assert_eq!(judgements(&stack.redis).await, before);
}

#[tokio::test]
async fn load_of_random_keys_is_refused_and_valid_users_are_served() {
    let stack = Stack::start(&GENEROUS, &[]).await;
    let key = stack.key(Scope::Full).await;
    let valid = Load::http(2, stack.lookup.asking(&key.secret));
    eventually(PATIENCE, "valid users ask", async || (valid.completed() > 50).then_some(())).await;
    let (url, http) = (stack.lookup.url() + "/api/v1/ip", e2e::http::client());
    let random = Load::http(32, move || http.get(&url).bearer_auth(unknown_key()));
    eventually(PATIENCE, "many random keys", async || (random.completed() > 3_000).then_some(())).await;
    let (random, valid) = (random.stop().await, valid.stop().await);
    assert_eq!(random.count("401"), random.samples.len(), "{random}");
    check_all_200(&valid);
    assert_eq!(
        key.now(&stack.quota.client()).await.used_today as usize,
        valid.samples.len(),
        "counted exactly"
    );
}

#[tokio::test]
async fn a_paused_key_is_refused_from_memory_and_a_resume_is_seen_in_time_everywhere() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let flags = ["--store-timeout", "10s", "--burst-limit", "5"];
    let quotas = [Quota::start_with(store.clone(), &flags).await, Quota::start_with(store, &flags).await];
    let mut lookups = Vec::new();
    for quota in &quotas {
        quota.wait_ready(PATIENCE).await;
        lookups.push(Lookup::start_patient(quota.url(), &[]).await);
    }
    let key = quotas[0].new_key().await;
    for status in [200, 200, 200, 200, 200, 429] {
        assert_eq!(Answer::of(lookups[0].ask(&key.secret)).await.status, status);
    }
    let (before, since) = (judgements(&redis).await, Instant::now());
    let loads: Vec<_> = lookups.iter().map(|lookup| Load::http(4, lookup.asking(&key.secret))).collect();
    for load in loads {
        eventually(PATIENCE, "many refusals", async || (load.completed() > 1_000).then_some(())).await;
        let report = load.stop().await;
        assert_eq!(report.count("429"), report.samples.len(), "{report}");
    }
    // Each replica asks again every 2 s, with what gathers in that moment.
    let allowance = 2 * (since.elapsed().as_secs() / 2 + 1) * 4;
    let asked = judgements(&redis).await - before;
    assert!(asked <= allowance, "{asked} judgements in {:?} for more than 2,000 requests", since.elapsed());
    assert_eq!(
        Answer::of(lookups[1].ask(&key.secret)).await.status,
        429,
        "the other replica remembers it too"
    );
    quotas[0].client().resume_key(&key.key.id, None).await.unwrap();
    let resumed = Instant::now();
    assert_eq!(Answer::of(lookups[0].ask(&key.secret)).await.status, 200, "at once where it was resumed");
    eventually(PATIENCE, "the other replica", async || {
        (Answer::of(lookups[1].ask(&key.secret)).await.status == 200).then_some(())
    })
    .await;
    assert!(resumed.elapsed() < Duration::from_millis(2_500), "{:?}", resumed.elapsed());
}
