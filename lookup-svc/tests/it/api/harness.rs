//! Starts lookup-svc through its production entry point, with a fake quota-svc whose verdicts the test sets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_key::{ApiKey, KeyDigest};
use http_server::{Lifecycle, ServeArgs, Server};
use lookup_svc::app::{GeoData, LookupService};
use lookup_svc::config::Config;
use poem::{Endpoint, EndpointExt, Request, Response, Result};
use quota_client::wire::{
    Charge, Exceeded, Limits, RateLimit, Scope, Status, Verdict, decode_charges, encode_verdicts,
};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use service_kit::{Kit, PublicPort};
use tokio::sync::watch;

pub const DOCS: &str = "https://ip.example/docs";
pub const DASHBOARD: &str = "https://keys.example";
/// A midnight UTC in the far future (2100-01-01).
pub const MIDNIGHT: u64 = 4_102_444_800;

/// How the fake responds to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaMode {
    /// Responds with the verdicts that were set.
    Normal,
    /// Waits until the mode changes, then responds in the new mode.
    Hold,
    /// Never responds.
    Hang,
    /// Responds with 503.
    Fail,
}

/// A fake quota-svc.
#[derive(Clone)]
pub struct FakeQuota {
    /// The verdict for each key, by its digest; `None` is the demo.
    verdicts: Arc<Mutex<HashMap<Option<KeyDigest>, Verdict>>>,
    charges: Arc<AtomicUsize>,
    calls: Arc<watch::Sender<usize>>,
    mode: Arc<watch::Sender<QuotaMode>>,
    /// The reason in the response of `GET /status`.
    store_unavailable: Arc<Mutex<Option<String>>>,
    /// The limits in the response of `GET /status`; with `None`, the response is 503.
    limits: Arc<Mutex<Option<Limits>>>,
}

impl FakeQuota {
    async fn start() -> (Self, String) {
        let quota = Self {
            verdicts: Arc::default(),
            charges: Arc::default(),
            calls: Arc::default(),
            mode: Arc::new(watch::Sender::new(QuotaMode::Normal)),
            store_unavailable: Arc::default(),
            limits: Arc::new(Mutex::new(Some(Limits::default()))),
        };
        let server = Server::bind("quota", ([127, 0, 0, 1], 0).into(), &ServeArgs::default()).await.unwrap();
        let url = format!("http://{}", server.local_addr());
        tokio::spawn(server.serve(quota.clone().boxed(), Lifecycle::new(&ServeArgs::default())));
        (quota, url)
    }

    /// The number of charges received.
    pub fn charge_count(&self) -> usize {
        self.charges.load(Ordering::SeqCst)
    }

    pub fn set_store_unavailable(&self, reason: Option<&str>) {
        *self.store_unavailable.lock().unwrap() = reason.map(str::to_owned);
    }

    pub fn set_mode(&self, mode: QuotaMode) {
        self.mode.send_replace(mode);
    }

    /// Waits until at least `count` calls have arrived.
    pub async fn wait_for_calls(&self, count: usize) {
        self.calls.subscribe().wait_for(|calls| *calls >= count).await.unwrap();
    }

    /// Sets the verdict for demo requests.
    pub fn set_demo(&self, verdict: Verdict) {
        self.verdicts.lock().unwrap().insert(None, verdict);
    }

    fn charge(&self, charges: &[Charge]) -> Vec<Verdict> {
        self.charges.fetch_add(charges.len(), Ordering::SeqCst);
        let verdicts = self.verdicts.lock().unwrap();
        let verdict = |charge: &Charge| {
            let digest = match charge {
                Charge::Key { digest, .. } => Some(*digest),
                Charge::Demo => None,
            };
            verdicts.get(&digest).copied().unwrap_or(Verdict::UnknownKey)
        };
        charges.iter().map(verdict).collect()
    }
}

impl Endpoint for FakeQuota {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        if request.uri().path() == "/internal/v1/status" {
            let store_unavailable = self.store_unavailable.lock().unwrap().clone();
            let Some(limits) = *self.limits.lock().unwrap() else {
                return Ok(StatusCode::SERVICE_UNAVAILABLE.into());
            };
            return Ok(serde_json::to_vec(&Status { store_unavailable, limits }).unwrap().into());
        }
        assert_eq!(request.uri().path(), "/internal/v1/charges");
        self.calls.send_modify(|calls| *calls += 1);
        let mode = *self.mode.subscribe().wait_for(|mode| *mode != QuotaMode::Hold).await.unwrap();
        match mode {
            QuotaMode::Hold | QuotaMode::Hang => std::future::pending().await,
            QuotaMode::Fail => Ok(StatusCode::SERVICE_UNAVAILABLE.into()),
            QuotaMode::Normal => {
                let charges = decode_charges(&request.take_body().into_vec().await?).unwrap();
                Ok(encode_verdicts(&self.charge(&charges)).into())
            }
        }
    }
}

