//! The accept loop: makes room for new connections, backs off when the system runs out of resources, and drains the
//! connections at shutdown.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::{
    connection,
    connection_state::{ConnectionSignal, ConnectionState},
    log_throttle::LogThrottle,
    registry::Pressure,
    server::Port,
};

/// Maximum wait for an evicted connection to close before evicting another one.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(5);

/// The delay after a failed accept doubles from the minimum to the maximum.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// Maximum wait for aborted connections to be dropped.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Accepts connections until the drain delay is over, then drains the open ones.
pub(crate) async fn run(port: Arc<Port>, listener: TcpListener) {
    tokio::select! {
        _ = port.handler.lifecycle.drain_delay_over() => {}
        _ = accept_all(&port, &listener) => {}
    }
    accept_backlog(&port, &listener);
    drop(listener);
    drain(&port).await;
}

async fn accept_all(port: &Arc<Port>, listener: &TcpListener) {
    let registry = &port.handler.registry;
    let (mut backoff, log) = (BACKOFF_MIN, LogThrottle::default());
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                backoff = BACKOFF_MIN;
                // Rejecting new connections instead would let a client that holds connections open lock out everyone else.
                while registry.len() >= port.args.max_connections {
                    registry.evict(Pressure::Connections);
                    let _ = timeout(EVICTION_TIMEOUT, registry.closed()).await;
                }
                open(port, socket, peer);
            }
            // The client disconnected before its connection was accepted.
            Err(error) if is_client_abort(&error) => {}
            // File descriptors or memory have run out, so an immediate retry would fail too.
            Err(error) => {
                if let Some(occurrences) = log.allow() {
                    tracing::warn!(server = port.name, %error, occurrences, "can't accept connections; retrying");
                }
                registry.evict(Pressure::Connections);
                sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

fn is_client_abort(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Serves a connection in a task of its own.
fn open(port: &Arc<Port>, socket: TcpStream, peer: SocketAddr) {
    // A socket for both families has IPv4 peers as IPv4-mapped addresses.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let (handshakes, registry) = (&port.handshakes, &port.handler.registry);
    if !handshakes.accept(port.name, peer.ip(), &port.handler.trusted) {
        return;
    }
    // Responses are written in one piece, so Nagle's algorithm would only delay them. The messages of a handshake are
    // small, too.
    let _ = socket.set_nodelay(true);
    if handshakes.are_required() && registry.handshakes() >= port.max_handshakes {
        registry.evict(Pressure::Handshakes);
    }
    let state =
        ConnectionState::new(registry.port().clone(), port.args.response_timeout, handshakes.are_required());
    let state = Arc::new(state);
    let registration = registry.register(state.clone());
    tokio::spawn(connection::serve(port.clone(), state, registration, socket, peer));
}

/// Accepts the connections left in the kernel's queue. For their clients they are established, and closing the
/// listener would reset them.
fn accept_backlog(port: &Arc<Port>, listener: &TcpListener) {
    while port.handler.registry.len() < port.args.max_connections
        && let Some(Ok((socket, peer))) = listener.accept().now_or_never()
    {
        open(port, socket, peer);
    }
}

async fn drain(port: &Port) {
    let registry = &port.handler.registry;
    registry.signal_all(ConnectionSignal::Drain);
    tokio::select! {
        _ = wait_closed(port) => return,
        _ = port.handler.lifecycle.grace_period_over() => {}
    }
    let connections = registry.len();
    tracing::warn!(server = port.name, connections, "grace period over; closing remaining connections");
    registry.signal_all(ConnectionSignal::Abort);
    let _ = timeout(ABORT_TIMEOUT, wait_closed(port)).await;
}

async fn wait_closed(port: &Port) {
    while port.handler.registry.len() > 0 {
        port.handler.registry.closed().await;
    }
}
