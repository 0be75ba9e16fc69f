//! A TCP proxy that makes the network misbehave on demand, while connections are open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::ports::ReservedPort;

mod connection;

/// What happens to connections through the proxy. All but the last two touch only what travels from the target
/// back to the client: the target has always done what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Everything passes.
    None,
    /// Answers arrive this much later.
    Delay(Duration),
    /// Answers arrive one byte at a time with this pause between two.
    Drip(Duration),
    /// Each connection passes so many bytes of answers from now on, and is reset when one more would follow.
    CutAfter(usize),
    /// Answers vanish; the connection stays open. It is reset when the fault ends, since TCP never skips bytes.
    Blackhole,
    /// The client is told that no answers will follow (FIN), but may go on asking. Such a connection stays so.
    HalfClose,
    /// Nothing passes in either direction, nothing is lost, and all of it goes on when the fault ends.
    Stall,
    /// Open connections are reset and new ones refused.
    Refuse,
}

/// A proxy from a port of its own to a target; it ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: Arc<ReservedPort>,
    fault: watch::Sender<Fault>,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

/// What passed through all connections so far.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    requested: AtomicU64,
    swallowed: AtomicU64,
}

impl FaultProxy {
    /// Starts a proxy to `target`, without a fault. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(target: SocketAddr) -> Self {
        let (fault, faults) = watch::channel(Fault::None);
        let port = Arc::new(ReservedPort::new());
        let counts = Arc::new(Counts::default());
        // Listening before we return: the caller may connect at once.
        let listener = port.listen();
        let accepting =
            tokio::spawn(accept_all(Some(listener), port.clone(), target, faults, counts.clone()));
        Self { port, fault, counts, accepting }
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Changes the fault. Every answer that the proxy receives after this call is treated by it.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// How many connections were accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// How many bytes of requests reached the target.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.counts.requested.load(Ordering::SeqCst)
    }

    /// How many bytes of answers [`Fault::Blackhole`] has swallowed: more than before means that the target has
    /// done something which its client will not learn.
    #[must_use]
    pub fn swallowed(&self) -> u64 {
        self.counts.swallowed.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept_all(
    mut listener: Option<TcpListener>,
    port: Arc<ReservedPort>,
    target: SocketAddr,
    mut faults: watch::Receiver<Fault>,
    counts: Arc<Counts>,
) {
    // Owned here, so that the connections end with the proxy.
    let mut connections = JoinSet::new();
    loop {
        if *faults.borrow_and_update() == Fault::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = Some(port.listen());
        }
        tokio::select! {
            biased;
            changed = faults.changed() => if changed.is_err() { return },
            Some(client) = accept(listener.as_ref()) => {
                counts.accepted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(connection::serve(client, target, faults.clone(), counts.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The next connection; `None` (at once) where nobody listens, which leaves the caller to wait for a change.
async fn accept(listener: Option<&TcpListener>) -> Option<tokio::net::TcpStream> {
    let (client, _) = listener?.accept().await.ok()?;
    Some(client)
}
