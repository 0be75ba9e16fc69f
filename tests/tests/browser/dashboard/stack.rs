//! lookup-svc, dashboard-api, two quota-svc and Redis, connected as in production.

use std::time::Duration;

use tempfile::TempDir;
use testkit::ports::ReservedPort;
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;

use crate::browser::Browser;

pub const PASSWORD: &str = "correct horse battery";

pub struct Stack {
    pub dashboard_url: String,
    pub lookup_url: String,
    pub dashboard: Service,
    pub lookup: Service,
    /// The sidecars of dashboard-api and lookup-svc, on one store, as in two pods.
    pub quotas: [Quota; 2],
    pub redis: Redis,
    _ports: [ReservedPort; 2],
    _dir: TempDir,
}

impl Stack {
    pub async fn start() -> Self {
        Self::start_with(&[], &[]).await
    }

    /// Starts everything, with additional flags for each quota-svc and for dashboard-api.
    pub async fn start_with(quota_flags: &[&str], dashboard_flags: &[&str]) -> Self {
        Self::start_all(quota_flags, dashboard_flags, &[]).await
    }

    /// Starts everything, with a mail server and the variable that makes it trusted.
    pub async fn start_with_mail(mail_flags: &[&str], trust: (&str, &str)) -> Self {
        Self::start_all(&[], mail_flags, &[trust]).await
    }

    async fn start_all(quota_flags: &[&str], dashboard_flags: &[&str], env: &[(&str, &str)]) -> Self {
        let redis = Redis::start().await;
        let store = StoreChoice::from(&redis);
        let start_quota = async || {
            let quota = Quota::start_with(store.clone(), quota_flags).await;
            quota.wait_ready(Duration::from_secs(20)).await;
            quota
        };
        let quotas: [Quota; 2] = tokio::join!(start_quota(), start_quota()).into();
        // Each service needs the other's URL as a flag, so the ports are chosen first.
        let ports = [ReservedPort::new(), ReservedPort::new()];
        let [dashboard_url, lookup_url] = [0, 1].map(|i: usize| format!("http://{}", ports[i].addr()));
        let dir = tempfile::tempdir().expect("temporary directory");
        let key = dir.path().join("session.key");
        std::fs::write(&key, [7; 32]).expect("the session key is written");
        let key = key.to_str().expect("the path is UTF-8");
        let (dashboard_addr, lookup_addr) = (ports[0].addr().to_string(), ports[1].addr().to_string());
        let mut dashboard_args =
            vec!["--quota-url", quotas[0].url(), "--lookup-url", &lookup_url, "--insecure-cookies"];
        dashboard_args.extend(["--session-key-file", key]);
        dashboard_args.extend(dashboard_flags);
        if !env.is_empty() {
            // Mail needs it.
            dashboard_args.extend(["--public-url", &dashboard_url]);
        }
        let lookup_args =
            ["--quota-url", quotas[1].url(), "--dashboard-url", &dashboard_url, "--base-url", &lookup_url];
        let (dashboard, lookup) = tokio::join!(
            spawn("dashboard-api", "dashboard", &dashboard_addr, &dashboard_args, env),
            spawn("lookup-svc", "lookup", &lookup_addr, &lookup_args, &[]),
        );
        Self { dashboard_url, lookup_url, dashboard, lookup, quotas, redis, _ports: ports, _dir: dir }
    }

    /// Creates an account through the page and waits for the list of keys.
    pub async fn sign_up(&self, browser: &Browser, login: &str) {
        browser.goto(&format!("{}/#sign-up", self.dashboard_url)).await;
        browser.wait_for_text("h1", "Create your account").await;
        browser.fill("#login", login).await;
        browser.fill("#password", PASSWORD).await;
        browser.press(".sign-in", "Create account").await;
        browser.wait_for_text("h1", "API keys").await;
    }

    /// Opens the page of a key from the list.
    pub async fn open_key(&self, browser: &Browser, name: &str) {
        browser.click(&format!(".rows a[aria-label='{name}']")).await;
        browser.wait_for_focus(&format!("H1 {name}")).await;
    }

    /// Creates a key through the page. Returns the key and the curl line that the page shows.
    pub async fn create_key(&self, browser: &Browser, name: &str) -> (String, String) {
        browser.press(".title", "Create key").await;
        browser.fill("#key-name", name).await;
        browser.press("dialog", "Create key").await;
        let (secret, curl) = (browser.text("#secret").await, browser.text("#curl").await);
        browser.press("dialog", "I have saved it").await;
        browser.wait_gone("dialog").await;
        (secret, curl)
    }
}

/// Starts a service and waits until it listens. `server` is the name of its listener in the log.
async fn spawn(bin: &str, server: &str, listen: &str, flags: &[&str], env: &[(&str, &str)]) -> Service {
    let mut args = vec!["--listen", listen, "--admin-listen", "127.0.0.1:0"];
    args.extend(flags);
    let mut service = Service::spawn(bin, &args, env);
    service.listen_addr(server).await;
    service
}
