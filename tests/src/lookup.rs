//! lookup-svc as a real process, alone or with its quota-svc and Redis.

use std::net::SocketAddr;
use std::time::Duration;

use quota_client::wire::{NewKey, Scope};
use reqwest::RequestBuilder;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::http;
use crate::process::Service;
use crate::quota::{Quota, TestKey};
use crate::redis::Redis;

/// How long a busy machine may take for what an idle one does in milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Flags for tests that judge answers rather than deadlines: a busy machine must not turn a 200 into a 500.
const PATIENT_QUOTA: [&str; 2] = ["--store-timeout", "10s"];
const PATIENT_LOOKUP: [&str; 4] = ["--quota-deadline", "10s", "--request-timeout", "12s"];

/// A running lookup-svc that believes the headers of this machine; killed when dropped.
#[derive(Debug)]
pub struct Lookup {
    /// The process, to signal and measure it and to read its log.
    pub service: Service,
    addr: SocketAddr,
    admin_url: String,
    http: reqwest::Client,
}

impl Lookup {
    /// Starts it with its own deadlines on the quota-svc at `quota_url` and waits until it listens.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn start(quota_url: &str, flags: &[&str]) -> Self {
        Self::start_under(&[], quota_url, flags, &[]).await
    }

    /// The same with deadlines that no busy machine breaks.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn start_patient(quota_url: &str, flags: &[&str]) -> Self {
        Self::start(quota_url, &[PATIENT_LOOKUP.as_slice(), flags].concat()).await
    }

    /// The same through a program that becomes lookup-svc ([`Service::spawn_under`]) and with this environment.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn start_under(
        wrapper: &[&str],
        quota_url: &str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let local: [&str; 6] =
            ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1"];
        let args = [local.as_slice(), &["--quota-url", quota_url], flags].concat();
        let mut service = Service::spawn_under(wrapper, "lookup-svc", &args, env);
        let addr = service.listening("lookup").await;
        let admin_url = format!("http://{}", service.listening("admin").await);
        Self { service, addr, admin_url, http: http::client() }
    }

    /// `http://127.0.0.1:PORT` of the public API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Its address, for raw connections.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A request without a key to a path such as `/api/v1/ip?scope=geo`.
    pub fn get(&self, path_and_query: &str) -> RequestBuilder {
        self.http.get(self.url() + path_and_query)
    }

    /// Any other method.
    ///
    /// # Panics
    /// When there is no such method.
    pub fn request(&self, method: &str, path_and_query: &str) -> RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.http.request(method, self.url() + path_and_query)
    }

    /// `GET /api/v1/ip` with this key in the header.
    pub fn ask(&self, key: &str) -> RequestBuilder {
        self.get("/api/v1/ip").bearer_auth(key)
    }

    /// The same again and again, for [`crate::loadgen::Load::http`].
    pub fn asking(&self, key: &str) -> impl Fn() -> RequestBuilder + Clone + Send + 'static + use<> {
        let (http, url, key) = (self.http.clone(), self.url() + "/api/v1/ip", key.to_owned());
        move || http.get(&url).bearer_auth(&key)
    }

    /// The whole of `/metrics`.
    ///
    /// # Panics
    /// When the admin port does not answer.
    pub async fn metrics(&self) -> String {
        let answer = self.http.get(format!("{}/metrics", self.admin_url)).send().await;
        answer.expect("the admin port answers").text().await.expect("a whole answer")
    }

    /// The status of `/readyz`.
    ///
    /// # Panics
    /// When the admin port does not answer.
    pub async fn readiness(&self) -> u16 {
        let answer = self.http.get(format!("{}/readyz", self.admin_url)).send().await;
        answer.expect("the admin port answers").status().as_u16()
    }
}

/// lookup-svc, its quota-svc and their Redis, with deadlines that no busy machine breaks.
#[derive(Debug)]
pub struct Stack {
    /// The public API.
    pub lookup: Lookup,
    /// What judges.
    pub quota: Quota,
    /// What remembers.
    pub redis: Redis,
}

impl Stack {
    /// Starts all three with these further flags.
    ///
    /// # Panics
    /// When one does not come up; its log is in the message.
    pub async fn start(quota_flags: &[&str], lookup_flags: &[&str]) -> Self {
        let redis = Redis::start().await;
        let quota = Quota::start_with(&redis, &[PATIENT_QUOTA.as_slice(), quota_flags].concat()).await;
        quota.wait_ready(PATIENCE).await;
        let lookup = Lookup::start_patient(quota.url(), lookup_flags).await;
        Self { lookup, quota, redis }
    }

    /// A key of this scope in an account of its own.
    ///
    /// # Panics
    /// When quota-svc refuses.
    pub async fn key(&self, scope: Scope) -> TestKey {
        self.quota.key_of(scope).await
    }
}

impl Quota {
    /// A key of this scope in an account of its own.
    ///
    /// # Panics
    /// When quota-svc refuses.
    pub async fn key_of(&self, scope: Scope) -> TestKey {
        let new = NewKey { name: "test".to_owned(), scope, daily_limit: None };
        TestKey::create(&self.client(), &new).await
    }
}

/// A well-formed key that nobody has.
///
/// # Panics
/// When the system gives no random numbers.
#[must_use]
pub fn unknown_key() -> String {
    api_key::ApiKey::generate().expect("the system gives random numbers").expose().to_owned()
}

/// A whole answer of the API.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null where there is none.
    pub body: Value,
}

impl Answer {
    /// Sends `request` and reads the whole answer, which must be JSON or empty.
    ///
    /// # Panics
    /// When there is no answer or another body.
    pub async fn of(request: RequestBuilder) -> Self {
        let answer = request.send().await.expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let bytes = answer.bytes().await.expect("a whole answer");
        let body = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).expect("JSON"),
        };
        Self { status, headers, body }
    }

    /// A header's value, empty where it is absent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a header in ASCII"))
    }

    /// A header's value as a number.
    ///
    /// # Panics
    /// When it is absent or none.
    #[must_use]
    pub fn number(&self, name: &str) -> i64 {
        let value = self.header(name);
        value.parse().unwrap_or_else(|_| panic!("{name} is {value:?} in {self:?}"))
    }

    /// The error's code, empty where there is none.
    #[must_use]
    pub fn error(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// The body's fields in alphabetical order.
    #[must_use]
    pub fn fields(&self) -> Vec<&str> {
        let mut fields: Vec<_> =
            self.body.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        fields.sort_unstable();
        fields
    }
}
