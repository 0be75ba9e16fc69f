//! The operations of the internal API by method and path, and the middleware around them.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::ready;
use http::{HeaderMap, HeaderName, Method};
use poem::endpoint::BoxEndpoint;
use poem::error::NotFoundError;
use poem::{Endpoint, EndpointExt, Middleware, Request, Response, Result};
use quota_api::{BATCH_TYPE, TRACE_LINKS};
use service_kit::{BodyLimit, OperationName, RequestTelemetry, Telemetry, catch_all, responder};

use crate::api::{ApiError, Context, Guard, KeyQuery, NO_DOCS, PageQuery, reply};

const PREFIX: &str = "/internal/v1/";

/// Maximum size of a body in bytes. Fits an import of 200 accounts with 10 keys each, and a month of usage for each key.
const MAX_BODY: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Serve {
    /// All operations
    All,
    /// Only charges: enough for lookup-svc
    Charges,
}

/// The endpoint of the API port.
pub fn endpoint(
    context: &Arc<Context>,
    serve: Serve,
    guard: Guard,
    telemetry: &Telemetry,
) -> BoxEndpoint<'static> {
    let operations = Operations { context: context.clone(), serve };
    // The peers are our own services.
    let request_telemetry = RequestTelemetry::new(telemetry, "quota-svc")
        .trust_trace_of(|_| true)
        .link_spans_in(HeaderName::from_static(TRACE_LINKS));
    Guarded { guard, operations: BodyLimit::new(MAX_BODY).transform(operations) }
        .with(catch_all(responder(NO_DOCS, &HeaderMap::new())))
        .with(request_telemetry)
        .boxed()
}

/// Rejects what the guard rejects, before a body is read.
struct Guarded<E> {
    guard: Guard,
    operations: E,
}

impl<E: Endpoint<Output = Response>> Endpoint for Guarded<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        // Boxed, so that the middleware around this moves a pointer instead of the whole future.
        match self.guard.check(&request) {
            Err(error) => ready(Err(error)).boxed(),
            Ok(()) => self.operations.call(request).boxed(),
        }
    }
}

struct Operations {
    context: Arc<Context>,
    serve: Serve,
}

impl Endpoint for Operations {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        let body = request.take_body().into_bytes().await?;
        let path = request.uri().path().strip_prefix(PREFIX).ok_or(NotFoundError)?;
        let (name, result) = match (request.method(), path) {
            (&Method::POST, "charges") => ("chargeBatch", self.charge(&body).await),
            (&Method::GET, "status") => ("getStatus", Ok(reply(self.context.status()))),
            _ if self.serve == Serve::Charges => return Err(NotFoundError.into()),
            // Boxed, because every lookup makes a charge, whose future is smaller.
            _ => self.other(&request, path, &body).boxed().await?,
        };
        let mut response = result.unwrap_or_else(ApiError::into_response);
        response.set_data(OperationName(name));
        Ok(response)
    }
}

impl Operations {
    async fn charge(&self, body: &[u8]) -> Result<Response, ApiError> {
        Ok(Response::builder().content_type(BATCH_TYPE).body(self.context.charge_body(body).await?))
    }

    /// The operations that lookup-svc does not call. Fails if there is no such operation, or with an invalid query.
    async fn other(
        &self,
        request: &Request,
        path: &str,
        body: &[u8],
    ) -> Result<(&'static str, Result<Response, ApiError>)> {
        let context = &self.context;
        let path: Vec<&str> = path.split('/').collect();
        let page = || request.params::<PageQuery>();
        let owner = || request.params::<KeyQuery>().map(|query| query.account);
        Ok(match (request.method(), &path[..]) {
            (&Method::POST, ["commands"]) => ("command", context.command(body).await),
            (&Method::GET, ["accounts"]) => ("listAccounts", context.list_accounts(page()?).await.map(reply)),
            (&Method::GET, ["accounts", id]) => ("getAccount", context.account(id).await.map(reply)),
            (&Method::GET, ["accounts", id, "credential"]) => {
                ("getCredential", context.credential(id).await.map(reply))
            }
            (&Method::GET, ["accounts", id, "sessions", session]) => {
                ("getSession", context.session(id, session).await.map(reply))
            }
            (&Method::GET, ["accounts", id, "keys"]) => ("listKeys", context.keys(id).await.map(reply)),
            (&Method::GET, ["keys", id]) => ("getKey", context.key(id, owner()?).await.map(reply)),
            (&Method::GET, ["keys", id, "usage"]) => {
                ("getKeyUsage", context.usage(id, owner()?).await.map(reply))
            }
            (&Method::GET, ["keys", id, "events"]) => {
                ("listKeyEvents", context.events(id, owner()?).await.map(reply))
            }
            (&Method::GET, ["overview"]) => ("getOverview", context.overview().await.map(reply)),
            (&Method::GET, ["counts"]) => ("countKeys", context.count_keys(page()?).await.map(reply)),
            (&Method::GET, ["export"]) => ("exportAccounts", context.export(page()?).await.map(reply)),
            _ => return Err(NotFoundError.into()),
        })
    }
}
