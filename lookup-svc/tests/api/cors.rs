//! Browsers of every origin: the preflight, and what actual answers let them read.

use quota_client::wire::{Outcome, Scope};
use reqwest::Method;

use crate::rig::{Answer, Mood, Rig, allowed, bare};

#[tokio::test]
async fn a_preflight_is_answered_before_key_and_quota() {
    let rig = Rig::start().await;
    rig.quota.set(Mood::Broken);
    for path in ["/api/v1/ip", "/api/v1/ip/demo", "/api/v1/ip?scope=nonsense"] {
        let request = rig.request(Method::OPTIONS, path).header("origin", "https://page.example");
        let request = request.header("access-control-request-method", "GET");
        let answer = Answer::of(request.header("access-control-request-headers", "authorization")).await;
        assert_eq!((answer.status, &*answer.text), (204, ""));
        let told = |name: &str| answer.header(&format!("access-control-{name}"));
        assert_eq!(told("allow-origin"), Some("*"));
        assert_eq!(told("allow-methods"), Some("GET, OPTIONS"));
        assert_eq!(told("allow-headers"), Some("Authorization"));
        assert_eq!(told("max-age"), Some("86400"));
        assert_eq!(answer.header("content-type"), None);
    }
    assert_eq!(rig.quota.charges(), 0);
    Answer::of(rig.request(Method::OPTIONS, "/api/v1/nope")).await.error(404, "not_found");
}

#[tokio::test]
async fn every_answer_is_open_and_shows_its_numbers() {
    let rig = Rig::start().await;
    let good = rig.key(allowed(Scope::Full));
    let inactive = rig.key(bare(Outcome::Inactive));
    let mut answers = vec![rig.lookup(&good, "").await, rig.lookup(&inactive, "").await];
    for path in ["/", "/docs", "/swagger", "/openapi.json", "/openapi.yaml", "/nope", "/api/v1/ip"] {
        answers.push(rig.get(path).await);
    }
    for answer in answers {
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{answer:?}");
        let exposed = answer.header("access-control-expose-headers").unwrap();
        for name in ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"] {
            assert!(exposed.contains(name), "{exposed}");
        }
    }
}
