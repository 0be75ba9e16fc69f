//! quota-svc put together: store, charging, API, readiness; served until the lifecycle stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use service_kit::{Condition, Kit, Server};

use crate::api::{self, Context, Guard};
use crate::charging::Charging;
use crate::config::{Config, StoreChoice};
use crate::domain::limits::Limits;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::store::embedded::EmbeddedStore;
use crate::store::redis::RedisStore;

/// How often /readyz and the gauge learn whether the store is there.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the port stays shut for a store that is still being dialled: whoever finds the port open finds a store
/// behind it, unless there is none.
const FIRST_CONTACT: Duration = Duration::from_secs(1);
const FIRST_LOOKS_EVERY: Duration = Duration::from_millis(2);

/// A quota-svc that listens and waits to be run.
pub struct QuotaService {
    server: Server,
    endpoint: poem::endpoint::BoxEndpoint<'static>,
    store: OpenStore,
    watcher: tokio::task::JoinHandle<()>,
    kit: Kit,
}

enum OpenStore {
    Redis,
    Embedded(Arc<EmbeddedStore>),
}

impl QuotaService {
    /// Opens the store and the port. Redis may be away: that is said on /readyz and ends by itself, and the port
    /// opens after a second all the same.
    pub async fn start(config: &Config, kit: &Kit) -> anyhow::Result<Self> {
        config.check()?;
        let limits = config.limits.limits();
        let (store, open) = open_store(config, limits)?;
        let metrics = Metrics::new(&kit.telemetry.meter());
        let charging = Charging::new(store.clone(), limits, metrics);
        let context = Arc::new(Context { store: store.clone(), charging, limits });
        let guard = Guard { allow_remote: config.allow_remote };
        let endpoint = api::endpoint(&context, config.serve, guard, &kit.telemetry);
        let _ = tokio::time::timeout(FIRST_CONTACT, contact(&*store)).await;
        let server = Server::bind("quota", config.listen, &kit.serve).await?;
        let watcher = tokio::spawn(watch(store, kit.readiness.condition("store"), gauge(kit)));
        Ok(Self { server, endpoint, store: open, watcher, kit: kit.clone() })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until the lifecycle stops, then writes what is not yet written.
    pub async fn run(self) {
        self.server.serve(self.endpoint, self.kit.lifecycle.clone()).await;
        self.watcher.abort();
        if let OpenStore::Embedded(store) = &self.store {
            store.close().await;
        }
    }
}

/// The document of the internal API, formatted.
pub fn document() -> anyhow::Result<String> {
    let limits = Limits::default();
    let store = Arc::new(EmbeddedStore::in_memory(limits, Default::default())?);
    let metrics = Metrics::new(&service_kit::Telemetry::for_tests().meter());
    let charging = Charging::new(store.clone(), limits, metrics);
    let document = api::document(&Arc::new(Context { store, charging, limits }));
    let mut document: serde_json::Value = serde_json::from_str(&document)?;
    // Whatever order this build's JSON maps have (a feature that any dependency may switch on).
    document.sort_all_objects();
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn open_store(config: &Config, limits: Limits) -> anyhow::Result<(Arc<dyn Store>, OpenStore)> {
    Ok(match config.store.choice(limits)? {
        StoreChoice::Redis(options) => (Arc::new(RedisStore::start(options)?), OpenStore::Redis),
        StoreChoice::File(path) => {
            let store = Arc::new(EmbeddedStore::open(&path, limits, Default::default())?);
            (store.clone(), OpenStore::Embedded(store))
        }
    })
}

fn gauge(kit: &Kit) -> opentelemetry::metrics::Gauge<u64> {
    let meter = kit.telemetry.meter();
    let gauge = meter.u64_gauge("quota_store_up");
    gauge.with_description("1 while the store can be reached, 0 while it is away").build()
}

/// Waits until the store can be reached.
async fn contact(store: &dyn Store) {
    while store.trouble().is_some() {
        tokio::time::sleep(FIRST_LOOKS_EVERY).await;
    }
}

/// Tells whether the store can be reached.
async fn watch(store: Arc<dyn Store>, condition: Condition, gauge: opentelemetry::metrics::Gauge<u64>) {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tick.tick().await;
        let trouble = store.trouble();
        gauge.record(u64::from(trouble.is_none()), &[]);
        match trouble {
            None => condition.set_ready("the store answers"),
            Some(trouble) => condition.set_not_ready(trouble),
        }
    }
}
