//! How large a body may be: a batch and a command are small, an import is not.

use std::sync::Arc;

use http::StatusCode;
use poem::{Endpoint, Error, IntoResponse, Middleware, Request, Response, Result};
use quota_client::wire::MAX_BATCH;
use service_kit::{BodyLimit, ErrorBody};

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
        let charges = request.uri().path().ends_with("/charges");
        let answer = self.usual.call(request).await.map(IntoResponse::into_response);
        match answer {
            Err(error) if charges && error.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(too_many()),
            other => other,
        }
    }
}

/// Whoever sends too large a batch must be told how large it may be.
fn too_many() -> Error {
    let message =
        format!("A call takes 1 to {MAX_BATCH} charges; this body is larger than {MAX_BATCH} can be.");
    let body = ErrorBody::new("batch_too_large", message, DOCS);
    Error::from_response(service_kit::error::response(StatusCode::BAD_REQUEST, &body))
}
