//! How large a body may be: a batch and a command are small, an import is not.

use std::sync::Arc;

use futures_util::TryFutureExt;
use http::StatusCode;
use poem::{Endpoint, Error, IntoResponse, Middleware, Request, Response, Result};
use quota_client::wire::MAX_BATCH;
use service_kit::{BodyLimit, ErrorBody, Operations};

use super::DOCS;

/// An import of 200 accounts with 10 keys each and a month of usage fits.
const IMPORT_BYTES: usize = 4 * 1024 * 1024;

/// Bounds the bodies of the API's routes.
pub fn bounded<E: Endpoint + 'static>(routes: E) -> impl Endpoint<Output = Response> {
    let routes = Arc::new(routes);
    Bounded {
        usual: BodyLimit::default().transform(routes.clone()),
        import: BodyLimit::new(IMPORT_BYTES).transform(routes),
    }
}

struct Bounded<U, I> {
    usual: U,
    import: I,
}

impl<U: Endpoint, I: Endpoint> Endpoint for Bounded<U, I> {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        if request.uri().path().ends_with("/import") {
            return self.import.call(request).await.map(IntoResponse::into_response);
        }
        self.usual.call(request).await.map(IntoResponse::into_response)
    }
}

/// Bounds the body of a batch. Whoever sends too large a one must be told how large it may be.
pub fn bounded_batch(charges: Operations) -> impl Endpoint<Output = Response> {
    Batches(BodyLimit::default().transform(charges))
}

struct Batches<E>(E);

impl<E: Endpoint<Output = Response>> Endpoint for Batches<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        self.0.call(request).map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_many(),
            _ => error,
        })
    }
}

fn too_many() -> Error {
    let message =
        format!("A call takes 1 to {MAX_BATCH} charges; this body is larger than {MAX_BATCH} can be.");
    let body = ErrorBody::new("batch_too_large", message, DOCS);
    Error::from_response(service_kit::error::response(StatusCode::BAD_REQUEST, &body))
}
