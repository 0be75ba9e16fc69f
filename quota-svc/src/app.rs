//! Builds quota-svc (store, charge service, API, readiness) and runs it until shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quota_client::QuotaToken;
use service_kit::{Condition, Kit, Server};

use crate::api::{self, Context, LoopbackGuard, TokenGuard};
use crate::charge_service::ChargeService;
use crate::config::{Config, StoreChoice};
use crate::domain::limits::Limits;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::store::embedded::EmbeddedStore;
use crate::store::redis::RedisStore;

/// How often the store's health is copied to /readyz and to the gauges.
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);
/// The port stays closed until the store is connected, so that the first requests don't fail, but at most this long.
const STORE_WAIT: Duration = Duration::from_secs(1);
const STORE_WAIT_POLL: Duration = Duration::from_millis(2);

/// A quota-svc with its port open. [`QuotaService::run`] handles the requests.
pub struct QuotaService {
    server: Server,
    endpoint: poem::endpoint::BoxEndpoint<'static>,
    store: OpenStore,
    health_task: tokio::task::JoinHandle<()>,
    kit: Kit,
}

/// Which store is open: only the embedded store must be closed on shutdown.
enum OpenStore {
    Redis,
    Embedded(Arc<EmbeddedStore>),
}

impl QuotaService {
    /// Opens the store and the port. If Redis is unreachable, the port still opens after 1 s, and /readyz
    /// reports not ready until the store is connected.
    pub async fn start(config: &Config, kit: &Kit) -> anyhow::Result<Self> {
        config.check()?;
        let token = QuotaToken::load_optional(config.quota_token_file.as_deref())?;
        if token.is_none() {
            warn_about_missing_token();
        }
        let limits = config.limits.limits();
        let (store, store_handle) = open_store(config, limits)?;
        let metrics = Metrics::new(&kit.telemetry.meter());
        let charge_service = ChargeService::new(store.clone(), limits, metrics);
        let context = Arc::new(Context { store: store.clone(), charge_service, limits });
        let guard = LoopbackGuard { allow_remote: config.allow_remote };
        let endpoint = api::endpoint(&context, config.serve, guard, TokenGuard { token }, &kit.telemetry);
        let _ = tokio::time::timeout(STORE_WAIT, wait_for_store(&*store)).await;
        let server = Server::bind("quota", config.listen, &kit.serve).await?.docs_url(api::DOCS);
        let condition = kit.readiness.condition("store");
        let health_task = tokio::spawn(report_store_health(store, condition, StoreGauges::new(kit)));
        Ok(Self { server, endpoint, store: store_handle, health_task, kit: kit.clone() })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until shutdown, then flushes the embedded store.
    pub async fn run(self) {
        self.server.serve(self.endpoint, self.kit.lifecycle.clone()).await;
        self.health_task.abort();
        if let OpenStore::Embedded(store) = &self.store {
            store.close().await;
        }
    }
}

/// The OpenAPI document of the internal API, pretty-printed.
pub fn document() -> anyhow::Result<String> {
    let limits = Limits::default();
    let store = Arc::new(EmbeddedStore::in_memory(limits, Default::default())?);
    let metrics = Metrics::new(&service_kit::Telemetry::for_tests().meter());
    let charge_service = ChargeService::new(store.clone(), limits, metrics);
    let document = api::document(&Arc::new(Context { store, charge_service, limits }));
    let mut document: serde_json::Value = serde_json::from_str(&document)?;
    // Sorted, so that the order is the same whether or not a dependency enables serde_json's `preserve_order`.
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

fn warn_about_missing_token() {
    tracing::warn!(
        "every user of this machine can read and change all accounts and keys: set --quota-token-file here and in the \
         clients. The next version will require it"
    );
}

struct StoreGauges {
    up: opentelemetry::metrics::Gauge<u64>,
    unsafe_settings: opentelemetry::metrics::Gauge<u64>,
}

impl StoreGauges {
    fn new(kit: &Kit) -> Self {
        let meter = kit.telemetry.meter();
        let up = meter.u64_gauge("quota_store_up");
        let unsafe_settings = meter.u64_gauge("quota_store_unsafe_settings");
        Self {
            up: up.with_description("1 while the store is reachable, 0 while it is not").build(),
            unsafe_settings: unsafe_settings
                .with_description(
                    "1 while the store's settings endanger the data: eviction, or a read-only replica",
                )
                .build(),
        }
    }
}

async fn wait_for_store(store: &dyn Store) {
    while store.unavailable_reason().is_some() {
        tokio::time::sleep(STORE_WAIT_POLL).await;
    }
}

/// Reports the store's health to /readyz and to the gauges.
async fn report_store_health(store: Arc<dyn Store>, condition: Condition, gauges: StoreGauges) {
    let mut tick = tokio::time::interval(HEALTH_INTERVAL);
    loop {
        tick.tick().await;
        let reason = store.unavailable_reason();
        gauges.up.record(u64::from(reason.is_none()), &[]);
        gauges.unsafe_settings.record(u64::from(store.unsafe_settings().is_some()), &[]);
        match reason {
            None => condition.set_ready("the store is reachable"),
            Some(reason) => condition.set_not_ready(reason),
        }
    }
}
