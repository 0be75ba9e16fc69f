//! `POST /explain` on the admin port.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_server::is_for_loopback;
use poem::endpoint::{BoxEndpoint, make};
use poem::{EndpointExt, Error, IntoResponse, Request, Response, Result, post};
use service_kit::{BodyLimit, ErrorBody, SerdeJson, add_missing_headers, catch_all, responder};

use super::{ExplainRequest, Explainer};

/// Maximum size of a request body: as much as a request to the API may have in its headers.
const MAX_BODY: usize = 16 * 1024;

/// Browsers send it with every request: `none` if the user started the request, otherwise how the page's site is related.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Explains requests. Nothing about them is logged or stored. Requests of web pages are rejected: the report has what a
/// page must not learn about the network of its visitor. Unless `any_host`, requests for other hosts than loopback are
/// rejected, too: a page that reaches this port by DNS rebinding is of the same origin.
pub fn endpoint(explainer: Explainer, any_host: bool) -> BoxEndpoint<'static, Response> {
    let explainer = Arc::new(explainer);
    let explain = make(move |request| {
        let explainer = explainer.clone();
        async move {
            check_sender(&request, any_host)?;
            explain(&explainer, request).await
        }
    });
    let no_store = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]);
    let explain =
        post(explain).with(BodyLimit::new(MAX_BODY)).with(catch_all(responder("/", &no_store)).allow("POST"));
    explain.after(move |result| add_missing_headers(result, &no_store)).map_to_response().boxed()
}

fn check_sender(request: &Request, any_host: bool) -> Result<()> {
    let headers = request.headers();
    let forbidden = |message| Err(error(StatusCode::FORBIDDEN, "forbidden", message));
    if headers.contains_key(header::ORIGIN) {
        return forbidden("Requests from web pages (Origin header) are rejected.");
    }
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "none") {
        return forbidden("Requests from web pages (Sec-Fetch-Site header) are rejected.");
    }
    if !any_host && !is_for_loopback(request) {
        return forbidden(
            "The Host must be a loopback name (127.0.0.1, [::1], localhost), or the service needs --explain on.",
        );
    }
    Ok(())
}

async fn explain(explainer: &Explainer, mut request: Request) -> Result<Response> {
    let body = request.take_body().into_bytes().await?;
    let request = ExplainRequest::from_json(&body)
        .map_err(|invalid| error(StatusCode::BAD_REQUEST, "bad_request", &invalid.to_string()))?;
    Ok(SerdeJson(explainer.explain(&request)).into_response())
}

fn error(status: StatusCode, code: &str, message: &str) -> Error {
    Error::from_response(service_kit::error::response(status, &ErrorBody::new(code, message, "/")))
}
