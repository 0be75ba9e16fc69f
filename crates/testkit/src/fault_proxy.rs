//! A TCP proxy that injects network faults into new and open connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::ports::ReservedPort;

mod connection;

/// What happens to connections through the proxy. `Stall`, `Refuse` and `CutAt` affect both directions. All other
/// faults affect only the bytes from the target to the client, so the target still receives and executes every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Everything passes through.
    None,
    /// Responses are delayed by this much.
    Delay(Duration),
    /// Responses arrive one byte at a time, with this delay before each.
    Drip(Duration),
    /// On each connection, this many response bytes pass after the fault is set. The next byte resets the connection.
    ResetAfter(usize),
    /// Responses are discarded and the connection stays open. A connection that has lost bytes is reset when the fault
    /// ends, because TCP can't skip bytes.
    Blackhole,
    /// The response direction is closed (FIN), but the client can still send. The connection stays half-closed after the
    /// fault ends.
    HalfClose,
    /// Nothing passes in either direction. Nothing is lost: the bytes pass when the fault ends.
    Stall,
    /// Open connections are reset and new ones are refused.
    Refuse,
    /// After this many messages in either direction, over all connections, the next one is discarded and resets its connection.
    /// A message is what the proxy reads at once. A PING to Redis and its reply are none: stores send them at any time.
    CutAt(u64),
}

/// A proxy from its own port to a target; stopped when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: Arc<ReservedPort>,
    fault: watch::Sender<Fault>,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

/// Totals over all connections.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    request_bytes: AtomicU64,
    discarded_bytes: AtomicU64,
    /// Since the fault was set.
    messages: AtomicU64,
}

impl Counts {
    /// Counts a message. Returns whether it resets its connection.
    fn is_cut(&self, message: &[u8], fault: Fault) -> bool {
        let is_ping = [&b"*1\r\n$4\r\nPING\r\n"[..], b"+PONG\r\n"].contains(&message);
        !is_ping && fault == Fault::CutAt(self.messages.fetch_add(1, Ordering::SeqCst))
    }
}

impl FaultProxy {
    /// Starts a proxy to `target` without a fault. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(target: SocketAddr) -> Self {
        let (fault, faults) = watch::channel(Fault::None);
        let port = Arc::new(ReservedPort::new());
        let counts = Arc::new(Counts::default());
        // Listen before returning, so that the caller can connect immediately.
        let listener = port.listen();
        let accepting =
            tokio::spawn(accept_all(Some(listener), port.clone(), target, faults, counts.clone()));
        Self { port, fault, counts, accepting }
    }

    /// Address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Changes the fault. It applies to every response byte that the proxy receives after this call.
    pub fn set(&self, fault: Fault) {
        self.counts.messages.store(0, Ordering::SeqCst);
        self.fault.send_replace(fault);
    }

    /// Number of accepted connections.
    #[must_use]
    pub fn accepted_connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// Number of messages, in both directions, since the fault was set.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.counts.messages.load(Ordering::SeqCst)
    }

    /// Number of request bytes sent to the target.
    #[must_use]
    pub fn request_bytes(&self) -> u64 {
        self.counts.request_bytes.load(Ordering::SeqCst)
    }

    /// Number of response bytes discarded by [`Fault::Blackhole`]. If it grows, the target has executed a request whose
    /// response the client never gets.
    #[must_use]
    pub fn discarded_bytes(&self) -> u64 {
        self.counts.discarded_bytes.load(Ordering::SeqCst)
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
    // This task owns the connections, so that they close when the proxy is dropped.
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
                counts.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(connection::serve(client, target, faults.clone(), counts.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The next connection. Without a listener, returns `None` immediately; `select!` then waits for its other branches.
async fn accept(listener: Option<&TcpListener>) -> Option<tokio::net::TcpStream> {
    let (client, _) = listener?.accept().await.ok()?;
    Some(client)
}