/// The verdict for an allowed request of a key with this scope.
pub fn allowed(scope: Scope) -> Verdict {
    let rate_limit = RateLimit { limit: 10_000, remaining: 9_876, reset: MIDNIGHT };
    Verdict::Allowed { scope: Some(scope), rate_limit }
}

/// The verdict for a request that a limit denies.
pub fn denied(verdict: fn(Exceeded) -> Verdict, limit: u32, reset: u64, retry_after: u32) -> Verdict {
    verdict(Exceeded { limit, reset, retry_after })
}

/// A running lookup-svc with its fake quota-svc.
pub struct Harness {
    pub url: String,
    pub kit: Kit,
    pub quota: FakeQuota,
    pub http: reqwest::Client,
}

impl Harness {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// The fake's store is unavailable for this reason.
    pub async fn start_without_store(reason: &str) -> Self {
        let (quota, url) = FakeQuota::start().await;
        quota.set_store_unavailable(Some(reason));
        Self::start_on(quota, url, |_| {}).await
    }

    /// The fake reports these limits, or none.
    pub async fn start_with_limits(limits: Option<Limits>) -> Self {
        let (quota, url) = FakeQuota::start().await;
        *quota.limits.lock().unwrap() = limits;
        Self::start_on(quota, url, |_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let (quota, url) = FakeQuota::start().await;
        Self::start_on(quota, url, change).await
    }

    async fn start_on(quota: FakeQuota, quota_url: String, change: impl FnOnce(&mut Config)) -> Self {
        service_kit::runtime::install_crypto_provider();
        let mut config = Config {
            base_url: "https://ip.example".to_owned(),
            dashboard_url: DASHBOARD.to_owned(),
            ..Config::default()
        };
        config.service.listen = ([127, 0, 0, 1], 0).into();
        config.quota.quota_url = quota_url;
        config.quota.quota_token_file = Some(testkit::process::token_file().to_owned());
        // Long deadlines, so that a busy machine does not turn a 200 into a 500.
        config.quota.quota_deadline = Duration::from_secs(8);
        config.request_timeout = Duration::from_secs(10);
        config.edge.trusted_proxies = vec!["127.0.0.1".to_owned()];
        change(&mut config);
        let kit = Kit::detached(&config.service.serving);
        let geo = GeoData::load(&config.geo).await.unwrap();
        let service = LookupService::start(&config, geo, &kit, None).await.unwrap();
        let port =
            PublicPort::bind(&kit, config.service.port("lookup", "lookup-tls").unwrap()).await.unwrap();
        let url = format!("http://{}", port.local_addr());
        tokio::spawn(port.serve("lookup-svc", service.into_port_service(false).unwrap()));
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { url, kit, quota, http }
    }

    /// Creates a valid key whose requests get this verdict.
    pub fn create_key(&self, verdict: Verdict) -> String {
        let key = ApiKey::generate().unwrap();
        self.quota.verdicts.lock().unwrap().insert(Some(key.digest()), verdict);
        key.expose().to_owned()
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str) -> TestResponse {
        TestResponse::send(self.request(Method::GET, path)).await
    }

    /// Looks up the caller with the key in the header.
    pub async fn lookup(&self, key: &str, query: &str) -> TestResponse {
        TestResponse::send(self.request(Method::GET, &format!("/api/v1/ip{query}")).bearer_auth(key)).await
    }
}

/// A response whose body has been read.
#[derive(Debug)]
pub struct TestResponse {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl TestResponse {
    pub async fn send(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Asserts status, code and headers of an error, and returns its body.
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) -> Value {
        let body = self.json();
        assert_eq!((self.status, body["error"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(body["docs"], format!("{DOCS}#{code}"));
        assert!(body["message"].as_str().is_some_and(|message| message.len() > 10), "{body}");
        assert!(self.header("content-type").unwrap().starts_with("application/json"));
        assert_eq!(self.header("access-control-allow-origin"), Some("*"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        body
    }

    /// The values of `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub fn rate_limit(&self) -> [Option<&str>; 3] {
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(|name| self.header(name))
    }

    /// The sorted names of the body's fields.
    pub fn field_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.json().as_object().unwrap().keys().cloned().collect();
        names.sort();
        names
    }
}
