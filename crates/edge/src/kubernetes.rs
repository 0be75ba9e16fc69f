//! Discovery: watches the EndpointSlices of a Service and trusts exactly its pods instead of a whole network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::FutureExt;
use futures_util::future::ready;
use futures_util::stream::{BoxStream, StreamExt, once};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::runtime::reflector::store::Writer;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::{sleep, sleep_until};

use crate::trusted::{DiscoveryStatus, TrustedProxies};

/// Read timeout of a connection. Longer than a watch, so that it ends only connections that hang.
const READ_TIMEOUT: Duration = Duration::from_secs(150);

/// Timeout of a watch. kube treats the connection as dead five seconds after it.
const WATCH_SECONDS: u32 = 120;

/// The delay if a backoff ends.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Creates a Kubernetes client from the kubeconfig, if there is one, else from the pod's service account.
pub(crate) async fn client() -> anyhow::Result<Client> {
    client_from(
        kube::Config::infer()
            .await
            .context("no Kubernetes configuration found; --discover-proxies requires one")?,
    )
}

/// Creates a Kubernetes client from a configuration, with the timeouts that a watch needs.
pub fn client_from(mut config: kube::Config) -> anyhow::Result<Client> {
    // kube's retries would hide an outage for minutes.
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    Client::try_from(config).context("can't create the Kubernetes client")
}

/// Runs discovery. If it panics, the process is not ready until it is restarted.
pub(crate) async fn notice_panic(trusted: Arc<TrustedProxies>, discovery: impl Future<Output = ()>) {
    if AssertUnwindSafe(discovery).catch_unwind().await.is_err() {
        tracing::error!("proxy discovery panicked; not ready until a restart");
        trusted.status.send_replace(DiscoveryStatus::Waiting);
    }
}

/// Keeps `trusted` up to date with the endpoints of a Service (namespace and name). A removed address stays trusted for
/// `removal_grace`. Never returns.
pub(crate) async fn discover_proxies(
    client: Client,
    (namespace, name): (String, String),
    trusted: Arc<TrustedProxies>,
    removal_grace: Duration,
    retry: Box<dyn Backoff>,
) {
    let mut discovery = Discovery {
        slices: Api::namespaced(client, &namespace),
        selector: format!("kubernetes.io/service-name={name}"),
        service: format!("{namespace}/{name}"),
        endpoints: EndpointSet::new(removal_grace),
        trusted,
        retry,
    };
    let mut events = discovery.watch(Duration::ZERO);
    loop {
        let expiry = discovery.endpoints.next_expiry();
        tokio::select! {
            item = events.next() => {
                // A full list after every error costs one small request and ensures that the set is current. `watcher`
                // alone would retry forever with an expired resource version that the server rejects with status 410.
                if let Some(delay) = discovery.apply(item) {
                    events = discovery.watch(delay);
                }
            }
            () = sleep_until(expiry.unwrap_or_else(Instant::now).into()), if expiry.is_some() => {
                discovery.expire_removed();
            }
        }
    }
}

struct Discovery {
    slices: Api<EndpointSlice>,
    /// Label selector of the Service's slices.
    selector: String,
    /// The Service, for the log.
    service: String,
    endpoints: EndpointSet,
    trusted: Arc<TrustedProxies>,
    retry: Box<dyn Backoff>,
}

