//! The headers about limits: the reason for 429, and the headers of the IETF draft.

use quota_client::wire::{Scope, Verdict};

use super::harness::{Harness, MIDNIGHT, TestResponse, allowed, denied};

fn ietf(response: &TestResponse) -> [Option<&str>; 2] {
    ["ratelimit", "ratelimit-policy"].map(|name| response.header(name))
}

/// An allowed response and one for each reason for 429.
async fn responses(harness: &Harness) -> [(Option<&'static str>, TestResponse); 5] {
    let burst = |outcome| harness.create_key(denied(outcome, 300, 1_700_000_060, 60));
    let daily = harness.create_key(denied(Verdict::DailyExceeded, 10_000, MIDNIGHT, 1_234));
    harness.quota.set_demo(denied(Verdict::DailyExceeded, 1_000, MIDNIGHT, 77));
    [
        (None, harness.lookup(&harness.create_key(allowed(Scope::Geo)), "").await),
        (Some("burst"), harness.lookup(&burst(Verdict::BurstExceeded), "").await),
        (Some("paused"), harness.lookup(&burst(Verdict::Paused), "").await),
        (Some("daily"), harness.lookup(&daily, "").await),
        (Some("demo"), harness.get("/api/v1/ip/demo").await),
    ]
}

#[tokio::test]
async fn every_429_has_its_reason() {
    let harness = Harness::start().await;
    for (reason, response) in responses(&harness).await {
        assert_eq!(response.status, if reason.is_some() { 429 } else { 200 });
        assert_eq!(response.header("x-ratelimit-reason"), reason, "{response:?}");
        assert_eq!(response.header("retry-after").is_some(), reason.is_some());
    }
    let missing_key = harness.get("/api/v1/ip").await;
    assert_eq!((missing_key.status, missing_key.header("x-ratelimit-reason")), (401, None));
}

#[tokio::test]
async fn default_sends_no_header_of_the_draft() {
    for (_, response) in responses(&Harness::start().await).await {
        assert_eq!(ietf(&response), [None, None]);
        assert!(response.rate_limit().iter().all(Option::is_some), "{response:?}");
    }
}

#[tokio::test]
async fn draft_headers_name_the_policy_that_applies() {
    let harness = Harness::start_with(|config| config.ratelimit_headers = true).await;
    let daily = r#""daily";q=10000;w=86400"#;
    // The fake's day ends in the far future, which is reported as a whole day.
    let expected = [
        [r#""daily";r=9876;t=86400"#, daily],
        [r#""burst";r=0;t=60"#, r#""burst";q=300;w=60"#],
        [r#""burst";r=0;t=60"#, r#""burst";q=300;w=60"#],
        [r#""daily";r=0;t=1234"#, daily],
        [r#""demo";r=0;t=77"#, r#""demo";q=1000;w=86400"#],
    ];
    for ((_, response), expected) in responses(&harness).await.into_iter().zip(expected) {
        assert_eq!(ietf(&response), expected.map(Some));
        assert!(response.rate_limit().iter().all(Option::is_some), "{response:?}");
        let exposed = response.header("access-control-expose-headers").unwrap();
        let exposed: Vec<_> = exposed.split(", ").collect();
        assert!(["RateLimit", "RateLimit-Policy"].iter().all(|name| exposed.contains(name)), "{exposed:?}");
    }
    harness.quota.set_demo(allowed(Scope::Geo));
    let demo = harness.get("/api/v1/ip/demo").await;
    assert_eq!(ietf(&demo), [Some(r#""demo";r=9876;t=86400"#), Some(r#""demo";q=10000;w=86400"#)]);
}
