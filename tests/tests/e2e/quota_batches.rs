//! Valid batches are counted exactly; invalid ones get 400 and charge nothing.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use quota_client::wire::Outcome;
use serde_json::{Value, json};
use testkit::http;
use testkit::process::TOKEN;
use testkit::quota::{Quota, TestKey};
use testkit::redis::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn start() -> (Redis, Quota, TestKey) {
    let redis = Redis::start().await;
    let quota = Quota::start_with(&redis, &["--store-timeout", "5s", "--daily-limit", "40"]).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    let key = quota.new_key().await;
    (redis, quota, key)
}

async fn post(quota: &Quota, body: String) -> (u16, Value) {
    let url = format!("{}/internal/v1/charges", quota.url());
    let request = http::client().post(url).bearer_auth(TOKEN);
    let request = request.header("content-type", "application/json").body(body);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).expect("the body is JSON"))
}

/// Reads the response while still sending, because a body of megabytes is rejected before all of it has arrived.
async fn post_while_reading(quota: &Quota, body: &str) -> String {
    let (mut reader, mut writer) = TcpStream::connect(quota.addr()).await.unwrap().into_split();
    let head = "POST /internal/v1/charges HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let request =
        format!("{head}Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let writing = tokio::spawn(async move { writer.write_all(request.as_bytes()).await });
    let mut response = Vec::new();
    // The server may reset the connection after its response. The bytes read before that remain.
    let _ = timeout(Duration::from_secs(20), reader.read_to_end(&mut response))
        .await
        .expect("the server closes the connection");
    let _ = writing.await;
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn repeated_key_in_batch_is_counted_exactly_and_in_order() {
    let (_redis, quota, key) = start().await;
    let other = quota.new_key().await;
    let mut batch = key.charges(30);
    batch.charges.extend(other.charges(5).charges);
    batch.charges.extend(key.charges(30).charges);
    let verdicts = quota.client().charge(&batch).await.unwrap().verdicts;
    let remaining: Vec<_> = verdicts.iter().map(|verdict| verdict.remaining).collect();
    let expected: Vec<_> = (10..40).rev().chain((35..40).rev()).chain((0..10).rev()).map(Some).collect();
    assert_eq!(remaining[..45], expected);
    assert!(verdicts[45..].iter().all(|verdict| verdict.outcome == Outcome::DailyExceeded));
    assert_eq!(key.fetch(&quota.client()).await.used_today, 40);
}

#[tokio::test]
async fn batch_of_256_is_charged_and_larger_or_empty_gets_400() {
    let (_redis, quota, key) = start().await;
    let verdicts = quota.client().charge(&key.charges(256)).await.unwrap().verdicts;
    let allowed = verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Allowed).count();
    assert_eq!((verdicts.len(), allowed), (256, 40));
    for count in [0, 257, 400] {
        let (status, body) = post(&quota, serde_json::to_string(&key.charges(count)).unwrap()).await;
        assert_eq!((status, &body["error"]), (400, &json!("batch_too_large")), "{count}: {body}");
        assert!(body["message"].as_str().unwrap().contains("256"), "{body}");
    }
    let response = post_while_reading(&quota, &serde_json::to_string(&key.charges(65_536)).unwrap()).await;
    assert!(response.starts_with("HTTP/1.1 400") && response.contains("batch_too_large"), "{response}");
    assert!(response.contains("1 to 256 charges"), "{response}");
    assert_eq!(key.fetch(&quota.client()).await.used_today, 40, "rejected batches charge nothing");
}

#[tokio::test]
async fn invalid_batch_gets_400_and_charges_nothing() {
    let (_redis, quota, key) = start().await;
    let good = serde_json::to_value(&key.charges(1).charges[0]).unwrap();
    let digest = good["key_sha256"].as_str().unwrap();
    let invalid = [
        json!({"charges": [good, {"key_sha256": digest, "weight": 2}]}),
        json!({"charges": [good], "dry_run": true}),
        json!({"charges": [good, {"key_sha256": digest.to_uppercase()}]}),
        json!({"charges": [good, {"key_sha256": &digest[..63]}]}),
        json!({"charges": [good, {"key_sha256": digest, "demo": true}]}),
        json!({"charges": [good, {"demo": false}]}),
        json!({"charges": [good, {}]}),
        json!({"charges": good}),
        json!([good]),
        json!(null),
    ];
    let truncated = json!({"charges": [good]}).to_string();
    let bodies = invalid.iter().map(Value::to_string).chain([truncated[..60].to_owned(), String::new()]);
    for body in bodies {
        let (status, response) = post(&quota, body.clone()).await;
        assert_eq!(status, 400, "{body}: {response}");
        for field in ["error", "message", "docs"] {
            assert!(response[field].as_str().is_some_and(|text| !text.is_empty()), "{body}: {response}");
        }
        assert!(
            !response.to_string().contains(digest),
            "the response does not contain the digest: {response}"
        );
    }
    assert_eq!(key.fetch(&quota.client()).await.used_today, 0);
}