impl Discovery {
    /// Starts a list and watch after `delay`.
    fn watch(&self, delay: Duration) -> BoxStream<'static, watcher::Result<Event<EndpointSlice>>> {
        let config = watcher::Config::default().labels(&self.selector).timeout(WATCH_SECONDS);
        let wait = once(sleep(delay)).filter_map(|()| ready(None));
        wait.chain(watcher(self.slices.clone(), config)).boxed()
    }

    /// Applies an event. After an error or the end of the stream, returns the delay before a new list and watch.
    fn apply(&mut self, item: Option<watcher::Result<Event<EndpointSlice>>>) -> Option<Duration> {
        match item {
            Some(Ok(event)) => {
                if self.endpoints.apply(&event, Instant::now()) {
                    self.retry.reset();
                    self.publish(|proxies| DiscoveryStatus::Following { proxies });
                }
                return None;
            }
            Some(Err(error)) => self.on_error(&error),
            None => {}
        }
        Some(self.retry.next().unwrap_or(MAX_RETRY_DELAY))
    }

    fn publish(&self, status: impl FnOnce(usize) -> DiscoveryStatus) {
        let addresses = self.endpoints.trusted();
        let (service, proxies) = (&self.service, addresses.len());
        let now = status(proxies);
        self.trusted.publish(addresses);
        let before = self.trusted.status.send_replace(now);
        if before == now {
            return;
        }
        tracing::info!(service, before = before.label(), ?now, "discovery status changed");
        if proxies == 0 {
            tracing::warn!(
                service,
                "discovery trusts no proxy, because the Service has no endpoints: check its name, its namespace and its \
                 pods. Until it has endpoints, every client appears with the address of the proxy"
            );
        }
    }

    /// Stops trusting removed addresses after the removal grace. This is safe even during an outage of the Kubernetes
    /// API: it had already reported that these pods are gone.
    fn expire_removed(&mut self) {
        self.endpoints.expire(Instant::now());
        let before = *self.trusted.status.borrow();
        self.publish(|proxies| match before {
            DiscoveryStatus::Stale { .. } => DiscoveryStatus::Stale { proxies },
            _ => DiscoveryStatus::Following { proxies },
        });
    }

    fn on_error(&self, error: &watcher::Error) {
        let service = &self.service;
        let before = *self.trusted.status.borrow();
        match before {
            DiscoveryStatus::Following { proxies } => {
                self.trusted.status.send_replace(DiscoveryStatus::Stale { proxies });
                tracing::warn!(service, %error, "Kubernetes API unavailable; keeping the known proxies");
            }
            DiscoveryStatus::Stale { .. } => {
                tracing::debug!(service, %error, "Kubernetes API still unavailable");
            }
            DiscoveryStatus::Off | DiscoveryStatus::Waiting => {
                tracing::warn!(service, %error, "can't list endpoints; not ready, retrying");
            }
        }
    }
}

/// The addresses of a Service, and recently removed ones. A dual-stack Service has slices for each address family.
struct EndpointSet {
    removal_grace: Duration,
    /// Replaces all slices when a list is complete.
    slices: Writer<EndpointSlice>,
    present: BTreeSet<IpAddr>,
    /// Removed addresses and the time until which they stay trusted: their last requests may still be in flight.
    removed: BTreeMap<IpAddr, Instant>,
}

impl EndpointSet {
    fn new(removal_grace: Duration) -> Self {
        let slices = Writer::default();
        Self { removal_grace, slices, present: BTreeSet::new(), removed: BTreeMap::new() }
    }

    /// Applies an event. Returns whether the set is current; it is not while a list is incomplete. Starts the removal grace
    /// of addresses that are gone, and cancels it for addresses that are back.
    fn apply(&mut self, event: &Event<EndpointSlice>, now: Instant) -> bool {
        self.slices.apply_watcher_event(event);
        if matches!(event, Event::Init | Event::InitApply(_)) {
            return false;
        }
        let slices = self.slices.as_reader().state();
        let before =
            std::mem::replace(&mut self.present, slices.iter().flat_map(|slice| addresses(slice)).collect());
        self.removed.retain(|ip, _| !self.present.contains(ip));
        let until = now + self.removal_grace;
        self.removed.extend(before.difference(&self.present).map(|ip| (*ip, until)));
        self.expire(now);
        true
    }

    /// Drops removed addresses after their removal grace.
    fn expire(&mut self, now: Instant) {
        self.removed.retain(|_, until| *until > now);
    }

    /// Time at which the next removed address expires.
    fn next_expiry(&self) -> Option<Instant> {
        self.removed.values().min().copied()
    }

    /// Present and recently removed addresses.
    fn trusted(&self) -> BTreeSet<IpAddr> {
        self.present.iter().chain(self.removed.keys()).copied().collect()
    }
}

/// The addresses of the serving endpoints. Skips host names (addressType FQDN) and invalid addresses.
fn addresses(slice: &EndpointSlice) -> impl Iterator<Item = IpAddr> {
    let serving = slice.endpoints.iter().flatten().filter(|endpoint| is_serving(endpoint));
    let parsed = serving.flat_map(|endpoint| &endpoint.addresses).filter_map(|ip| ip.parse().ok());
    parsed.map(|ip: IpAddr| ip.to_canonical())
}

/// Includes terminating pods: they are no longer ready but still finish their requests.
fn is_serving(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.is_none_or(|found| found.serving.unwrap_or(true) || found.terminating.unwrap_or(false))
}

#[cfg(test)]
mod tests;
