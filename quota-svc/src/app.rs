//! Builds quota-svc (store, API, readiness) and runs it until shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http_server::Server;
use opentelemetry::metrics::Meter;
use quota_client::{ChargeService, QuotaToken};
use service_kit::{Condition, Kit, responder};
use tokio::task::JoinSet;

use crate::accounts::Accounts;
use crate::api::{self, Context};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::router::{self, Guard, Serve};

/// How often the store's health is copied to /readyz and to the gauges.
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);
/// How often the outbox is measured.
const OUTBOX_INTERVAL: Duration = Duration::from_secs(5);
/// The port stays closed until the store is connected, so that the first requests don't fail, but at most this long.
const STORE_WAIT: Duration = Duration::from_secs(1);
const STORE_WAIT_POLL: Duration = Duration::from_millis(2);

/// A quota-svc with its port open. [`QuotaService::run`] handles the requests.
pub struct QuotaService {
    server: Server,
    endpoint: poem::endpoint::BoxEndpoint<'static>,
    context: Arc<Context>,
    accounts: Arc<Accounts>,
    tasks: JoinSet<()>,
    kit: Kit,
}

impl QuotaService {
    /// Opens the store and the port. If Redis is unreachable, the port still opens after 1 s, and /readyz
    /// reports not ready until the store is connected.
    ///
    /// `server` is a port that is already bound. Its clients wait until the store is open.
    pub async fn start(server: Option<Server>, config: &Config, kit: &Kit) -> anyhow::Result<Self> {
        config.check()?;
        let accounts = Arc::new(Accounts::open(&config.store, config.limits)?);
        Self::start_with(accounts, server, config, kit).await
    }

