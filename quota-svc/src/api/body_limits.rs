//! Limits on the size of request bodies; imports have a larger limit than all other operations.

use std::sync::Arc;

use futures_util::TryFutureExt;
use http::StatusCode;
use poem::{Endpoint, Error, IntoResponse, Middleware, Request, Response, Result};
use quota_api::MAX_BATCH;
use service_kit::{BodyLimit, ErrorBody};

use super::DOCS;

/// Fits 200 accounts with 10 keys each, and a month of usage for each key.
const IMPORT_BYTES: usize = 4 * 1024 * 1024;

pub fn with_body_limits<E: Endpoint + 'static>(routes: E) -> impl Endpoint<Output = Response> {
    let routes = Arc::new(routes);
    BodyLimits {
        default: BodyLimit::default().transform(routes.clone()),
        import: BodyLimit::new(IMPORT_BYTES).transform(routes),
    }
}

struct BodyLimits<D, I> {
    default: D,
    import: I,
}

impl<D: Endpoint, I: Endpoint> Endpoint for BodyLimits<D, I> {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        if request.uri().path().ends_with("/import") {
            return self.import.call(request).await.map(IntoResponse::into_response);
        }
        self.default.call(request).await.map(IntoResponse::into_response)
    }
}

/// Limits the body of a batch of charges. Replaces the generic 413 with a 400 that states the maximum batch size.
pub fn with_batch_limit(charges: impl Endpoint<Output = Response>) -> impl Endpoint<Output = Response> {
    BatchLimit(BodyLimit::default().transform(charges))
}

struct BatchLimit<E>(E);

impl<E: Endpoint<Output = Response>> Endpoint for BatchLimit<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        self.0.call(request).map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => batch_too_large(),
            _ => error,
        })
    }
}

fn batch_too_large() -> Error {
    let message = format!("A call must have 1 to {MAX_BATCH} charges; this body is too large.");
    let body = ErrorBody::new("batch_too_large", message, DOCS);
    Error::from_response(service_kit::error::response(StatusCode::BAD_REQUEST, &body))
}
