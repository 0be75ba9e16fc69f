//! Reads W3C trace context from incoming requests and adds it to outgoing ones.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry_http::HeaderInjector;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The parent context of a request, without `tracestate`, which contains text from the client and would be exported
/// with every span.
pub(crate) fn extract_context(headers: &HeaderMap) -> Context {
    let parent = headers.get("traceparent").and_then(|value| parse(value.to_str().ok()?));
    parent.map_or_else(Context::new, |span| Context::new().with_remote_span_context(span))
}

/// The spans that a header names: values in the format of `traceparent`, separated by commas. Skips invalid ones.
///
/// For a call on behalf of several requests: only one of them can be the parent of its span.
pub(crate) fn extract_links(headers: &HeaderMap, name: &HeaderName) -> Vec<SpanContext> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(parse).collect()
}

/// Parses the format of `traceparent`.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let carrier = HashMap::from([("traceparent".to_owned(), traceparent.trim().to_owned())]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    let span = context.span().span_context().clone();
    span.is_valid().then_some(span)
}

/// Adds the current span's trace context to the headers of an outgoing request.
pub fn inject_context(headers: &mut HeaderMap) {
    let span = Span::current();
    // Without trace export the span is disabled, and looking up its context would be wasted work.
    if span.is_disabled() {
        return;
    }
    TraceContextPropagator::new().inject_context(&span.context(), &mut HeaderInjector(headers));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_the_valid_spans_of_the_header() {
        let name = HeaderName::from_static("x-links");
        let (first, second) = ("4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c");
        let value = format!("00-{first}-00f067aa0ba902b7-01, nonsense,,00-{second}-b7ad6b7169203331-01");
        let headers = [(name.clone(), value.parse().expect("a header"))].into_iter().collect();
        let traces: Vec<_> =
            extract_links(&headers, &name).iter().map(|span| span.trace_id().to_string()).collect();
        assert_eq!(traces, [first, second]);
        assert_eq!(extract_links(&HeaderMap::new(), &name), []);
    }
}
