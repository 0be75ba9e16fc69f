//! quota-svc as a real process, on a store that the test chooses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quota_client::{QuotaClient, QuotaToken};

use crate::cluster::RedisCluster;
use crate::http;
use crate::process::{Service, token_file};
use crate::redis::Redis;
use crate::sentinel::SentinelSet;
use crate::wait::eventually_ok;

mod keys;

pub use keys::{TestKey, first_outcome, rate_limit, remaining};

/// Longer than every default deadline of quota-svc, so that its response arrives before the client's timeout.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The store of a quota-svc.
#[derive(Debug, Clone)]
pub enum StoreChoice {
    /// Redis, with a prefix for all Redis keys.
    Redis {
        /// Any form that `--redis-url` accepts.
        url: String,
        /// quota-svc processes with the same prefix share their data.
        prefix: String,
    },
    /// The embedded store in this file.
    File(PathBuf),
}

impl StoreChoice {
    /// Redis at any URL, such as that of a fault proxy or a Unix socket, with a new random prefix.
    #[must_use]
    pub fn url(url: impl Into<String>) -> Self {
        Self::Redis { url: url.into(), prefix: random_prefix() }
    }

    /// The same data at another URL, for example for a second quota-svc that bypasses the fault proxy.
    ///
    /// # Panics
    /// If this is the embedded store.
    #[must_use]
    pub fn with_url(&self, url: impl Into<String>) -> Self {
        match self {
            Self::Redis { prefix, .. } => Self::Redis { url: url.into(), prefix: prefix.clone() },
            Self::File(_) => panic!("the embedded store has no URL"),
        }
    }

    /// The prefix of its Redis keys, to inspect them with [`Redis::cli`].
    ///
    /// # Panics
    /// If this is the embedded store.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match self {
            Self::Redis { prefix, .. } => prefix,
            Self::File(_) => panic!("the embedded store has no prefix"),
        }
    }

    fn flags(&self) -> Vec<String> {
        match self {
            Self::Redis { url, prefix } => {
                ["--redis-url", url, "--key-prefix", prefix].map(str::to_owned).to_vec()
            }
            Self::File(path) => vec!["--store-file".to_owned(), path.display().to_string()],
        }
    }
}

impl From<&Redis> for StoreChoice {
    fn from(redis: &Redis) -> Self {
        Self::url(redis.url())
    }
}

impl From<&RedisCluster> for StoreChoice {
    fn from(cluster: &RedisCluster) -> Self {
        Self::url(cluster.url())
    }
}

impl From<&SentinelSet> for StoreChoice {
    fn from(set: &SentinelSet) -> Self {
        Self::url(set.url())
    }
}

/// A running quota-svc; killed when dropped.
#[derive(Debug)]
pub struct Quota {
    /// The process, for signals, measurements and logs.
    pub service: Service,
    url: String,
    admin_url: String,
}

impl Quota {
    /// Starts quota-svc on `store` (`&Redis`, `&RedisCluster`, `&SentinelSet` or a [`StoreChoice`]) and waits until it
    /// listens.
    ///
    /// # Panics
    /// If it does not start. The message includes its log.
    pub async fn start(store: impl Into<StoreChoice>) -> Self {
        Self::start_with(store, &[]).await
    }

    /// Like [`Quota::start`], with extra flags such as `["--daily-limit", "5"]`.
    pub async fn start_with(store: impl Into<StoreChoice>, flags: &[&str]) -> Self {
        Self::start_under(&[], store, flags).await
    }

    /// Like [`Quota::start_with`], through a wrapper program ([`Service::spawn_under`]).
    pub async fn start_under(wrapper: &[&str], store: impl Into<StoreChoice>, flags: &[&str]) -> Self {
        Self::start_program(wrapper, "quota-svc", store, flags).await
    }

    async fn start_program(
        wrapper: &[&str],
        program: &str,
        store: impl Into<StoreChoice>,
        flags: &[&str],
    ) -> Self {
        let store_flags = store.into().flags();
        let mut args = vec!["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        args.extend(store_flags.iter().map(String::as_str).chain(flags.iter().copied()));
        let mut service = Service::spawn_under(wrapper, program, &args, &[]);
        let url = format!("http://{}", service.listen_addr("quota").await);
        let admin_url = format!("http://{}", service.listen_addr("admin").await);
        Self { service, url, admin_url }
    }

    /// Waits until `/readyz` reports ready, that is, until the store responds.
    ///
    /// # Panics
    /// If it is not ready after `timeout`. The message includes the last response.
    pub async fn wait_ready(&self, timeout: Duration) {
        let (http, url) = (http::client(), format!("{}/readyz", self.admin_url));
        eventually_ok(timeout, "quota-svc is ready", async || {
            let response = http.get(&url).send().await.map_err(|e| e.to_string())?;
            let status = response.status();
            if status.is_success() {
                Ok(())
            } else {
                Err(format!("{status} {}", response.text().await.unwrap_or_default()))
            }
        })
        .await;
    }

    /// `http://127.0.0.1:PORT` of the internal API.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Listen address of the internal API, for a fault proxy.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().expect("URL contains an address")
    }

    /// `http://127.0.0.1:PORT` of the admin server: `/livez`, `/readyz`, `/metrics`.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        &self.admin_url
    }

    /// A client of the internal API whose timeout exceeds every default deadline of quota-svc.
    #[must_use]
    pub fn client(&self) -> QuotaClient {
        client(&self.url, CLIENT_TIMEOUT)
    }

    /// Status code and body of `/readyz`.
    pub async fn readiness(&self) -> (u16, String) {
        let response = http::client().get(format!("{}/readyz", self.admin_url)).send().await;
        let response = response.expect("admin port responds");
        (response.status().as_u16(), response.text().await.expect("complete response body"))
    }

    /// The sum of a metric's samples whose labels contain `label`; 0 if there are none.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        let metrics = self.metrics().await;
        let samples = metrics.lines().filter_map(|line| {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
            let (labels, value) = rest.rsplit_once(' ')?;
            labels.contains(label).then(|| value.parse::<f64>().expect("sample is a number"))
        });
        samples.sum()
    }

    /// The text of `/metrics`.
    pub async fn metrics(&self) -> String {
        let response = http::client().get(format!("{}/metrics", self.admin_url)).send().await;
        response.expect("admin port responds").text().await.expect("complete response body")
    }
}

/// A client of a quota-svc at any URL, such as that of a fault proxy.
///
/// # Panics
/// If the URL is invalid.
#[must_use]
pub fn client(url: &str, timeout: Duration) -> QuotaClient {
    let token = QuotaToken::load(token_file()).expect("valid token");
    QuotaClient::new(url, timeout).expect("valid URL").with_token(&token)
}

fn random_prefix() -> String {
    format!("t{:016x}:", getrandom::u64().expect("random numbers available"))
}
