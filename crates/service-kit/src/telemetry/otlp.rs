//! Export to an OpenTelemetry collector, if the standard variables configure one.

use std::env;

use anyhow::Context;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{
    MetricExporter, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter,
};
use opentelemetry_sdk::{Resource, metrics::MeterProviderBuilder, trace::SdkTracerProvider};

use crate::build_info;

const VERSION: &str = "service.version";

/// The resource that identifies this service. A name or version in `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES`
/// takes precedence over our own.
pub(super) fn resource(service: &'static str) -> Resource {
    let configured = Resource::builder().build();
    let mut resource = Resource::builder();
    let name = configured.get(&Key::from_static_str("service.name"));
    // The SDK's name for a service without one.
    if name.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
        resource = resource.with_service_name(service);
    }
    if configured.get(&Key::from_static_str(VERSION)).is_none() {
        resource = resource.with_attribute(KeyValue::new(VERSION, build_info::VERSION));
    }
    resource.build()
}

/// Creates the trace pipeline, if an endpoint is configured.
pub(super) fn traces(resource: Resource) -> anyhow::Result<Option<SdkTracerProvider>> {
    if !enabled(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, "OTEL_TRACES_EXPORTER") {
        return Ok(None);
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .build()
        .context("can't create the OTLP trace exporter; check the OTEL_… variables")?;
    let provider = SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    Ok(Some(provider))
}

/// Adds the metric pipeline, if an endpoint is configured.
pub(super) fn metrics(builder: MeterProviderBuilder) -> anyhow::Result<MeterProviderBuilder> {
    if !enabled(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, "OTEL_METRICS_EXPORTER") {
        return Ok(builder);
    }
    let exporter = MetricExporter::builder()
        .with_http()
        .build()
        .context("can't create the OTLP metric exporter; check the OTEL_… variables")?;
    Ok(builder.with_periodic_exporter(exporter))
}

fn enabled(endpoint_variable: &str, exporter_variable: &str) -> bool {
    let has_endpoint = is_set(OTEL_EXPORTER_OTLP_ENDPOINT) || is_set(endpoint_variable);
    has_endpoint && !equals("OTEL_SDK_DISABLED", "true") && !equals(exporter_variable, "none")
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn equals(name: &str, expected: &str) -> bool {
    env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case(expected))
}
