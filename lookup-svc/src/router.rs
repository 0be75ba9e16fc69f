//! The public port: the API, the pages, and the middleware around them.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use http_server::ErrorResponder;
use poem::{Endpoint, EndpointExt, Request, Response, Result};
use service_kit::{BodyLimit, RequestTelemetry, add_missing_headers, catch_all};

use crate::api::Api;

const API_PREFIX: &str = "/api/";

/// The endpoint of the public port. Each layer is around those before it.
pub fn endpoint(
    api: Api,
    pages: impl Endpoint<Output = Response> + 'static,
    errors: ErrorResponder,
    telemetry: RequestTelemetry,
    body_timeout: Duration,
) -> impl Endpoint<Output = Response> + 'static {
    let headers = api.responses.default.clone();
    let pages = pages.map(move |response| ready(add_missing_headers(response, &headers)));
    Root { api, pages }
        // No request needs a body. A small one is read and dropped, so that the connection can be reused.
        .with(BodyLimit { timeout: body_timeout, ..BodyLimit::default() })
        .with(catch_all(errors))
        .with(telemetry)
}

/// Dispatches to the API or the pages. Replaces a nested poem `Route`, which would rewrite the URI of each request.
struct Root<A, P> {
    api: A,
    pages: P,
}

impl<A, P> Endpoint for Root<A, P>
where
    A: Endpoint<Output = Response>,
    P: Endpoint<Output = Response>,
{
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        match request.uri().path().starts_with(API_PREFIX) {
            true => Either::Left(self.api.call(request)),
            false => Either::Right(self.pages.call(request).boxed()),
        }
    }
}
