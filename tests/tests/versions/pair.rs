//! Two versions of the services on one Redis, and a browser that can use either dashboard.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use api_key::ApiKey;
use reqwest::Method;
use reqwest::header::{COOKIE, HeaderMap, ORIGIN, SET_COOKIE};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http;
use testkit::lookup::{Lookup, WAIT_TIMEOUT};
use testkit::process::{Service, binary};
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::redis::Redis;
use tokio::process::Command;

pub const PASSWORD: &str = "correct horse battery";

/// One version of quota-svc, lookup-svc and dashboard-api. lookup-svc and dashboard-api use the quota-svc of the same
/// version, as in a pod.
pub struct Version {
    /// `old` or `new`, for messages.
    pub name: &'static str,
    pub quota: Quota,
    pub lookup: Lookup,
    pub dashboard_url: String,
    pub quota_program: PathBuf,
    dashboard: Service,
}

/// Both versions on one Redis, with one session key.
pub struct Pair {
    pub old: Version,
    pub new: Version,
    pub redis: Redis,
    _dir: TempDir,
}

impl Pair {
    pub async fn start(old_dir: &Path, quota_flags: &[&str]) -> Self {
        let (redis, dir) = (Redis::start().await, tempfile::tempdir().unwrap());
        let store = StoreChoice::from(&redis);
        let key = dir.path().join("session.key");
        std::fs::write(&key, [7; 32]).unwrap();
        let old = |program: &str| old_dir.join(program);
        let old = Version::start("old", old, store.clone(), &key, quota_flags).await;
        let new = Version::start("new", binary, store, &key, quota_flags).await;
        Self { old, new, redis, _dir: dir }
    }

    pub fn both_ways(&self) -> [(&Version, &Version); 2] {
        [(&self.old, &self.new), (&self.new, &self.old)]
    }
}

impl Version {
    async fn start(
        name: &'static str,
        program: impl Fn(&str) -> PathBuf,
        store: StoreChoice,
        session_key: &Path,
        quota_flags: &[&str],
    ) -> Self {
        let quota_program = program("quota-svc");
        let flags = [&["--store-timeout", "10s"], quota_flags].concat();
        let quota = Quota::start_version(quota_program.to_str().unwrap(), store, &flags).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let lookup = Lookup::start_version(program("lookup-svc").to_str().unwrap(), quota.url()).await;
        let args = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--insecure-cookies"];
        let key = ["--session-key-file", session_key.to_str().unwrap(), "--quota-url", quota.url()];
        let dashboard = program("dashboard-api");
        let mut dashboard =
            Service::spawn(dashboard.to_str().unwrap(), &[args.as_slice(), &key].concat(), &[]);
        let dashboard_url = format!("http://{}", dashboard.listen_addr("dashboard").await);
        Self { name, quota, lookup, dashboard_url, quota_program, dashboard }
    }

    /// A browser that has signed up for a new account with a random login.
    pub async fn sign_up(&self) -> Browser {
        let login = format!("owner-{:016x}", getrandom::u64().unwrap());
        Browser { http: http::client(), url: self.dashboard_url.clone(), login, cookie: None }
            .create_account()
            .await
    }

    /// The key that a dashboard has created, as this version's quota-svc describes it.
    pub async fn read_key(&self, created: &Value) -> TestKey {
        let secret = created["secret"].as_str().unwrap().to_owned();
        let key = self.quota.client().key(created["key"]["id"].as_str().unwrap(), None).await.unwrap();
        let sha256 = ApiKey::parse(&secret).unwrap().digest().0;
        TestKey { secret, key, sha256 }
    }

    /// Runs an operator command of this version and returns its standard output.
    pub async fn command(&self, args: &[&str]) -> String {
        self.command_with(&self.quota, args).await
    }

