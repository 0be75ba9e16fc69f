//! From serving to stopped: not ready at once, no new connections after the drain delay, an end to the grace.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::config::ServeArgs;

/// Where a service is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Everything as usual.
    Serving,
    /// Not ready any more, but still accepting: load balancers need time to notice.
    Draining,
    /// No new connections; what is under way finishes.
    Stopping,
    /// The grace is over.
    Ended,
}

/// The service's life, shared by everyone who must know about its end.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    stop_began: watch::Sender<Option<Instant>>,
    /// The same as a flag: it is read on every request.
    draining: AtomicBool,
    drain_delay: Duration,
    grace: Duration,
}

impl Lifecycle {
    /// A life that has just begun.
    pub fn new(args: &ServeArgs) -> Self {
        Self {
            inner: Arc::new(Inner {
                stop_began: watch::Sender::new(None),
                draining: AtomicBool::new(false),
                drain_delay: args.drain_delay,
                grace: args.grace,
            }),
        }
    }

    /// From now on SIGTERM and SIGINT begin the stop, and a second one ends the process at once.
    ///
    /// Must be called inside the runtime. Where the system refuses signal handlers, it says so in the log.
    pub fn watch_signals(&self) {
        let handlers =
            signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
        match handlers {
            Ok((term, int)) => {
                tokio::spawn(self.clone().follow(term, int));
            }
            Err(error) => tracing::error!(%error, "signals can not be handled"),
        }
    }

    async fn follow(self, mut term: Signal, mut int: Signal) {
        either(&mut term, &mut int).await;
        tracing::info!(
            drain_delay = ?self.inner.drain_delay,
            grace = ?self.inner.grace,
            "stopping; a second signal ends at once"
        );
        self.begin_stop();
        either(&mut term, &mut int).await;
        tracing::warn!("second signal: ending at once");
        std::process::exit(1);
    }

    /// Begins the stop; calling it again changes nothing.
    pub fn begin_stop(&self) {
        self.inner.draining.store(true, Ordering::Relaxed);
        self.inner.stop_began.send_if_modified(|began| {
            let first = began.is_none();
            began.get_or_insert_with(Instant::now);
            first
        });
    }

    /// Whether the stop has begun.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Relaxed)
    }

    /// Where we are now.
    pub fn phase(&self) -> Phase {
        self.phase_at(Instant::now())
    }

    fn phase_at(&self, now: Instant) -> Phase {
        let Some(began) = *self.inner.stop_began.borrow() else {
            return Phase::Serving;
        };
        if now < began + self.inner.drain_delay {
            Phase::Draining
        } else if now < began + self.inner.drain_delay + self.inner.grace {
            Phase::Stopping
        } else {
            Phase::Ended
        }
    }

    /// Waits until the stop has begun.
    pub async fn draining(&self) {
        self.began().await;
    }

    /// Waits until no new connections are taken.
    pub async fn stopping(&self) {
        let began = self.began().await;
        sleep_until(began + self.inner.drain_delay).await;
    }

    /// Waits until the grace is over.
    pub async fn ended(&self) {
        let began = self.began().await;
        sleep_until(began + self.inner.drain_delay + self.inner.grace).await;
    }

    async fn began(&self) -> Instant {
        let mut receiver = self.inner.stop_began.subscribe();
        match receiver.wait_for(Option::is_some).await.map(|began| *began) {
            Ok(Some(began)) => began,
            // Neither can be: the sender lives in `self`, and we waited for a value.
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
    async fn phases_follow_each_other_by_the_clock() {
        let life = Lifecycle::new(&ServeArgs::default());
        assert_eq!(life.phase(), Phase::Serving);
        life.begin_stop();
        let began = life.began().await;
        life.begin_stop();
        let phases = [0, 4, 5, 29, 30].map(|second| life.phase_at(began + Duration::from_secs(second)));
        use Phase::{Draining, Ended, Stopping};
        assert_eq!(phases, [Draining, Draining, Stopping, Stopping, Ended]);
    }

    #[tokio::test]
    async fn waiting_for_a_phase_ends_with_it() {
        let now = ServeArgs { drain_delay: Duration::ZERO, grace: Duration::ZERO, ..ServeArgs::default() };
        let life = Lifecycle::new(&now);
        let waiting = tokio::spawn({
            let life = life.clone();
            async move { tokio::join!(life.draining(), life.stopping(), life.ended()) }
        });
        assert!(!life.is_draining());
        life.begin_stop();
        waiting.await.expect("all three end");
        assert_eq!(life.phase(), Phase::Ended);
    }
}
