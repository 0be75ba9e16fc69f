//! quota-svc as a real process on the store a test chooses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quota_client::QuotaClient;

use crate::cluster::RedisCluster;
use crate::http;
use crate::process::Service;
use crate::redis::Redis;
use crate::sentinel::Sentinel;
use crate::wait::eventually_ok;

mod keys;

pub use keys::{TestKey, outcome_of};

/// Longer than every deadline of quota-svc, so that tests see its own answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where quota-svc keeps its state.
#[derive(Debug, Clone)]
pub enum StoreChoice {
    /// A Redis by URL, with this prefix to its names.
    Redis {
        /// Any form that `--redis-url` takes.
        url: String,
        /// Two quota-svc with one prefix are replicas of each other.
        prefix: String,
    },
    /// The embedded store in this file.
    File(PathBuf),
}

impl StoreChoice {
    /// A Redis by any URL (a fault proxy's, a Unix socket's), with a new random prefix.
    #[must_use]
    pub fn url(url: impl Into<String>) -> Self {
        Self::Redis { url: url.into(), prefix: random_prefix() }
    }

    /// The same state by another way, such as a second replica that does not go through the fault proxy.
    ///
    /// # Panics
    /// On the embedded store, which one process has to itself.
    #[must_use]
    pub fn through(&self, url: impl Into<String>) -> Self {
        match self {
            Self::Redis { prefix, .. } => Self::Redis { url: url.into(), prefix: prefix.clone() },
            Self::File(_) => panic!("the embedded store has no URL"),
        }
    }

    /// The prefix of its names in Redis, to look at them with [`Redis::cli`].
    ///
    /// # Panics
    /// On the embedded store, which has none.
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

impl From<&Sentinel> for StoreChoice {
    fn from(set: &Sentinel) -> Self {
        Self::url(set.url())
    }
}

/// A running quota-svc; killed when dropped.
#[derive(Debug)]
pub struct Quota {
    /// The process, to signal and measure it and to read its log.
    pub service: Service,
    url: String,
    admin_url: String,
}

impl Quota {
    /// Starts it on `store` (`&Redis`, `&RedisCluster`, `&Sentinel` or a [`StoreChoice`]) and waits until it listens.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn start(store: impl Into<StoreChoice>) -> Self {
        Self::start_with(store, &[]).await
    }

    /// The same with more flags, such as `["--daily-limit", "5"]`.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn start_with(store: impl Into<StoreChoice>, flags: &[&str]) -> Self {
        Self::start_under(&[], store, flags).await
    }

    /// The same through a program that becomes quota-svc ([`Service::spawn_under`]).
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn start_under(wrapper: &[&str], store: impl Into<StoreChoice>, flags: &[&str]) -> Self {
        let store = store.into().flags();
        let mut args = vec!["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        args.extend(store.iter().map(String::as_str).chain(flags.iter().copied()));
        let mut service = Service::spawn_under(wrapper, "quota-svc", &args, &[]);
        let url = format!("http://{}", service.listening("quota").await);
        let admin_url = format!("http://{}", service.listening("admin").await);
        Self { service, url, admin_url }
    }

    /// Waits until it finds itself ready, that is, until its store answers.
    ///
    /// # Panics
    /// When it is not after `timeout`; its last answer is in the message.
    pub async fn wait_ready(&self, timeout: Duration) {
        let (http, url) = (http::client(), format!("{}/readyz", self.admin_url));
        eventually_ok(timeout, "quota-svc is ready", async || {
            let answer = http.get(&url).send().await.map_err(|e| e.to_string())?;
            let status = answer.status();
            if status.is_success() {
                Ok(())
            } else {
                Err(format!("{status} {}", answer.text().await.unwrap_or_default()))
            }
        })
        .await;
    }

    /// `http://127.0.0.1:PORT` of the internal API.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its address, for a fault proxy.
    ///
    /// # Panics
    /// Never: the URL is made of one.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().expect("the URL is made of an address")
    }

    /// `http://127.0.0.1:PORT` of `/livez`, `/readyz` and `/metrics`.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        &self.admin_url
    }

    /// A client of the internal API that waits longer than any deadline of quota-svc.
    ///
    /// # Panics
    /// Never: the URL is well-formed.
    #[must_use]
    pub fn client(&self) -> QuotaClient {
        QuotaClient::new(&self.url, CLIENT_TIMEOUT).expect("a loopback URL is a good one")
    }

    /// The status and the body of `/readyz`.
    ///
    /// # Panics
    /// When the admin port does not answer.
    pub async fn readiness(&self) -> (u16, String) {
        let answer = http::client().get(format!("{}/readyz", self.admin_url)).send().await;
        let answer = answer.expect("the admin port answers");
        (answer.status().as_u16(), answer.text().await.expect("a whole answer"))
    }

    /// The sum of a metric's samples whose labels contain `label`; zero where there are none.
    ///
    /// # Panics
    /// When the admin port does not answer.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        let metrics = self.metrics().await;
        let samples = metrics.lines().filter_map(|line| {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
            let (labels, value) = rest.rsplit_once(' ')?;
            labels.contains(label).then(|| value.parse::<f64>().expect("a sample is a number"))
        });
        samples.sum()
    }

    /// The whole of `/metrics`.
    ///
    /// # Panics
    /// When the admin port does not answer.
    pub async fn metrics(&self) -> String {
        let answer = http::client().get(format!("{}/metrics", self.admin_url)).send().await;
        answer.expect("the admin port answers").text().await.expect("a whole answer")
    }
}

fn random_prefix() -> String {
    format!("t{:016x}:", getrandom::u64().expect("the system gives random numbers"))
}
