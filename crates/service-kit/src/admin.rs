//! The endpoints of the admin port.
//!
//! - `GET /livez`: the process is alive
//! - `GET /readyz`: whether the service should get traffic, and if not, why
//! - `GET /metrics`: metrics in Prometheus text format

use std::sync::Arc;

use http::{HeaderMap, StatusCode, header};
use poem::{Endpoint, EndpointExt, IntoResponse, Response, Route, endpoint::make_sync, get};

use crate::{
    error::{catch_all, responder},
    json::SerdeJson,
    readiness::{Readiness, Report},
    telemetry::Telemetry,
};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Creates the routes of the admin port.
pub fn endpoint(
    readiness: &Readiness,
    telemetry: &Arc<Telemetry>,
) -> impl Endpoint<Output = Response> + use<> {
    let (readiness, telemetry) = (readiness.clone(), telemetry.clone());
    Route::new()
        .at("/livez", get(make_sync(|_| "alive\n")))
        .at("/readyz", get(make_sync(move |_| readyz(&readiness.report()))))
        .at("/metrics", get(make_sync(move |_| metrics(&telemetry))))
        .with(catch_all(responder("/", &HeaderMap::new())))
}

fn readyz(report: &Report) -> Response {
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = SerdeJson(report).into_response();
    response.set_status(status);
    response
}

fn metrics(telemetry: &Telemetry) -> Response {
    Response::builder().header(header::CONTENT_TYPE, PROMETHEUS).body(telemetry.prometheus_text())
}
