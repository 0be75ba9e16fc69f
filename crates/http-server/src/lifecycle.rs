//! Graceful shutdown: readiness fails immediately, accepting ends after the drain delay, and the remaining connections
//! are closed after the grace period.

use std::{sync::Arc, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::SetOnce;
use tokio::time::{Instant, sleep_until};

use crate::limits::ServeArgs;

/// The shutdown state of a service, shared by its parts.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    /// When the shutdown began.
    shutdown_start: Arc<SetOnce<Instant>>,
    drain_delay: Duration,
    grace: Duration,
}

impl Lifecycle {
    /// Creates the state of a running service.
    pub fn new(args: &ServeArgs) -> Self {
        Self { shutdown_start: Arc::default(), drain_delay: args.drain_delay, grace: args.grace }
    }

    /// Makes SIGTERM and SIGINT begin the shutdown; a second one exits the process. Must be called inside the runtime.
    pub fn watch_signals(&self) {
        match signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?))) {
            Ok((term, int)) => drop(tokio::spawn(self.clone().handle_signals(term, int))),
            Err(error) => tracing::error!(%error, "can't install signal handlers"),
        }
    }

    async fn handle_signals(self, mut term: Signal, mut int: Signal) {
        let mut either = async || tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} };
        either().await;
        let (drain_delay, grace) = (self.drain_delay, self.grace);
        tracing::info!(?drain_delay, ?grace, "shutting down; a second signal exits immediately");
        self.begin_shutdown();
        either().await;
        tracing::warn!("second signal: exiting immediately");
        std::process::exit(1);
    }

    /// Begins the shutdown. Further calls have no effect.
    pub fn begin_shutdown(&self) {
        let _ = self.shutdown_start.set(Instant::now());
    }

    /// Whether the shutdown has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown_start.initialized()
    }

    /// Waits until the shutdown has begun and the drain delay is over. The server then stops accepting connections.
    pub async fn drain_delay_over(&self) {
        sleep_until(*self.shutdown_start.wait().await + self.drain_delay).await;
    }

    /// Waits until the grace period, which follows the drain delay, is over. The server then closes all connections.
    pub async fn grace_period_over(&self) {
        sleep_until(*self.shutdown_start.wait().await + self.drain_delay + self.grace).await;
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
        let start = *lifecycle.shutdown_start.wait().await;
        lifecycle.begin_shutdown();
        assert_eq!(*lifecycle.shutdown_start.wait().await, start);
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
