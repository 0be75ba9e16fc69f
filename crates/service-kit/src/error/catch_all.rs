//! Gives the framework's own errors (404, 405, bad parameters, 413) our body.

use std::{future::Future, sync::Arc};

use futures_util::FutureExt;
use http::{HeaderValue, StatusCode, header};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};

use super::{ErrorBody, response};

/// Middleware that answers every error with an [`ErrorBody`], except one that an endpoint made itself.
///
/// `endpoint.with(catch_all(docs_url).allow("GET, OPTIONS"))`
pub fn catch_all(docs_url: impl Into<String>) -> CatchAll {
    CatchAll { docs_url: docs_url.into().into(), allow: None }
}

/// See [`catch_all`].
#[derive(Clone, Debug)]
pub struct CatchAll {
    docs_url: Arc<str>,
    allow: Option<HeaderValue>,
}

impl CatchAll {
    /// The `Allow` of a 405: poem does not tell which methods a path knows, so the caller must.
    pub fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(HeaderValue::from_static(methods));
        self
    }

    /// The response for an error.
    pub fn answer(&self, error: poem::Error) -> Response {
        if error.is_from_response() {
            return error.into_response();
        }
        let status = error.status();
        let body = ErrorBody::for_status(status, message(&error, status), &self.docs_url);
        let mut answer = response(status, &body);
        // What was attached to the error (an operation's id) stays on the answer.
        *answer.extensions_mut() = std::mem::take(error.into_response().extensions_mut());
        if let (StatusCode::METHOD_NOT_ALLOWED, Some(allow)) = (status, &self.allow) {
            answer.headers_mut().insert(header::ALLOW, allow.clone());
        }
        answer
    }
}

/// Words for the client; a server error's own words stay in the log.
fn message(error: &poem::Error, status: StatusCode) -> String {
    match status {
        StatusCode::NOT_FOUND => "There is nothing at this path.".to_owned(),
        StatusCode::METHOD_NOT_ALLOWED => "This path does not take this method.".to_owned(),
        status if status.is_server_error() => {
            tracing::error!(%status, %error, "request failed");
            "Something went wrong on our side; please try again.".to_owned()
        }
        _ => error.to_string(),
    }
}

impl<E: Endpoint> Middleware<E> for CatchAll {
    type Output = CatchAllEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        CatchAllEndpoint { inner, errors: self.clone() }
    }
}

/// The endpoint that [`catch_all`] makes.
#[derive(Debug)]
pub struct CatchAllEndpoint<E> {
    inner: E,
    errors: CatchAll,
}

impl<E: Endpoint> Endpoint for CatchAllEndpoint<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        self.inner.call(request).map(|answer| {
            Ok(match answer {
                Ok(output) => output.into_response(),
                Err(error) => self.errors.answer(error),
            })
        })
    }
}
