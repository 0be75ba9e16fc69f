//! `POST /explain` on the admin port.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use poem::endpoint::{BoxEndpoint, make};
use poem::{EndpointExt, Error, IntoResponse, Request, Response, Result, post};
use service_kit::{BodyLimit, ErrorBody, SerdeJson, add_missing_headers, catch_all};

use super::{ExplainRequest, Explainer};

/// Maximum size of a request body: as much as a request to the API may have in its headers.
const MAX_BODY: usize = 16 * 1024;

/// Explains requests. Nothing about them is logged or stored. Requests of web pages are rejected: the report has what a
/// page must not learn about the network of its visitor.
pub fn endpoint(explainer: Explainer) -> BoxEndpoint<'static, Response> {
    let explainer = Arc::new(explainer);
    let explain = make(move |request| {
        let explainer = explainer.clone();
        async move { explain(&explainer, request).await }
    });
    let no_store = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]);
    let explain = post(explain).with(BodyLimit::new(MAX_BODY)).with(catch_all("/").allow("POST"));
    explain.after(move |result| add_missing_headers(result, &no_store)).map_to_response().boxed()
}

async fn explain(explainer: &Explainer, mut request: Request) -> Result<Response> {
    if request.headers().contains_key(header::ORIGIN) {
        let message = "Requests from web pages (Origin header) are rejected.";
        return Err(error(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let body = request.take_body().into_bytes().await?;
    let request = ExplainRequest::from_json(&body)
        .map_err(|invalid| error(StatusCode::BAD_REQUEST, "bad_request", &invalid.to_string()))?;
    Ok(SerdeJson(explainer.explain(&request)).into_response())
}

fn error(status: StatusCode, code: &str, message: &str) -> Error {
    Error::from_response(service_kit::error::response(status, &ErrorBody::new(code, message, "/")))
}
