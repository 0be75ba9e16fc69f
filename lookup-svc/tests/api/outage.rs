//! quota-svc away: a clear 500 in time, never an answer that was not charged, and back by itself.

use std::time::{Duration, Instant};

use quota_client::wire::{Outcome, Scope};

use crate::rig::{Mood, Rig, allowed, bare};

#[tokio::test]
async fn no_verdict_is_500_and_the_service_stays_ready() {
    let rig = Rig::start().await;
    let key = rig.key(allowed(Scope::Full));
    rig.quota.set(Mood::Broken);
    for answer in [rig.lookup(&key, "").await, rig.get("/api/v1/ip/demo").await] {
        answer.error(500, "internal_error");
        assert_eq!(answer.names(), ["docs", "error", "message"]);
        assert_eq!((answer.limit(), answer.header("retry-after")), ([None; 3], None));
    }
    assert!(rig.kit.readiness.is_ready(), "an outage of the store takes no traffic away");
    rig.quota.set(Mood::Judge);
    assert_eq!(rig.lookup(&key, "").await.status, 200);
}

#[tokio::test]
async fn a_verdict_that_makes_no_sense_is_500() {
    let rig = Rig::start().await;
    for verdict in [
        bare(Outcome::Unavailable),
        bare(Outcome::Allowed),
        bare(Outcome::Paused),
        quota_client::wire::Verdict { scope: None, ..allowed(Scope::Full) },
    ] {
        rig.lookup(&rig.key(verdict), "").await.error(500, "internal_error");
    }
}

#[tokio::test]
async fn a_quota_service_that_is_silent_costs_no_more_than_the_deadline() {
    let deadline = Duration::from_millis(200);
    let rig = Rig::with(|config| config.quota.quota_deadline = deadline).await;
    rig.quota.set(Mood::Silent);
    let key = rig.key(allowed(Scope::Full));
    let started = Instant::now();
    rig.lookup(&key, "").await.error(500, "internal_error");
    let waited = started.elapsed();
    assert!((deadline..Duration::from_secs(5)).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn a_full_queue_is_500_at_once() {
    let rig = Rig::with(|config| {
        config.quota.quota_queue = 1;
        config.quota.no_batching = true;
    })
    .await;
    rig.quota.set(Mood::Silent);
    let key = rig.key(allowed(Scope::Full));
    let started = Instant::now();
    let first = rig.lookup(&key, "");
    let second = rig.lookup(&key, "");
    let answer = tokio::select! {
        answer = first => answer,
        answer = second => answer,
    };
    answer.error(500, "internal_error");
    assert!(started.elapsed() < Duration::from_secs(6), "one of the two did not wait for its deadline");
}
