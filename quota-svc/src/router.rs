//! All routes of the internal API, and the middleware around them.

use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt;
use poem::endpoint::{BoxEndpoint, DynEndpoint, make_sync};
use poem::http::{HeaderMap, HeaderName};
use poem::{Endpoint, EndpointExt, IntoEndpoint, Request, Response, Result, Route};
use poem_openapi::{OpenApi, OpenApiService};
use quota_api::TRACE_LINKS;
use service_kit::error::INTERNAL_ERROR;
use service_kit::openapi::{self, OpenApiDocument};
use service_kit::{RequestTelemetry, StaticFile, Telemetry, catch_all, responder};

use crate::api::{
    AccountsApi, ChargesApi, Context, DOCS, Guard, KeysApi, NoticesApi, OverviewApi, TransferApi,
    body_limits, examples,
};
use crate::direct_router::DirectRouter;

const PREFIX: &str = "/internal/v1";
const CHARGES: &str = "/internal/v1/charges";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Serve {
    /// All operations
    All,
    /// Only charges: enough for lookup-svc
    Charges,
}

/// The endpoint of the API port.
///
/// - `/internal/v1/…`: the API (`api`); with [`Serve::Charges`] only `/internal/v1/charges`
/// - `/openapi.json`: its document
pub fn endpoint(
    context: &Arc<Context>,
    serve: Serve,
    guard: Guard,
    telemetry: &Telemetry,
) -> BoxEndpoint<'static> {
    let routes = match serve {
        Serve::Charges => routes(service(ChargesApi(context.clone()))),
        Serve::All => routes(service(all_apis(context))),
    };
    let charges = body_limits::with_batch_limit(DirectRouter::new(ChargesApi(context.clone()), PREFIX));
    // The peers are our own services.
    let request_telemetry = RequestTelemetry::new(telemetry, "quota-svc")
        .trust_trace_of(|_| true)
        .link_spans_in(HeaderName::from_static(TRACE_LINKS));
    Root { guard, charges, routes }
        .with(catch_all(responder(DOCS, &HeaderMap::new())))
        .with(request_telemetry)
        .boxed()
}

/// Rejects what the guard rejects. Dispatches charges directly, because every lookup makes one; everything else goes
/// through poem's router.
struct Root<C> {
    guard: Guard,
    charges: C,
    routes: BoxEndpoint<'static>,
}

impl<C: Endpoint<Output = Response>> Endpoint for Root<C> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        // Boxed, so that the middleware around this moves a pointer instead of the whole future.
        match self.guard.check(&request) {
            Err(error) => ready(Err(error)).boxed(),
            Ok(()) if request.uri().path() == CHARGES => self.charges.call(request).boxed(),
            Ok(()) => DynEndpoint::call(&*self.routes, request),
        }
    }
}

type AllApis = (ChargesApi, AccountsApi, KeysApi, NoticesApi, TransferApi, OverviewApi);

fn all_apis(context: &Arc<Context>) -> AllApis {
    let context = || context.clone();
    let (keys, notices) = (KeysApi(context()), NoticesApi(context()));
    let (transfer, overview) = (TransferApi(context()), OverviewApi(context()));
    (ChargesApi(context()), AccountsApi(context()), keys, notices, transfer, overview)
}

pub fn document(context: &Arc<Context>) -> String {
    complete(&service(all_apis(context)))
}

/// Generates the document, with the errors as examples and with the token.
fn complete<T: OpenApi>(service: &OpenApiService<T, ()>) -> String {
    let mut document = OpenApiDocument::new(service);
    document.add_examples(examples());
    document.set_default_error("internal_error", INTERNAL_ERROR, DOCS);
    let scheme = serde_json::json!({
        "type": "http",
        "scheme": "bearer",
        "description": "The token in `--quota-token-file`.",
    });
    document.require_for_all("token", openapi::to_value(&scheme));
    document.json()
}

fn service<T: OpenApi + 'static>(apis: T) -> OpenApiService<T, ()> {
    OpenApiService::new(apis, "quota-svc internal API", "1.1.0")
        .description("Internal API for accounts, keys and quotas. Listens on loopback by default. Every \
             request needs `Authorization: Bearer TOKEN`; others get 401 `unauthorized`. Requests with an `Origin` header, and \
             without `--allow-remote` those for a host that is not loopback, get 403 `forbidden`. A request that is not \
             valid HTTP or JSON gets 400 `bad_request`.")
        .contact(openapi::contact(None))
        .license(openapi::license())
        .server("http://127.0.0.1:8082")
        .url_prefix(PREFIX)
}

fn routes<T: OpenApi + 'static>(service: OpenApiService<T, ()>) -> BoxEndpoint<'static> {
    let document = StaticFile::new("application/json", complete(&service));
    let show_document = make_sync(move |request| document.respond(&request));
    Route::new()
        .at("/openapi.json", show_document)
        .nest(PREFIX, body_limits::with_body_limits(service.into_endpoint()))
        .map_to_response()
        .boxed()
}
