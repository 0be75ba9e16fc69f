//! The log line of a panic, without client data, and the 500 response to a request whose handler panicked.

use std::{any::Any, thread};

use http::StatusCode;
use poem::Response;

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

/// The 500 response after a panic, which the panic hook has already logged.
pub(crate) fn internal_error(docs_url: &str) -> Response {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    error::response(status, &ErrorBody::for_status(status, INTERNAL_ERROR, docs_url))
}
