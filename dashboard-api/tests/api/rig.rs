//! A dashboard with its quota-svc, and visitors as browsers are: a cookie, an Origin, the CSRF header.

use std::time::Duration;

use e2e::http;
use e2e::process::Service;
use e2e::quota::{Quota, StoreChoice};
use reqwest::header::{COOKIE, HeaderMap, ORIGIN, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A password that is long enough.
pub const PASSWORD: &str = "correct horse battery";

/// A running dashboard.
pub struct Rig {
    pub service: Service,
    pub quota: Quota,
    pub url: String,
    pub folder: TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn code(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// The status and the error's code in one, as in `404 key_not_found`.
    pub fn told(&self) -> String {
        format!("{} {}", self.status, self.code()).trim_end().to_owned()
    }
}

impl Rig {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let quota = Quota::start(StoreChoice::File(folder.path().join("store"))).await;
        quota.wait_ready(Duration::from_secs(20)).await;
        let key = folder.path().join("session.key");
        std::fs::write(&key, [7; 32]).unwrap();
        let mut args = vec!["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--insecure-cookies"];
        args.extend(["--quota-url", quota.url(), "--session-key-file", key.to_str().unwrap()]);
        args.extend(flags);
        let mut service = Service::spawn("dashboard-api", &args, &[]);
        let url = format!("http://{}", service.listening("dashboard").await);
        Self { service, quota, url, folder }
    }

    /// Somebody without a session.
    pub fn visitor(&self) -> Visitor {
        Visitor { url: self.url.clone(), http: http::client(), cookie: None }
    }

    /// Somebody with a new account.
    pub async fn sign_up(&self, login: &str) -> Visitor {
        let mut visitor = self.visitor();
        let answer = visitor.post("/account", json!({"login": login, "password": PASSWORD})).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        visitor.take_cookie(&answer);
        visitor
    }
}

/// A browser, or what pretends to be one.
#[derive(Clone)]
pub struct Visitor {
    pub url: String,
    pub http: reqwest::Client,
    pub cookie: Option<String>,
}

impl Visitor {
    pub async fn get(&self, path: &str) -> Answer {
        read(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        read(self.change(Method::POST, path).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        read(self.change(Method::PUT, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        read(self.change(Method::DELETE, path)).await
    }

    /// A key of one's own: its id and the whole answer.
    pub async fn create_key(&self, name: &str) -> (String, Answer) {
        let answer = self.post("/keys", json!({"name": name, "scope": "full"})).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        (answer.body["key"]["id"].as_str().unwrap().to_owned(), answer)
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}/api/v1{path}", self.url));
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }

    pub fn change(&self, method: Method, path: &str) -> RequestBuilder {
        self.request(method, path).header(ORIGIN, &self.url).header("X-CSRF-Token", "1")
    }

    pub fn take_cookie(&mut self, answer: &Answer) {
        let set = answer.headers[SET_COOKIE].to_str().unwrap();
        self.cookie = Some(set.split(';').next().unwrap().to_owned());
    }
}

pub async fn read(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.bytes().await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Answer { status, headers, body }
}
