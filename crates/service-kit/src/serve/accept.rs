//! The accept loop: limits the number of connections, starts handshakes (PROXY header and TLS) and backs off when the
//! system runs out of resources.

use std::{
    io,
    net::SocketAddr,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{error::Elapsed, sleep, timeout},
};

use super::{
    connection,
    connection_info::ConnectionInfo,
    connection_state::{ConnectionSignal, ConnectionState},
    handler::RequestHandler,
    handshakes::PendingHandshakes,
    limits::{self, Protocols},
    proxy_header::ProxyHeader,
    proxy_protocol::ProxyProtocol,
    socket::Socket,
    tls::{Tls, TlsInfo},
};
use crate::{config::ServeArgs, lifecycle::Lifecycle, log_throttle::LogThrottle};

/// Maximum wait for a permit before evicting another connection.
const PERMIT_TIMEOUT: Duration = Duration::from_millis(5);

/// The delay after a failed accept doubles from the minimum to the maximum.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// Time for handshakes to finish during a shutdown.
const HANDSHAKE_GRACE: Duration = Duration::from_secs(1);

/// Maximum wait for aborted connections to be dropped.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Accepts and tracks the connections of one port.
struct Acceptor {
    protocols: Protocols,
    args: ServeArgs,
    handler: Arc<RequestHandler>,
    /// One permit per connection.
    permits: Arc<Semaphore>,
    /// `None` if connections begin with HTTP.
    handshake: Option<Handshake>,
    /// Whether the port is closed and its connections are being drained.
    draining: AtomicBool,
}

/// What precedes HTTP on a connection: a PROXY header, TLS, or both.
pub(super) struct Handshake {
    proxy_protocol: Option<ProxyProtocol>,
    tls: Option<Tls>,
    pending: Arc<PendingHandshakes>,
    /// The port's name in the log.
    server: &'static str,
    failure_log: LogThrottle,
}

/// A connection after its handshake.
struct Established {
    socket: Socket,
    proxied: Option<ProxyHeader>,
    tls: Option<TlsInfo>,
}

impl Handshake {
    /// `None` if nothing precedes HTTP.
    pub(super) fn new(
        server: &'static str,
        proxy_protocol: Option<ProxyProtocol>,
        tls: Option<Tls>,
    ) -> Option<Self> {
        let pending = Arc::new(PendingHandshakes::new(limits::max_handshakes()));
        let failure_log = LogThrottle::default();
        (proxy_protocol.is_some() || tls.is_some()).then_some(Self {
            proxy_protocol,
            tls,
            pending,
            server,
            failure_log,
        })
    }

    /// Returns whether to begin a handshake with the peer, instead of closing its connection at once.
    fn accepts(&self, peer: SocketAddr) -> bool {
        self.proxy_protocol.as_ref().is_none_or(|proxy_protocol| proxy_protocol.accepts(peer.ip()))
    }

    /// Reads the PROXY header, then does the TLS handshake. `None` if one of them fails, which the peer causes, or if the
    /// handshake was all that the peer wanted.
    async fn perform(&self, mut socket: TcpStream, tls_timeout: Duration) -> Option<Established> {
        let proxied = match &self.proxy_protocol {
            Some(proxy_protocol) => Some(proxy_protocol.read(&mut socket).await?),
            None => None,
        };
        let Some(tls) = &self.tls else {
            return Some(Established { socket: Socket::Plain(socket), proxied, tls: None });
        };
        let stream = self.log_failure(timeout(tls_timeout, tls.accept(socket)).await)??;
        let tls = Some(TlsInfo::of(stream.get_ref().1));
        Some(Established { socket: Socket::Tls(Box::new(stream)), proxied, tls })
    }

    /// Logs why a TLS handshake fails, for example because the client rejects the certificate. At level debug, because
    /// scanners of public ports cause many, and without the address, which may be a client's.
    fn log_failure<T>(&self, handshake: Result<io::Result<T>, Elapsed>) -> Option<T> {
        let reason = match handshake {
            Ok(Ok(completed)) => return Some(completed),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".to_owned(),
        };
        if let Some(occurrences) = self.failure_log.allow() {
            tracing::debug!(server = self.server, reason, occurrences, "TLS handshake failed");
        }
        None
    }
}

/// Accepts connections until the drain delay is over, then drains the open ones.
pub(super) async fn run(
    name: &'static str,
    listener: TcpListener,
    args: ServeArgs,
    handshake: Option<Handshake>,
    handler: Arc<RequestHandler>,
    lifecycle: Lifecycle,
) {
    let acceptor = Arc::new(Acceptor {
        protocols: Protocols::new(),
        permits: Arc::new(Semaphore::new(args.max_connections)),
        handshake,
        draining: AtomicBool::new(false),
        args,
        handler,
    });
    tokio::select! {
        _ = lifecycle.drain_delay_over() => {}
        _ = accept_all(name, &listener, &acceptor) => {}
    }
    acceptor.accept_backlog(&listener);
    drop(listener);
    acceptor.drain(name, &lifecycle).await;
}

