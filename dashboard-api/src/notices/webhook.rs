//! Sends a notice to a webhook, signed by the Standard Webhooks specification.

use std::time::{Duration, SystemTime};

use data_encoding::BASE64;
use quota_client::wire::{Key, Notice, Webhook};
use reqwest::redirect;
use ring::hmac;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::target::{TargetError, TargetRules};
use crate::mail::message;
use crate::session::{random_token, unix_now};

/// Time for one attempt, from resolving the host to the end of the response.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// At most this much of a response is read. It is never shown.
const MAX_RESPONSE: usize = 64 * 1024;
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;

/// Why a webhook got nothing. The owner sees this text, so it must not tell anything about the operator's network.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("no response within 10 seconds")]
    TimedOut,
    #[error("the connection failed")]
    Connection(#[source] reqwest::Error),
    #[error("the webhook responded with status {0}")]
    Status(u16),
    #[error("the webhook's secret is not valid")]
    Secret,
}

/// A message as it is sent: `id` is the same for every attempt and every repeat of an announcement.
pub struct Message {
    id: String,
    body: Value,
}

impl Message {
    pub fn new(notice: &Notice, key: &Key, link: &str) -> Self {
        let text = format!("{}: {link}", message::sentence(notice, key));
        // The notice names the limit that was reached, which is none for a key that expires.
        let limit = if notice.limit == 0 { key.daily_limit } else { notice.limit };
        let data = json!({
            "key": { "id": key.id, "name": key.settings.name, "hint": key.hint, "link": link },
            "limit": limit,
            "used_today": notice.used.max(key.used_today),
            "expires_at": key.settings.expires_at,
        });
        let body = body(notice.kind.as_str(), notice.at, &data, &text);
        Self { id: message::notice_id(notice), body }
    }

    /// A message that says that the webhook works.
    pub fn test(now_ms: i64, link: &str) -> Result<Self, getrandom::Error> {
        let text = format!("This is a test event. Your webhook works: {link}");
        let id = format!("msg_{}", random_token()?);
        Ok(Self { id, body: body("test", now_ms, &json!({ "link": link }), &text) })
    }
}

/// `text` is what Slack and Mattermost show, `content` is what Discord shows.
fn body(kind: &str, at: i64, data: &Value, text: &str) -> Value {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(at.unsigned_abs());
    let time = humantime::format_rfc3339_millis(time).to_string();
    json!({ "type": kind, "timestamp": time, "data": data, "text": text, "content": text })
}

pub fn new_secret() -> Result<String, getrandom::Error> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)?;
    Ok(SECRET_PREFIX.to_owned() + &BASE64.encode(&secret))
}

/// Sends a message within `time`. Succeeds if the webhook responds with a status of 200 to 299.
pub async fn send(
    rules: &TargetRules,
    webhook: &Webhook,
    message: &Message,
    time: Duration,
) -> Result<(), SendError> {
    timeout(time, attempt(rules, webhook, message)).await.unwrap_or(Err(SendError::TimedOut))
}

async fn attempt(rules: &TargetRules, webhook: &Webhook, message: &Message) -> Result<(), SendError> {
    let url = rules.parse(&webhook.url)?;
    let address = rules.resolve(&url).await?;
    let body = message.body.to_string();
    let timestamp = unix_now().to_string();
    let signature = sign(&webhook.secret, &message.id, &timestamp, &body).ok_or(SendError::Secret)?;
    // A client of its own: it connects to the checked address, whatever the name resolves to now.
    let client = reqwest::Client::builder()
        .resolve(url.host_str().unwrap_or_default(), address)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("ip-lookup/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(connection)?;
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .header("webhook-id", &message.id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(body);
    let mut response = request.send().await.map_err(connection)?;
    let mut read = 0;
    // Reads the response, so that servers that send one are not cut off; but an endless one is.
    while let Some(chunk) = response.chunk().await.map_err(connection)? {
        read += chunk.len();
        if read > MAX_RESPONSE {
            break;
        }
    }
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(SendError::Status(status.as_u16())),
    }
}

fn connection(error: reqwest::Error) -> SendError {
    SendError::Connection(error.without_url())
}

/// `v1,` and the Base64 of the HMAC-SHA256 of `ID.TIMESTAMP.BODY`. `None` if the secret is malformed.
fn sign(secret: &str, id: &str, timestamp: &str, body: &str) -> Option<String> {
    let key = BASE64.decode(secret.strip_prefix(SECRET_PREFIX)?.as_bytes()).ok()?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signature = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    Some(format!("v1,{}", BASE64.encode(signature.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoint_that_never_responds_times_out() {
        service_kit::runtime::install_crypto_provider();
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let rules = TargetRules { allow_http: true, networks: vec!["127.0.0.0/8".parse().unwrap()] };
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let webhook = Webhook { url, secret: new_secret().unwrap(), enabled: true, muted: [].into() };
        let message = Message::test(0, "https://keys.example").unwrap();
        let sent = send(&rules, &webhook, &message, Duration::from_millis(200)).await;
        assert_eq!(sent.unwrap_err().to_string(), "no response within 10 seconds");
    }

    #[test]
    fn signature_matches_the_example_of_the_specification() {
        let (secret, id) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek");
        let signature = sign(secret, id, "1614265330", r#"{"test": 2432232314}"#);
        assert_eq!(signature.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(sign("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", id, "1614265330", "{}"), None);
    }
}