    async fn start_with(
        accounts: Arc<Accounts>,
        server: Option<Server>,
        config: &Config,
        kit: &Kit,
    ) -> anyhow::Result<Self> {
        let token = QuotaToken::load_flag(config.quota_token_file.as_deref())?;
        let (limits, metrics) = (config.limits, Metrics::new(&kit.telemetry.meter()));
        let context = Arc::new(Context { accounts: accounts.clone(), limits, metrics });
        let guard = Guard { token, allow_remote: config.allow_remote };
        let endpoint = router::endpoint(&context, config.serve, guard, &kit.telemetry);
        let store_opens = async {
            while accounts.unavailable_reason().is_some() {
                tokio::time::sleep(STORE_WAIT_POLL).await;
            }
        };
        let _ = tokio::time::timeout(STORE_WAIT, store_opens).await;
        let server = match server {
            Some(server) => server,
            None => Server::bind("quota", config.listen, &kit.serve).await?,
        };
        // The peers are our own services.
        let server = server.errors(responder(api::NO_DOCS, &HeaderMap::new())).trust(|_| true);
        let condition = kit.readiness.condition("store");
        let health_report = report_store_health(accounts.clone(), condition, kit.telemetry.meter());
        let mut tasks = JoinSet::new();
        tasks.spawn(kit.tasks.watch("store health", health_report));
        // A quota-svc that serves only charges may not be allowed to read the outbox.
        if config.serve == Serve::All {
            let outbox_report = report_outbox(accounts.clone(), kit.telemetry.meter());
            tasks.spawn(kit.tasks.watch("outbox", outbox_report));
        }
        Ok(Self { server, endpoint, context, accounts, tasks, kit: kit.clone() })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Charges without a call over the port, for the lookup API in the same process.
    pub fn charge_service(&self) -> Arc<dyn ChargeService> {
        self.context.clone()
    }

    /// Serves until shutdown, then saves the counters of the embedded store. Shuts the process down if the store has
    /// failed for good: a new process can work again.
    pub async fn run(self) {
        let Self { server, endpoint, accounts, mut tasks, kit, .. } = self;
        let mut serving = std::pin::pin!(server.serve(endpoint, kit.lifecycle.clone()));
        tokio::select! {
            () = &mut serving => {}
            () = kit.tasks.watch("store writer", accounts.failed()) => serving.await,
        }
        tasks.abort_all();
        accounts.close().await;
    }
}

async fn report_store_health(accounts: Arc<Accounts>, condition: Condition, meter: Meter) {
    let up = meter
        .u64_gauge("quota_store_up")
        .with_description("1 while the store is reachable, 0 while it is not")
        .build();
    let unsafe_settings = meter
        .u64_gauge("quota_store_unsafe_settings")
        .with_description("1 while the store's settings endanger the data: eviction, a read-only replica, or no persistence")
        .build();
    let mut tick = tokio::time::interval(HEALTH_INTERVAL);
    loop {
        tick.tick().await;
        let reason = accounts.unavailable_reason();
        up.record(u64::from(reason.is_none()), &[]);
        unsafe_settings.record(u64::from(accounts.unsafe_settings().is_some()), &[]);
        match reason {
            None => condition.set_ready("the store is reachable"),
            Some(reason) => condition.set_not_ready(reason),
        }
    }
}

async fn report_outbox(accounts: Arc<Accounts>, meter: Meter) {
    let overdue = meter
        .f64_gauge("quota_notices_overdue")
        .with_unit("s")
        .with_description("How long a notice to an owner has waited for dashboard-api to deliver it")
        .build();
    // So that the metric exists before the store can be reached.
    overdue.record(0.0, &[]);
    let mut tick = tokio::time::interval(OUTBOX_INTERVAL);
    loop {
        tick.tick().await;
        if let Ok(ms) = accounts.overdue_ms().await {
            overdue.record(ms as f64 / 1000.0, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http_server::ServeArgs;
    use quota_api::Limits;
    use redb::StorageBackend;
    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::domain::account::Login;
    use crate::store::embedded::EmbeddedStore;

    /// Panics in `sync_data` once `armed` is set.
    #[derive(Debug)]
    struct PanickingBackend(InMemoryBackend, Arc<AtomicBool>);

    impl StorageBackend for PanickingBackend {
        fn len(&self) -> std::io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.0.read(offset, out)
        }

        fn set_len(&self, len: u64) -> std::io::Result<()> {
            self.0.set_len(len)
        }

        fn sync_data(&self) -> std::io::Result<()> {
            assert!(!self.1.load(Ordering::SeqCst), "panic of the test");
            self.0.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
            self.0.write(offset, data)
        }
    }

    #[tokio::test]
    async fn service_with_dead_writer_thread_is_not_ready_and_ends_with_an_error() {
        let quota_token_file = Some(testkit::process::token_file().to_owned());
        let config = Config { listen: ([127, 0, 0, 1], 0).into(), quota_token_file, ..Config::default() };
        let kit = Kit::detached(&ServeArgs { drain_delay: Duration::ZERO, ..ServeArgs::default() });
        let armed = Arc::new(AtomicBool::new(false));
        let backend = {
            let armed = armed.clone();
            move || PanickingBackend(InMemoryBackend::new(), armed.clone())
        };
        let store = EmbeddedStore::with_backend(backend, Limits::default(), Default::default());
        let store = Arc::new(store.expect("store opens"));
        let accounts = Arc::new(Accounts::new(store, Limits::default(), Duration::from_secs(10)));
        let service = QuotaService::start_with(accounts.clone(), None, &config, &kit).await.expect("starts");
        let service = tokio::spawn(service.run());

        armed.store(true, Ordering::SeqCst);
        let login = Login::parse("ada").expect("valid login");
        assert!(accounts.create_account(&login, None).await.is_err());
        let demo = crate::domain::verdict::ChargeGroup {
            subject: crate::domain::verdict::Subject::Demo,
            origin: None,
            count: 1,
        };
        let outcome = accounts.charge(&[demo]).await;
        assert!(matches!(outcome[..], [crate::domain::verdict::GroupOutcome::Unavailable]), "{outcome:?}");
        let ended = tokio::time::timeout(Duration::from_secs(10), service).await.expect("the service ends");
        ended.expect("no panic in the service");
        let error = kit.finish().expect_err("an error");
        assert!(error.to_string().contains("store writer"), "{error}");
        assert!(!kit.readiness.report().ready);
    }
}