async fn accept_all(name: &'static str, listener: &TcpListener, acceptor: &Arc<Acceptor>) {
    let (mut backoff, log) = (BACKOFF_MIN, LogThrottle::default());
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                backoff = BACKOFF_MIN;
                acceptor.accept(accepted).await;
            }
            // The client disconnected before its connection was accepted.
            Err(error) if is_client_abort(&error) => {}
            // File descriptors or memory have run out, so an immediate retry would fail too.
            Err(error) => {
                if let Some(occurrences) = log.allow() {
                    tracing::warn!(server = name, %error, occurrences, "can't accept connections; retrying");
                }
                acceptor.handler.registry.evict_idle();
                if let Some(handshake) = &acceptor.handshake {
                    handshake.pending.drop_oldest();
                }
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

impl Acceptor {
    async fn accept(self: &Arc<Self>, (socket, peer): (TcpStream, SocketAddr)) {
        // Responses are written in one piece, so Nagle's algorithm would only delay them. The messages of a handshake are
        // small, too.
        let _ = socket.set_nodelay(true);
        match &self.handshake {
            Some(handshake) => self.begin_handshake(handshake, socket, peer),
            None => {
                let permit = self.acquire_permit().await;
                self.open(
                    Established { socket: Socket::Plain(socket), proxied: None, tls: None },
                    peer,
                    permit,
                );
            }
        }
    }

    /// Does the handshake in a task, then opens the connection. Only then does it count against the limit.
    ///
    /// Until it has a permit, it stays among the pending handshakes. If there are too many of both, a new handshake
    /// therefore closes the connection that has waited longest.
    fn begin_handshake(self: &Arc<Self>, handshake: &Handshake, socket: TcpStream, peer: SocketAddr) {
        if !handshake.accepts(peer) {
            return;
        }
        let acceptor = self.clone();
        handshake.pending.spawn(async move {
            let Some(handshake) = &acceptor.handshake else { return };
            if let Some(established) = handshake.perform(socket, acceptor.args.header_timeout).await {
                let permit = acceptor.acquire_permit().await;
                acceptor.open(established, peer, permit);
            }
        });
    }

    /// Waits for a permit and evicts idle connections to free one.
    ///
    /// Rejecting new connections instead would let a client that holds connections open lock out everyone else.
    async fn acquire_permit(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(permit) = self.permits.clone().try_acquire_owned() {
                return permit;
            }
            self.handler.registry.evict_idle();
            if let Ok(Ok(permit)) = timeout(PERMIT_TIMEOUT, self.permits.clone().acquire_owned()).await {
                return permit;
            }
        }
    }

    fn open(self: &Arc<Self>, established: Established, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        let Established { socket, proxied, tls } = established;
        // A socket for both families has IPv4 peers as IPv4-mapped addresses.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let info = ConnectionInfo::new(peer, proxied, tls, socket.as_raw_fd());
        let (acceptor, state) = (self.clone(), Arc::new(ConnectionState::new(self.args.stall_timeout)));
        let registration = self.handler.registry.register(state.clone());
        if self.draining.load(Relaxed) {
            // The handshake ended after all others got the signal.
            state.send_signal(ConnectionSignal::Drain);
        }
        tokio::spawn(async move {
            let Acceptor { protocols, args, handler, .. } = &*acceptor;
            connection::serve(protocols, args, handler, &state, socket, info).await;
            drop(registration);
            drop(permit);
        });
    }

    /// Accepts the connections left in the kernel's queue. For their clients they are established, and closing the
    /// listener would reset them.
    fn accept_backlog(self: &Arc<Self>, listener: &TcpListener) {
        while let Some(Ok((socket, peer))) = listener.accept().now_or_never() {
            let _ = socket.set_nodelay(true);
            if let Some(handshake) = &self.handshake {
                self.begin_handshake(handshake, socket, peer);
                continue;
            }
            let Ok(permit) = self.permits.clone().try_acquire_owned() else {
                return;
            };
            self.open(Established { socket: Socket::Plain(socket), proxied: None, tls: None }, peer, permit);
        }
    }

    async fn drain(&self, name: &'static str, lifecycle: &Lifecycle) {
        let registry = &self.handler.registry;
        self.draining.store(true, Relaxed);
        registry.signal_all(ConnectionSignal::Drain);
        tokio::select! {
            _ = self.wait_drained() => return,
            _ = lifecycle.grace_period_over() => {}
        }
        // The grace period may be shorter than that of handshakes. A connection that opened now would not be aborted.
        if let Some(handshake) = &self.handshake {
            handshake.pending.drop_all();
        }
        let connections = registry.len();
        tracing::warn!(server = name, connections, "grace period over; closing remaining connections");
        registry.signal_all(ConnectionSignal::Abort);
        let _ = timeout(ABORT_TIMEOUT, self.wait_closed()).await;
    }

    async fn wait_drained(&self) {
        if let Some(Handshake { pending, .. }) = &self.handshake {
            let _ = timeout(HANDSHAKE_GRACE, pending.wait_finished()).await;
            pending.drop_all();
        }
        self.wait_closed().await;
    }

    async fn wait_closed(&self) {
        // All permits are free when no connection is left. `limits::max_connections` clamps the count, so it fits a u32.
        let all = u32::try_from(self.args.max_connections).unwrap_or(u32::MAX);
        let _ = self.permits.acquire_many(all).await;
    }
}
