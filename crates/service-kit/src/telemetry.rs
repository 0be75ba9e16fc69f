//! Logs, metrics and traces of a process.

mod logs;
mod otlp;
mod propagation;

use std::{sync::mpsc, thread, time::Duration};

use anyhow::Context;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry_sdk::{
    Resource,
    metrics::{MeterProviderBuilder, SdkMeterProvider},
    trace::SdkTracerProvider,
};
use prometheus::{Registry, TextEncoder};

use crate::{config::TelemetryArgs, panic};

pub use propagation::{extract_context, inject_context};

/// How long a collector that does not answer may hold up the end of the process.
const FLUSH: Duration = Duration::from_secs(3);

/// The target of request spans: below the log's level, seen by the trace exporter only.
pub const SPAN_TARGET: &str = "otel::span";

/// The process's telemetry.
#[derive(Debug)]
pub struct Telemetry {
    service: &'static str,
    registry: Registry,
    meters: SdkMeterProvider,
    traces: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts logging to standard error, metrics, and what the standard `OTEL_…` variables switch on.
    ///
    /// Once a process: the subscriber, the propagator and the panic hook are global.
    pub fn start(service: &'static str, args: &TelemetryArgs) -> anyhow::Result<Self> {
        let resource = otlp::resource(service);
        let traces = otlp::traces(resource.clone())?;
        logs::install(service, args, traces.as_ref())?;
        propagation::install();
        panic::install_hook();
        let builder = otlp::metrics(SdkMeterProvider::builder())?;
        Self::build(service, builder, resource, traces)
    }

    /// Telemetry with a registry of its own and nothing global.
    pub fn for_tests() -> Self {
        let resource = Resource::builder_empty().build();
        Self::build("test", SdkMeterProvider::builder(), resource, None)
            .expect("an empty registry takes the exporter")
    }

    fn build(
        service: &'static str,
        builder: MeterProviderBuilder,
        resource: Resource,
        traces: Option<SdkTracerProvider>,
    ) -> anyhow::Result<Self> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()
            .context("the Prometheus exporter could not be made")?;
        let meters = builder.with_resource(resource).with_reader(exporter).build();
        Ok(Self { service, registry, meters, traces })
    }

    /// Where to make counters, gauges and histograms.
    pub fn meter(&self) -> Meter {
        self.meters.meter(self.service)
    }

    /// Every metric in Prometheus's text format.
    pub fn prometheus_text(&self) -> String {
        let families = self.registry.gather();
        TextEncoder::new().encode_to_string(&families).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics could not be written");
            String::new()
        })
    }

    /// Sends what has gathered, within a few seconds at the most.
    pub fn shutdown(self) {
        self.flush();
    }

    /// As [`shutdown`](Self::shutdown), for a shared value; nothing is recorded afterwards.
    pub fn flush(&self) {
        let (done, wait) = mpsc::channel::<()>();
        let (meters, traces) = (self.meters.clone(), self.traces.clone());
        // On a thread of its own: the SDK's flush blocks, and for as long as the collector lets it.
        let spawned = thread::Builder::new().name("telemetry-flush".into()).spawn(move || {
            let _ = meters.shutdown();
            let _ = traces.map(|traces| traces.shutdown_with_timeout(FLUSH));
            drop(done);
        });
        // Disconnected means that the thread is through.
        if spawned.is_ok() && wait.recv_timeout(FLUSH) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("telemetry could not be sent in time");
        }
    }
}
