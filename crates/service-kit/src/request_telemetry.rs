//! Records a trace span and the duration of each request, with bounded labels. The count of the duration histogram is
//! the number of requests.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, StatusCode};
use http_server::{RequestOrigin, X_REQUEST_ID};
use opentelemetry::{
    KeyValue,
    metrics::{BoundHistogram, Histogram},
    trace::TraceContextExt,
};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result, endpoint::make_sync};
use poem_openapi::OperationId;
use tracing::{Instrument, Span, field::Empty};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::telemetry::{self, Telemetry};

/// The `operation` label of requests that reached no operation, for example with an unknown path.
const OTHER: &str = "other";

/// Upper bounds of the buckets in seconds. Most requests take well under a millisecond; the default request timeout of
/// lookup-svc is one second.
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// An endpoint with an operation ID, for a route that is not an operation of an OpenAPI document: the ID, as data of the
/// response, is the operation's name in metrics and traces.
pub fn named(
    id: &'static str,
    respond: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> impl Endpoint<Output = Response> {
    make_sync(move |request| {
        let mut response = respond(&request);
        response.set_data(OperationId(id));
        response
    })
}

/// Operation and status class, with the histogram bound to them.
type Series = ([&'static str; 2], BoundHistogram<f64>);

/// Middleware that measures requests. Must be the outermost, so that it sees every response.
#[derive(Clone)]
pub struct RequestTelemetry {
    service: &'static str,
    duration: Histogram<f64>,
    /// One entry per label set used so far. All label values are fixed strings, so the list stays short.
    series: Arc<RwLock<Vec<Series>>>,
    /// Decides whose traces this service continues.
    trusted: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// The header with more spans that a request belongs to.
    links: Option<HeaderName>,
}

impl RequestTelemetry {
    /// Creates the middleware; `service` is the value of the `service` label.
    pub fn new(telemetry: &Telemetry, service: &'static str) -> Self {
        let meter = telemetry.meter();
        Self {
            service,
            duration: meter
                .f64_histogram("http_server_request_duration")
                .with_unit("s")
                .with_description("Time from receiving a request's headers to its response")
                .with_boundaries(BUCKETS.to_vec())
                .build(),
            series: Arc::default(),
            trusted: Arc::new(|_| false),
            links: None,
        }
    }

    /// Sets the peers whose `traceparent` header is read. By default, the header is ignored. Otherwise any client could
    /// force the export of a trace (with the sampling flag) and choose the trace ID.
    pub fn trust_trace_of(mut self, trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.trusted = Arc::new(trusted);
        self
    }

    /// Links the span of a request of a trusted peer to the spans in this header, which are of the requests on whose behalf
    /// the peer makes it. Their format is that of `traceparent`, separated by commas.
    pub fn link_spans_in(mut self, header: HeaderName) -> Self {
        self.links = Some(header);
        self
    }

    fn record_duration(&self, response: &Response, started: Instant) {
        let seconds = started.elapsed().as_secs_f64();
        let labels = [operation(response), status_class(response.status())];
        let all_series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, duration)) = all_series.iter().find(|(known, _)| *known == labels) {
            return duration.record(seconds);
        }
        drop(all_series);
        // Concurrent first requests may bind a series twice; both record to the same histogram.
        let [operation, status_class] = labels;
        let duration = self.duration.bind(&[
            KeyValue::new("service", self.service),
            KeyValue::new("operation", operation),
            KeyValue::new("status_class", status_class),
        ]);
        duration.record(seconds);
        self.series.write().unwrap_or_else(PoisonError::into_inner).push((labels, duration));
    }

    fn span(&self, request: &Request) -> Span {
        let span = tracing::trace_span!(
            target: telemetry::SPAN_TARGET,
            "request",
            otel.kind = "server",
            otel.status_code = Empty,
            service = self.service,
            operation = Empty,
            // Recorded by services that have one.
            outcome = Empty,
            http.response.status_code = Empty,
            request_id = Empty,
        );
        if span.is_disabled() {
            return span;
        }
        if let Some(origin) = RequestOrigin::of(request) {
            span.record("request_id", origin.id.as_str());
        }
        let peer = || request.remote_addr().as_socket_addr().map(SocketAddr::ip);
        if peer().is_some_and(|peer| (self.trusted)(peer)) && !RequestOrigin::client_is_unknown(request) {
            // Fails if the span has already started (it has not) or if no layer exports traces.
            let _ = span.set_parent(telemetry::extract_context(request.headers()));
            let links = self.links.as_ref().map(|name| telemetry::extract_links(request.headers(), name));
            links.into_iter().flatten().for_each(|linked| span.add_link(linked));
        }
        span
    }
}

/// Adds the ID and the trace context of the request that the current task handles to a request to another service.
pub fn inject_request_context(headers: &mut HeaderMap) {
    telemetry::inject_context(headers);
    headers.extend(telemetry::current_request_id().map(|id| (X_REQUEST_ID, id.to_header())));
}

fn operation(response: &Response) -> &'static str {
    response.data::<OperationId>().map_or(OTHER, |id| id.0)
}

fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

fn record_in_span(span: &Span, response: &Response) {
    if span.is_disabled() {
        return;
    }
    span.record("operation", operation(response));
    // The field `otel.name` has no effect once the span has started.
    span.context().span().update_name(operation(response));
    // The exporter writes an i64 as a number, as the semantic conventions require, but a u16 as a string.
    span.record("http.response.status_code", i64::from(response.status().as_u16()));
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

impl<E: Endpoint> Middleware<E> for RequestTelemetry {
    type Output = RequestTelemetryEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        RequestTelemetryEndpoint { inner, telemetry: self.clone() }
    }
}

/// An endpoint wrapped by [`RequestTelemetry`].
pub struct RequestTelemetryEndpoint<E> {
    inner: E,
    telemetry: RequestTelemetry,
}

impl<E: Endpoint> Endpoint for RequestTelemetryEndpoint<E> {
    type Output = Response;

    // Not an `async fn`, like all middleware of this crate: each `async fn` would keep its own copy of the request (472
    // bytes) until the response is ready, and all copies add up in the future that the server boxes for each request.
    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        let started = Instant::now();
        let span = self.telemetry.span(&request);
        let id = RequestOrigin::of(&request).map(|origin| origin.id.clone());
        let own_span = span.clone();
        let call = move || self.inner.call(request).instrument(own_span);
        telemetry::with_request_id(id, call).map(move |result| {
            let response = result.map_or_else(poem::Error::into_response, IntoResponse::into_response);
            record_in_span(&span, &response);
            self.telemetry.record_duration(&response, started);
            Ok(response)
        })
    }
}