    /// Runs an operator command of this version on another quota-svc.
    pub async fn command_with(&self, quota: &Quota, args: &[&str]) -> String {
        let mut command = Command::new(&self.quota_program);
        command.args(args).args(["--quota-url", quota.url()]).env_clear().kill_on_drop(true);
        let output = command.output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {args:?} {}\n{stderr}", self.name, output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Checks that no service has logged an error.
    pub fn check_logs(&self) {
        for service in [&self.quota.service, &self.lookup.service, &self.dashboard] {
            let logs = service.logs();
            let errors: Vec<_> = logs.lines().filter(|line| line.contains(r#""level":"ERROR""#)).collect();
            assert!(errors.is_empty(), "{}: {errors:#?}", self.name);
        }
    }
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

/// A browser of one owner: cookie, Origin and CSRF header.
#[derive(Clone, Debug)]
pub struct Browser {
    http: reqwest::Client,
    url: String,
    login: String,
    cookie: Option<String>,
}

impl Browser {
    /// Uses the dashboard of this version from now on, with the same cookie.
    pub fn go_to(&mut self, version: &Version) {
        self.url.clone_from(&version.dashboard_url);
    }

    /// A browser of the same owner that is not signed in.
    pub fn without_session(&self, version: &Version) -> Self {
        Self { url: version.dashboard_url.clone(), cookie: None, ..self.clone() }
    }

    /// Creates an account with this owner's login and signs in.
    pub async fn create_account(mut self) -> Self {
        let response = self.send_credentials("/account", PASSWORD).await;
        assert_eq!(response.status, 201, "{response:?}");
        self
    }

    /// Signs in; the error is the status.
    pub async fn sign_in(mut self, password: &str) -> Result<Self, u16> {
        let response = self.send_credentials("/session", password).await;
        if response.status == 200 { Ok(self) } else { Err(response.status) }
    }

    /// Signs up or in and stores the session cookie.
    async fn send_credentials(&mut self, path: &str, password: &str) -> Response {
        let response =
            self.send(Method::POST, path, json!({"login": self.login, "password": password})).await;
        let set = response.headers.get_all(SET_COOKIE).iter().map(|value| value.to_str().unwrap());
        let session = set.filter_map(|set| set.split(';').next()).find(|set| set.starts_with("ipl_session="));
        self.cookie = session.map(str::to_owned);
        response
    }

    pub async fn get(&self, path: &str) -> Response {
        self.send(Method::GET, path, Value::Null).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Response {
        self.send(Method::POST, path, body).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Response {
        self.send(Method::PUT, path, body).await
    }

    pub async fn delete(&self, path: &str) -> Response {
        self.send(Method::DELETE, path, Value::Null).await
    }

    /// Creates a key, to be charged through the quota-svc of any version.
    pub async fn create_key(&self, version: &Version) -> TestKey {
        version.read_key(&self.try_create_key().await.unwrap()).await
    }

    /// Creates a key and returns the response's body; the error is the status.
    pub async fn try_create_key(&self) -> Result<Value, u16> {
        let response = self.post("/keys", json!({"name": "test", "scope": "full"})).await;
        if response.status == 201 { Ok(response.body) } else { Err(response.status) }
    }

    /// Applies a change such as `resume` to a key and returns the key's new state.
    pub async fn change_key(&self, key: &TestKey, change: &str) -> String {
        let response = self.post(&format!("/keys/{}/{change}", key.key.id), Value::Null).await;
        assert_eq!(response.status, 200, "{change}: {response:?}");
        response.body["state"].as_str().unwrap().to_owned()
    }

    /// Sends a request. No version may respond with a 5xx.
    async fn send(&self, method: Method, path: &str, body: Value) -> Response {
        let mut request = self.http.request(method, format!("{}/api/v1{path}", self.url));
        request = request.header(ORIGIN, &self.url).header("X-CSRF-Token", "1");
        if let Some(cookie) = &self.cookie {
            request = request.header(COOKIE, cookie);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or(Value::Null);
        assert!(status < 500, "{path}: {status} {body}");
        Response { status, headers, body }
    }
}

/// Days since 1970-01-01 UTC.
pub fn utc_day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / (24 * 60 * 60)
}
