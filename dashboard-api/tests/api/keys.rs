//! The keys of an account, and how they stay its own.

use std::time::Duration;

use e2e::wait::eventually;
use quota_client::wire::{Charge, ChargeRequest, Outcome};
use serde_json::{Value, json};

use crate::rig::{Rig, Visitor};

#[tokio::test]
async fn a_new_key_is_shown_once_with_a_line_that_tries_it() {
    let rig = Rig::start_with(&["--lookup-url", "https://lookup.example/"]).await;
    let ada = rig.sign_up("ada").await;
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
    assert!(!rig.service.logs().contains(secret));
}

#[tokio::test]
async fn the_eleventh_key_is_refused_until_one_goes() {
    let rig = Rig::start().await;
    let ada = rig.sign_up("ada").await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(ada.create_key("the same name").await.0);
    }
    let eleventh = json!({"name": "x", "scope": "ip"});
    assert_eq!(ada.post("/keys", eleventh.clone()).await.told(), "409 key_limit_reached");
    assert_eq!(ada.delete(&format!("/keys/{}", ids[3])).await.status, 204);
    assert_eq!(ada.post("/keys", eleventh).await.status, 201);
}

#[tokio::test]
async fn a_key_goes_through_its_states_and_its_events_tell() {
    let rig = Rig::start().await;
    let ada = rig.sign_up("ada").await;
    let (id, _) = ada.create_key("one").await;
    let state = async |change: &str| ada.post(&format!("/keys/{id}/{change}"), Value::Null).await;
    assert_eq!(state("deactivate").await.body["state"], json!("inactive"));
    assert_eq!(state("resume").await.told(), "409 key_inactive");
    assert_eq!(state("reactivate").await.body["state"], json!("active"));
    let renamed = ada.put(&format!("/keys/{id}/name"), json!({"name": "two"})).await;
    assert_eq!(renamed.body["name"], json!("two"));
    assert_eq!(ada.put(&format!("/keys/{id}/name"), json!({"name": " "})).await.told(), "400 invalid_name");
    let long = json!({"name": "x".repeat(65)});
    assert_eq!(ada.put(&format!("/keys/{id}/name"), long).await.told(), "400 invalid_name");
    assert_eq!(kinds(&ada, &id).await, ["renamed", "reactivated", "deactivated", "created"]);
}

#[tokio::test]
async fn a_paused_key_says_when_and_why_and_is_resumed() {
    let rig = Rig::start().await;
    let ada = rig.sign_up("ada").await;
    let (id, created) = ada.create_key("busy").await;
    let secret = created.body["secret"].as_str().unwrap();
    assert_eq!(charge(&rig, secret, 301).await, Outcome::BurstExceeded);

    let key = ada.get(&format!("/keys/{id}")).await.body;
    assert_eq!((&key["state"], &key["used_today"]), (&json!("paused"), &json!(300)));
    assert_eq!(key["pause"]["reason"], json!("more than 300 requests within 60 seconds"));
    assert_eq!(key["pause"]["at"], key["state_since"]);
    assert_eq!(ada.get("/keys").await.body["keys"][0], key);
    assert_eq!(ada.post(&format!("/keys/{id}/reactivate"), Value::Null).await.told(), "409 key_paused");

    assert_eq!(ada.post(&format!("/keys/{id}/resume"), Value::Null).await.body["state"], json!("active"));
    eventually(Duration::from_secs(2), "requests are allowed again", async || {
        (charge(&rig, secret, 1).await == Outcome::Allowed).then_some(())
    })
    .await;
    assert_eq!(kinds(&ada, &id).await, ["resumed", "paused", "created"]);
    let usage = ada.get(&format!("/keys/{id}/usage")).await.body;
    let days = usage["days"].as_array().unwrap();
    assert_eq!(days.len(), 31);
    assert!(days[30]["requests"].as_u64().unwrap() >= 301, "today is last: {usage}");
}

#[tokio::test]
async fn without_its_store_it_says_so_and_recovers() {
    let mut rig = Rig::start().await;
    let ada = rig.sign_up("ada").await;
    rig.quota.service.kill();
    let answer = ada.get("/keys").await;
    assert_eq!(answer.told(), "503 unavailable");
    assert!(!answer.body["message"].as_str().unwrap().contains("quota"), "no detail leaves");
    assert!(rig.service.is_running());
}

async fn kinds(visitor: &Visitor, id: &str) -> Vec<String> {
    let events = visitor.get(&format!("/keys/{id}/events")).await.body;
    let events = events["events"].as_array().unwrap().iter();
    events.map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

/// Charges the key so often and gives the last verdict.
async fn charge(rig: &Rig, secret: &str, times: usize) -> Outcome {
    let digest = api_key::ApiKey::parse(secret).unwrap().digest().to_hex();
    let charge = Charge { key_sha256: Some(digest), demo: None };
    let mut last = Outcome::Unavailable;
    for batch in vec![charge; times].chunks(256) {
        let verdicts = rig.quota.client().charge(&ChargeRequest { charges: batch.to_vec() }).await.unwrap();
        last = verdicts.verdicts.last().unwrap().outcome;
    }
    last
}
