//! Logs, metrics and traces of the process, and their export to an OpenTelemetry collector, if the standard variables
//! configure one.

mod logs;
mod process;
mod propagation;

use std::{env, sync::mpsc, thread, time::Duration};

use anyhow::Context;
use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider},
};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::{
    Resource,
    metrics::{MeterProviderBuilder, SdkMeterProvider},
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::SdkTracerProvider,
};
use prometheus::{Registry, TextEncoder};

use crate::{build_info, flags::TelemetryArgs};

pub(crate) use logs::with_request_id;
pub use logs::{current_request_id, enter_request};
pub use propagation::inject_context;
pub(crate) use propagation::{extract_context, extract_links};

/// Maximum time that an unresponsive collector can delay the exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The target of request spans. Their level is TRACE, below the default log level, so only the trace exporter gets
/// them.
pub const SPAN_TARGET: &str = "otel::span";

/// The telemetry of the process.
#[derive(Debug)]
pub struct Telemetry {
    service: &'static str,
    registry: Registry,
    meters: SdkMeterProvider,
    traces: Option<SdkTracerProvider>,
}

/// Starts only the log, for a command. Call it once per process.
pub fn start_log(service: &'static str, args: &TelemetryArgs) -> anyhow::Result<()> {
    logs::install(service, args, None)
}

impl Telemetry {
    /// Starts metrics, logging to standard error and the exports that the standard `OTEL_…` variables enable.
    ///
    /// Call it once per process: the subscriber is global.
    pub fn start(service: &'static str, args: &TelemetryArgs) -> anyhow::Result<Self> {
        let invalid = "can't create the OTLP exporter; check the OTEL_… variables";
        let resource = resource(service);
        let (mut traces, mut meters) = (None, SdkMeterProvider::builder());
        if is_exported("TRACES") {
            let exporter = SpanExporter::builder().with_http().build().context(invalid)?;
            let provider = SdkTracerProvider::builder().with_resource(resource.clone());
            traces = Some(provider.with_batch_exporter(exporter).build());
        }
        logs::install(service, args, traces.as_ref())?;
        if is_exported("METRICS") {
            let exporter = MetricExporter::builder().with_http().build().context(invalid)?;
            meters = meters.with_periodic_exporter(exporter);
        }
        Self::build(service, meters, resource, traces)
    }

    /// Creates telemetry without log, export and global state.
    pub fn detached() -> Self {
        let resource = Resource::builder_empty().build();
        Self::build("test", SdkMeterProvider::builder(), resource, None)
            .expect("an empty registry accepts the exporter")
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
            .context("can't create the Prometheus exporter")?;
        let meters = builder.with_resource(resource).with_reader(exporter).build();
        publish_build(&meters.meter(service), service);
        Ok(Self { service, registry, meters, traces })
    }

    /// The meter that creates counters, gauges and histograms.
    pub fn meter(&self) -> Meter {
        self.meters.meter(self.service)
    }

    /// All metrics in Prometheus text format.
    pub fn prometheus_text(&self) -> String {
        let families = self.registry.gather();
        let text = TextEncoder::new().encode_to_string(&families).unwrap_or_else(|error| {
            tracing::error!(%error, "could not encode metrics");
            String::new()
        });
        text + &process::prometheus_text().unwrap_or_default()
    }

    /// Exports the remaining metrics and traces, for at most 3 s. Nothing is exported afterwards.
    pub fn shutdown(&self) {
        let (done, finished) = mpsc::channel::<()>();
        let (meters, traces) = (self.meters.clone(), self.traces.clone());
        // On a separate thread: the SDK blocks until the collector responds.
        let spawned = thread::Builder::new().name("telemetry-flush".into()).spawn(move || {
            let _ = meters.shutdown();
            let _ = traces.map(|traces| traces.shutdown_with_timeout(SHUTDOWN_TIMEOUT));
            drop(done);
        });
        // The thread is done when it drops the sender, which disconnects the channel.
        if spawned.is_ok() && finished.recv_timeout(SHUTDOWN_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout)
        {
            tracing::warn!("could not export telemetry in time");
        }
    }
}

/// Identifies this service. A name or version in `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` takes precedence over
/// our own.
fn resource(service: &'static str) -> Resource {
    let (name, version) = ("service.name", "service.version");
    let own = [KeyValue::new(name, service), KeyValue::new(version, build_info::VERSION)];
    let configured_name = env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    Resource::builder_empty()
        .with_attributes(own)
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes(configured_name.map(|configured| KeyValue::new(name, configured)))
        .build()
}

/// Returns whether the standard variables enable the export of a signal: `TRACES` or `METRICS`.
fn is_exported(signal: &str) -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let has_endpoint = ["OTEL_EXPORTER_OTLP_ENDPOINT", &format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")]
        .iter()
        .any(|name| !variable(name).is_empty());
    let is_disabled = variable("OTEL_SDK_DISABLED").eq_ignore_ascii_case("true");
    has_endpoint && !is_disabled && !variable(&format!("OTEL_{signal}_EXPORTER")).eq_ignore_ascii_case("none")
}

fn publish_build(meter: &Meter, service: &'static str) {
    let info = meter
        .u64_gauge("ip_lookup_build_info")
        .with_description("1, with the version and the commit of the build as labels")
        .build();
    let labels = [
        KeyValue::new("service", service),
        KeyValue::new("version", build_info::VERSION),
        KeyValue::new("commit", build_info::COMMIT),
    ];
    info.record(1, &labels);
}
