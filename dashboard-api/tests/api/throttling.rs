//! Password guesses are throttled, nobody can lock an owner out, and neither logins nor addresses are logged.

use std::time::Duration;

use serde_json::json;
use testkit::wait::eventually;
use tokio::task::JoinSet;

use crate::harness::{Browser, Harness, JsonResponse, PASSWORD, read};

async fn guess(harness: &Harness, login: &str, address: &str) -> JsonResponse {
    let request =
        harness.browser().change(reqwest::Method::POST, "/session").header("X-Forwarded-For", address);
    read(request.json(&json!({"login": login, "password": "a wrong guess"}))).await
}

#[tokio::test]
async fn eleventh_guess_by_one_client_gets_429() {
    let harness = Harness::start_with(&["--trusted-proxies", "127.0.0.0/8"]).await;
    let ada = harness.sign_up("ada").await;
    for _ in 0..10 {
        assert_eq!(guess(&harness, "ada", "192.0.2.1").await.status, 401);
    }
    let throttled = guess(&harness, "Ada", "192.0.2.1").await;
    assert_eq!(throttled.status_and_code(), "429 rate_limit_exceeded");
    let retry_after: u64 = throttled.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=31).contains(&retry_after), "{retry_after}");
    assert_eq!(ada.get("/account").await.status, 200, "existing sessions must stay active");
    assert_eq!(guess(&harness, "grace", "192.0.2.1").await.status, 401);
    assert_eq!(guess(&harness, "ada", "192.0.2.2").await.status, 401, "other clients must not be locked out");
    for secret in ["192.0.2.", "ada", "wrong guess"] {
        assert!(!harness.service.logs().contains(secret), "{secret} in {}", harness.service.logs());
    }
}

#[tokio::test]
async fn owner_signs_in_and_confirms_despite_an_attacker_on_the_same_address() {
    let harness = Harness::start().await;
    let owner = harness.sign_up("ada").await;
    for _ in 0..12 {
        guess(&harness, "ada", "-").await;
    }
    assert_eq!(guess(&harness, "ada", "-").await.status_and_code(), "429 rate_limit_exceeded");

    let change = json!({"current_password": PASSWORD, "new_password": "another password"});
    assert_eq!(
        owner.put("/account/password", change).await.status,
        204,
        "confirmations have their own limit"
    );
    assert_eq!(owner.delete("/session").await.status, 204);
    let sign_in = json!({"login": "ada", "password": "another password"});
    let strange = harness.browser().post("/session", sign_in.clone()).await;
    assert_eq!(strange.status_and_code(), "429 rate_limit_exceeded", "without the cookie");
    let signed_in = owner.post("/session", sign_in).await;
    assert_eq!(signed_in.status, 200, "with the known-browser cookie: {signed_in:?}");
    assert_eq!(signed_in.headers.get_all("set-cookie").iter().count(), 2);
}

#[tokio::test]
async fn owner_signs_in_and_confirms_while_strangers_fill_the_hashing_queue() {
    let harness = Harness::start_with(&["--trusted-proxies", "127.0.0.0/8"]).await;
    let owner = harness.sign_up("ada").await;
    // Each stranger has an address of its own and guesses at a login of its own, so that no limit applies.
    let mut strangers = JoinSet::new();
    for n in 0..80 {
        let browser = harness.browser();
        strangers.spawn(async move {
            for i in 0_u32.. {
                let guess = json!({"login": format!("login{n}-{i}"), "password": "a wrong guess"});
                let address = format!("10.{n}.{}.{}", i >> 8 & 255, i & 255);
                let request = browser.change(reqwest::Method::POST, "/session");
                // Times out if the machine is busy.
                let _ = request.header("X-Forwarded-For", address).json(&guess).send().await;
            }
        });
    }
    let stranger = harness.browser();
    eventually(Duration::from_secs(60), "the queue is full", async || {
        let guess = json!({"login": "grace", "password": "a wrong guess"});
        let request =
            stranger.change(reqwest::Method::POST, "/session").header("X-Forwarded-For", "192.0.2.1");
        // Times out if it gets a place in the queue and the machine is busy.
        let response = request.json(&guess).send().await.ok()?;
        (response.status() == 503).then_some(())
    })
    .await;
    let change = json!({"current_password": PASSWORD, "new_password": "another password"});
    assert_eq!(owner.put("/account/password", change).await.status_and_code(), "204");
    for _ in 0..4 {
        let signed_in = owner.post("/session", json!({"login": "ada", "password": "another password"})).await;
        assert_eq!(signed_in.status, 200, "{signed_in:?}");
    }
}

#[tokio::test]
async fn known_browser_cookie_has_its_own_limit_and_only_for_its_login() {
    let harness = Harness::start().await;
    let browser = harness.sign_up("ada").await;
    harness.sign_up("grace").await;
    let guess_as = async |login: &str| {
        browser.post("/session", json!({"login": login, "password": "a wrong guess"})).await.status
    };
    for _ in 0..10 {
        assert_eq!(guess_as("ada").await, 401);
    }
    assert_eq!(guess_as("ada").await, 429, "the cookie's limit");
    assert_eq!(
        guess(&harness, "ada", "-").await.status,
        401,
        "the address's limit for this login is not used up"
    );
    for _ in 0..10 {
        assert_eq!(guess_as("grace").await, 401);
    }
    assert_eq!(guess_as("grace").await, 429);
    assert_eq!(guess(&harness, "grace", "-").await.status, 429, "the cookie of another login must not count");
}

#[tokio::test]
async fn eleventh_wrong_confirmation_in_a_session_gets_429() {
    let harness = Harness::start().await;
    let first = harness.sign_up("ada").await;
    let mut second = harness.browser();
    let signed_in = second.post("/session", json!({"login": "ada", "password": PASSWORD})).await;
    second.store_cookies(&signed_in);
    let confirm = async |browser: &Browser| {
        browser.post("/account/delete", json!({"password": "a wrong guess"})).await.status_and_code()
    };
    for _ in 0..10 {
        assert_eq!(confirm(&first).await, "403 wrong_password");
    }
    assert_eq!(confirm(&first).await, "429 rate_limit_exceeded");
    assert_eq!(confirm(&second).await, "403 wrong_password", "another session must not be locked out");
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
