//! SPEC section 7 and DESIGN section 3: every refusal with its body and its headers.

use quota_client::wire::{Outcome, Scope};
use reqwest::{Body, Method};

use crate::rig::{Answer, DASHBOARD, DOCS, MIDNIGHT, Rig, allowed, refused};

#[tokio::test]
async fn a_burst_and_a_paused_key_get_the_same_words_and_numbers() {
    let rig = Rig::start().await;
    for outcome in [Outcome::BurstExceeded, Outcome::Paused] {
        let answer = rig.lookup(&rig.key(refused(outcome, 300, 1_700_000_060, 60)), "").await;
        let body = answer.error(429, "rate_limit_exceeded");
        let words = body["message"].as_str().unwrap();
        assert!(words.contains("paused") && words.contains("300") && words.contains(DASHBOARD), "{words}");
        assert_eq!(answer.names(), ["docs", "error", "message"], "neither enterprise nor signup");
        assert_eq!(answer.limit(), [Some("300"), Some("0"), Some("1700000060")]);
        assert_eq!(answer.header("retry-after"), Some("60"));
    }
}

#[tokio::test]
async fn an_exhausted_key_is_told_where_to_get_more() {
    let rig = Rig::start().await;
    let answer = rig.lookup(&rig.key(refused(Outcome::DailyExceeded, 10_000, MIDNIGHT, 1_234)), "").await;
    let body = answer.error(429, "rate_limit_exceeded");
    assert_eq!(body["enterprise"], format!("{DOCS}#enterprise"));
    assert_eq!(answer.names(), ["docs", "enterprise", "error", "message"]);
    assert_eq!(answer.limit(), [Some("10000"), Some("0"), Some(&*MIDNIGHT.to_string())]);
    assert_eq!(answer.header("retry-after"), Some("1234"));
}

#[tokio::test]
async fn the_exhausted_demo_says_where_to_sign_up() {
    let rig = Rig::start().await;
    rig.quota.demo(refused(Outcome::DailyExceeded, 1_000, MIDNIGHT, 77));
    let answer = rig.get("/api/v1/ip/demo").await;
    let body = answer.error(429, "rate_limit_exceeded");
    assert_eq!(body["signup"], format!("{DASHBOARD}/#sign-up"));
    assert_eq!(answer.names(), ["docs", "error", "message", "signup"]);
    assert_eq!(answer.limit(), [Some("1000"), Some("0"), Some(&*MIDNIGHT.to_string())]);
    assert_eq!(answer.header("retry-after"), Some("77"));
}

#[tokio::test]
async fn the_links_are_the_operator_s() {
    let rig = Rig::with(|config| {
        config.signup_url = Some("https://join.example".to_owned());
        config.enterprise_url = Some("https://sales.example".to_owned());
    })
    .await;
    rig.quota.demo(refused(Outcome::DailyExceeded, 1_000, MIDNIGHT, 1));
    assert_eq!(rig.get("/api/v1/ip/demo").await.json()["signup"], "https://join.example");
    let key = rig.key(refused(Outcome::DailyExceeded, 5, MIDNIGHT, 1));
    assert_eq!(rig.lookup(&key, "").await.json()["enterprise"], "https://sales.example");
}

#[tokio::test]
async fn other_paths_are_404() {
    let rig = Rig::start().await;
    for path in ["/nope", "/api", "/api/", "/api/v1", "/api/v1/ip/", "/api/v1/ip/demo/x", "/api/v2/ip", "//"]
    {
        rig.get(path).await.error(404, "not_found");
    }
}

#[tokio::test]
async fn other_methods_are_405_with_allow_and_charge_nothing() {
    let rig = Rig::start().await;
    let key = rig.key(allowed(Scope::Full));
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::TRACE] {
            let answer = Answer::of(rig.request(method, path).bearer_auth(&key)).await;
            answer.error(405, "method_not_allowed");
            assert_eq!(answer.header("allow"), Some("GET, OPTIONS"));
        }
        let head = Answer::of(rig.request(Method::HEAD, path).bearer_auth(&key)).await;
        assert_eq!((head.status, head.header("allow"), &*head.text), (405, Some("GET, OPTIONS"), ""));
        assert_eq!(head.header("access-control-allow-origin"), Some("*"));
    }
    let page = Answer::of(rig.request(Method::POST, "/docs")).await;
    page.error(405, "method_not_allowed");
    assert_eq!(page.header("allow"), Some("GET, HEAD"));
    assert_eq!(rig.quota.charges(), 0);
}

#[tokio::test]
async fn a_large_body_is_413_and_a_small_one_is_nobody_s_business() {
    let rig = Rig::start().await;
    let key = rig.key(allowed(Scope::Ip));
    let with =
        |bytes: usize| rig.request(Method::GET, "/api/v1/ip").bearer_auth(&key).body(vec![b'x'; bytes]);
    Answer::of(with(65 * 1024)).await.error(413, "payload_too_large");
    assert_eq!(rig.quota.charges(), 0);
    assert_eq!(Answer::of(with(2)).await.status, 200);
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    let rig = Rig::with(|config| {
        config.request_timeout = std::time::Duration::from_millis(300);
        config.quota.quota_deadline = std::time::Duration::from_millis(100);
    })
    .await;
    let endless = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    // A client sends a body of unknown length with GET only when told to.
    let request = rig.request(Method::GET, "/api/v1/ip").header("transfer-encoding", "chunked");
    let request = request.body(Body::wrap_stream(endless));
    Answer::of(request).await.error(408, "request_timeout");
}

#[tokio::test]
async fn headers_without_measure_are_431() {
    let rig = Rig::start().await;
    let request = rig.request(Method::GET, "/api/v1/ip").header("x-long", "x".repeat(17 * 1024));
    Answer::of(request).await.error(431, "headers_too_large");
}
