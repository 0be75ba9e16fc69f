//! The endpoints of the admin port.
//!
//! - `GET /livez`: the process is alive
//! - `GET /readyz`: whether the service should get traffic, and if not, why
//! - `GET /metrics`: metrics in Prometheus text format
//! - a service's own endpoints

use std::{fmt, sync::Arc};

use http::{HeaderMap, StatusCode, header};
use poem::{
    Endpoint, EndpointExt, IntoResponse, Response, Route,
    endpoint::{BoxEndpoint, make_sync},
    get,
};

use crate::{
    error::{catch_all, responder},
    json::SerdeJson,
    readiness::{Readiness, Report},
    telemetry::Telemetry,
};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The endpoints of one service, by path.
#[derive(Default)]
pub struct AdminRoutes(Vec<(&'static str, BoxEndpoint<'static, Response>)>);

impl Extend<(&'static str, BoxEndpoint<'static, Response>)> for AdminRoutes {
    fn extend<I: IntoIterator<Item = (&'static str, BoxEndpoint<'static, Response>)>>(&mut self, routes: I) {
        self.0.extend(routes);
    }
}

impl fmt::Debug for AdminRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(path, _)| path)).finish()
    }
}

/// Creates the routes of the admin port.
pub fn endpoint(
    readiness: &Readiness,
    telemetry: &Arc<Telemetry>,
    routes: AdminRoutes,
) -> impl Endpoint<Output = Response> + use<> {
    let (readiness, telemetry) = (readiness.clone(), telemetry.clone());
    let common = Route::new()
        .at("/livez", get(make_sync(|_| "alive\n")))
        .at("/readyz", get(make_sync(move |_| readyz(&readiness.report()))))
        .at("/metrics", get(make_sync(move |_| metrics(&telemetry))));
    routes
        .0
        .into_iter()
        .fold(common, |all, (path, endpoint)| all.at(path, endpoint))
        .with(catch_all(responder("/", &HeaderMap::new())).allow("GET, HEAD"))
}

fn readyz(report: &Report) -> Response {
    let status = match report.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = SerdeJson(report).into_response();
    response.set_status(status);
    response
}

fn metrics(telemetry: &Telemetry) -> Response {
    Response::builder().header(header::CONTENT_TYPE, PROMETHEUS).body(telemetry.prometheus_text())
}
