//! All routes of the public port, and the middleware around them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use http::StatusCode;
use http_server::ErrorResponder;
use poem::{Endpoint, EndpointExt, Request, Response, Result, Route};
use service_kit::{BodyLimit, RequestTelemetry, StaticFile, add_missing_headers, catch_all};

use crate::api::Api;
use crate::pages::accepts_html;

const API_PREFIX: &str = "/api/";

/// The endpoint of the public port.
///
/// - `/api/v1/ip`, `/api/v1/ip/demo`: the API (`api`)
/// - `/`, `/ip`, `/example`, `/world-map.svg`, `/favicon.ico`, `/robots.txt`, `/docs`, `/geo-data.json`, `/swagger`, `/openapi.json`, `/openapi.yaml`: pages (`pages`)
pub fn endpoint(
    api: Api,
    pages: Route,
    not_found: StaticFile,
    errors: ErrorResponder,
    telemetry: RequestTelemetry,
    body_timeout: Duration,
) -> impl Endpoint<Output = Response> + 'static {
    // No request needs a body. A small one is read and dropped, so that the connection can be reused.
    let body = BodyLimit::default().timeout(body_timeout);
    let headers = api.responses.default_headers();
    let api = api.with(body).with(catch_all(errors.clone()).allow("GET, OPTIONS"));
    let pages = pages.with(body).with(catch_all(errors).allow("GET, HEAD"));
    let not_found = Arc::new(not_found);
    let pages = pages.around(move |pages, request| with_html_404(pages, request, not_found.clone()));
    let pages = pages.after(move |result| add_missing_headers(result, &headers));
    Root { api, pages }.with(telemetry)
}

/// Replaces the JSON of a 404 by a page if the client accepts HTML.
async fn with_html_404<E>(pages: Arc<E>, request: Request, page: Arc<StaticFile>) -> Result<Response>
where
    E: Endpoint<Output = Response>,
{
    let accepts_html = accepts_html(request.headers());
    let mut response = pages.call(request).await?;
    if accepts_html && response.status() == StatusCode::NOT_FOUND {
        // Without the request's headers: a 404 is never 304.
        let mut html = page.respond(&Request::default());
        html.set_status(StatusCode::NOT_FOUND);
        // Keeps what the telemetry has attached.
        *html.extensions_mut() = std::mem::take(response.extensions_mut());
        return Ok(html);
    }
    Ok(response)
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
