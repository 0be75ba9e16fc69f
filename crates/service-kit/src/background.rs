//! Background tasks. Without one of them the process would look healthy but do only a part of its work, so it does not
//! outlive them.

use std::{
    future::Future,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, OnceLock},
    thread,
};

use anyhow::bail;
use futures_util::FutureExt;
use http_server::Lifecycle;

/// Shuts the process down if a background task fails, and makes it exit with an error.
#[derive(Clone, Debug)]
pub struct BackgroundTasks {
    lifecycle: Lifecycle,
    /// The name of the first task that failed.
    failed: Arc<OnceLock<&'static str>>,
}

impl BackgroundTasks {
    /// Shuts down with this lifecycle.
    pub fn new(lifecycle: Lifecycle) -> Self {
        Self { lifecycle, failed: Arc::default() }
    }

    /// Wraps a task that must run until the shutdown. It fails if it panics or ends before, but not if it is aborted.
    pub fn watch<F: Future>(&self, name: &'static str, task: F) -> impl Future<Output = ()> + use<F> {
        let tasks = self.clone();
        AssertUnwindSafe(task).catch_unwind().map(move |result| {
            if result.is_err() || !tasks.lifecycle.is_shutting_down() {
                tasks.fail(name);
            }
        })
    }

    /// Begins the shutdown, which also turns readiness off.
    pub(crate) fn fail(&self, name: &'static str) {
        tracing::error!(task = name, "a background task has failed; shutting down");
        let _ = self.failed.set(name);
        self.lifecycle.begin_shutdown();
    }

    /// An error if a task has failed.
    pub fn result(&self) -> anyhow::Result<()> {
        match self.failed.get() {
            Some(name) => bail!("the background task {name:?} has failed; the log has the reason"),
            None => Ok(()),
        }
    }
}

/// Installs a panic hook that logs the location of a panic, and its message only if that is a string literal.
///
/// A formatted message may contain a key or an address. The standard hook would print it.
pub(crate) fn install_panic_hook(tasks: BackgroundTasks) {
    panic::set_hook(Box::new(move |info| {
        let location = info.location().map(ToString::to_string);
        let panic_message = info.payload().downcast_ref::<&'static str>().copied().unwrap_or("");
        tracing::error!(location, panic_message, "panic");
        // The OpenTelemetry SDK starts its export threads itself, so `BackgroundTasks::watch` can't wrap them.
        if thread::current().name().is_some_and(|name| name.starts_with("OpenTelemetry.")) {
            tasks.fail("telemetry export");
        }
    }));
}
