//! Turns a panic in a handler into a 500 response and keeps client data out of the panic's log line.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc, thread};

use futures_util::FutureExt;
use http::StatusCode;
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};

use crate::{
    background::BackgroundTasks,
    error::{self, ErrorBody, INTERNAL_ERROR},
};

/// Installs a panic hook that logs the location of a panic, and its message only if that is a string literal.
///
/// A formatted message may contain a key or an address. The standard hook would print it.
pub(crate) fn install_hook(tasks: BackgroundTasks) {
    std::panic::set_hook(Box::new(move |info| {
        let location = info.location().map(ToString::to_string);
        tracing::error!(location, panic_message = literal(info.payload()), "panic");
        // The OpenTelemetry SDK starts its export threads itself, so `BackgroundTasks::watch` can't wrap them.
        if thread::current().name().is_some_and(|name| name.starts_with("OpenTelemetry.")) {
            tasks.fail("telemetry export");
        }
    }));
}

fn literal(payload: &(dyn Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("")
}

/// Middleware that turns a panic into a 500 with an [`ErrorBody`].
///
/// [`Server`](crate::Server) also catches panics, but outside all middleware. Use this middleware if another one must
/// add headers (CORS) to the 500.
#[derive(Clone, Debug)]
pub struct CatchPanic {
    docs_url: Arc<str>,
}

impl CatchPanic {
    /// The `docs` link of the responses starts with `docs_url`.
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

/// An endpoint wrapped by [`CatchPanic`].
#[derive(Debug)]
pub struct CatchPanicEndpoint<E> {
    inner: E,
    docs_url: Arc<str>,
}

impl<E: Endpoint> Endpoint for CatchPanicEndpoint<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        // Unwind safe: the request's own state is dropped with it, and shared state is behind locks that tolerate
        // poisoning.
        AssertUnwindSafe(self.inner.call(request)).catch_unwind().map(|caught| match caught {
            Ok(result) => result.map(IntoResponse::into_response),
            Err(_) => Ok(internal_error(&self.docs_url)),
        })
    }
}

/// The 500 response after a panic, which the panic hook has already logged.
pub(crate) fn internal_error(docs_url: &str) -> Response {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    error::response(status, &ErrorBody::for_status(status, INTERNAL_ERROR, docs_url))
}
