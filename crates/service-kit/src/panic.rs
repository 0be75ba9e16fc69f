//! The log line of a panic, without client data.

use std::{any::Any, thread};

use crate::background::BackgroundTasks;

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
