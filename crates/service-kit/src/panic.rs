//! A panic costs one request its answer, nothing more, and leaks nothing into the log.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use http::StatusCode;
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};

use crate::error::{self, ErrorBody};

/// Logs where a panic was, and its words only if they are a literal of the program.
///
/// A formatted message may hold a key or an address; the standard hook would print it.
pub(crate) fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        tracing::error!(place, words = literal(info.payload()), "panic");
    }));
}

fn literal(payload: &(dyn Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("")
}

/// Middleware that answers a panic with 500 and our body.
///
/// [`Server`](crate::Server) has one around everything; a service puts one inside its own middleware
/// where even this answer needs their headers (CORS).
#[derive(Clone, Debug)]
pub struct CatchPanic {
    docs_url: Arc<str>,
}

impl CatchPanic {
    /// The answers' `docs` begin with this address.
    pub fn new(docs_url: impl Into<String>) -> Self {
        Self { docs_url: docs_url.into().into() }
    }
}

impl<E: Endpoint> Middleware<E> for CatchPanic {
    type Output = CatchPanicEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        CatchPanicEndpoint { inner, docs_url: self.docs_url.clone() }
    }
}

/// The endpoint that [`CatchPanic`] makes.
#[derive(Debug)]
pub struct CatchPanicEndpoint<E> {
    inner: E,
    docs_url: Arc<str>,
}

impl<E: Endpoint> Endpoint for CatchPanicEndpoint<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        // Safe to assert: a request's own state goes with it, and what is shared is behind locks
        // that tolerate poisoning.
        AssertUnwindSafe(self.inner.call(request)).catch_unwind().map(|answer| match answer {
            Ok(answer) => answer.map(IntoResponse::into_response),
            Err(_) => Ok(internal_error(&self.docs_url)),
        })
    }
}

/// What a client hears of a panic.
pub(crate) fn internal_error(docs_url: &str) -> Response {
    tracing::error!("a request ended in a panic");
    let words = "Something went wrong on our side; please try again.";
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    error::response(status, &ErrorBody::for_status(status, words, docs_url))
}
