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

/// Timeout for waiting on a condition. An idle machine needs milliseconds; a busy one gets this long.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Flags for tests that check responses, not deadlines: a busy machine must not turn a 200 into a 500.
const LONG_QUOTA_TIMEOUTS: [&str; 2] = ["--store-timeout", "10s"];
const LONG_LOOKUP_TIMEOUTS: [&str; 4] = ["--quota-deadline", "10s", "--request-timeout", "12s"];

/// A running lookup-svc that trusts 127.0.0.1 as a proxy; killed when dropped.
#[derive(Debug)]
pub struct Lookup {
    /// The process, for signals, measurements and logs.
    pub service: Service,
    addr: SocketAddr,
    admin_url: String,
    http: reqwest::Client,
}

impl Lookup {
    /// Starts lookup-svc with its default deadlines, using the quota-svc at `quota_url`. Waits until lookup-svc
    /// listens.
    ///
    /// # Panics
    /// If it does not start. The message includes its log.
    pub async fn start(quota_url: &str, flags: &[&str]) -> Self {
        Self::start_under(&[], quota_url, flags, &[]).await
    }

    /// Like [`Lookup::start`], with deadlines that even a busy machine meets.
    pub async fn start_with_long_timeouts(quota_url: &str, flags: &[&str]) -> Self {
        Self::start(quota_url, &[LONG_LOOKUP_TIMEOUTS.as_slice(), flags].concat()).await
    }

    /// Like [`Lookup::start`], with environment variables and through a wrapper program
    /// ([`Service::spawn_under`]).
    pub async fn start_under(
        wrapper: &[&str],
        quota_url: &str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        Self::start_program(wrapper, "lookup-svc", quota_url, flags, env).await
    }

    async fn start_program(
        wrapper: &[&str],
        program: &str,
        quota_url: &str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let local: [&str; 6] =
            ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1"];
        let args = [local.as_slice(), &["--quota-url", quota_url], flags].concat();
        let mut service = Service::spawn_under(wrapper, program, &args, env);
        let addr = service.listen_addr("lookup").await;
        let admin_url = format!("http://{}", service.listen_addr("admin").await);
        Self { service, addr, admin_url, http: http::client() }
    }

    /// `http://127.0.0.1:PORT` of the public API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Listen address of the public API, for raw TCP connections.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A GET request without a key to a path such as `/api/v1/ip?scope=geo`.
    pub fn get(&self, path_and_query: &str) -> RequestBuilder {
        self.http.get(self.url() + path_and_query)
    }

    /// A request without a key, with any method.
    pub fn request(&self, method: &str, path_and_query: &str) -> RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("valid HTTP method");
        self.http.request(method, self.url() + path_and_query)
    }

    /// `GET /api/v1/ip` with this key in the `Authorization` header.
    pub fn get_ip(&self, key: &str) -> RequestBuilder {
        self.get("/api/v1/ip").bearer_auth(key)
    }

    /// Returns a function that builds the request of [`Lookup::get_ip`], for [`crate::loadgen::Load::http`].
    pub fn ip_requests(&self, key: &str) -> impl Fn() -> RequestBuilder + Clone + Send + 'static + use<> {
        let (http, url, key) = (self.http.clone(), self.url() + "/api/v1/ip", key.to_owned());
        move || http.get(&url).bearer_auth(&key)
    }

    /// `http://127.0.0.1:PORT` of the admin server: `/livez`, `/readyz`, `/metrics`.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        &self.admin_url
    }

    /// The text of `/metrics`.
    pub async fn metrics(&self) -> String {
        let response = self.http.get(format!("{}/metrics", self.admin_url)).send().await;
        response.expect("admin port responds").text().await.expect("complete response body")
    }

    /// The status code of `/readyz`.
    pub async fn readiness(&self) -> u16 {
        let response = self.http.get(format!("{}/readyz", self.admin_url)).send().await;
        response.expect("admin port responds").status().as_u16()
    }
}

/// lookup-svc, its quota-svc and the Redis that stores the data. The deadlines are so long that even a busy machine
/// meets them.
#[derive(Debug)]
pub struct Stack {
    pub lookup: Lookup,
    pub quota: Quota,
    pub redis: Redis,
}

impl Stack {
    /// Starts all three, the services with extra flags.
    ///
    /// # Panics
    /// If one of them does not start. The message includes its log.
    pub async fn start(quota_flags: &[&str], lookup_flags: &[&str]) -> Self {
        let redis = Redis::start().await;
        let quota = Quota::start_with(&redis, &[LONG_QUOTA_TIMEOUTS.as_slice(), quota_flags].concat()).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let lookup = Lookup::start_with_long_timeouts(quota.url(), lookup_flags).await;
        Self { lookup, quota, redis }
    }

    /// Creates a key with this scope in a new account.
    pub async fn key_with_scope(&self, scope: Scope) -> TestKey {
        self.quota.key_with_scope(scope).await
    }
}

impl Quota {
    /// Creates a key with this scope in a new account.
    pub async fn key_with_scope(&self, scope: Scope) -> TestKey {
        let new = NewKey::new("test", scope);
        TestKey::create(&self.client(), &new).await
    }
}

/// A well-formed key that does not exist in any store.
#[must_use]
pub fn unknown_key() -> String {
    api_key::ApiKey::generate().expect("random numbers available").expose().to_owned()
}

/// A complete response of the API.
#[derive(Debug, Clone)]
pub struct JsonResponse {
    pub status: u16,
    pub headers: HeaderMap,
    /// Null if the body is empty.
    pub body: Value,
}

impl JsonResponse {
    /// Sends `request` and reads the response.
    ///
    /// # Panics
    /// If there is no response, or its body is neither empty nor JSON.
    pub async fn fetch(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("a response");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.expect("complete response body");
        let body = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).expect("JSON response body"),
        };
        Self { status, headers, body }
    }

    /// A header's value; empty if it is absent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("ASCII header value"))
    }

    /// A header's value as a number.
    ///
    /// # Panics
    /// If the header is absent or not a number.
    #[must_use]
    pub fn header_number(&self, name: &str) -> i64 {
        let value = self.header(name);
        value.parse().unwrap_or_else(|_| panic!("{name} is {value:?} in {self:?}"))
    }

    /// The error code in the body; empty if there is none.
    #[must_use]
    pub fn error_code(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// The names of the body's fields in alphabetical order.
    #[must_use]
    pub fn fields(&self) -> Vec<&str> {
        let mut fields: Vec<_> =
            self.body.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        fields.sort_unstable();
        fields
    }
}
