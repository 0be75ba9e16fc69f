//! Password guesses are throttled per login and per client address, and are not logged.

use serde_json::json;

use crate::harness::{Harness, JsonResponse, PASSWORD, read};

async fn guess(harness: &Harness, login: &str, address: &str) -> JsonResponse {
    let request =
        harness.browser().change(reqwest::Method::POST, "/session").header("X-Forwarded-For", address);
    read(request.json(&json!({"login": login, "password": "a wrong guess"}))).await
}

#[tokio::test]
async fn eleventh_guess_for_one_login_gets_429() {
    let harness = Harness::start_with(&["--trusted-proxies", "127.0.0.0/8"]).await;
    let ada = harness.sign_up("ada").await;
    for i in 0..10 {
        assert_eq!(guess(&harness, "ada", &format!("192.0.2.{i}")).await.status, 401);
    }
    let throttled = guess(&harness, "Ada", "192.0.2.99").await;
    assert_eq!(throttled.status_and_code(), "429 rate_limit_exceeded");
    let retry_after: u64 = throttled.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=31).contains(&retry_after), "{retry_after}");
    assert_eq!(ada.get("/account").await.status, 200, "existing sessions must stay active");
    assert_eq!(
        ada.post("/account/delete", json!({"password": PASSWORD})).await.status,
        429,
        "attempts to confirm a deletion must be throttled too"
    );
    assert_eq!(guess(&harness, "grace", "192.0.2.1").await.status, 401);
    for secret in ["192.0.2.", "ada", "wrong guess"] {
        assert!(!harness.service.logs().contains(secret), "{secret} in {}", harness.service.logs());
    }
}

#[tokio::test]
async fn forwarded_address_of_untrusted_peer_is_ignored() {
    let harness = Harness::start().await;
    let mut statuses = Vec::new();
    for i in 0..21 {
        let request = harness.browser().change(reqwest::Method::POST, "/account");
        let request = request.header("X-Forwarded-For", format!("192.0.2.{i}"));
        // The attempt is counted before the password is checked. A short password is rejected without a slow hash.
        statuses.push(read(request.json(&json!({"login": format!("l{i}"), "password": "x"}))).await.status);
    }
    assert_eq!(statuses[..20], [400; 20]);
    assert_eq!(statuses[20], 429, "all attempts must count against the peer's address");
}
