//! Webhooks: who may be reached, and the delivery of notices to receivers that fail.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quota_client::wire::{Charge, Outcome};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::tools::{project_root, require_installed};
use testkit::wait::{eventually, within};
use testkit::webhook::{ENDLESS, FAILED, OK, Received, Receiver, SILENT};

use crate::harness::{Browser, Harness};

pub const WAIT: Duration = Duration::from_secs(30);
/// Lets the tests' own receivers be reached.
const OPEN: [&str; 3] = ["--webhook-allow-http", "--webhook-allow-network", "127.0.0.0/8"];

pub async fn set_webhook(browser: &Browser, url: &str) -> String {
    let response = browser.put("/account/webhook", json!({"url": url, "enabled": true})).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body["secret"].as_str().unwrap_or_default().to_owned()
}

/// Uses a key until it is paused. Returns its ID.
pub async fn pause_key(harness: &Harness, browser: &Browser) -> String {
    let (id, created) = browser.create_key("Nightly import").await;
    let key = api_key::ApiKey::parse(created.body["secret"].as_str().unwrap()).unwrap();
    let charge = Charge::Key { digest: key.digest(), origin: None };
    let client = harness.quota.client();
    for count in [200, 101] {
        let verdicts = client.charge(&vec![charge; count]).await.unwrap();
        let expected = if count == 200 { Outcome::Allowed } else { Outcome::BurstExceeded };
        assert_eq!(verdicts.last().unwrap().outcome(), expected);
    }
    id
}

