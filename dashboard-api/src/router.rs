//! All routes of the dashboard's port, and the middleware around them.

use std::future::ready;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_server::{hsts_header, is_for_host, wrong_host};
use poem::endpoint::BoxEndpoint;
use poem::{Endpoint, EndpointExt, Error, IntoResponse, Request, Response, Result, Route, get};
use service_kit::{
    BodyLimit, PageLinks, RequestTelemetry, StaticFile, Telemetry, add_missing_headers, catch_all, named,
    responder, swagger,
};

use crate::api::{self, Context, CsrfGuard};
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
    let csrf = CsrfGuard::new(context.public_origin.clone(), &context.docs_url);
    let host = context.host.clone();
    let errors = responder(&*context.docs_url, &HeaderMap::new());
    let wrong_host = {
        let errors = errors.clone();
        move || Error::from_response(wrong_host(&errors))
    };
    let headers = security_headers(context.public_origin.as_deref());
    let trusted = context.edge.trusted();
    let request_telemetry =
        RequestTelemetry::new(telemetry, "dashboard-api").trust_trace_of(move |peer| trusted.contains(peer));

    let docs_url = context.docs_url.clone();
    let api = api::service(context)
        .around(|endpoint, request| deadline::scope(async move { endpoint.call(request).await }))
        .after(move |result| ready(result.map_err(|error| api::respond(error, &docs_url))))
        .with(BodyLimit::new(MAX_BODY))
        .before(move |request| csrf.check(request));
    let lookup_url = &context.lookup_url;
    let links = PageLinks {
        home: &format!("{lookup_url}/"),
        docs: &context.docs_url,
        explorer: &format!("{lookup_url}/swagger"),
        dashboard: "/",
    };
    let swagger = swagger::page("Dashboard API · IP Lookup", &links.header("Dashboard"), &document);
    let document = StaticFile::new("application/json", document);
    let routes = Route::new()
        .nest(api::PREFIX, api)
        .at("/swagger", get(named("swagger", move |request| swagger.respond(request))))
        .at("/openapi.json", get(named("openapi", move |request| document.respond(request))))
        .nest("/", page::routes(&context.docs_url, lookup_url));
    Ok(routes
        .with(catch_all(errors))
        .around(allow_quota_from_other_origins)
        // Without a known URL, every host is accepted.
        .before(move |request| match &host {
            Some(host) if !is_for_host(&request, host) => ready(Err(wrong_host())),
            _ => ready(Ok(request)),
        })
        .after(move |result: Result<Response>| {
            let response = result.unwrap_or_else(Error::into_response);
            ready(Ok::<_, Error>(add_missing_headers(response, &headers)))
        })
        .with(request_telemetry)
        .boxed())
}

/// Content security policy of every response that has none of its own, as the page and Swagger UI have.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const ALWAYS: [(HeaderName, &str); 7] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Security headers of every response, for a dashboard with this public origin: no caching unless the response says
/// otherwise, no framing, no content sniffing, no scripts from elsewhere.
pub fn security_headers(public_origin: Option<&str>) -> HeaderMap {
    let mut headers: HeaderMap =
        ALWAYS.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.extend(public_origin.and_then(hsts_header));
    headers
}

/// Lets pages of other origins read a key's quota, with the key and without cookies. Responds to the preflight.
async fn allow_quota_from_other_origins(endpoint: Arc<impl Endpoint>, request: Request) -> Result<Response> {
    let is_quota = request.uri().path() == api::QUOTA_PATH;
    let is_preflight = is_quota && request.method() == Method::OPTIONS;
    let mut response = match is_preflight {
        true => StatusCode::NO_CONTENT.into_response(),
        false => endpoint.call(request).await?.into_response(),
    };
    let mut add = |name, value| drop(response.headers_mut().insert(name, HeaderValue::from_static(value)));
    if is_quota {
        add(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        add(header::ACCESS_CONTROL_EXPOSE_HEADERS, "Retry-After, X-Request-Id");
    }
    if is_preflight {
        add(header::ACCESS_CONTROL_ALLOW_METHODS, "GET");
        add(header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization");
        add(header::ACCESS_CONTROL_MAX_AGE, "86400");
    }
    Ok(response)
}
