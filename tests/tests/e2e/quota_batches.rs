//! Valid batches are counted exactly; invalid ones get 400 and charge nothing.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use quota_client::wire::{BATCH_TYPE, Outcome, encode_charges};
use serde_json::{Value, json};
use testkit::http;
use testkit::process::TOKEN;
use testkit::quota::{Quota, TestKey, remaining};
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

async fn post(quota: &Quota, body: Vec<u8>) -> (u16, Value) {
    let url = format!("{}/internal/v1/charges", quota.url());
    let request = http::client().post(url).bearer_auth(TOKEN);
    let request = request.header("content-type", BATCH_TYPE).body(body);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).expect("the body is JSON"))
}

/// Reads the response while still sending, because a body of megabytes is rejected before all of it has arrived.
async fn post_while_reading(quota: &Quota, body: &[u8]) -> String {
    let (mut reader, mut writer) = TcpStream::connect(quota.addr()).await.unwrap().into_split();
    let head =
        format!("POST /internal/v1/charges HTTP/1.1\r\nHost: localhost\r\nContent-Type: {BATCH_TYPE}\r\n");
    let head = format!("{head}Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n", body.len());
    let request = [head.as_bytes(), body].concat();
    let writing = tokio::spawn(async move { writer.write_all(&request).await });
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
    batch.extend(other.charges(5));
    batch.extend(key.charges(30));
    let verdicts = quota.client().charge(&batch).await.unwrap();
    let left: Vec<_> = verdicts.iter().map(remaining).collect();
    let expected: Vec<_> = (10..40).rev().chain((35..40).rev()).chain((0..10).rev()).map(Some).collect();
    assert_eq!(left[..45], expected);
    assert!(verdicts[45..].iter().all(|verdict| verdict.outcome() == Outcome::DailyExceeded));
    assert_eq!(key.fetch(&quota.client()).await.used_today, 40);
}

#[tokio::test]
async fn batch_of_256_is_charged_and_larger_or_empty_gets_400() {
    let (_redis, quota, key) = start().await;
    let verdicts = quota.client().charge(&key.charges(256)).await.unwrap();
    let allowed = verdicts.iter().filter(|verdict| verdict.outcome() == Outcome::Allowed).count();
    assert_eq!((verdicts.len(), allowed), (256, 40));
    for count in [0, 257, 400] {
        let (status, body) = post(&quota, encode_charges(&key.charges(count))).await;
        assert_eq!((status, &body["error"]), (400, &json!("batch_too_large")), "{count}: {body}");
        assert!(body["message"].as_str().unwrap().contains("256"), "{body}");
    }
    let response = post_while_reading(&quota, &encode_charges(&key.charges(65_536))).await;
    assert!(response.starts_with("HTTP/1.1 400") && response.contains("batch_too_large"), "{response}");
    assert!(response.contains("1 to 256 charges"), "{response}");
    assert_eq!(key.fetch(&quota.client()).await.used_today, 40, "rejected batches charge nothing");
}

#[tokio::test]
async fn invalid_batch_gets_400_and_charges_nothing() {
    let (_redis, quota, key) = start().await;
    let good = encode_charges(&key.charges(2));
    let truncated = good[..good.len() - 1].to_vec();
    let unknown_kind = [&good[..good.len() / 2], &[9], &good[good.len() / 2 + 1..]].concat();
    for body in [truncated, unknown_kind] {
        let (status, response) = post(&quota, body.clone()).await;
        assert_eq!((status, &response["error"]), (400, &json!("invalid_charges")), "{body:?}: {response}");
        assert!(response["message"].as_str().is_some_and(|text| !text.is_empty()), "{body:?}: {response}");
    }
    assert_eq!(key.fetch(&quota.client()).await.used_today, 0);
}
