//! Batches of every size and shape: exact, or 400 that names what is wrong.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use e2e::http;
use e2e::quota::{Quota, TestKey};
use e2e::redis::Redis;
use quota_client::wire::Outcome;
use serde_json::{Value, json};
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
    let request = http::client().post(url).header("content-type", "application/json").body(body);
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).expect("a JSON body"))
}

/// Reads while it still writes: a body of megabytes is refused before it has arrived.
async fn post_and_listen(quota: &Quota, body: &str) -> String {
    let (mut from, mut to) = TcpStream::connect(quota.addr()).await.unwrap().into_split();
    let head = "POST /internal/v1/charges HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let writing = tokio::spawn(async move { to.write_all(request.as_bytes()).await });
    let mut answer = Vec::new();
    // After its answer the server may cut the connection: what was read before counts.
    let _ = timeout(Duration::from_secs(20), from.read_to_end(&mut answer)).await.expect("an answer");
    let _ = writing.await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn one_key_many_times_in_a_batch_is_counted_exactly_and_in_order() {
    let (_redis, quota, key) = start().await;
    let other = quota.new_key().await;
    let mut batch = key.charges(30);
    batch.charges.extend(other.charges(5).charges);
    batch.charges.extend(key.charges(30).charges);
    let verdicts = quota.client().charge(&batch).await.unwrap().verdicts;
    let left: Vec<_> = verdicts.iter().map(|verdict| verdict.remaining).collect();
    let expected: Vec<_> = (10..40).rev().chain((35..40).rev()).chain((0..10).rev()).map(Some).collect();
    assert_eq!(left[..45], expected);
    assert!(verdicts[45..].iter().all(|verdict| verdict.outcome == Outcome::DailyExceeded));
    assert_eq!(key.now(&quota.client()).await.used_today, 40);
}

#[tokio::test]
async fn a_batch_of_256_is_judged_and_anything_larger_or_empty_is_refused_with_the_limit() {
    let (_redis, quota, key) = start().await;
    let verdicts = quota.client().charge(&key.charges(256)).await.unwrap().verdicts;
    let allowed = verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Allowed).count();
    assert_eq!((verdicts.len(), allowed), (256, 40));
    for count in [0, 257, 400] {
        let (status, body) = post(&quota, serde_json::to_string(&key.charges(count)).unwrap()).await;
        assert_eq!((status, &body["error"]), (400, &json!("batch_too_large")), "{count}: {body}");
        assert!(body["message"].as_str().unwrap().contains("256"), "{body}");
    }
    let answer = post_and_listen(&quota, &serde_json::to_string(&key.charges(65_536)).unwrap()).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("batch_too_large"), "{answer}");
    assert!(answer.contains("1 to 256 charges"), "{answer}");
    assert_eq!(key.now(&quota.client()).await.used_today, 40, "what was refused was not charged");
}

#[tokio::test]
async fn a_batch_with_anything_wrong_in_it_is_refused_whole_and_charges_nothing() {
    let (_redis, quota, key) = start().await;
    let good = serde_json::to_value(&key.charges(1).charges[0]).unwrap();
    let digest = good["key_sha256"].as_str().unwrap();
    let wrong = [
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
    let bodies = wrong.iter().map(Value::to_string).chain([truncated[..60].to_owned(), String::new()]);
    for body in bodies {
        let (status, answer) = post(&quota, body.clone()).await;
        assert_eq!(status, 400, "{body}: {answer}");
        for field in ["error", "message", "docs"] {
            assert!(answer[field].as_str().is_some_and(|text| !text.is_empty()), "{body}: {answer}");
        }
        assert!(!answer.to_string().contains(digest), "the key's digest is not repeated: {answer}");
    }
    assert_eq!(key.now(&quota.client()).await.used_today, 0);
}
