//! Keys that expire, and keys for certain web pages, through lookup-svc.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use quota_client::wire::{KeyState, SettingsChange, StateChange};
use testkit::lookup::{JsonResponse, Lookup, Stack, WAIT_TIMEOUT};
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::redis::Redis;
use testkit::wait::eventually_ok;
use tokio::task::JoinSet;

const ALLOWED: &str = "https://shop.example";

async fn restrict(quota: &Quota, key: &TestKey) {
    let change = SettingsChange { allowed_origins: Some(vec![ALLOWED.to_owned()]), ..Default::default() };
    quota.client().change_key(&key.key.id, None, &change).await.unwrap();
}

#[tokio::test]
async fn forbidden_response_names_its_reason() {
    let stack = Stack::start(&[], &[]).await;
    let client = stack.quota.client();
    let [deactivated, expiring, restricted] =
        [stack.quota.new_key().await, stack.quota.new_key().await, stack.quota.new_key().await];
    client.change_state(&deactivated.key.id, None, StateChange::Deactivate).await.unwrap();
    restrict(&stack.quota, &restricted).await;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let at = u32::try_from(now + 2).unwrap();
    let change = SettingsChange { expires_at: at.into(), ..Default::default() };
    client.change_key(&expiring.key.id, None, &change).await.unwrap();
    eventually_ok(WAIT_TIMEOUT, "the key expires", async || {
        let response = JsonResponse::fetch(stack.lookup.get_ip(&expiring.secret)).await;
        if response.status == 403 { Ok(()) } else { Err(format!("{response:?}")) }
    })
    .await;
    let expired = quota_client::wire::rfc3339(at);
    for (key, reason, text) in [
        (&deactivated, "deactivated", "is deactivated"),
        (&expiring, "expired", expired.as_str()),
        (&restricted, "origin", "certain web pages"),
    ] {
        let response = JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await;
        assert_eq!((response.status, response.error_code()), (403, "inactive_api_key"), "{response:?}");
        assert_eq!(response.header("x-key-reason"), reason);
        assert!(response.body["message"].as_str().unwrap().contains(text), "{response:?}");
        assert!(response.header("access-control-expose-headers").contains("X-Key-Reason"), "{response:?}");
    }
}

#[tokio::test]
async fn request_needs_exactly_one_allowed_origin() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.quota.new_key().await;
    restrict(&stack.quota, &key).await;
    let cases: [(&[&str], u16); 8] = [
        (&[ALLOWED], 200),
        (&[], 403),
        (&["null"], 403),
        (&[""], 403),
        (&[ALLOWED, ALLOWED], 403),
        (&["https://shop.example:8443"], 403),
        (&["http://shop.example"], 403),
        (&["https://shop.example/"], 403),
    ];
    for (origins, status) in cases {
        let request = stack.lookup.get_ip(&key.secret);
        let request = origins.iter().fold(request, |request, origin| request.header("origin", *origin));
        assert_eq!(JsonResponse::fetch(request).await.status, status, "{origins:?}");
    }
    assert_eq!(key.fetch(&stack.quota.client()).await.used_today, 1);
}

#[tokio::test]
async fn thousand_requests_of_a_wrong_origin_count_nothing_and_affect_no_other_key() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let quota = Quota::start_with(store.clone(), &["--store-timeout", "10s"]).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        pairs.push((Lookup::start_with_long_timeouts(quota.url(), &[]).await, quota));
    }
    let (key, other) = (pairs[0].1.new_key().await, pairs[0].1.new_key().await);
    restrict(&pairs[0].1, &key).await;
    let mut requests = JoinSet::new();
    for n in 0..1_000 {
        let lookup = &pairs[n % 2].0;
        let copy = lookup.get_ip(&key.secret).header("origin", format!("https://copy-{}.example", n % 7));
        requests.spawn(async { JsonResponse::fetch(copy).await.status });
        if n % 10 == 0 {
            let own = lookup.get_ip(&key.secret).header("origin", ALLOWED);
            requests.spawn(async { JsonResponse::fetch(own).await.status });
            let of_other = lookup.get_ip(&other.secret).header("origin", "https://copy-1.example");
            requests.spawn(async { JsonResponse::fetch(of_other).await.status });
        }
    }
    let statuses = requests.join_all().await;
    let count = |status| statuses.iter().filter(|actual| **actual == status).count();
    assert_eq!((count(403), count(200)), (1_000, 200));
    for key in [&key, &other] {
        let now = key.fetch(&pairs[1].1.client()).await;
        assert_eq!((now.state, now.used_today, now.burst_used), (KeyState::Active, 100, 100));
    }
}
