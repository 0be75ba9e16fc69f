//! The tracing subscriber: writes log lines to standard error and passes spans to the trace exporter.

use std::io;

use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter, fmt, layer::SubscriberExt, util::SubscriberInitExt,
};

use super::SPAN_TARGET;
use crate::config::{LogFormat, TelemetryArgs};
use crate::terminal;

type BoxLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Installs the global subscriber.
pub(super) fn install(
    service: &'static str,
    args: &TelemetryArgs,
    traces: Option<&SdkTracerProvider>,
) -> anyhow::Result<()> {
    let mut layers = vec![log_layer(args)?];
    layers.extend(traces.map(|traces| span_layer(service, traces)));
    tracing_subscriber::registry().with(layers).try_init().context("logging has already been started")
}

/// Runs `log` with a subscriber of its own, for messages before the global one is installed. Does nothing if the filter
/// is invalid: [`install`] reports that.
pub(crate) fn log_early(args: &TelemetryArgs, log: impl FnOnce()) {
    if let Ok(layer) = log_layer(args) {
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
    }
}

fn log_layer(args: &TelemetryArgs) -> anyhow::Result<BoxLayer> {
    let level = EnvFilter::try_new(&args.log_level)
        .with_context(|| format!("--log-level {:?} is not a valid log filter", args.log_level))?;
    Ok(match args.log_format {
        LogFormat::Text => fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(terminal::use_color(&io::stderr()))
            .with_filter(level)
            .boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(io::stderr)
            .with_filter(level)
            .boxed(),
    })
}

/// Exports only our own spans. Those of libraries may contain client addresses.
fn span_layer(service: &'static str, traces: &SdkTracerProvider) -> BoxLayer {
    tracing_opentelemetry::layer()
        .with_tracer(traces.tracer(service))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_filter(filter::filter_fn(|meta| meta.is_span() && meta.target() == SPAN_TARGET))
        .with_filter(filter::LevelFilter::from_level(Level::TRACE))
        .boxed()
}
