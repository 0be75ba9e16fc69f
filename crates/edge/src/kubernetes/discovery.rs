//! Discovery: watches the EndpointSlices of a Service and trusts exactly its pods instead of a whole network.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{pending, ready};
use futures_util::stream::{BoxStream, StreamExt, once};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};

use super::endpoints::EndpointSet;
use crate::policy::ServiceRef;
use crate::trusted::DiscoveryStatus;
use crate::trusted::TrustedProxies;

/// Timeout of a watch. kube treats the connection as dead five seconds after it.
const WATCH_SECONDS: u32 = 120;
type Slices = BoxStream<'static, watcher::Result<Event<EndpointSlice>>>;

/// Keeps `trusted` up to date with the endpoints of `service`. A removed address stays trusted for `removal_grace`.
/// Never returns.
pub(super) async fn discover_proxies(
    client: Client,
    service: ServiceRef,
    trusted: Arc<TrustedProxies>,
    status: watch::Sender<DiscoveryStatus>,
    removal_grace: Duration,
    retry: Box<dyn Backoff>,
) -> Infallible {
    let api = Api::namespaced(client, &service.namespace);
    let endpoints = EndpointSet::new(removal_grace);
    let mut watcher = ProxyWatcher { endpoints, retry, service, trusted, status };
    let mut slices = watcher.watch(&api, Duration::ZERO);
    loop {
        tokio::select! {
            item = slices.next() => {
                if let Some(delay) = watcher.apply(item) {
                    slices = watcher.watch(&api, delay);
                }
            }
            () = wait_until(watcher.endpoints.next_expiry()) => watcher.expire_removed(),
        }
    }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

struct ProxyWatcher {
    endpoints: EndpointSet,
    retry: Box<dyn Backoff>,
    service: ServiceRef,
    trusted: Arc<TrustedProxies>,
    status: watch::Sender<DiscoveryStatus>,
}

impl ProxyWatcher {
    /// Starts a list and watch after `delay`.
    fn watch(&self, api: &Api<EndpointSlice>, delay: Duration) -> Slices {
        let label = format!("kubernetes.io/service-name={}", self.service.name);
        let config = watcher::Config::default().labels(&label).timeout(WATCH_SECONDS);
        let api = api.clone();
        let wait = once(sleep(delay)).filter_map(|()| ready(None));
        wait.chain(watcher(api, config)).boxed()
    }

    /// Applies an event. After an error or the end of the stream, returns the delay before a new list and watch.
    ///
    /// A full list after every error costs one small request and ensures that the set is current. `watcher` alone
    /// would retry forever with an expired resource version that the server rejects with status 410.
    fn apply(&mut self, item: Option<watcher::Result<Event<EndpointSlice>>>) -> Option<Duration> {
        match item {
            Some(Ok(event)) => {
                if self.endpoints.apply(event, Instant::now()) {
                    self.retry.reset();
                    self.publish();
                }
                None
            }
            Some(Err(error)) => Some(self.on_error(&error)),
            None => Some(self.next_delay()),
        }
    }

    fn publish(&self) {
        let hosts = self.endpoints.trusted();
        let now = DiscoveryStatus::Following { proxies: hosts.len() };
        self.trusted.publish(hosts);
        let before = self.status.send_replace(now);
        if before == now {
            return;
        }
        let service = &self.service;
        tracing::info!(%service, before = before.label(), ?now, "discovery status changed");
        self.warn_without_proxies();
    }

    fn warn_without_proxies(&self) {
        if *self.status.borrow() == (DiscoveryStatus::Following { proxies: 0 }) {
            let service = &self.service;
            tracing::warn!(
                %service,
                "discovery trusts no proxy, because the Service has no endpoints: check its name, its namespace and its \
                 pods. Until it has endpoints, every client appears with the address of the proxy"
            );
        }
    }

    /// Stops trusting removed addresses after the removal grace. This is safe even during an outage of the Kubernetes
    /// API: it had already reported that these pods are gone.
    fn expire_removed(&mut self) {
        if !self.endpoints.expire(Instant::now()) {
            return;
        }
        let hosts = self.endpoints.trusted();
        let proxies = hosts.len();
        self.trusted.publish(hosts);
        self.status.send_modify(|status| match status {
            DiscoveryStatus::Following { proxies: count } | DiscoveryStatus::Stale { proxies: count } => {
                *count = proxies
            }
            DiscoveryStatus::Off | DiscoveryStatus::Waiting => {}
        });
        self.warn_without_proxies();
    }

    fn on_error(&mut self, error: &watcher::Error) -> Duration {
        let delay = self.next_delay();
        let service = &self.service;
        let before = *self.status.borrow();
        match before {
            DiscoveryStatus::Following { proxies } => {
                self.status.send_replace(DiscoveryStatus::Stale { proxies });
                tracing::warn!(%service, %error, "Kubernetes API unavailable; keeping the known proxies");
            }
            DiscoveryStatus::Stale { .. } => {
                tracing::debug!(%service, %error, "Kubernetes API still unavailable")
            }
            DiscoveryStatus::Off | DiscoveryStatus::Waiting => {
                tracing::warn!(%service, %error, "can't list endpoints; not ready, retrying");
            }
        }
        delay
    }

    fn next_delay(&mut self) -> Duration {
        self.retry.next().unwrap_or(Duration::from_secs(30))
    }
}
