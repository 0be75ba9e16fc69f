//! The three 429s of the public API, exact to the request and to the second, and what an outage answers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use e2e::lookup::{Answer, Lookup, PATIENCE, Stack, unknown_key};
use e2e::quota::Quota;
use e2e::redis::Redis;
use e2e::wait::eventually_ok;
use quota_client::wire::{KeyState, Scope};
use tokio::task::JoinSet;

const DAY: i64 = 86_400;

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// Sends the request and checks Retry-After and Reset against the clock, which the store shares with us.
async fn limited(request: reqwest::RequestBuilder, limit: i64, wait: impl Fn(i64) -> i64) -> Answer {
    let before = now();
    let answer = Answer::of(request).await;
    let after = now();
    assert_eq!((answer.status, answer.error()), (429, "rate_limit_exceeded"), "{answer:?}");
    assert_eq!((answer.number("x-ratelimit-limit"), answer.number("x-ratelimit-remaining")), (limit, 0));
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert_eq!(answer.body["docs"], "http://localhost:8080/docs#rate_limit_exceeded");
    let (retry_after, reset) = (answer.number("retry-after"), answer.number("x-ratelimit-reset"));
    let judged = reset - retry_after;
    assert!(
        (before..=after).contains(&judged),
        "judged at {judged}, not within {before}..={after}: {answer:?}"
    );
    assert_eq!(retry_after, wait(judged), "{answer:?}");
    answer
}

fn to_midnight(at: i64) -> i64 {
    DAY - at % DAY
}

#[tokio::test]
async fn exactly_300_a_minute_then_the_key_is_paused_until_it_is_resumed() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key(Scope::Geo).await;
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let request = stack.lookup.ask(&key.secret);
        clients.spawn(async move {
            let mut statuses = Vec::new();
            for _ in 0..75 {
                statuses.push(Answer::of(request.try_clone().unwrap()).await.status);
            }
            statuses
        });
    }
    let statuses: Vec<u16> = clients.join_all().await.concat();
    assert_eq!(statuses, [200; 300], "300 never pause a key");
    // The one too many, and then the paused key: the same words, and nothing more is charged.
    for _ in 0..3 {
        let answer = limited(stack.lookup.ask(&key.secret), 300, |_| 60).await;
        assert_eq!(answer.fields(), ["docs", "error", "message"], "neither enterprise nor signup");
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.contains("300") && message.contains("paused"), "{message}");
        assert!(message.contains("http://localhost:8081"), "where to resume it: {message}");
    }
    let client = stack.quota.client();
    let paused = key.now(&client).await;
    assert_eq!((paused.state, paused.used_today), (KeyState::Paused, 300));
    client.resume_key(&key.key.id, None).await.unwrap();
    assert_eq!(Answer::of(stack.lookup.ask(&key.secret)).await.status, 200, "at once");
}

#[tokio::test]
async fn a_used_up_day_names_enterprise_and_the_seconds_to_midnight() {
    let stack =
        Stack::start(&["--daily-limit", "3"], &["--enterprise-url", "https://sales.example/more"]).await;
    let key = stack.key(Scope::Full).await;
    for left in [2, 1, 0] {
        let answer = Answer::of(stack.lookup.ask(&key.secret)).await;
        assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (200, left));
        assert_eq!(answer.number("x-ratelimit-limit"), 3);
    }
    for _ in 0..2 {
        let answer = limited(stack.lookup.ask(&key.secret), 3, to_midnight).await;
        assert_eq!(answer.fields(), ["docs", "enterprise", "error", "message"], "no signup");
        assert_eq!(answer.body["enterprise"], "https://sales.example/more");
    }
    assert_eq!(key.now(&stack.quota.client()).await.used_today, 3);
}

#[tokio::test]
async fn the_default_day_has_ten_thousand() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key(Scope::Ip).await;
    assert_eq!(Answer::of(stack.lookup.ask(&key.secret)).await.number("x-ratelimit-limit"), 10_000);
}

#[tokio::test]
async fn a_used_up_demo_names_signup_and_the_seconds_to_midnight() {
    let stack = Stack::start(&["--demo-limit", "2"], &["--signup-url", "https://join.example/"]).await;
    let key = stack.key(Scope::Full).await;
    for left in [1, 0] {
        let answer = Answer::of(stack.lookup.get("/api/v1/ip/demo")).await;
        assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (200, left));
    }
    for _ in 0..2 {
        let answer = limited(stack.lookup.get("/api/v1/ip/demo"), 2, to_midnight).await;
        assert_eq!(answer.fields(), ["docs", "error", "message", "signup"], "no enterprise");
        assert_eq!(answer.body["signup"], "https://join.example");
    }
    assert_eq!(Answer::of(stack.lookup.ask(&key.secret)).await.status, 200, "a key has its own quota");
}

/// With the deadlines as they are shipped: the answer may take a second, whatever happens behind it.
#[tokio::test]
async fn without_a_store_the_answer_is_a_clear_500_in_time_and_right_again_by_itself() {
    // Synced at once: the key is killed with its server milliseconds after it was made.
    let mut redis = Redis::options().appendonly().directive("appendfsync always").start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(PATIENCE).await;
    let lookup = Lookup::start(quota.url(), &[]).await;
    let key = quota.new_key().await;
    answers(&lookup, &key.secret).await;
    redis.freeze();
    clear_500(&lookup, &key.secret).await;
    redis.stop();
    clear_500(&lookup, &key.secret).await;
    assert_eq!(lookup.readiness().await, 200, "or the ingress would answer in our place");
    redis.restart().await;
    answers(&lookup, &key.secret).await;
}

/// Waits until the key is answered 200.
async fn answers(lookup: &Lookup, key: &str) {
    eventually_ok(PATIENCE, "an answer", async || {
        let answer = Answer::of(lookup.ask(key)).await;
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

#[tokio::test]
async fn without_a_quota_svc_the_answer_is_a_clear_500_too() {
    let gone = e2e::ports::ReservedPort::new();
    let lookup = Lookup::start(&format!("http://{}", gone.addr()), &[]).await;
    clear_500(&lookup, &unknown_key()).await;
}

async fn clear_500(lookup: &Lookup, key: &str) {
    for request in [lookup.ask(key), lookup.get("/api/v1/ip/demo")] {
        let started = Instant::now();
        let answer = Answer::of(request).await;
        assert_eq!((answer.status, answer.error()), (500, "internal_error"), "{answer:?}");
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        assert_eq!(answer.fields(), ["docs", "error", "message"]);
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert!(answer.header("retry-after").is_empty() && answer.header("x-ratelimit-limit").is_empty());
    }
}
