//! Routes and middleware of the JSON API and the page.

mod account;
mod allow;
mod context;
mod csrf;
mod error;
mod headers;
mod host;
mod keys;
mod model;
mod page;
mod request_info;

use std::sync::Arc;

use account::AccountApi;
use keys::KeysApi;
use poem::endpoint::BoxEndpoint;
use poem::{EndpointExt, Route, get};
use poem_openapi::{OpenApiService, Tags};
use service_kit::{BodyLimit, CatchPanic, RequestTelemetry, StaticFile, Telemetry, catch_all, swagger};

pub use context::Context;
pub use headers::security_headers;

const PREFIX: &str = "/api/v1";

/// Maximum bytes of a request body. Fits a password of 1,024 characters with room to spare.
const MAX_BODY: usize = 16 * 1024;

/// Sections of the OpenAPI document.
#[derive(Tags)]
enum Tag {
    /// Sign-up, sign-in, sign-out, the account and the public settings.
    Account,
    /// API keys and their state, usage and events.
    Keys,
}

type Service = OpenApiService<(AccountApi, KeysApi), ()>;

/// Builds the endpoint that serves the API and the page.
pub fn endpoint(context: &Arc<Context>, telemetry: &Telemetry) -> anyhow::Result<BoxEndpoint<'static>> {
    let document = document(context)?;
    let methods = allow::AllowedMethods::from_document(&serde_json::from_str(&document)?);
    let service = service(context);
    let swagger = page::serve(swagger::page("IP lookup dashboard API: try it", &document), "swagger");
    let document = page::serve(StaticFile::new("application/json", document), "openapi");
    let api = service
        .with(BodyLimit::new(MAX_BODY))
        .with(csrf::CsrfGuard::new(context.public_origin.clone(), &context.docs_url));
    let routes = Route::new()
        .at("/swagger", get(swagger))
        .at("/openapi.json", get(document))
        .nest(PREFIX, api)
        .nest("/", page::routes());
    let trusted = context.edge.trusted();
    let request_telemetry =
        RequestTelemetry::new(telemetry, "dashboard-api").trust_trace_of(move |peer| trusted.contains(peer));
    Ok(routes
        .with(catch_all(context.docs_url.clone()))
        .with(CatchPanic::new(context.docs_url.clone()))
        .with(methods)
        .with(host::HostGuard::new(context.public_host.as_deref(), &context.docs_url))
        .with(headers::SecurityHeaders::new(context.public_origin.as_deref()))
        .with(request_telemetry)
        .map_to_response()
        .boxed())
}

/// Returns the OpenAPI document as pretty-printed JSON.
pub fn document(context: &Arc<Context>) -> anyhow::Result<String> {
    let mut document: serde_json::Value = serde_json::from_str(&service(context).spec())?;
    // Makes the order independent of serde_json's `preserve_order` feature, which any dependency may enable.
    document.sort_all_objects();
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn service(context: &Arc<Context>) -> Service {
    let apis = (AccountApi(context.clone()), KeysApi(context.clone()));
    OpenApiService::new(apis, "IP lookup dashboard", "1.1.0")
        .description(include_str!("api/description.md"))
        .server("/")
        .url_prefix(PREFIX)
}
