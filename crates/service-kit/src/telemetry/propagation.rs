//! W3C trace context, in from the caller and out to whom we call.

use http::HeaderMap;
use opentelemetry::{Context, global};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Makes `traceparent` and `tracestate` the process's way to pass a trace on.
pub(super) fn install() {
    global::set_text_map_propagator(TraceContextPropagator::new());
}

/// The trace a request belongs to.
pub fn extract_context(headers: &HeaderMap) -> Context {
    global::get_text_map_propagator(|propagator| propagator.extract(&HeaderExtractor(headers)))
}

/// Adds the current span's trace to a request that we are about to send.
pub fn inject_context(headers: &mut HeaderMap) {
    let span = Span::current();
    // Without trace export there is no span, and looking for one would cost on every call.
    if span.is_disabled() {
        return;
    }
    let context = span.context();
    global::get_text_map_propagator(|propagator| {
        propagator.inject_context(&context, &mut HeaderInjector(headers));
    });
}
