//! Graceful shutdown: readiness fails immediately, accepting ends after the drain delay, and the remaining connections
//! are closed after the grace period.

use std::{future::pending, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::args::ServeArgs;

/// The shutdown state of a service, shared by its parts.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    shutdown_start: watch::Sender<Option<Instant>>,
    drain_delay: Duration,
    grace: Duration,
}

impl Lifecycle {
    /// Creates the state of a running service.
    pub fn new(args: &ServeArgs) -> Self {
        Self { shutdown_start: watch::Sender::new(None), drain_delay: args.drain_delay, grace: args.grace }
    }

    /// Makes SIGTERM and SIGINT begin the shutdown. A second signal exits the process immediately.
    ///
    /// Must be called inside the runtime. Logs an error if the signal handlers can't be installed.
    pub fn watch_signals(&self) {
        let handlers =
            signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
        match handlers {
            Ok((term, int)) => {
                tokio::spawn(self.clone().handle_signals(term, int));
            }
            Err(error) => tracing::error!(%error, "can't install signal handlers"),
        }
    }

    async fn handle_signals(self, mut term: Signal, mut int: Signal) {
        either(&mut term, &mut int).await;
        tracing::info!(
            drain_delay = ?self.drain_delay,
            grace = ?self.grace,
            "shutting down; a second signal exits immediately"
        );
        self.begin_shutdown();
        either(&mut term, &mut int).await;
        tracing::warn!("second signal: exiting immediately");
        std::process::exit(1);
    }

    /// Begins the shutdown. Further calls have no effect.
    pub fn begin_shutdown(&self) {
        self.shutdown_start.send_if_modified(|start| {
            let first = start.is_none();
            start.get_or_insert_with(Instant::now);
            first
        });
    }

    /// Whether the shutdown has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown_start.borrow().is_some()
    }

    /// Waits until the shutdown has begun and the drain delay is over. The server then stops accepting connections.
    pub async fn drain_delay_over(&self) {
        let start = self.shutdown_start().await;
        sleep_until(start + self.drain_delay).await;
    }

    /// Waits until the grace period, which follows the drain delay, is over. The server then closes the remaining
    /// connections.
    pub async fn grace_period_over(&self) {
        let start = self.shutdown_start().await;
        sleep_until(start + self.drain_delay + self.grace).await;
    }

    /// Waits until the shutdown begins. Returns the time at which it began.
    async fn shutdown_start(&self) -> Instant {
        let mut receiver = self.shutdown_start.subscribe();
        match receiver.wait_for(Option::is_some).await.map(|start| *start) {
            Ok(Some(start)) => start,
            // Unreachable: `self` holds the sender, and `wait_for` returns only a `Some`.
            _ => pending().await,
        }
    }
}

async fn either(term: &mut Signal, int: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn second_begin_shutdown_keeps_the_first_start() {
        let lifecycle = Lifecycle::new(&ServeArgs::default());
        assert!(!lifecycle.is_shutting_down());
        lifecycle.begin_shutdown();
        let start = lifecycle.shutdown_start().await;
        lifecycle.begin_shutdown();
        assert_eq!(lifecycle.shutdown_start().await, start);
    }

    #[tokio::test]
    async fn waiters_return_after_shutdown_begins() {
        let no_delays =
            ServeArgs { drain_delay: Duration::ZERO, grace: Duration::ZERO, ..ServeArgs::default() };
        let lifecycle = Lifecycle::new(&no_delays);
        let waiters = tokio::spawn({
            let lifecycle = lifecycle.clone();
            async move { tokio::join!(lifecycle.drain_delay_over(), lifecycle.grace_period_over()) }
        });
        lifecycle.begin_shutdown();
        waiters.await.expect("no panic");
        assert!(lifecycle.is_shutting_down());
    }
}
