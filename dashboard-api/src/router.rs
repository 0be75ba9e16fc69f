//! All routes of the dashboard's port, and the middleware around them.

use std::sync::Arc;

use http::HeaderMap;
use poem::endpoint::BoxEndpoint;
use poem::{EndpointExt, Route, get};
use service_kit::{
    BodyLimit, RequestTelemetry, StaticFile, Telemetry, add_missing_headers, catch_all, named, responder,
    swagger,
};

use crate::api::{self, AllowedMethods, Context, CsrfGuard, HostGuard};
use crate::{deadline, page};

/// Maximum bytes of a request body. Fits a password of 1,024 characters with room to spare.
const MAX_BODY: usize = 16 * 1024;

/// The endpoint of the dashboard's port.
///
/// - `/api/v1/…`: the JSON API (`api`)
/// - `/`, `/assets/…`: the dashboard page (`page`)
/// - `/swagger`, `/openapi.json`: the documentation of the JSON API
pub fn endpoint(context: &Arc<Context>, telemetry: &Telemetry) -> anyhow::Result<BoxEndpoint<'static>> {
    let document = api::document(context)?;
    let methods = AllowedMethods::from_document(&serde_json::from_str(&document)?);
    let csrf = CsrfGuard::new(context.public_origin.clone(), &context.docs_url);
    let host = HostGuard::new(context.host.as_deref(), &context.docs_url);
    let headers = api::security_headers(context.public_origin.as_deref());
    let trusted = context.edge.trusted();
    let request_telemetry =
        RequestTelemetry::new(telemetry, "dashboard-api").trust_trace_of(move |peer| trusted.contains(peer));

    let api = api::service(context)
        .around(|endpoint, request| deadline::scope(async move { endpoint.call(request).await }))
        .with(BodyLimit::new(MAX_BODY))
        .before(move |request| csrf.check(request));
    let swagger = swagger::page("IP lookup dashboard API: try it", &document);
    let document = StaticFile::new("application/json", document);
    let routes = Route::new()
        .nest(api::PREFIX, api)
        .at("/swagger", get(named("swagger", move |request| swagger.respond(request))))
        .at("/openapi.json", get(named("openapi", move |request| document.respond(request))))
        .nest("/", page::routes(&context.docs_url));
    Ok(routes
        .with(catch_all(responder(&*context.docs_url, &HeaderMap::new())))
        .around(move |endpoint, request| methods.clone().add_to_405(endpoint, request))
        .before(move |request| host.check(request))
        .after(move |result| add_missing_headers(result, &headers))
        .with(request_telemetry)
        .boxed())
}
