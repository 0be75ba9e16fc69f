//! Guessing is slowed down, by login and by client address, and leaves no trace.

use serde_json::json;

use crate::rig::{Answer, PASSWORD, Rig, read};

async fn guess(rig: &Rig, login: &str, address: &str) -> Answer {
    let request = rig.visitor().change(reqwest::Method::POST, "/session").header("X-Forwarded-For", address);
    read(request.json(&json!({"login": login, "password": "a wrong guess"}))).await
}

#[tokio::test]
async fn a_login_is_guessed_ten_times_and_then_rests() {
    let rig = Rig::start_with(&["--trusted-proxies", "127.0.0.0/8"]).await;
    let ada = rig.sign_up("ada").await;
    for i in 0..10 {
        assert_eq!(guess(&rig, "ada", &format!("192.0.2.{i}")).await.status, 401);
    }
    let refused = guess(&rig, "Ada", "192.0.2.99").await;
    assert_eq!(refused.told(), "429 rate_limit_exceeded");
    let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=31).contains(&wait), "{wait}");
    assert_eq!(ada.get("/account").await.status, 200, "who is signed in stays so");
    assert_eq!(
        ada.post("/account/delete", json!({"password": PASSWORD})).await.status,
        429,
        "guessing from inside too"
    );
    assert_eq!(guess(&rig, "grace", "192.0.2.1").await.status, 401);
    for line in ["192.0.2.", "ada", "wrong guess"] {
        assert!(!rig.service.logs().contains(line), "{line} in {}", rig.service.logs());
    }
}

#[tokio::test]
async fn an_address_is_believed_from_a_trusted_proxy_only() {
    let rig = Rig::start().await;
    let mut statuses = Vec::new();
    for i in 0..21 {
        let request = rig.visitor().change(reqwest::Method::POST, "/account");
        let request = request.header("X-Forwarded-For", format!("192.0.2.{i}"));
        // Too short a password: counted before it is looked at, and fast.
        statuses.push(read(request.json(&json!({"login": format!("l{i}"), "password": "x"}))).await.status);
    }
    assert_eq!(statuses[..20], [400; 20]);
    assert_eq!(statuses[20], 429, "whatever the header says, it is one address");
}
