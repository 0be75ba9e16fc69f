//! Gives the framework's errors (404, 405, invalid parameters, 413) and panics an [`ErrorBody`](super::ErrorBody).

use std::{future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use http::{HeaderValue, StatusCode, header};
use http_server::ErrorResponder;
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};

use super::{INTERNAL_ERROR, code_for};

/// Middleware that turns errors and panics into responses, see [`responder`](super::responder). An error that already
/// contains a response passes through unchanged.
///
/// `endpoint.with(catch_all(errors).allow("GET, OPTIONS"))`
pub fn catch_all(errors: ErrorResponder) -> CatchAll {
    CatchAll { errors, allow: None }
}

/// See [`catch_all`].
#[derive(Clone)]
pub struct CatchAll {
    errors: ErrorResponder,
    allow: Option<HeaderValue>,
}

impl CatchAll {
    /// Sets the `Allow` header of 405 responses: poem's error does not list the path's methods.
    pub fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(HeaderValue::from_static(methods));
        self
    }

    fn error_response(&self, error: poem::Error) -> Response {
        if error.is_from_response() {
            return error.into_response();
        }
        let status = error.status();
        let mut response = (self.errors)(status, code_for(status), &message(&error, status));
        // Keeps data attached to the error, such as the operation ID.
        *response.extensions_mut() = std::mem::take(error.into_response().extensions_mut());
        if let (StatusCode::METHOD_NOT_ALLOWED, Some(allow)) = (status, &self.allow) {
            response.headers_mut().insert(header::ALLOW, allow.clone());
        }
        response
    }
}

const INTERNAL: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

/// The message for the client. The cause of a server error goes only to the log.
fn message(error: &poem::Error, status: StatusCode) -> String {
    match status {
        StatusCode::NOT_FOUND => "This path does not exist. Check the URL.".to_owned(),
        StatusCode::METHOD_NOT_ALLOWED => "This path does not support this HTTP method.".to_owned(),
        StatusCode::PAYLOAD_TOO_LARGE => "The request body is too large.".to_owned(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "Send the body as `application/json`.".to_owned(),
        status if status.is_server_error() => {
            tracing::error!(%status, %error, "request failed");
            INTERNAL_ERROR.to_owned()
        }
        _ => error.to_string(),
    }
}

impl<E: Endpoint> Middleware<E> for CatchAll {
    type Output = CatchAllEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        CatchAllEndpoint { inner, catch_all: self.clone() }
    }
}

/// An endpoint wrapped by [`catch_all`].
pub struct CatchAllEndpoint<E> {
    inner: E,
    catch_all: CatchAll,
}

impl<E: Endpoint> Endpoint for CatchAllEndpoint<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        // Unwind safe: the request's own state is dropped with it, and shared state is behind locks that tolerate
        // poisoning.
        AssertUnwindSafe(self.inner.call(request)).catch_unwind().map(|caught| {
            Ok(match caught {
                Ok(Ok(output)) => output.into_response(),
                Ok(Err(error)) => self.catch_all.error_response(error),
                // The panic hook has logged it.
                Err(_) => (self.catch_all.errors)(INTERNAL, code_for(INTERNAL), INTERNAL_ERROR),
            })
        })
    }
}
