//! The parts that every service needs: telemetry, lifecycle, readiness and the serving flags.

use std::{
    future::pending,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context;
use http::HeaderMap;
use http_server::{ConnectionStats, Lifecycle, ServeArgs, Server, Tls};
use opentelemetry::KeyValue;
use poem::EndpointExt;
use tokio::{runtime::Builder, sync::oneshot};

use crate::{
    admin,
    background::{BackgroundTasks, install_panic_hook},
    error::responder,
    flags::TelemetryArgs,
    readiness::{Condition, Readiness},
    telemetry::Telemetry,
};

/// How often to check the certificate files. Reading them takes less than a millisecond.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum connections on the admin port, which serves only probes and scrapers.
const ADMIN_CONNECTIONS: usize = 64;

/// The parts that the services of a process share. In `standalone`, quota-svc has a separate lifecycle, so that it
/// stops last.
#[derive(Clone, Debug)]
pub struct Kit {
    /// Logs, metrics and traces.
    pub telemetry: Arc<Telemetry>,
    /// Shutdown state.
    pub lifecycle: Lifecycle,
    /// Readiness conditions.
    pub readiness: Readiness,
    /// Background tasks of the process. Their failure shuts down all services.
    pub tasks: BackgroundTasks,
    /// Serving flags.
    pub serve: ServeArgs,
}

/// The admin port, bound but not served yet. The port is closed if this is dropped.
#[derive(Debug)]
pub struct AdminServer {
    addr: SocketAddr,
    start: oneshot::Sender<()>,
}

impl AdminServer {
    /// The address the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until the process exits.
    pub fn serve(self) {
        // Fails only if the thread has panicked, which ends the process.
        let _ = self.start.send(());
    }
}

impl Kit {
    /// Starts telemetry and installs the signal handlers. Must be called inside the runtime.
    pub fn start(
        service: &'static str,
        serve: &ServeArgs,
        telemetry: &TelemetryArgs,
    ) -> anyhow::Result<Self> {
        let kit = Self::with_telemetry(Telemetry::start(service, telemetry)?, serve);
        install_panic_hook(kit.tasks.clone());
        kit.lifecycle.watch_signals();
        Ok(kit)
    }

    /// Creates a kit without log, signal handlers and telemetry export, for tests and for a service that a command runs for
    /// itself.
    pub fn detached(serve: &ServeArgs) -> Self {
        Self::with_telemetry(Telemetry::detached(), serve)
    }

    fn with_telemetry(telemetry: Telemetry, serve: &ServeArgs) -> Self {
        let lifecycle = Lifecycle::new(serve);
        Self {
            telemetry: Arc::new(telemetry),
            readiness: Readiness::new(lifecycle.clone()),
            tasks: BackgroundTasks::new(lifecycle.clone()),
            lifecycle,
            serve: serve.clone(),
        }
    }

    /// Serves the admin port until the process exits. Returns its listen address.
    pub async fn serve_admin(&self, addr: SocketAddr) -> anyhow::Result<SocketAddr> {
        let server = self.bind_admin(addr).await?;
        let addr = server.local_addr();
        server.serve();
        Ok(addr)
    }

    /// Binds the admin port. Probes that connect wait until it is served.
    ///
    /// Runs on a separate thread, so that probes get a response even if all workers are busy.
    pub async fn bind_admin(&self, addr: SocketAddr) -> anyhow::Result<AdminServer> {
        let (bound, result) = oneshot::channel();
        let (start, started) = oneshot::channel();
        let kit = self.clone();
        let run = move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(kit.run_admin(addr, bound, started)),
            Err(error) => drop(bound.send(Err(error.into()))),
        };
        thread::Builder::new().name("admin".into()).spawn(run).context("can't start the admin thread")?;
        let addr = result.await.context("the admin thread has exited")??;
        Ok(AdminServer { addr, start })
    }

    async fn run_admin(
        self,
        addr: SocketAddr,
        bound: oneshot::Sender<anyhow::Result<SocketAddr>>,
        started: oneshot::Receiver<()>,
    ) {
        let args = ServeArgs { max_connections: ADMIN_CONNECTIONS, ..self.serve.clone() };
        let server = match Server::bind("admin", addr, &args).await {
            Ok(server) => server.errors(responder("/", &HeaderMap::new())),
            Err(error) => return drop(bound.send(Err(error))),
        };
        let _ = bound.send(Ok(server.local_addr()));
        let Ok(()) = started.await else { return };
        let endpoint = admin::endpoint(&self.readiness, &self.telemetry).boxed();
        // A separate lifecycle that never shuts down: probes must work while the other ports shut down.
        let serving = server.serve(endpoint, Lifecycle::new(&args));
        self.tasks.watch("admin server", serving).await;
    }

    /// Returns the background task of a readiness condition that is met once `reached` returns. Until then, `reached`
    /// sets the reason.
    ///
    /// Only the first contact with the store counts: an outage later must not take every instance out of service.
    pub fn await_store<F: Future<Output = ()>, R: FnOnce(Condition) -> F>(
        &self,
        condition: &'static str,
        reached: R,
    ) -> impl Future<Output = ()> + use<F, R> {
        let condition = self.readiness.condition(condition);
        let reached = reached(condition.clone());
        self.tasks.watch("store condition", async move {
            reached.await;
            condition.set_ready("reached at start (the check `store` of quota-svc shows the current state)");
            // A background task that ends counts as failed.
            pending::<()>().await;
        })
    }

    /// Publishes the numbers of a port's connections.
    pub fn publish_connections(&self, port: &'static str, stats: ConnectionStats) {
        let (meter, open) = (self.telemetry.meter(), stats.clone());
        meter
            .u64_observable_gauge("http_server_connections")
            .with_description("Open connections by state")
            .with_callback(move |gauge| {
                for (state, count) in open.open() {
                    gauge.observe(count, &[KeyValue::new("port", port), KeyValue::new("state", state)]);
                }
            })
            .build();
        meter
            .u64_observable_counter("http_server_connections_closed")
            .with_description("Connections closed at a limit of the port or of a client network")
            .with_callback(move |counter| {
                for (limit, count) in stats.closed_at_limits() {
                    counter.observe(count, &[KeyValue::new("port", port), KeyValue::new("limit", limit)]);
                }
            })
            .build();
    }

    /// Publishes when the certificates expire, and returns the background task that uses replaced files.
    pub fn reload_certificates(
        &self,
        tls: &Tls,
        condition: &'static str,
    ) -> impl Future<Output = ()> + use<> {
        let (condition, published) = (self.readiness.condition(condition), tls.clone());
        self.telemetry
            .meter()
            .i64_observable_gauge("tls_certificate_expiry_timestamp")
            .with_unit("s")
            .with_description("When a certificate in use expires, as Unix time")
            .with_callback(move |gauge| {
                for (certificate, expires) in published.expirations() {
                    let since_epoch = expires.duration_since(UNIX_EPOCH).unwrap_or_default();
                    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
                    gauge.observe(seconds, &[KeyValue::new("certificate", certificate)]);
                }
            })
            .build();
        let reload = tls.clone().follow_files(CERTIFICATE_CHECK_INTERVAL, move |state| condition.set(state));
        self.tasks.watch("certificate reload", reload)
    }

    /// Exports the remaining telemetry. Call it last before the process exits. Returns an error if the reason for the
    /// shutdown was a failed background task.
    pub fn finish(&self) -> anyhow::Result<()> {
        self.telemetry.shutdown();
        tracing::info!("stopped");
        self.tasks.result()
    }
}
