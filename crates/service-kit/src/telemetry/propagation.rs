//! W3C trace context, in from the caller and out to whom we call.

use http::HeaderMap;
use opentelemetry::trace::{SpanContext, TraceContextExt, TraceState};
use opentelemetry::{Context, global};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Makes `traceparent` the process's way to pass a trace on.
pub(super) fn install() {
    global::set_text_map_propagator(TraceContextPropagator::new());
}

/// The trace a request belongs to. Its `tracestate` is left behind: that is text of the client's own, and would stand
/// in each span as it came.
pub fn extract_context(headers: &HeaderMap) -> Context {
    let given = global::get_text_map_propagator(|propagator| propagator.extract(&HeaderExtractor(headers)));
    let caller = given.span().span_context().clone();
    if !caller.is_valid() {
        return given;
    }
    let (trace, span, flags) = (caller.trace_id(), caller.span_id(), caller.trace_flags());
    let plain = SpanContext::new(trace, span, flags, caller.is_remote(), TraceState::default());
    given.with_remote_span_context(plain)
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
