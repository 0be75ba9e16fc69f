//! All routes of the public port, and the middleware around them.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use http_server::ErrorResponder;
use poem::{Endpoint, EndpointExt, Request, Response, Result, Route};
use service_kit::{BodyLimit, RequestTelemetry, add_missing_headers, catch_all};

use crate::api::Api;

const API_PREFIX: &str = "/api/";

/// The endpoint of the public port.
///
/// - `/api/v1/ip`, `/api/v1/ip/demo`: the API (`api`)
/// - `/` with its `/world-map.svg`, `/docs`, `/swagger`, `/openapi.json`, `/openapi.yaml`: pages (`pages`)
pub fn endpoint(
    api: Api,
    pages: Route,
    errors: ErrorResponder,
    telemetry: RequestTelemetry,
    body_timeout: Duration,
) -> impl Endpoint<Output = Response> + 'static {
    // No request needs a body. A small one is read and dropped, so that the connection can be reused.
    let body = BodyLimit::default().timeout(body_timeout);
    let headers = api.responses.default_headers();
    let api = api.with(body).with(catch_all(errors.clone()).allow("GET, OPTIONS"));
    let pages = pages.with(body).with(catch_all(errors).allow("GET, HEAD"));
    let pages = pages.after(move |result| add_missing_headers(result, &headers));
    Root { api, pages }.with(telemetry)
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
