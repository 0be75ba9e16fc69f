//! SPEC section 5: how a key is given, and what becomes of a request without a good one.

use quota_client::wire::{Outcome, Scope};
use reqwest::Method;

use crate::rig::{Answer, DASHBOARD, MIDNIGHT, Rig, allowed, bare};

#[tokio::test]
async fn a_key_is_taken_from_the_header_or_the_query() {
    let rig = Rig::start().await;
    let key = rig.key(allowed(Scope::Ip));
    for answer in [rig.lookup(&key, "").await, rig.get(&format!("/api/v1/ip?key={key}")).await] {
        assert_eq!(answer.status, 200, "{answer:?}");
        let reset = MIDNIGHT.to_string();
        assert_eq!(answer.limit(), [Some("10000"), Some("9876"), Some(&*reset)]);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("retry-after"), None);
    }
    assert_eq!(rig.quota.charges(), 2);
}

#[tokio::test]
async fn the_header_wins_and_what_is_empty_is_not_given() {
    let rig = Rig::start().await;
    let (good, unknown) = (rig.key(allowed(Scope::Ip)), rig.key(bare(Outcome::UnknownKey)));
    let both = rig.lookup(&unknown, &format!("?key={good}")).await;
    both.error(401, "invalid_api_key");
    let other_way = rig.lookup(&good, &format!("?key={unknown}")).await;
    assert_eq!(other_way.status, 200);
    for credential in ["Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Token x"] {
        let with_query = rig.request(Method::GET, &format!("/api/v1/ip?key={good}"));
        let answer = Answer::of(with_query.header("authorization", credential)).await;
        assert_eq!(answer.status, 200, "{credential:?} is no Bearer credential");
        let alone = rig.request(Method::GET, "/api/v1/ip").header("authorization", credential);
        Answer::of(alone).await.error(401, "missing_api_key");
    }
    let lower = rig.request(Method::GET, "/api/v1/ip").header("authorization", format!("bearer {good}"));
    assert_eq!(Answer::of(lower).await.status, 200, "the scheme's case does not matter");
}

#[tokio::test]
async fn of_a_repeated_parameter_the_first_counts() {
    let rig = Rig::start().await;
    let (good, unknown) = (rig.key(allowed(Scope::Full)), rig.key(bare(Outcome::UnknownKey)));
    assert_eq!(rig.get(&format!("/api/v1/ip?key={good}&key={unknown}")).await.status, 200);
    rig.get(&format!("/api/v1/ip?key={unknown}&key={good}")).await.error(401, "invalid_api_key");
    rig.get(&format!("/api/v1/ip?key=&key={good}")).await.error(401, "missing_api_key");
    let narrowed = rig.lookup(&good, "?scope=ip&scope=full").await;
    assert_eq!(narrowed.names(), ["ip", "ipv6", "status"]);
}

#[tokio::test]
async fn without_a_key_both_ways_are_explained_and_nobody_is_asked() {
    let rig = Rig::start().await;
    for path in ["/api/v1/ip", "/api/v1/ip?key=", "/api/v1/ip?key", "/api/v1/ip?scope=nonsense"] {
        let answer = rig.get(path).await;
        let body = answer.error(401, "missing_api_key");
        let words = body["message"].as_str().unwrap();
        assert!(words.contains("Authorization: Bearer") && words.contains("key=<API_KEY>"), "{words}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.names(), ["docs", "error", "message"]);
        assert_eq!(answer.limit(), [None, None, None]);
    }
    assert_eq!(rig.quota.charges(), 0);
}

#[tokio::test]
async fn a_malformed_key_is_refused_without_asking() {
    let rig = Rig::start().await;
    let key = rig.key(allowed(Scope::Full));
    let mistyped = format!("{}{}", &key[..41], if key.ends_with('0') { '1' } else { '0' });
    for wrong in ["x", "ipl_", &key[..41], &mistyped, &format!("{key}0"), "ipl_%C3%A4", "%00"] {
        let answer = rig.get(&format!("/api/v1/ip?key={wrong}")).await;
        answer.error(401, "invalid_api_key");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let bytes = http::HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap();
    let unreadable =
        rig.request(Method::GET, &format!("/api/v1/ip?key={key}")).header("authorization", bytes);
    Answer::of(unreadable).await.error(401, "invalid_api_key");
    assert_eq!(rig.quota.charges(), 0, "a malformed key costs no call");
}

#[tokio::test]
async fn an_unknown_key_is_401_and_an_inactive_one_403() {
    let rig = Rig::start().await;
    let unknown = rig.lookup(&rig.key(bare(Outcome::UnknownKey)), "").await;
    unknown.error(401, "invalid_api_key");
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer"));
    let inactive = rig.lookup(&rig.key(bare(Outcome::Inactive)), "").await;
    let body = inactive.error(403, "inactive_api_key");
    assert!(body["message"].as_str().unwrap().contains(DASHBOARD), "{body}");
    assert_eq!(inactive.header("www-authenticate"), None);
    for answer in [unknown, inactive] {
        assert_eq!(answer.names(), ["docs", "error", "message"]);
        assert_eq!((answer.limit(), answer.header("retry-after")), ([None; 3], None));
    }
}
