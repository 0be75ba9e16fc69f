//! lookup-svc as it is started in production, and a quota-svc that says what the test wants.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_key::ApiKey;
use lookup_svc::app::LookupService;
use lookup_svc::config::Config;
use poem::{Endpoint, EndpointExt, Request, Response, Result};
use quota_client::wire::{ChargeRequest, ChargeResponse, Outcome, Scope, Verdict};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use service_kit::{Kit, Lifecycle, ServeArgs, Server};
use tokio::sync::watch;

pub const DOCS: &str = "https://ip.example/docs";
pub const DASHBOARD: &str = "https://keys.example";
/// A day's end, far from now.
pub const MIDNIGHT: u64 = 4_102_444_800;

/// What the stand-in does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Judge,
    /// Answers when the mood changes.
    Hold,
    /// Never answers.
    Silent,
    /// Answers with an error.
    Broken,
}

/// A quota-svc that knows the verdicts it was told.
#[derive(Clone)]
pub struct FakeQuota {
    verdicts: Arc<Mutex<HashMap<String, Verdict>>>,
    charges: Arc<AtomicUsize>,
    calls: Arc<watch::Sender<usize>>,
    mood: Arc<watch::Sender<Mood>>,
}

impl FakeQuota {
    async fn start() -> (Self, String) {
        let quota = Self {
            verdicts: Arc::default(),
            charges: Arc::default(),
            calls: Arc::default(),
            mood: Arc::new(watch::Sender::new(Mood::Judge)),
        };
        let server = Server::bind("quota", ([127, 0, 0, 1], 0).into(), &ServeArgs::default()).await.unwrap();
        let url = format!("http://{}", server.local_addr());
        tokio::spawn(server.serve(quota.clone().boxed(), Lifecycle::new(&ServeArgs::default())));
        (quota, url)
    }

    /// How many charges it was asked to judge.
    pub fn charges(&self) -> usize {
        self.charges.load(Ordering::SeqCst)
    }

    pub fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// Waits until that many calls have arrived.
    pub async fn called(&self, times: usize) {
        self.calls.subscribe().wait_for(|calls| *calls >= times).await.unwrap();
    }

    /// What the shared demo is answered.
    pub fn demo(&self, verdict: Verdict) {
        self.verdicts.lock().unwrap().insert("demo".to_owned(), verdict);
    }

    fn judge(&self, request: &ChargeRequest) -> ChargeResponse {
        self.charges.fetch_add(request.charges.len(), Ordering::SeqCst);
        let known = self.verdicts.lock().unwrap();
        let verdict = |charge: &quota_client::wire::Charge| {
            let name = charge.key_sha256.as_deref().unwrap_or("demo");
            known.get(name).copied().unwrap_or(bare(Outcome::UnknownKey))
        };
        ChargeResponse { verdicts: request.charges.iter().map(verdict).collect() }
    }
}

impl Endpoint for FakeQuota {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        assert_eq!(request.uri().path(), "/internal/v1/charges");
        self.calls.send_modify(|calls| *calls += 1);
        let mood = *self.mood.subscribe().wait_for(|mood| *mood != Mood::Hold).await.unwrap();
        match mood {
            Mood::Hold | Mood::Silent => std::future::pending().await,
            Mood::Broken => Ok(StatusCode::SERVICE_UNAVAILABLE.into()),
            Mood::Judge => {
                let charges = serde_json::from_slice(&request.take_body().into_vec().await?).unwrap();
                Ok(serde_json::to_vec(&self.judge(&charges)).unwrap().into())
            }
        }
    }
}

/// A verdict without numbers.
pub fn bare(outcome: Outcome) -> Verdict {
    Verdict { outcome, scope: None, limit: None, remaining: None, reset: None, retry_after: None }
}

/// An allowed request of a key with that scope.
pub fn allowed(scope: Scope) -> Verdict {
    Verdict {
        scope: Some(scope),
        limit: Some(10_000),
        remaining: Some(9_876),
        reset: Some(MIDNIGHT),
        ..bare(Outcome::Allowed)
    }
}

/// A refusal by a limit.
pub fn refused(outcome: Outcome, limit: u32, reset: u64, retry_after: u32) -> Verdict {
    Verdict {
        scope: Some(Scope::Full),
        limit: Some(limit),
        remaining: Some(0),
        reset: Some(reset),
        retry_after: Some(retry_after),
        ..bare(outcome)
    }
}

/// The service under test.
pub struct Rig {
    pub url: String,
    pub kit: Kit,
    pub quota: FakeQuota,
    pub http: reqwest::Client,
}

impl Rig {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        service_kit::tls::install_crypto_provider();
        let (quota, quota_url) = FakeQuota::start().await;
        let mut config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            base_url: "https://ip.example".to_owned(),
            dashboard_url: DASHBOARD.to_owned(),
            ..Config::default()
        };
        config.quota.quota_url = quota_url;
        // A slow machine must not turn verdicts into errors.
        config.quota.quota_deadline = Duration::from_secs(8);
        config.request_timeout = Duration::from_secs(10);
        config.edge.trusted_proxies = vec!["127.0.0.1".to_owned()];
        change(&mut config);
        let kit = Kit::for_tests(&config.serve);
        let service = LookupService::start(&config, &kit).await.unwrap();
        let url = format!("http://{}", service.local_addr());
        tokio::spawn(service.run());
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { url, kit, quota, http }
    }

    /// A well-formed key that gets this verdict.
    pub fn key(&self, verdict: Verdict) -> String {
        let key = ApiKey::generate().unwrap();
        self.quota.verdicts.lock().unwrap().insert(key.digest().to_hex(), verdict);
        key.expose().to_owned()
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    /// With the key in the header.
    pub async fn lookup(&self, key: &str, query: &str) -> Answer {
        Answer::of(self.request(Method::GET, &format!("/api/v1/ip{query}")).bearer_auth(key)).await
    }
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn of(request: reqwest::RequestBuilder) -> Self {
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

    /// Checks that this is our error, and gives its body.
    #[track_caller]
    pub fn error(&self, status: u16, code: &str) -> Value {
        let body = self.json();
        assert_eq!((self.status, body["error"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(body["docs"], format!("{DOCS}#{code}"));
        assert!(body["message"].as_str().is_some_and(|words| words.len() > 10), "{body}");
        assert!(self.header("content-type").unwrap().starts_with("application/json"));
        assert_eq!(self.header("access-control-allow-origin"), Some("*"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        body
    }

    /// The three numbers of a limit.
    pub fn limit(&self) -> [Option<&str>; 3] {
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(|name| self.header(name))
    }

    /// The names of the body's fields, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.json().as_object().unwrap().keys().cloned().collect();
        names.sort();
        names
    }
}
