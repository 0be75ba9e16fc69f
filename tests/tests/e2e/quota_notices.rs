//! Invalid commands get 400 and change nothing.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use e2e::notices::LIMITS;
use quota_client::wire::{Contact, Webhook};
use serde_json::{Value, json};
use testkit::http;
use testkit::process::TOKEN;
use testkit::quota::{Quota, StoreChoice};
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Sends commands.
struct Sender {
    http: reqwest::Client,
    url: String,
}

impl Sender {
    async fn status(&self, body: Vec<u8>) -> u16 {
        let request = self.http.post(format!("{}/internal/v1/commands", self.url));
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
            let is_valid = value.is_null() && optional.iter().any(|field| path.ends_with(field))
                || value.is_array() && ["/expected", "/contact"].iter().any(|field| path.ends_with(field))
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
                for number in &numbers[..if path.ends_with("/delivery/at") { 3 } else { 4 }] {
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
async fn mutated_commands_get_400_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota::start_with(StoreChoice::File(dir.path().join("store")), &LIMITS).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    let (url, secret) = ("https://hooks.example/".to_owned(), "whsec_eA==".to_owned());
    let contact =
        Contact { webhook: Some(Webhook { url, secret, enabled: true, muted: [].into() }), mail: None };
    client.set_contact(&key.account, Contact::default(), contact.clone()).await.unwrap();
    key.charge(&client, 2).await;
    let claimed = eventually(WAIT_TIMEOUT, "the pause is announced", async || {
        client.claim_notices(10).await.unwrap().pop()
    })
    .await;
    let sender = Sender { http: http::client(), url: quota.url().to_owned() };
    let before = client.contact(&key.account).await.unwrap();

    let result = json!({
        "account": key.account, "channel": "webhook", "claim": claimed.claim, "retry_seconds": 5, "delivery": {"at": 5, "error": "failed"},
    });
    let set_contact = |expected: Value, contact: Value| json!({"set_contact": {"account": key.account, "expected": expected, "contact": contact}});
    let commands = [
        json!({"finish_notice": result}),
        set_contact(json!(contact), json!(contact)),
        json!({"claim_notices": {"limit": 5}}),
    ];
    let body = |command: &Value| json!({"actor": "system", "command": command});
    let mut rejected = 0;
    for command in &commands {
        for body in mutations(&body(command)) {
            let text = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
            assert_eq!(sender.status(body).await, 400, "{text}");
            rejected += 1;
        }
    }
    println!("{rejected} commands were rejected");
    let webhook = json!({"url": "x".repeat(4096), "secret": "x", "enabled": true});
    let long = body(&set_contact(json!({}), json!({"webhook": webhook})));
    assert_eq!(sender.status(long.to_string().into_bytes()).await, 400);
    for account in ["x", &"0".repeat(32)] {
        let result = json!({"account": account, "channel": "webhook", "claim": claimed.claim});
        let status = sender.status(body(&json!({"finish_notice": result})).to_string().into_bytes()).await;
        assert!([200, 404].contains(&status), "an unknown account has no claim: {status}");
    }
    assert_eq!(client.contact(&key.account).await.unwrap(), before);
    assert_eq!(client.claim_notices(10).await.unwrap(), [], "the claim is still valid");
}
