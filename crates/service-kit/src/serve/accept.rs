//! The accept loop: bounded, and calm when the system runs out of something.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use hyper_util::{rt::TokioExecutor, server::conn::auto::Builder};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use super::{
    activity::{Activity, Order},
    answer::Answers,
    connection,
    limits::{self, Limits},
    roster::Roster,
};
use crate::lifecycle::Lifecycle;

/// How long to wait for a place before asking another connection to go.
const PLACE: Duration = Duration::from_millis(5);

const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// A log line about accepting at most this often.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Connections that were told to end by force still need a moment to be dropped.
const ABORT: Duration = Duration::from_secs(1);

/// One port's connections.
#[derive(Clone)]
struct Port {
    protocols: Builder<TokioExecutor>,
    limits: Limits,
    answers: Arc<Answers>,
    roster: Arc<Roster>,
    places: Arc<Semaphore>,
}

/// Accepts until the lifecycle stops, then waits for what is under way.
pub(super) async fn run(
    name: &'static str,
    listener: TcpListener,
    limits: Limits,
    answers: Arc<Answers>,
    lifecycle: Lifecycle,
) {
    let port = Arc::new(Port {
        protocols: limits::protocols(),
        places: Arc::new(Semaphore::new(limits.connections)),
        roster: Arc::default(),
        limits,
        answers,
    });
    tokio::select! {
        _ = lifecycle.stopping() => {}
        _ = accept_all(name, &listener, &port) => {}
    }
    port.take_the_last(&listener);
    drop(listener);
    port.finish(name, &lifecycle).await;
}

async fn accept_all(name: &'static str, listener: &TcpListener, port: &Arc<Port>) {
    let mut trouble = Trouble::new(name);
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                trouble.over();
                let place = port.place().await;
                port.open(accepted, place);
            }
            // The client is gone again already; the next one is not.
            Err(error) if is_clients(&error) => {}
            Err(error) => {
                port.roster.make_room();
                trouble.wait(&error).await;
            }
        }
    }
}

fn is_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

impl Port {
    /// A place for one connection, if need be in exchange for one that is idle.
    ///
    /// Refusing newcomers instead would let whoever holds connections open lock everyone else out.
    async fn place(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(place) = self.places.clone().try_acquire_owned() {
                return place;
            }
            self.roster.make_room();
            if let Ok(Ok(place)) = timeout(PLACE, self.places.clone().acquire_owned()).await {
                return place;
            }
        }
    }

    fn open(self: &Arc<Self>, accepted: (TcpStream, SocketAddr), place: OwnedSemaphorePermit) {
        // Answers are written whole; waiting to fill a packet would only delay them.
        let _ = accepted.0.set_nodelay(true);
        let (port, activity) = (self.clone(), Arc::new(Activity::new()));
        let entry = self.roster.enter(activity.clone());
        tokio::spawn(async move {
            let Port { protocols, limits, answers, .. } = &*port;
            connection::serve(protocols, limits, answers, &activity, accepted).await;
            drop(entry);
            drop(place);
        });
    }

    /// Clients in the kernel's queue believe that they are connected: closing now would reset them.
    fn take_the_last(self: &Arc<Self>, listener: &TcpListener) {
        while let Some(Ok(accepted)) = listener.accept().now_or_never() {
            let Ok(place) = self.places.clone().try_acquire_owned() else {
                return;
            };
            self.open(accepted, place);
        }
    }

    async fn finish(&self, name: &'static str, lifecycle: &Lifecycle) {
        self.roster.give_all(Order::Stop);
        tokio::select! {
            _ = self.empty() => return,
            _ = lifecycle.ended() => {}
        }
        let connections = self.roster.len();
        tracing::warn!(server = name, connections, "the grace is over; closing what is left");
        self.roster.give_all(Order::Abort);
        let _ = timeout(ABORT, self.empty()).await;
    }

    async fn empty(&self) {
        // All places free means that no connection is left; the count was bounded to fit.
        let all = u32::try_from(self.limits.connections).unwrap_or(u32::MAX);
        let _ = self.places.acquire_many(all).await;
    }
}

/// Errors of accept itself: descriptors or memory have run out, and trying again at once won't help.
struct Trouble {
    server: &'static str,
    backoff: Duration,
    logged: Option<Instant>,
}

impl Trouble {
    fn new(server: &'static str) -> Self {
        Self { server, backoff: BACKOFF_MIN, logged: None }
    }

    fn over(&mut self) {
        self.backoff = BACKOFF_MIN;
    }

    async fn wait(&mut self, error: &io::Error) {
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
            self.logged = Some(Instant::now());
            tracing::warn!(server = self.server, %error, "can not accept connections");
        }
        sleep(self.backoff).await;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}
