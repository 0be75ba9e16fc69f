//! After a run at the highest level of logging: no key, no login, no credential, no digest in any log or metric, and
//! no key in a stored byte.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::http;
use e2e::quota::{Quota, StoreChoice, TestKey};
use e2e::redis::Redis;
use e2e::wait::eventually;
use quota_client::QuotaClient;
use quota_client::wire::{NewAccount, NewKey, NewSession, Outcome, Rename, Scope, SetCredential};

const PATIENCE: Duration = Duration::from_secs(20);
const LOGIN: &str = "marked-login-8b1f@example.org";
const CREDENTIAL: &str = "marked-credential-52c7";
const CHANGED: &str = "marked-credential-changed-91aa";
const KEY_NAME: &str = "marked-key-name-77d0";
const SESSION: &str = "5e551000000000000000000000000000000000000000000000000000000d1e5e";

/// Uses every operation, and fails some.
async fn use_everything(client: &QuotaClient, url: &str) -> TestKey {
    let new = NewAccount { login: LOGIN.to_owned(), credential: Some(CREDENTIAL.to_owned()) };
    let account = client.create_account(&new).await.unwrap().id;
    client.create_account(&new).await.unwrap_err();
    client.find_account(LOGIN).await.unwrap().unwrap();
    let change = SetCredential { credential: CHANGED.to_owned(), expected_version: 1, keep_session: None };
    client.set_credential(&account, &change).await.unwrap();
    client.set_credential(&account, &change).await.unwrap_err();
    client
        .create_session(&account, &NewSession { id_sha256: SESSION.to_owned(), ttl_seconds: 60 })
        .await
        .unwrap();
    assert!(client.session_lives(&account, SESSION).await.unwrap());
    let new = NewKey { name: "first".to_owned(), scope: Scope::Full, daily_limit: None };
    let key = TestKey::from(client.create_key(&account, &new).await.unwrap());
    client.rename_key(&key.key.id, None, &Rename { name: KEY_NAME.to_owned() }).await.unwrap();
    assert_eq!(key.charge(client, 6).await[5], Outcome::BurstExceeded);
    assert_eq!(key.charge(client, 1).await, [Outcome::Paused]);
    client.resume_key(&key.key.id, None).await.unwrap();
    client.export(None, 10).await.unwrap();
    client.delete_session(&account, SESSION).await.unwrap();
    // Malformed calls that carry secrets where they do not belong.
    let digest = key.charges(1).charges.remove(0).key_sha256.unwrap();
    for body in [
        format!(r#"{{"charges":[{{"key":"{}"}}]}}"#, key.secret),
        format!(r#"{{"charges":[{{"key_sha256":"{digest}x"}}]}}"#),
        format!(r#"{{"login":"{LOGIN}","credential":["{CREDENTIAL}"]}}"#),
    ] {
        for path in ["charges", "accounts"] {
            let request = http::client().post(format!("{url}/internal/v1/{path}"));
            let request = request.header("content-type", "application/json").body(body.clone());
            assert_eq!(request.send().await.unwrap().status(), 400);
        }
    }
    let with_query = format!("{url}/internal/v1/nowhere?key={}", key.secret);
    let request = http::client().get(with_query).header("authorization", format!("Bearer {}", key.secret));
    assert_eq!(request.send().await.unwrap().status(), 404);
    key
}

/// What may not be found where.
fn check(place: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        let hit = text.lines().find(|line| line.contains(secret));
        assert!(hit.is_none(), "{place} has {secret}: {}", hit.unwrap_or_default());
    }
}

async fn check_told(quota: &Quota, key: &TestKey) {
    let digest = key.charges(1).charges.remove(0).key_sha256.unwrap();
    let middle = &key.secret[8..38];
    let secrets = [key.secret.as_str(), middle, &digest, LOGIN, CREDENTIAL, CHANGED, KEY_NAME, SESSION];
    check("the log", &quota.service.logs(), &secrets);
    check("standard output", &quota.service.stdout(), &secrets);
    check("/metrics", &quota.metrics().await, &secrets);
    check("/readyz", &quota.readiness().await.1, &secrets);
}

fn bytes_below(dir: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(bytes_below(&path));
        } else if path.is_file() {
            bytes.extend(fs::read(path).unwrap());
        }
    }
    bytes
}

fn check_stored(dir: &Path, key: &TestKey) {
    let stored = String::from_utf8_lossy(&bytes_below(dir)).into_owned();
    assert!(stored.contains(CHANGED), "the search would find what is stored");
    check("the store", &stored, &[&key.secret, &key.secret[8..38]]);
}

#[tokio::test]
async fn nothing_secret_is_told_while_redis_works_and_while_it_is_away() {
    let mut redis = Redis::options().appendonly().start().await;
    let flags = ["--burst-limit", "5", "--log-level", "debug,quota_svc=trace,service_kit=trace"];
    let quota = Quota::start_with(&redis, &flags).await;
    quota.wait_ready(PATIENCE).await;
    let client = quota.client();
    let key = use_everything(&client, quota.url()).await;
    redis.stop();
    let new = NewAccount { login: LOGIN.to_owned(), credential: Some(CREDENTIAL.to_owned()) };
    client.create_account(&new).await.unwrap_err();
    eventually(PATIENCE, "a line that only this level has", async || {
        assert_eq!(key.charge(&client, 1).await, [Outcome::Unavailable]);
        quota.service.logs().contains("\"DEBUG\"").then_some(())
    })
    .await;
    check_told(&quota, &key).await;
    check_stored(redis.dir(), &key);
}

#[tokio::test]
async fn nothing_secret_is_told_on_the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreChoice::File(dir.path().join("quota.redb"));
    let mut quota = Quota::start_with(store, &["--burst-limit", "5", "--log-level", "trace"]).await;
    quota.wait_ready(PATIENCE).await;
    let key = use_everything(&quota.client(), quota.url()).await;
    check_told(&quota, &key).await;
    quota.service.kill();
    check_stored(dir.path(), &key);
}
