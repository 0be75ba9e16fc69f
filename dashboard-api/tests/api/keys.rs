//! The keys of an account: creation, limit, states, events and usage.

use std::time::Duration;

use quota_client::wire::{Charge, Outcome};
use serde_json::{Value, json};
use testkit::quota::StoreChoice;
use testkit::redis::Redis;
use testkit::wait::eventually;

use crate::harness::{Browser, Harness};

#[tokio::test]
async fn new_key_is_shown_once_with_a_curl_command() {
    let harness = Harness::start_with(&["--lookup-url", "https://lookup.example/"]).await;
    let ada = harness.sign_up("ada").await;
    let (id, created) = ada.create_key("  Production ").await;
    let secret = created.body["secret"].as_str().unwrap();
    assert!(secret.starts_with("ipl_") && secret.len() == 42, "{secret}");
    let curl = format!("curl -H \"Authorization: Bearer {secret}\" https://lookup.example/api/v1/ip");
    assert_eq!(created.body["curl"], json!(curl));

    let listed = ada.get("/keys").await.body;
    assert!(!listed.to_string().contains(secret));
    let key = &listed["keys"][0];
    assert_eq!((key["id"].as_str(), key["name"].as_str()), (Some(id.as_str()), Some("Production")));
    assert_eq!((key["scope"].as_str(), key["state"].as_str()), (Some("full"), Some("active")));
    assert_eq!((&key["daily_limit"], &key["used_today"]), (&json!(10_000), &json!(0)));
    assert!(secret.starts_with(key["hint"].as_str().unwrap().split('…').next().unwrap()));
    assert_eq!(key.get("pause"), None);
    assert!(!harness.service.logs().contains(secret));
}

#[tokio::test]
async fn eleventh_key_gets_409_until_one_is_deleted() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(ada.create_key("same name").await.0);
    }
    let eleventh = json!({"name": "x", "scope": "ip"});
    assert_eq!(ada.post("/keys", eleventh.clone()).await.status_and_code(), "409 key_limit_reached");
    assert_eq!(ada.delete(&format!("/keys/{}", ids[3])).await.status, 204);
    assert_eq!(ada.post("/keys", eleventh).await.status, 201);
}

#[tokio::test]
async fn state_changes_are_recorded_as_events() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let (id, _) = ada.create_key("one").await;
    let change = async |action: &str| ada.post(&format!("/keys/{id}/{action}"), Value::Null).await;
    assert_eq!(change("deactivate").await.body["state"], json!("inactive"));
    assert_eq!(change("resume").await.status_and_code(), "409 key_inactive");
    assert_eq!(change("reactivate").await.body["state"], json!("active"));
    let renamed = ada.patch(&format!("/keys/{id}"), json!({"name": "two"})).await;
    assert_eq!(renamed.body["name"], json!("two"));
    assert_eq!(
        ada.patch(&format!("/keys/{id}"), json!({"name": " "})).await.status_and_code(),
        "400 invalid_name"
    );
    let bidi = json!({"name": "two\u{202e}"});
    assert_eq!(ada.patch(&format!("/keys/{id}"), bidi).await.status_and_code(), "400 invalid_name");
    let long = json!({"name": "x".repeat(65)});
    assert_eq!(ada.patch(&format!("/keys/{id}"), long).await.status_and_code(), "400 invalid_name");
    assert_eq!(kinds(&ada, &id).await, ["renamed", "reactivated", "deactivated", "created"]);
    let events = ada.get(&format!("/keys/{id}/events")).await.body;
    assert_eq!(events["events"][0]["reason"], json!("renamed to two (by the owner)"));
    assert_eq!(events["events"][3]["reason"], json!("created (by the owner)"));
}

#[tokio::test]
async fn paused_key_shows_time_and_reason_and_can_be_resumed() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let (id, created) = ada.create_key("busy").await;
    let secret = created.body["secret"].as_str().unwrap();
    assert_eq!(charge(&harness, secret, 301).await, Outcome::BurstExceeded);

    let key = ada.get(&format!("/keys/{id}")).await.body;
    assert_eq!((&key["state"], &key["used_today"]), (&json!("paused"), &json!(300)));
    assert_eq!(key["pause"]["reason"], json!("more than 300 requests within 60 seconds"));
    assert_eq!(key["pause"]["at"], key["state_since"]);
    assert_eq!(ada.get("/keys").await.body["keys"][0], key);
    assert_eq!(
        ada.post(&format!("/keys/{id}/reactivate"), Value::Null).await.status_and_code(),
        "409 key_paused"
    );

    assert_eq!(ada.post(&format!("/keys/{id}/resume"), Value::Null).await.body["state"], json!("active"));
    eventually(Duration::from_secs(2), "requests are allowed again", async || {
        (charge(&harness, secret, 1).await == Outcome::Allowed).then_some(())
    })
    .await;
    assert_eq!(kinds(&ada, &id).await, ["resumed", "paused", "created"]);
    let usage = ada.get(&format!("/keys/{id}/usage")).await.body;
    let days = usage["days"].as_array().unwrap();
    assert_eq!(days.len(), 31);
    assert!(days[30]["requests"].as_u64().unwrap() >= 301, "the last day is today: {usage}");
}

#[tokio::test]
async fn requests_get_503_without_details_while_quota_svc_is_unreachable() {
    let mut harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    harness.quota.service.kill();
    let response = ada.get("/keys").await;
    assert_eq!(response.status_and_code(), "503 unavailable");
    assert!(
        !response.body["message"].as_str().unwrap().contains("quota"),
        "the message must not name internal services"
    );
    assert!(harness.service.is_running());
}

async fn kinds(browser: &Browser, id: &str) -> Vec<String> {
    let events = browser.get(&format!("/keys/{id}/events")).await.body;
    let events = events["events"].as_array().unwrap().iter();
    events.map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

/// Charges the key `times` times and returns the last outcome.
async fn charge(harness: &Harness, secret: &str, times: usize) -> Outcome {
    let digest = api_key::ApiKey::parse(secret).unwrap().digest();
    let charge = Charge::Key { digest, origin: None };
    let mut last = Outcome::Unavailable;
    for batch in vec![charge; times].chunks(256) {
        let verdicts = harness.quota.client().charge(batch).await.unwrap();
        last = verdicts.last().unwrap().outcome();
    }
    last
}

#[tokio::test]
async fn unreadable_key_is_listed_and_can_be_deleted_by_its_owner() {
    let redis = Redis::start().await;
    let harness = Harness::start_on(StoreChoice::from(&redis), tempfile::tempdir().unwrap(), &[]).await;
    let (ada, eve) = (harness.sign_up("ada").await, harness.sign_up("eve").await);
    let ((bad, _), (good, _)) = (ada.create_key("bad").await, ada.create_key("good").await);
    let record = redis.find(&format!("{bad}:k")).await.unwrap();
    redis.cli(&["SET", &record, "damaged"]).await;

    let listed = ada.get("/keys").await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let keys = listed.body["keys"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[0]["id"]), (1, &json!(good)));
    let unreadable = &listed.body["unreadable"][0];
    assert_eq!((&unreadable["id"], &unreadable["name"]), (&json!(bad), &json!("bad")), "{unreadable}");
    assert_eq!(ada.get(&format!("/keys/{bad}")).await.status_and_code(), "500 unreadable_key");
    assert_eq!(eve.delete(&format!("/keys/{bad}")).await.status_and_code(), "404 key_not_found");
    assert_eq!(ada.delete(&format!("/keys/{bad}")).await.status, 204);
    assert_eq!(ada.get("/keys").await.body.get("unreadable"), None);
}
