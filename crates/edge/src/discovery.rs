//! Follows the ingress controller's own pods, so that exactly they are trusted and no wider network.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{pending, ready};
use futures_util::stream::{BoxStream, StreamExt, once};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};

use crate::error::EdgeError;
use crate::policy::ServiceRef;
use crate::trusted::TrustedProxies;

mod members;

use members::{Effect, Members};

/// A dead connection is noticed after this and five seconds more.
const WATCH_SECONDS: u32 = 120;
/// Above the watch's own timeout, so that it only ends what really hangs.
const READ_TIMEOUT: Duration = Duration::from_secs(150);

type Slices = BoxStream<'static, watcher::Result<Event<EndpointSlice>>>;

/// How discovery stands; readiness depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryStatus {
    /// No discovery was asked for.
    Off,
    /// Nothing has been listed yet: proxies would be taken for clients, so we are not ready.
    Waiting,
    /// The set follows the cluster.
    Following {
        /// How many addresses are trusted, those that just left included.
        proxies: usize,
    },
    /// The API is away: the last known set stays in force.
    Stale {
        /// How many addresses are trusted.
        proxies: usize,
    },
}

impl DiscoveryStatus {
    /// Ready once listed, and from then on: an outage of the API is none of ours.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        !matches!(self, Self::Waiting)
    }

    /// The metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Waiting => "waiting",
            Self::Following { .. } => "following",
            Self::Stale { .. } => "stale",
        }
    }
}

/// How long removed addresses stay and how often a failed API is asked again.
pub struct Pace {
    /// For how long a removed address stays trusted.
    pub grace: Duration,
    /// The pauses between attempts.
    pub retry: Box<dyn Backoff>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { grace: Duration::from_secs(60), retry: Box::new(DefaultBackoff::default()) }
    }
}

/// Builds the client from the surroundings: a kubeconfig where there is one, else the pod's service account.
///
/// # Errors
/// There is neither, or the certificates can't be read.
pub async fn kube_client() -> Result<Client, EdgeError> {
    let config = kube::Config::infer().await;
    client_from(config.map_err(|error| EdgeError::KubeConfig(Box::new(error)))?)
}

/// Builds the client from an explicit configuration, with the timeouts that following needs.
///
/// # Errors
/// The certificates can't be read.
pub fn client_from(mut config: kube::Config) -> Result<Client, EdgeError> {
    // Its own retries would hide an outage from us for minutes.
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    Client::try_from(config).map_err(|error| EdgeError::KubeClient(Box::new(error)))
}

/// Keeps `trusted` at the endpoints of `service` for as long as it is polled.
pub async fn discover_proxies(
    client: Client,
    service: ServiceRef,
    trusted: Arc<TrustedProxies>,
    status: watch::Sender<DiscoveryStatus>,
    pace: Pace,
) -> Infallible {
    let api = Api::namespaced(client, &service.namespace);
    let mut follower =
        Follower { members: Members::new(pace.grace), retry: pace.retry, service, trusted, status };
    let mut slices = follower.watch(&api, Duration::ZERO);
    loop {
        tokio::select! {
            item = slices.next() => {
                if let Some(pause) = follower.take(item) {
                    slices = follower.watch(&api, pause);
                }
            }
            () = at(follower.members.next_expiry()) => follower.forget(),
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => pending().await,
    }
}

struct Follower {
    members: Members,
    retry: Box<dyn Backoff>,
    service: ServiceRef,
    trusted: Arc<TrustedProxies>,
    status: watch::Sender<DiscoveryStatus>,
}

impl Follower {
    fn watch(&self, api: &Api<EndpointSlice>, pause: Duration) -> Slices {
        let label = format!("kubernetes.io/service-name={}", self.service.name);
        let config = watcher::Config::default().labels(&label).timeout(WATCH_SECONDS);
        let api = api.clone();
        let wait = once(sleep(pause)).filter_map(|()| ready(None));
        wait.chain(watcher(api, config)).boxed()
    }

    /// Applies an event; after an error says how long to wait before listing anew.
    ///
    /// Listing anew after every error, not only when the version has expired, costs one small
    /// request and tells for certain that we are up to date again; `watcher` by itself would
    /// also ask for ever with a version that the server refuses by status 410.
    fn take(&mut self, item: Option<watcher::Result<Event<EndpointSlice>>>) -> Option<Duration> {
        match item {
            Some(Ok(event)) => {
                if self.members.apply(event, Instant::now()) == Effect::Current {
                    self.retry.reset();
                    self.publish();
                }
                None
            }
            Some(Err(error)) => Some(self.fail(&error)),
            None => Some(self.pause()),
        }
    }

    fn publish(&self) {
        let hosts = self.members.trusted();
        let now = DiscoveryStatus::Following { proxies: hosts.len() };
        self.trusted.publish(hosts);
        let before = self.status.send_replace(now);
        if before != now {
            let service = &self.service;
            tracing::info!(%service, before = before.label(), ?now, "trusted proxies changed");
        }
    }

    /// Also during an outage: what the API last said is that these pods are gone.
    fn forget(&mut self) {
        if !self.members.expire(Instant::now()) {
            return;
        }
        let hosts = self.members.trusted();
        let proxies = hosts.len();
        self.trusted.publish(hosts);
        self.status.send_modify(|status| match status {
            DiscoveryStatus::Following { proxies: count } | DiscoveryStatus::Stale { proxies: count } => {
                *count = proxies
            }
            DiscoveryStatus::Off | DiscoveryStatus::Waiting => {}
        });
    }

    fn fail(&mut self, error: &watcher::Error) -> Duration {
        let pause = self.pause();
        let service = &self.service;
        let before = *self.status.borrow();
        match before {
            DiscoveryStatus::Following { proxies } => {
                self.status.send_replace(DiscoveryStatus::Stale { proxies });
                tracing::warn!(%service, %error, "the Kubernetes API is away; the known proxies stay trusted");
            }
            DiscoveryStatus::Stale { .. } => tracing::debug!(%service, %error, "still away"),
            DiscoveryStatus::Off | DiscoveryStatus::Waiting => {
                tracing::warn!(%service, %error, "endpoints can't be listed, so not ready; trying on");
            }
        }
        pause
    }

    fn pause(&mut self) -> Duration {
        self.retry.next().unwrap_or(Duration::from_secs(30))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_from_the_first_list_on_or_without_discovery() {
        assert!(!DiscoveryStatus::Waiting.is_ready());
        for status in [
            DiscoveryStatus::Off,
            DiscoveryStatus::Following { proxies: 0 },
            DiscoveryStatus::Stale { proxies: 2 },
        ] {
            assert!(status.is_ready(), "{status:?}");
        }
    }
}
