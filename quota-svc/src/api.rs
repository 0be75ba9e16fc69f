//! The internal API: which routes there are, who may call, and what guards them.

mod accounts;
mod charges;
mod context;
mod error;
mod guard;
mod keys;
mod limits;
mod transfer;

use std::sync::Arc;

use accounts::AccountsApi;
use charges::ChargesApi;
pub use context::Context;
use futures_util::future::Either;
pub use guard::Guard;
use keys::KeysApi;
use poem::endpoint::{BoxEndpoint, DynEndpoint, make_sync};
use poem::{Endpoint, EndpointExt, IntoEndpoint, Request, Response, Result, Route};
use poem_openapi::{OpenApi, OpenApiService};
use service_kit::{Operations, RequestTelemetry, Telemetry, catch_all};
use transfer::TransferApi;

/// Where the paths begin.
const PREFIX: &str = "/internal/v1";
const CHARGES: &str = "/internal/v1/charges";

/// What an error's `docs` points to: the document that quota-svc itself serves.
pub(crate) const DOCS: &str = "/openapi.json";

/// What a quota-svc serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Serve {
    /// Everything.
    All,
    /// Charges only: all that lookup-svc needs.
    Charges,
}

/// The routes of this service.
pub fn endpoint(
    context: &Arc<Context>,
    serve: Serve,
    guard: Guard,
    telemetry: &Telemetry,
) -> BoxEndpoint<'static> {
    let others = match serve {
        Serve::Charges => routes(service(ChargesApi(context.clone()))),
        Serve::All => routes(service(everything(context))),
    };
    let charges = limits::bounded_batch(Operations::new(ChargesApi(context.clone()), PREFIX));
    Root { charges, others }
        .with(guard)
        .with(catch_all(DOCS))
        .with(RequestTelemetry::new(telemetry, "quota-svc"))
        .boxed()
}

/// The charges' own way, which is that of every look-up, and everything else.
struct Root<C> {
    charges: C,
    others: BoxEndpoint<'static>,
}

impl<C: Endpoint<Output = Response>> Endpoint for Root<C> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        match request.uri().path() {
            CHARGES => Either::Left(self.charges.call(request)),
            _ => Either::Right(DynEndpoint::call(&*self.others, request)),
        }
    }
}

fn everything(context: &Arc<Context>) -> (ChargesApi, AccountsApi, KeysApi, TransferApi) {
    let context = || context.clone();
    (ChargesApi(context()), AccountsApi(context()), KeysApi(context()), TransferApi(context()))
}

/// The document of the whole API.
pub fn document(context: &Arc<Context>) -> String {
    service(everything(context)).spec()
}

fn service<T: OpenApi + 'static>(apis: T) -> OpenApiService<T, ()> {
    OpenApiService::new(apis, "quota-svc internal API", "1.1.0")
        .description(
            "Accounts, API keys and exact limits. Spoken on loopback between the services of one pod.",
        )
        .server("http://127.0.0.1:8082")
        .url_prefix(PREFIX)
}

fn routes<T: OpenApi + 'static>(service: OpenApiService<T, ()>) -> BoxEndpoint<'static> {
    let document = service.spec();
    let show =
        make_sync(move |_| Response::builder().content_type("application/json").body(document.clone()));
    Route::new()
        .at("/openapi.json", show)
        .nest(PREFIX, limits::bounded(service.into_endpoint()))
        .map_to_response()
        .boxed()
}
