//! `GET /quota`: what a key's holder sees, and that it costs nothing.

use quota_client::wire::Charge;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::Harness;

fn key_of(created: &Value) -> String {
    created["secret"].as_str().unwrap().to_owned()
}

async fn get(harness: &Harness, key: &str, address: &str, origin: Option<&str>) -> Response {
    let request = testkit::http::client().get(format!("{}/api/v1/quota", harness.url));
    let request = request.bearer_auth(key).header("x-forwarded-for", address);
    origin.into_iter().fold(request, |request, origin| request.header("origin", origin)).send().await.unwrap()
}

async fn charge(harness: &Harness, key: &str, count: usize) {
    let digest = api_key::ApiKey::parse(key).unwrap().digest();
    let charges = vec![Charge::Key { digest, origin: None }; count];
    harness.quota.client().charge(&charges).await.unwrap();
}

#[tokio::test]
async fn quota_shows_state_limits_and_expiry_without_name_or_origins() {
    let harness = Harness::start_with(&["--trusted-proxies", "127.0.0.1"]).await;
    let ada = harness.sign_up("ada").await;
    let (id, created) = ada.create_key("Nightly import").await;
    let key = key_of(&created.body);
    charge(&harness, &key, 7).await;
    let quota: Value = get(&harness, &key, "192.0.2.1", None).await.json().await.unwrap();
    let reset = quota["reset"].as_u64().unwrap();
    assert_eq!(reset % 86_400, 0);
    let expected = json!({
        "state": "active", "scope": "full", "daily_limit": 10_000, "used_today": 7, "remaining_today": 9_993,
        "reset": reset, "burst_limit": 300, "burst_used": 7, "burst_remaining": 293,
    });
    assert_eq!(quota, expected);
    let change = json!({"expires_at": 4_000_000_000_u32, "allowed_origins": ["https://shop.example"]});
    assert_eq!(ada.patch(&format!("/keys/{id}"), change).await.status, 200);
    let denied = get(&harness, &key, "192.0.2.1", Some("https://copy.example")).await;
    assert_eq!(
        (denied.status().as_u16(), &denied.headers()["access-control-allow-origin"]),
        (403, &"*".parse().unwrap())
    );
    let quota: Value =
        get(&harness, &key, "192.0.2.1", Some("https://shop.example")).await.json().await.unwrap();
    assert_eq!(quota["expires_at"], 4_000_000_000_u32, "{quota}");
    assert!(!quota.to_string().contains("Nightly") && !quota.to_string().contains("shop"), "{quota}");
    ada.post(&format!("/keys/{id}/deactivate"), json!({})).await;
    let quota: Value =
        get(&harness, &key, "192.0.2.1", Some("https://shop.example")).await.json().await.unwrap();
    assert_eq!((&quota["state"], &quota["reason"]), (&json!("inactive"), &json!("deactivated")));
}

#[tokio::test]
async fn quota_without_a_known_key_gets_401_and_its_preflight_allows_only_get() {
    let harness = Harness::start_with(&["--trusted-proxies", "127.0.0.1"]).await;
    let unknown = testkit::lookup::unknown_key();
    for (key, code) in
        [(unknown.as_str(), "invalid_api_key"), ("ipl_x", "invalid_api_key"), ("", "missing_api_key")]
    {
        let response = get(&harness, key, "192.0.2.1", None).await;
        assert_eq!(response.status(), 401, "{key}");
        assert_eq!(response.json::<Value>().await.unwrap()["error"], code);
    }
    let preflight = |path: &str| {
        let request = testkit::http::client().request(Method::OPTIONS, format!("{}{path}", harness.url));
        request.header("origin", "https://shop.example").header("access-control-request-method", "GET").send()
    };
    let response = preflight("/api/v1/quota").await.unwrap();
    assert_eq!(response.status(), 204);
    let header = |name| response.headers()[name].to_str().unwrap();
    assert_eq!(header("access-control-allow-origin"), "*");
    assert_eq!(header("access-control-allow-methods"), "GET");
    assert_eq!(header("access-control-allow-headers"), "Authorization");
    assert!(!response.headers().contains_key("access-control-allow-credentials"));
    let other = preflight("/api/v1/keys").await.unwrap();
    assert!(!other.headers().contains_key("access-control-allow-origin"), "{other:?}");
}

#[tokio::test]
async fn quota_is_throttled_per_key_and_address() {
    let harness = Harness::start_with(&["--trusted-proxies", "127.0.0.1"]).await;
    let ada = harness.sign_up("ada").await;
    let keys = [key_of(&ada.create_key("a").await.1.body), key_of(&ada.create_key("b").await.1.body)];
    let mut allowed = 0;
    while get(&harness, &keys[0], "192.0.2.1", None).await.status() == 200 {
        allowed += 1;
        assert!(allowed < 200, "requests are throttled");
    }
    assert!(allowed >= 60, "{allowed}");
    assert_eq!(get(&harness, &keys[1], "192.0.2.1", None).await.status(), 200, "another key");
    assert_eq!(get(&harness, &keys[0], "192.0.2.2", None).await.status(), 200, "another address");
}

#[tokio::test]
async fn ten_thousand_reads_beside_load_change_no_counter() {
    let harness = Harness::start_with(&["--trusted-proxies", "127.0.0.1"]).await;
    let ada = harness.sign_up("ada").await;
    let key = key_of(&ada.create_key("a").await.1.body);
    let (mut readers, started) = (JoinSet::new(), std::time::Instant::now());
    let http = testkit::http::client();
    for reader in 0..20 {
        let (http, url, key) = (http.clone(), format!("{}/api/v1/quota", harness.url), key.clone());
        readers.spawn(async move {
            let mut last = 0;
            for n in 0..500 {
                let address = format!("10.{reader}.{}.1", n / 50);
                let response = http.get(&url).bearer_auth(&key).header("x-forwarded-for", address).send();
                let quota: Value = response.await.unwrap().json().await.unwrap();
                let used = quota["used_today"].as_u64().unwrap_or_else(|| panic!("{quota}"));
                // After 60 s, the first requests leave the window.
                let is_exact = quota["burst_used"] == used || started.elapsed().as_secs() >= 59;
                assert!(used >= last && is_exact, "{quota} after {last}");
                last = used;
            }
        });
    }
    for _ in 0..100 {
        charge(&harness, &key, 2).await;
    }
    let quota: Value = get(&harness, &key, "192.0.2.1", None).await.json().await.unwrap();
    assert_eq!(quota["used_today"], 200, "{quota}");
    readers.join_all().await;
    let listed = ada.get("/keys").await.body;
    assert_eq!(listed["keys"][0]["used_today"], 200, "{listed}");
}
