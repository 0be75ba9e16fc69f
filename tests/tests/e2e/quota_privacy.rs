//! After a run with trace logging: no key, login, credential or digest in logs and metrics, and no key in the stored
//! bytes.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use quota_client::QuotaClient;
use quota_client::wire::{
    BATCH_TYPE, NewAccount, NewKey, NewSession, Outcome, Scope, SessionKind, SetCredential, SettingsChange,
    StateChange, encode_charges,
};
use testkit::http;
use testkit::process::TOKEN;
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::redis::Redis;
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const LOGIN: &str = "marked-login-8b1f@example.org";
const CREDENTIAL: &str = "marked-credential-52c7";
const NEW_CREDENTIAL: &str = "marked-credential-changed-91aa";
const KEY_NAME: &str = "marked-key-name-77d0";
const SESSION: &str = "5e551000000000000000000000000000000000000000000000000000000d1e5e";

/// Calls the operations that handle secrets, some of them in a way that fails. Returns the created key.
async fn use_everything(client: &QuotaClient, url: &str) -> TestKey {
    let new = NewAccount { login: LOGIN.to_owned(), credential: Some(CREDENTIAL.to_owned()) };
    let account = client.create_account(&new).await.unwrap().id;
    client.create_account(&new).await.unwrap_err();
    client.find_account(LOGIN).await.unwrap().unwrap();
    let change =
        SetCredential { credential: NEW_CREDENTIAL.to_owned(), expected_version: 1, ..Default::default() };
    client.set_credential(&account, &change).await.unwrap();
    client.set_credential(&account, &change).await.unwrap_err();
    client
        .create_session(
            &account,
            &NewSession {
                kind: SessionKind::Session,
                id_sha256: SESSION.to_owned(),
                ttl_seconds: 60,
                expected_credential: None,
            },
        )
        .await
        .unwrap();
    assert!(client.session_account(&account, SESSION).await.unwrap().is_some());
    let new = NewKey::new("first", Scope::Full);
    let key = TestKey::new(client.create_key(&account, &new).await.unwrap(), account.clone());
    client.change_key(&key.key.id, None, &SettingsChange::rename(KEY_NAME)).await.unwrap();
    assert_eq!(key.charge(client, 6).await[5], Outcome::BurstExceeded);
    assert_eq!(key.charge(client, 1).await, [Outcome::Paused]);
    client.change_state(&key.key.id, None, StateChange::Resume).await.unwrap();
    client.export(None, 10).await.unwrap();
    client.delete_session(&account, SESSION).await.unwrap();
    // Invalid bodies that contain secrets.
    let unknown_kind = [&[9][..], &encode_charges(&key.charges(1))[1..]].concat();
    let login = format!(r#"{{"login":"{LOGIN}","credential":["{CREDENTIAL}"]}}"#);
    let login = format!(r#"{{"actor":"owner","command":{{"create_account":{login}}}}}"#);
    for body in [unknown_kind, key.secret.clone().into_bytes(), login.into_bytes()] {
        for (path, content_type) in [("charges", BATCH_TYPE), ("commands", "application/json")] {
            let request = http::client().post(format!("{url}/internal/v1/{path}")).bearer_auth(TOKEN);
            let request = request.header("content-type", content_type).body(body.clone());
            assert_eq!(request.send().await.unwrap().status(), 400);
        }
    }
    let with_query = format!("{url}/internal/v1/nowhere?key={}", key.secret);
    let request = http::client().get(with_query).header("authorization", format!("Bearer {}", key.secret));
    assert_eq!(request.send().await.unwrap().status(), 401);
    key
}

/// Panics if `text` contains one of the secrets.
fn check(location: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        let hit = text.lines().find(|line| line.contains(secret));
        assert!(hit.is_none(), "{location} contains {secret}: {}", hit.unwrap_or_default());
    }
}

async fn check_output(quota: &Quota, key: &TestKey) {
    let digest = key.digest.to_hex();
    let bytes = format!("{:?}", key.digest.0);
    let middle = &key.secret[8..38];
    let secrets = [
        key.secret.as_str(),
        middle,
        &digest,
        bytes.trim_matches(['[', ']']),
        LOGIN,
        CREDENTIAL,
        NEW_CREDENTIAL,
        KEY_NAME,
        SESSION,
    ];
    check("the log", &quota.service.logs(), &secrets);
    check("standard output", &quota.service.stdout(), &secrets);
    check("/metrics", &quota.metrics().await, &secrets);
    check("/readyz", &quota.readiness().await.1, &secrets);
}

fn all_bytes(dir: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(all_bytes(&path));
        } else if path.is_file() {
            bytes.extend(fs::read(path).unwrap());
        }
    }
    bytes
}

fn check_stored(dir: &Path, key: &TestKey) {
    let stored = String::from_utf8_lossy(&all_bytes(dir)).into_owned();
    assert!(stored.contains(NEW_CREDENTIAL), "the credential is found, so the search works");
    check("the store", &stored, &[&key.secret, &key.secret[8..38]]);
}

#[tokio::test]
async fn secrets_stay_private_with_redis_and_during_outage() {
    let mut redis = Redis::options().appendonly().start().await;
    let flags = ["--burst-limit", "5", "--log-level", "debug,quota_svc=trace,service_kit=trace"];
    let quota = Quota::start_with(&redis, &flags).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let client = quota.client();
    let key = use_everything(&client, quota.url()).await;
    redis.stop();
    let new = NewAccount { login: LOGIN.to_owned(), credential: Some(CREDENTIAL.to_owned()) };
    client.create_account(&new).await.unwrap_err();
    eventually(WAIT_TIMEOUT, "a line with level DEBUG is logged", async || {
        assert_eq!(key.charge(&client, 1).await, [Outcome::Unavailable]);
        quota.service.logs().contains("\"DEBUG\"").then_some(())
    })
    .await;
    check_output(&quota, &key).await;
    check_stored(redis.dir(), &key);
}

#[tokio::test]
async fn secrets_stay_private_with_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreChoice::File(dir.path().join("quota.redb"));
    let mut quota = Quota::start_with(store, &["--burst-limit", "5", "--log-level", "trace"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let key = use_everything(&quota.client(), quota.url()).await;
    check_output(&quota, &key).await;
    quota.service.kill();
    check_stored(dir.path(), &key);
}
