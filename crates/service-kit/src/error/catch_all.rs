//! Gives the framework's errors (404, 405, invalid parameters, 413) and panics an [`ErrorBody`].

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};

use super::{ErrorBody, INTERNAL_ERROR, internal_error, response};

/// Middleware that turns errors and panics into responses with an [`ErrorBody`]. An error that already contains a response
/// passes through unchanged.
///
/// [`Server`](crate::Server) also catches panics, but outside all middleware, which then could not add headers (CORS).
///
/// `endpoint.with(catch_all(docs_url).allow("GET, OPTIONS"))`
pub fn catch_all(docs_url: impl Into<String>) -> CatchAll {
    CatchAll { docs_url: docs_url.into().into(), allow: None, headers: HeaderMap::new() }
}

/// See [`catch_all`].
#[derive(Clone, Debug)]
pub struct CatchAll {
    docs_url: Arc<str>,
    allow: Option<HeaderValue>,
    headers: HeaderMap,
}

impl CatchAll {
    /// Sets the `Allow` header of 405 responses: poem's error does not list the path's methods.
    pub fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(HeaderValue::from_static(methods));
        self
    }

    /// Adds headers, such as CORS headers, to all responses that it creates.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    fn error_response(&self, error: poem::Error) -> Response {
        if error.is_from_response() {
            return error.into_response();
        }
        let status = error.status();
        let body = ErrorBody::for_status(status, message(&error, status), &self.docs_url);
        let mut response = self.with_headers(response(status, &body));
        // Keeps data attached to the error, such as the operation ID.
        *response.extensions_mut() = std::mem::take(error.into_response().extensions_mut());
        if let (StatusCode::METHOD_NOT_ALLOWED, Some(allow)) = (status, &self.allow) {
            response.headers_mut().insert(header::ALLOW, allow.clone());
        }
        response
    }

    fn with_headers(&self, mut response: Response) -> Response {
        response.headers_mut().extend(self.headers.clone());
        response
    }
}

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
#[derive(Debug)]
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
                Err(_) => self.catch_all.with_headers(internal_error(&self.catch_all.docs_url)),
            })
        })
    }
}
