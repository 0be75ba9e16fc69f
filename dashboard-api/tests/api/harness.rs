//! A dashboard with its quota-svc, and a client that behaves like a browser: cookie, Origin and CSRF header.

use std::time::Duration;

use reqwest::header::{COOKIE, HeaderMap, ORIGIN, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::fault_proxy::FaultProxy;
use testkit::http;
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};

pub const PASSWORD: &str = "correct horse battery";

/// A running dashboard-api and its quota-svc.
pub struct Harness {
    pub service: Service,
    pub quota: Quota,
    /// Between the two.
    pub proxy: FaultProxy,
    pub url: String,
    pub dir: TempDir,
}

#[derive(Debug)]
pub struct JsonResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl JsonResponse {
    pub fn code(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// Status and error code, such as `404 key_not_found`.
    pub fn status_and_code(&self) -> String {
        format!("{} {}", self.status, self.code()).trim_end().to_owned()
    }
}

impl Harness {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreChoice::File(dir.path().join("store"));
        Self::start_on(store, dir, flags).await
    }

    /// Starts the services on `store`. `dir` is for the session key.
    pub async fn start_on(store: StoreChoice, dir: TempDir, flags: &[&str]) -> Self {
        Self::start_with_env(store, dir, flags, &[]).await
    }

    /// Starts the services with environment variables for dashboard-api.
    pub async fn start_with_env(
        store: StoreChoice,
        dir: TempDir,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let quota = Quota::start(store).await;
        quota.wait_ready(Duration::from_secs(20)).await;
        let key = dir.path().join("session.key");
        std::fs::write(&key, [7; 32]).unwrap();
        let mut args = vec!["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--insecure-cookies"];
        let proxy = FaultProxy::start(quota.addr());
        let quota_url = format!("http://{}", proxy.addr());
        args.extend(["--quota-url", &quota_url, "--session-key-file", key.to_str().unwrap()]);
        args.extend(flags);
        let mut service = Service::spawn("dashboard-api", &args, env);
        let url = format!("http://{}", service.listen_addr("dashboard").await);
        Self { service, quota, proxy, url, dir }
    }

    /// A browser without a session.
    pub fn browser(&self) -> Browser {
        Browser { url: self.url.clone(), http: http::client(), cookie: None }
    }

    /// A browser that is signed in to a new account.
    pub async fn sign_up(&self, login: &str) -> Browser {
        let mut browser = self.browser();
        let response = browser.post("/account", json!({"login": login, "password": PASSWORD})).await;
        assert_eq!(response.status, 201, "{response:?}");
        browser.store_cookies(&response);
        browser
    }
}

/// Sends requests as a browser does.
#[derive(Clone)]
pub struct Browser {
    pub url: String,
    pub http: reqwest::Client,
    pub cookie: Option<String>,
}

impl Browser {
    pub async fn get(&self, path: &str) -> JsonResponse {
        read(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> JsonResponse {
        read(self.change(Method::POST, path).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> JsonResponse {
        read(self.change(Method::PUT, path).json(&body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> JsonResponse {
        read(self.change(Method::PATCH, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> JsonResponse {
        read(self.change(Method::DELETE, path)).await
    }

    /// Creates a key and returns its ID and the response.
    pub async fn create_key(&self, name: &str) -> (String, JsonResponse) {
        let response = self.post("/keys", json!({"name": name, "scope": "full"})).await;
        assert_eq!(response.status, 201, "{response:?}");
        (response.body["key"]["id"].as_str().unwrap().to_owned(), response)
    }

    /// A request with the session cookie, but without Origin and CSRF header.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}/api/v1{path}", self.url));
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }

    /// A request with the session cookie, Origin and CSRF header.
    pub fn change(&self, method: Method, path: &str) -> RequestBuilder {
        self.request(method, path).header(ORIGIN, &self.url).header("X-CSRF-Token", "1")
    }

    /// Stores all cookies that the response sets, in place of the earlier ones.
    pub fn store_cookies(&mut self, response: &JsonResponse) {
        let set = response.headers.get_all(SET_COOKIE).iter().map(|set| set.to_str().unwrap());
        let pairs: Vec<_> = set.map(|set| set.split(';').next().unwrap()).collect();
        self.cookie = Some(pairs.join("; "));
    }
}

/// Sends the request and reads the whole response.
pub async fn read(request: RequestBuilder) -> JsonResponse {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.bytes().await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    JsonResponse { status, headers, body }
}
