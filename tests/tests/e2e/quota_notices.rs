//! Invalid requests of the notices API get 400 and change nothing.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use e2e::notices::LIMITS;
use quota_client::wire::{Contact, Webhook};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::http;
use testkit::process::TOKEN;
use testkit::quota::{Quota, StoreChoice};
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Sends a body to the internal API.
struct Sender {
    http: reqwest::Client,
    url: String,
}

impl Sender {
    async fn status(&self, method: &Method, path: &str, body: Vec<u8>) -> u16 {
        let request = self.http.request(method.clone(), format!("{}/internal/v1{path}", self.url));
        let request = request.bearer_auth(TOKEN).header("content-type", "application/json").body(body);
        request.send().await.unwrap().status().as_u16()
    }
}

/// Bodies that differ from a valid one: each value in it has another type, is missing or has a neighbor that is unknown, and
/// the text is cut off.
fn mutations(valid: &Value) -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> =
        ["", "null", "[7]", "7", "{"].map(|text| text.as_bytes().to_vec()).to_vec();
    let text = valid.to_string();
    bodies.push(text.as_bytes()[..text.len() - 1].to_vec());
    bodies.push([text.as_bytes(), b"}"].concat());
    bodies.push(text.bytes().map(|byte| if byte == b'a' { 0xff } else { byte }).collect());
    bodies.push("[".repeat(10_000).into_bytes());
    for path in paths(valid, "") {
        let mut put = |value: Value| {
            let mut body = valid.clone();
            let changed = body.pointer_mut(&path).unwrap();
            // An optional field may be null, and serde reads an array as the fields of an object.
            let optional =
                ["/expected/webhook", "/contact/webhook", "/delivery", "/retry_seconds", "/delivery/error"];
            let is_valid = value.is_null() && optional.contains(&&*path)
                || value.is_array() && ["/expected", "/contact"].contains(&&*path)
                || path.is_empty();
            if !is_valid && std::mem::discriminant(changed) != std::mem::discriminant(&value) {
                *changed = value;
                bodies.push(body.to_string().into_bytes());
            }
        };
        [Value::Null, json!("x"), json!([]), json!({"x": 1}), json!(1.5), json!(true)]
            .into_iter()
            .for_each(&mut put);
        let mut body = valid.clone();
        match body.pointer_mut(&path).unwrap() {
            Value::Number(_) => {
                let numbers = ["1.5", "1e400", "99999999999999999999999", "-1"];
                // A time may be negative.
                for number in &numbers[..if path == "/delivery/at" { 3 } else { 4 }] {
                    let mut body = valid.clone();
                    *body.pointer_mut(&path).unwrap() = json!("NUMBER");
                    bodies.push(body.to_string().replace("\"NUMBER\"", number).into_bytes());
                }
            }
            Value::Object(fields) => {
                fields.insert("unknown".to_owned(), json!(1));
                bodies.push(body.to_string().into_bytes());
            }
            _ => {}
        }
    }
    bodies
}

/// The pointers to all values in a value.
fn paths(value: &Value, path: &str) -> Vec<String> {
    let fields = value.as_object().into_iter().flatten();
    let inner = fields.flat_map(|(name, value)| paths(value, &format!("{path}/{name}")));
    inner.chain([path.to_owned()]).collect()
}

#[tokio::test]
async fn mutated_notice_requests_get_400_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota::start_with(StoreChoice::File(dir.path().join("store")), &LIMITS).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    let (url, secret) = ("https://hooks.example/".to_owned(), "whsec_eA==".to_owned());
    let contact = Contact { webhook: Some(Webhook { url, secret, enabled: true }), mail: None };
    client.set_contact(&key.account, Contact::default(), contact.clone()).await.unwrap();
    key.charge(&client, 2).await;
    let claimed = eventually(WAIT_TIMEOUT, "the pause is announced", async || {
        client.claim_notices(10).await.unwrap().pop()
    })
    .await;
    let sender = Sender { http: http::client(), url: quota.url().to_owned() };
    let before = client.contact(&key.account).await.unwrap();

    for query in ["-1", "x", "", "1.5", "4294967296", "%00"] {
        let path = format!("/notices/claims?limit={query}");
        assert_eq!(sender.status(&Method::POST, &path, Vec::new()).await, 400, "{query}");
    }
    let result = json!({
        "account": key.account, "channel": "webhook", "claim": claimed.claim, "retry_seconds": 5, "delivery": {"at": 5, "error": "failed"},
    });
    let contact_path = format!("/accounts/{}/contact", key.account);
    let change = json!({"expected": contact, "contact": contact});
    let mut rejected = 0;
    for (method, path, valid) in
        [(Method::POST, "/notices/results", result), (Method::PUT, &*contact_path, change)]
    {
        for body in mutations(&valid) {
            let text = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
            assert_eq!(sender.status(&method, path, body).await, 400, "{path} {text}");
            rejected += 1;
        }
    }
    println!("{rejected} requests were rejected");
    let webhook = json!({"url": "x".repeat(4096), "secret": "x", "enabled": true});
    let long = json!({"expected": {}, "contact": {"webhook": webhook}});
    assert_eq!(sender.status(&Method::PUT, &contact_path, long.to_string().into_bytes()).await, 400);
    for account in ["x", &"0".repeat(32)] {
        let result = json!({"account": account, "channel": "webhook", "claim": claimed.claim})
            .to_string()
            .into_bytes();
        let status = sender.status(&Method::POST, "/notices/results", result).await;
        assert!([204, 404].contains(&status), "an unknown account has no claim: {status}");
    }
    assert_eq!(client.contact(&key.account).await.unwrap(), before);
    assert_eq!(client.claim_notices(10).await.unwrap(), [], "the claim is still valid");
}
