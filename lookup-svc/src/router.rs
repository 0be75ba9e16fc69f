//! The one list of what is served, and what lies around it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use poem::{Endpoint, EndpointExt, Request, Response, Result};
use service_kit::{BodyLimit, CatchPanic, Operations, RequestTelemetry, Telemetry, catch_all};

use crate::api::{Api, finish};
use crate::links::Links;
use crate::pages::Pages;

const API: &str = "/api/";

/// Everything on the public port.
///
/// - `/api/v1/ip`, `/api/v1/ip/demo`: the API (`api`)
/// - `/`, `/docs`, `/swagger`, `/openapi.json`, `/openapi.yaml`: pages about it (`pages`)
pub fn endpoint(
    api: Api,
    pages: Pages,
    links: &Links,
    telemetry: &Arc<Telemetry>,
    body_deadline: Duration,
) -> impl Endpoint<Output = Response> + 'static {
    // Nothing here wants a body: a small one is read and dropped, so that the connection can go on.
    let body = BodyLimit::default().deadline(body_deadline);
    let api = Operations::new(api, "").with(body).with(catch_all(&*links.docs).allow("GET, OPTIONS"));
    let pages = pages.routes().with(body).with(catch_all(&*links.docs).allow("GET, HEAD"));
    guarded(Root { api, pages }, links, telemetry)
}

/// Whatever happens inside, the answer is JSON, open to every origin, and counted.
fn guarded(
    inner: impl Endpoint<Output = Response> + 'static,
    links: &Links,
    telemetry: &Arc<Telemetry>,
) -> impl Endpoint<Output = Response> + 'static {
    inner
        .with(CatchPanic::new(&*links.docs))
        .with(finish())
        .with(RequestTelemetry::new(telemetry, "lookup-svc"))
}

/// Two sets of routes; a nested `Route` would rewrite every request's address.
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
        match request.uri().path().starts_with(API) {
            true => Either::Left(self.api.call(request)),
            false => Either::Right(self.pages.call(request).boxed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use poem::endpoint::make_sync;
    use service_kit::ErrorBody;

    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn a_panic_is_a_500_like_any_other() {
        let links = Links::new(&Config::default());
        let telemetry = Arc::new(Telemetry::for_tests());
        let panics = make_sync(|_| -> Response { panic!("a test's panic") });
        let mut answer =
            guarded(panics, &links, &telemetry).call(Request::default()).await.expect("an answer");
        assert_eq!(answer.status(), 500);
        assert_eq!(answer.headers()["access-control-allow-origin"], "*");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        let body = answer.take_body().into_vec().await.expect("a body");
        let body: ErrorBody = serde_json::from_slice(&body).expect("our error body");
        assert_eq!(body.error, "internal_error");
        assert_eq!(body.docs, "http://localhost:8080/docs#internal_error");
    }
}
