//! A span and a duration for each request, with bounded labels; the durations' number is that of the requests.

use std::{
    future::Future,
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use futures_util::FutureExt;
use http::StatusCode;
use opentelemetry::{
    KeyValue,
    metrics::{BoundHistogram, Histogram},
    trace::TraceContextExt,
};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};
use poem_openapi::OperationId;
use tracing::{Instrument, Span, field::Empty};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::telemetry::{self, Telemetry};

/// The label for a request that no operation took (a 404, for example).
const OTHER: &str = "other";

/// Upper bounds in seconds: most requests take well under a millisecond, deadlines are at one second.
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// Put on a response by a route that is not an OpenAPI operation, to name itself in the metrics.
///
/// An operation with an `operation_id` needs none: poem-openapi puts that on the response.
#[derive(Clone, Copy, Debug)]
pub struct Operation(pub &'static str);

/// Middleware that measures requests; the outermost one, so that it sees every answer.
#[derive(Clone, Debug)]
pub struct RequestTelemetry {
    service: &'static str,
    duration: Histogram<f64>,
    /// The histogram's rows that were written already: labels are fixed words, so they stay few.
    rows: Arc<RwLock<Vec<Row>>>,
}

#[derive(Debug)]
struct Row {
    operation: &'static str,
    status_class: &'static str,
    duration: BoundHistogram<f64>,
}

impl RequestTelemetry {
    /// Measures as `service`.
    pub fn new(telemetry: &Telemetry, service: &'static str) -> Self {
        let meter = telemetry.meter();
        Self {
            service,
            duration: meter
                .f64_histogram("http_server_request_duration")
                .with_unit("s")
                .with_description("Time from a request's headers to its answer")
                .with_boundaries(BUCKETS.to_vec())
                .build(),
            rows: Arc::default(),
        }
    }

    fn record(&self, response: &Response, started: Instant) {
        let seconds = started.elapsed().as_secs_f64();
        let (operation, status_class) = (operation(response), status_class(response.status()));
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        match rows.iter().find(|row| row.operation == operation && row.status_class == status_class) {
            Some(row) => row.duration.record(seconds),
            None => {
                drop(rows);
                self.new_row(operation, status_class).record(seconds);
            }
        }
    }

    /// Two that come at once make two rows of the same numbers, of which the second is never found.
    fn new_row(&self, operation: &'static str, status_class: &'static str) -> BoundHistogram<f64> {
        let duration = self.duration.bind(&[
            KeyValue::new("service", self.service),
            KeyValue::new("operation", operation),
            KeyValue::new("status_class", status_class),
        ]);
        let row = Row { operation, status_class, duration: duration.clone() };
        self.rows.write().unwrap_or_else(PoisonError::into_inner).push(row);
        duration
    }

    fn span(&self, request: &Request) -> Span {
        let span = tracing::trace_span!(
            target: telemetry::SPAN_TARGET,
            "request",
            otel.kind = "server",
            otel.status_code = Empty,
            service = self.service,
            operation = Empty,
            outcome = Empty,
            http.response.status_code = Empty,
        );
        if !span.is_disabled() {
            // It fails only for a span that has begun, and this one has not.
            let _ = span.set_parent(telemetry::extract_context(request.headers()));
        }
        span
    }
}

/// Names the current request's outcome in its span: a fixed word, never a client's data.
pub fn record_outcome(outcome: &'static str) {
    Span::current().record("outcome", outcome);
}

fn operation(response: &Response) -> &'static str {
    let named = response.data::<Operation>().map(|operation| operation.0);
    named.or_else(|| response.data::<OperationId>().map(|id| id.0)).unwrap_or(OTHER)
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

fn complete(span: &Span, response: &Response) {
    if span.is_disabled() {
        return;
    }
    span.record("operation", operation(response));
    // The span has begun, so that its field `otel.name` would be too late.
    span.context().span().update_name(operation(response));
    span.record("http.response.status_code", response.status().as_u16());
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

/// The endpoint that [`RequestTelemetry`] makes.
#[derive(Debug)]
pub struct RequestTelemetryEndpoint<E> {
    inner: E,
    telemetry: RequestTelemetry,
}

impl<E: Endpoint> Endpoint for RequestTelemetryEndpoint<E> {
    type Output = Response;

    // Not an `async fn`, in every middleware: each would keep a copy of the request (472 bytes) as long as it is
    // being answered, and all of them are moved to the heap together.
    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        let started = Instant::now();
        let span = self.telemetry.span(&request);
        self.inner.call(request).instrument(span.clone()).map(move |answer| {
            let response = answer.map_or_else(poem::Error::into_response, IntoResponse::into_response);
            complete(&span, &response);
            self.telemetry.record(&response, started);
            Ok(response)
        })
    }
}