#[tokio::test]
async fn pause_is_delivered_without_the_key() {
    let (harness, receiver) = (Harness::start_with(&OPEN).await, Receiver::start(OK).await);
    let browser = harness.sign_up("ada").await;
    set_webhook(&browser, &receiver.url()).await;
    let id = pause_key(&harness, &browser).await;
    let message = receiver.wait_for(1).await.remove(0);
    let body = message.json();
    assert_eq!(body["type"], "key.paused", "{body}");
    let key = &body["data"]["key"];
    assert_eq!((&key["id"], &key["name"]), (&json!(id), &json!("Nightly import")));
    assert_eq!((&body["data"]["limit"], &body["data"]["used_today"]), (&json!(300), &json!(300)));
    assert!(key["link"].as_str().unwrap().starts_with("http"), "{body}");
    assert!(
        body["text"].as_str().unwrap().contains("is paused") && body["text"] == body["content"],
        "{body}"
    );
    assert!(!message.body.contains("127.0.0.1:") || message.body.contains("localhost"), "{body}");
    eventually(WAIT, "the delivery is shown", async || {
        let status = browser.get("/account/webhook").await.body;
        (status["last_delivery"]["at"].is_i64() && status["last_delivery"]["error"].is_null()).then_some(())
    })
    .await;
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn muted_kind_is_not_delivered_and_an_expiry_names_time_and_limit() {
    let (harness, receiver) = (Harness::start_with(&OPEN).await, Receiver::start(OK).await);
    let browser = harness.sign_up("ada").await;
    let url = receiver.url();
    let unknown = json!({"url": url, "enabled": true, "muted": ["key.lost"]});
    assert_eq!(browser.put("/account/webhook", unknown).await.status_and_code(), "400 bad_request");
    let muted = json!({"url": url, "enabled": true, "muted": ["key.paused", "key.daily_limit"]});
    assert_eq!(browser.put("/account/webhook", muted).await.status, 200);
    let muted = browser.get("/account/webhook").await.body["muted"].clone();
    assert_eq!(muted, json!(["key.paused", "key.daily_limit"]));
    pause_key(&harness, &browser).await;
    // The owner is told a day before the key expires. The pause would have been delivered before.
    let expires_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 86_400 + 2;
    let key = json!({"name": "Short", "scope": "ip", "expires_at": expires_at});
    let created = browser.post("/keys", key).await;
    let limit = &created.body["key"]["daily_limit"];
    let message = receiver.wait_for(1).await.remove(0).json();
    assert_eq!(message["type"], "key.expiring", "{message}");
    let data = &message["data"];
    assert_eq!((&data["expires_at"], &data["limit"]), (&json!(expires_at), limit), "{message}");
}

/// Verifies a message with the library of the specification and with the code of the guide. Its arguments are the guide,
/// the secret, the three headers and the body; it prints the two results.
const VERIFY: &str = r#"
import sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
guide, secret, *values, body = sys.argv[1:]
headers = dict(zip(["webhook-id", "webhook-timestamp", "webhook-signature"], values))
exec(open(guide).read().split("```python\n")[1].split("```")[0])
try:
    Webhook(secret).verify(body, headers)
    print("valid", is_valid(secret, headers, body.encode()))
except WebhookVerificationError as error:
    print(error, is_valid(secret, headers, body.encode()))
"#;

#[tokio::test]
async fn signature_is_verified_by_another_library_and_the_guide() {
    let Some(python) = require_installed(".venv/bin/python") else { return };
    let (harness, receiver) = (Harness::start_with(&OPEN).await, Receiver::start(OK).await);
    let browser = harness.sign_up("ada").await;
    let secret = set_webhook(&browser, &receiver.url()).await;
    pause_key(&harness, &browser).await;
    let message = receiver.wait_for(1).await.remove(0);
    let headers =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| message.header(name).to_owned());
    let verify = |secret: &str, headers: &[String; 3], body: &str| {
        let mut command = std::process::Command::new(&python);
        command.args(["-c", VERIFY]).arg(project_root().join("docs/guides/notices.md"));
        let output = command.arg(secret).args(headers).arg(body).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let [id, timestamp, signature] = headers.clone();
    assert_eq!(verify(&secret, &headers, &message.body), "valid True", "{message:?}");
    let other_id = ["msg_other".to_owned(), timestamp.clone(), signature.clone()];
    let earlier = [id, (timestamp.parse::<i64>().unwrap() - 1).to_string(), signature];
    let changed = message.body.replacen("300", "301", 1);
    for (secret, headers, body) in [
        (secret.as_str(), &headers, changed.as_str()),
        (&secret, &other_id, &message.body),
        (&secret, &earlier, &message.body),
        ("whsec_b3RoZXI=", &headers, &message.body),
    ] {
        assert_eq!(verify(secret, headers, body), "No matching signature found False", "{headers:?} {body}");
    }
}

#[tokio::test]
async fn failed_delivery_is_retried_with_the_same_id_and_its_error_is_shown() {
    let (harness, receiver) = (Harness::start_with(&OPEN).await, Receiver::start(FAILED).await);
    let browser = harness.sign_up("ada").await;
    set_webhook(&browser, &receiver.url()).await;
    pause_key(&harness, &browser).await;
    receiver.wait_for(1).await;
    let error = eventually(WAIT, "the error is shown", async || {
        let status = browser.get("/account/webhook").await.body;
        status["last_delivery"]["error"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(error, "the webhook responded with status 500");
    receiver.answer(OK);
    let messages = receiver.wait_for(2).await;
    let id = |message: &Received| message.header("webhook-id").to_owned();
    assert_eq!(id(&messages[0]), id(&messages[1]));
    assert!(id(&messages[0]).starts_with("msg_"), "{messages:?}");
}

#[tokio::test]
async fn dead_endpoint_delays_no_other_account() {
    let harness = Harness::start_with(&OPEN).await;
    let (dead, alive) = (Receiver::start(SILENT).await, Receiver::start(OK).await);
    let (ada, grace) = (harness.sign_up("ada").await, harness.sign_up("grace").await);
    set_webhook(&ada, &dead.url()).await;
    set_webhook(&grace, &alive.url()).await;
    pause_key(&harness, &ada).await;
    dead.wait_for(1).await;
    pause_key(&harness, &grace).await;
    within("the other account's notice", alive.wait_for(1)).await;
    assert_eq!(dead.received().len(), 1, "the first attempt is still in progress");
}

#[tokio::test]
async fn redirects_are_not_followed_and_endless_responses_end() {
    let (harness, target) = (Harness::start_with(&OPEN).await, Receiver::start(OK).await);
    let redirect =
        format!("HTTP/1.1 307 Elsewhere\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.url());
    for (answer, expected) in [
        (redirect.leak() as &'static str, json!("the webhook responded with status 307")),
        (ENDLESS, Value::Null),
        ("not http\r\n\r\n", json!("the connection failed")),
    ] {
        let receiver = Receiver::start(answer).await;
        let browser = harness.sign_up(&format!("ada-{}", receiver.address.port())).await;
        set_webhook(&browser, &receiver.url()).await;
        let tested = within("the test event", browser.post("/account/webhook/test", json!({}))).await;
        assert_eq!((tested.status, &tested.body["error"]), (200, &expected), "{tested:?}");
        assert_eq!(receiver.received().len(), 1);
    }
    assert_eq!(target.received().len(), 0);
}

#[tokio::test]
async fn own_network_is_not_reached_and_urls_are_checked() {
    let (harness, receiver) = (Harness::start().await, Receiver::start(OK).await);
    let browser = harness.sign_up("ada").await;
    for (url, message) in [
        (receiver.url(), "A webhook's URL must begin with https://."),
        (format!("https://{}/", receiver.address), "The webhook's host is not a public address."),
        ("https://[::ffff:127.0.0.1]/".to_owned(), "The webhook's host is not a public address."),
        ("https://user:pass@hooks.example/".to_owned(), "A webhook's URL can't contain a user or password."),
        ("https://hooks.example:6379/".to_owned(), "A webhook's URL can use the ports 443 and 8443 only."),
        ("x".to_owned(), "The webhook's URL is not valid."),
    ] {
        let rejected = browser.put("/account/webhook", json!({"url": url, "enabled": true})).await;
        assert_eq!(rejected.status_and_code(), "400 invalid_webhook", "{url}");
        assert_eq!(rejected.body["message"], message, "{url}");
    }
    // A name that resolves to this machine is accepted, but nothing is sent to it.
    set_webhook(&browser, "https://localhost/").await;
    let tested = browser.post("/account/webhook/test", json!({})).await;
    assert_eq!(tested.body["error"], "the webhook's host is not a public address");
    let again = browser.post("/account/webhook/test", json!({})).await;
    assert_eq!(again.status_and_code(), "429 rate_limit_exceeded");
    assert_eq!(receiver.received().len(), 0);
}

#[tokio::test]
async fn webhook_is_switched_off_removed_and_its_secret_replaced() {
    let harness = Harness::start().await;
    let browser = harness.sign_up("ada").await;
    let nothing = browser.change(Method::POST, "/account/webhook/secret").send().await.unwrap();
    assert_eq!(nothing.status(), 409);
    let secret = set_webhook(&browser, "https://hooks.example/a").await;
    assert!(secret.starts_with("whsec_"), "{secret}");
    assert_eq!(set_webhook(&browser, "https://hooks.example/b").await, "", "the secret stays");
    let replaced = browser.post("/account/webhook/secret", json!({})).await;
    let replaced = replaced.body["secret"].as_str().unwrap();
    assert!(replaced.starts_with("whsec_") && replaced != secret);
    browser.put("/account/webhook", json!({"url": "https://hooks.example/b", "enabled": false})).await;
    let status = browser.get("/account/webhook").await.body;
    assert_eq!((&status["url"], &status["enabled"]), (&json!("https://hooks.example/b"), &json!(false)));
    assert!(!status.to_string().contains("whsec_"));
    assert_eq!(browser.put("/account/webhook", json!({"enabled": true})).await.status, 200);
    assert_eq!(browser.get("/account/webhook").await.body, json!({"enabled": false}));
    let closed = Harness::start_with(&["--webhooks", "off"]).await;
    let browser = closed.sign_up("ada").await;
    let rejected =
        browser.put("/account/webhook", json!({"url": "https://hooks.example/", "enabled": true})).await;
    assert_eq!(rejected.status_and_code(), "403 webhooks_disabled");
}
