//! Export to an OpenTelemetry collector, where the standard variables name one.

use std::env;

use anyhow::Context;
use opentelemetry_otlp::{
    MetricExporter, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter,
};
use opentelemetry_sdk::{Resource, metrics::MeterProviderBuilder, trace::SdkTracerProvider};

use crate::tls;

/// Who is sending: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win over our name.
pub(super) fn resource(service: &'static str) -> Resource {
    let builder = Resource::builder();
    match set("OTEL_SERVICE_NAME") {
        true => builder.build(),
        false => builder.with_service_name(service).build(),
    }
}

/// The trace pipeline, or none where no endpoint is given.
pub(super) fn traces(resource: Resource) -> anyhow::Result<Option<SdkTracerProvider>> {
    if !wanted(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, "OTEL_TRACES_EXPORTER") {
        return Ok(None);
    }
    tls::install_crypto_provider();
    let exporter = SpanExporter::builder()
        .with_http()
        .build()
        .context("the OTLP trace exporter could not be made from the OTEL_… variables")?;
    let provider = SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    Ok(Some(provider))
}

/// Adds the metric pipeline where an endpoint is given.
pub(super) fn metrics(builder: MeterProviderBuilder) -> anyhow::Result<MeterProviderBuilder> {
    if !wanted(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, "OTEL_METRICS_EXPORTER") {
        return Ok(builder);
    }
    tls::install_crypto_provider();
    let exporter = MetricExporter::builder()
        .with_http()
        .build()
        .context("the OTLP metric exporter could not be made from the OTEL_… variables")?;
    Ok(builder.with_periodic_exporter(exporter))
}

fn wanted(endpoint: &str, exporter: &str) -> bool {
    let endpoint = set(OTEL_EXPORTER_OTLP_ENDPOINT) || set(endpoint);
    endpoint && !is("OTEL_SDK_DISABLED", "true") && !is(exporter, "none")
}

fn set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn is(name: &str, expected: &str) -> bool {
    env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case(expected))
}
