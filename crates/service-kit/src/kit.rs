//! What every service holds: telemetry, lifecycle, readiness and the serving flags.

use std::{net::SocketAddr, sync::Arc, thread};

use anyhow::Context;
use poem::EndpointExt;
use tokio::{runtime::Builder, sync::oneshot};

use crate::{
    admin,
    config::{ServeArgs, TelemetryArgs},
    lifecycle::Lifecycle,
    readiness::Readiness,
    serve::Server,
    telemetry::Telemetry,
};

/// Connections on the admin port: probes and scrapers are few.
const ADMIN_CONNECTIONS: usize = 64;

/// One a process; standalone shares one among its services.
#[derive(Clone, Debug)]
pub struct Kit {
    /// Logs, metrics, traces.
    pub telemetry: Arc<Telemetry>,
    /// The life of the process.
    pub lifecycle: Lifecycle,
    /// Whether it should get traffic.
    pub readiness: Readiness,
    /// How to serve.
    pub serve: ServeArgs,
}

impl Kit {
    /// Starts telemetry and follows signals; to be called inside the runtime.
    pub fn start(
        service: &'static str,
        serve: &ServeArgs,
        telemetry: &TelemetryArgs,
    ) -> anyhow::Result<Self> {
        let kit = Self::with_telemetry(Telemetry::start(service, telemetry)?, serve);
        kit.lifecycle.watch_signals();
        Ok(kit)
    }

    /// A kit with nothing global, for tests.
    pub fn for_tests(serve: &ServeArgs) -> Self {
        Self::with_telemetry(Telemetry::for_tests(), serve)
    }

    fn with_telemetry(telemetry: Telemetry, serve: &ServeArgs) -> Self {
        let lifecycle = Lifecycle::new(serve);
        Self {
            telemetry: Arc::new(telemetry),
            readiness: Readiness::new(lifecycle.clone()),
            lifecycle,
            serve: serve.clone(),
        }
    }

    /// Opens the admin port, to the end of the process, and says where it listens.
    ///
    /// It has a thread of its own, so that probes are answered however busy the workers are.
    pub async fn serve_admin(&self, addr: SocketAddr) -> anyhow::Result<SocketAddr> {
        let (bound, wait) = oneshot::channel();
        let kit = self.clone();
        thread::Builder::new()
            .name("admin".into())
            .spawn(move || kit.run_admin(addr, bound))
            .context("the admin thread could not be started")?;
        wait.await.context("the admin thread ended")?
    }

    fn run_admin(self, addr: SocketAddr, bound: oneshot::Sender<anyhow::Result<SocketAddr>>) {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(bound.send(Err(error.into()))),
        };
        runtime.block_on(async {
            let args = self.admin_args();
            match Server::bind("admin", addr, &args).await {
                Ok(server) => {
                    let _ = bound.send(Ok(server.local_addr()));
                    let endpoint = admin::endpoint(&self.readiness, &self.telemetry).boxed();
                    // A life of its own that never stops: probes must hear of the others' stopping.
                    server.serve(endpoint, Lifecycle::new(&args)).await;
                }
                Err(error) => drop(bound.send(Err(error))),
            }
        });
    }

    fn admin_args(&self) -> ServeArgs {
        ServeArgs { max_connections: ADMIN_CONNECTIONS, ..self.serve.clone() }
    }

    /// Sends what telemetry has gathered; the last thing before the end.
    pub fn finish(&self) {
        self.telemetry.flush();
        tracing::info!("stopped");
    }
}
