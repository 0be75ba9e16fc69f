//! Reads W3C trace context from incoming requests and adds it to outgoing ones.

use http::HeaderMap;
use opentelemetry::trace::{SpanContext, TraceContextExt, TraceState};
use opentelemetry::{Context, global};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Installs the W3C propagator (`traceparent`) globally.
pub(super) fn install() {
    global::set_text_map_propagator(TraceContextPropagator::new());
}

/// The parent context of a request, without `tracestate`, which contains text from the client and would be exported
/// with every span.
pub fn extract_context(headers: &HeaderMap) -> Context {
    let context = global::get_text_map_propagator(|propagator| propagator.extract(&HeaderExtractor(headers)));
    let parent = context.span().span_context().clone();
    if !parent.is_valid() {
        return context;
    }
    let (trace, span, flags) = (parent.trace_id(), parent.span_id(), parent.trace_flags());
    let stripped = SpanContext::new(trace, span, flags, parent.is_remote(), TraceState::default());
    context.with_remote_span_context(stripped)
}

/// Adds the current span's trace context to the headers of an outgoing request.
pub fn inject_context(headers: &mut HeaderMap) {
    let span = Span::current();
    // Without trace export the span is disabled, and looking up its context would be wasted work.
    if span.is_disabled() {
        return;
    }
    let context = span.context();
    global::get_text_map_propagator(|propagator| {
        propagator.inject_context(&context, &mut HeaderInjector(headers));
    });
}
