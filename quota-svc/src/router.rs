//! The operations of the internal API by method and path, and the middleware around them.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::ready;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_server::is_for_loopback;
use poem::endpoint::BoxEndpoint;
use poem::error::NotFoundError;
use poem::{Endpoint, EndpointExt, Error, Request, Response, Result};
use quota_api::{BATCH_TYPE, TRACE_LINKS};
use quota_client::QuotaToken;
use service_kit::error::response;
use service_kit::{BodyLimit, ErrorBody, OperationId, RequestTelemetry, Telemetry, catch_all, responder};

use crate::api::{ApiError, Context, NO_DOCS, Query, reply};

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
    // The peers are our own services.
    let request_telemetry = RequestTelemetry::new(telemetry, "quota-svc")
        .trust_trace_of(|_| true)
        .link_spans_in(HeaderName::from_static(TRACE_LINKS));
    Operations { context: context.clone(), serve }
        .with(BodyLimit::new(MAX_BODY))
        // Before a body is read.
        .before(move |request| ready(guard.check(&request).map(|()| request)))
        // So that the middleware around this moves a pointer instead of the whole future.
        .boxed()
        .with(catch_all(responder(NO_DOCS, &HeaderMap::new())))
        .with(request_telemetry)
        .boxed()
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
            (&Method::POST, "charges") => {
                let verdicts = self.context.charge_body(&body).await;
                let respond = |verdicts: Vec<u8>| Response::builder().content_type(BATCH_TYPE).body(verdicts);
                ("chargeBatch", verdicts.map(respond))
            }
            (&Method::GET, "status") => ("getStatus", Ok(reply(self.context.status()))),
            _ if self.serve == Serve::Charges => return Err(NotFoundError.into()),
            // Boxed, because every lookup makes a charge, whose future is smaller.
            _ => self.other(&request, path, &body).boxed().await?,
        };
        let mut response = result.unwrap_or_else(ApiError::into_response);
        response.set_data(OperationId(name));
        Ok(response)
    }
}

impl Operations {
    /// The operations that lookup-svc does not call. Fails if there is no such operation, or with an invalid query.
    async fn other(
        &self,
        request: &Request,
        path: &str,
        body: &[u8],
    ) -> Result<(&'static str, Result<Response, ApiError>)> {
        let context = &self.context;
        let path: Vec<&str> = path.split('/').collect();
        let query: Query = request.params()?;
        Ok(match (request.method(), &path[..]) {
            (&Method::POST, ["commands"]) => ("command", context.command(body).await),
            (&Method::GET, ["accounts"]) => ("listAccounts", context.list_accounts(query).await.map(reply)),
            (&Method::GET, ["accounts", id]) => ("getAccount", context.account(id).await.map(reply)),
            (&Method::GET, ["accounts", id, "credential"]) => {
                ("getCredential", context.credential(id).await.map(reply))
            }
            (&Method::GET, ["accounts", id, "sessions", session]) => {
                ("getSession", context.session(id, session).await.map(reply))
            }
            (&Method::GET, ["accounts", id, "keys"]) => ("listKeys", context.keys(id).await.map(reply)),
            (&Method::GET, ["keys", id]) => ("getKey", context.key(id, query).await.map(reply)),
            (&Method::GET, ["keys", id, "usage"]) => {
                ("getKeyUsage", context.usage(id, query).await.map(reply))
            }
            (&Method::GET, ["keys", id, "events"]) => {
                ("listKeyEvents", context.events(id, query).await.map(reply))
            }
            (&Method::GET, ["overview"]) => ("getOverview", context.overview().await.map(reply)),
            (&Method::GET, ["counts"]) => ("countKeys", context.count_keys(query).await.map(reply)),
            (&Method::GET, ["export"]) => ("exportAccounts", context.export(query).await.map(reply)),
            _ => return Err(NotFoundError.into()),
        })
    }
}

/// Rejects requests before they reach an operation.
///
/// Every request needs the token, whatever its path. Web pages are kept out, too: requests with an `Origin` header and, against DNS
/// rebinding, requests whose `Host` is not a loopback name. The server has already rejected malformed hosts.
#[derive(Debug)]
pub struct Guard {
    pub token: QuotaToken,
    /// Accept any `Host` (`--allow-remote`).
    pub allow_remote: bool,
}

impl Guard {
    /// Fails with the response to send if the request must be rejected. The token is checked first: without it, every
    /// request gets the same response.
    pub fn check(&self, request: &Request) -> Result<()> {
        if !self.token.matches(request.headers()) {
            return Err(Error::from_response(unauthorized()));
        }
        if request.headers().contains_key(header::ORIGIN) {
            return Err(forbidden("Requests from web pages (Origin header) are rejected."));
        }
        if !self.allow_remote && !is_for_loopback(request) {
            return Err(forbidden("The Host must be a loopback name (127.0.0.1, [::1], localhost)."));
        }
        Ok(())
    }
}

fn unauthorized() -> Response {
    let message =
        "The token of this quota-svc is missing or wrong. Set --quota-token-file to the file with its token.";
    let mut response = response(StatusCode::UNAUTHORIZED, &ErrorBody::new("unauthorized", message, NO_DOCS));
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn forbidden(reason: &str) -> Error {
    Error::from_response(response(StatusCode::FORBIDDEN, &ErrorBody::new("forbidden", reason, NO_DOCS)))
}
