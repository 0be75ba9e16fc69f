//! All routes of the public port, and the middleware around them.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use http::{HeaderMap, Method};
use poem::{Endpoint, EndpointExt, Request, Response, Result, Route};
use service_kit::error::CatchAll;
use service_kit::{BodyLimit, DirectRouter, RequestTelemetry, add_missing_headers, catch_all};

use crate::api::{Api, GET_IP_PATH, GetIp};
use crate::public_urls::PublicUrls;

const API_PREFIX: &str = "/api/";

/// The endpoint of the public port.
///
/// - `/api/v1/ip`, `/api/v1/ip/demo`: the API (`api`)
/// - `/` with its `/world-map.svg`, `/docs`, `/swagger`, `/openapi.json`, `/openapi.yaml`: pages (`pages`)
pub fn endpoint(
    api: Api,
    pages: Route,
    urls: &PublicUrls,
    telemetry: RequestTelemetry,
    body_timeout: Duration,
) -> impl Endpoint<Output = Response> + 'static {
    // No request needs a body. A small one is read and dropped, so that the connection can be reused.
    let body = BodyLimit::default().timeout(body_timeout);
    let headers = api.responses.default_headers();
    let api = Operations { get_ip: GetIp(api.clone()), others: DirectRouter::new(api, "") };
    let api = api.with(body).with(catch_api_errors(urls, headers.clone()));
    let pages = pages.with(body).with(catch_all(&*urls.docs).allow("GET, HEAD"));
    let pages = pages.after(move |result| add_missing_headers(result, &headers));
    Root { api, pages }.with(telemetry)
}

/// The API's own responses have all headers; its templates include them.
fn catch_api_errors(urls: &PublicUrls, headers: HeaderMap) -> CatchAll {
    catch_all(&*urls.docs).allow("GET, OPTIONS").headers(headers)
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

/// Dispatches to the operations of the API.
struct Operations {
    get_ip: GetIp,
    others: DirectRouter,
}

impl Endpoint for Operations {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        // Boxed here, because each middleware moves the future into its own.
        match request.method() == Method::GET && request.uri().path() == GET_IP_PATH {
            true => self.get_ip.call(request).boxed(),
            false => self.others.call(request).boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use poem::endpoint::make_sync;
    use service_kit::ErrorBody;

    use super::*;
    use crate::api::Responses;
    use crate::config::{Config, RateLimitHeaders};

    #[tokio::test]
    async fn panic_gets_500_with_error_body() {
        let urls = PublicUrls::new(&Config::default());
        let headers = Responses::new(&urls, RateLimitHeaders::Legacy).default_headers();
        let panics =
            make_sync(|_| -> Response { panic!("panic in a test") }).with(catch_api_errors(&urls, headers));
        let mut response = panics.call(Request::default()).await.expect("a response");
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let body = response.take_body().into_vec().await.expect("readable body");
        let body: ErrorBody = serde_json::from_slice(&body).expect("valid error body");
        assert_eq!(body.error, "internal_error");
        assert_eq!(body.docs, "http://localhost:8080/docs#internal_error");
    }
}
