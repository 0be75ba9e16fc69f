//! A port: binds it, accepts its connections, makes room for new ones, and drains them at shutdown.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use hyper::server::conn::http1;
use poem::{Response, endpoint::BoxEndpoint};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

use crate::args::{ListenerArgs, ServeArgs};
use crate::connection_state::{ConnectionSignal, ConnectionState};
use crate::handler::{ErrorResponder, TrustedPeers};
use crate::registry::{ConnectionRegistry, Pressure};
use crate::tls::Tls;
use crate::{connection, handshake::Handshakes, lifecycle::Lifecycle, limits};
use base::log_throttle::LogThrottle;

/// Maximum length of the kernel's accept queue. Large, so that a burst of new connections is served, not rejected.
const BACKLOG: u32 = 4096;

/// The size of a connection's send buffer in the kernel. Limits the memory of unread responses, and makes the progress
/// of a slow client visible: with the kernel's default, up to 4 MB of a response count as sent immediately.
const SEND_BUFFER: u32 = 64 * 1024;

/// Maximum wait for an evicted connection to close before evicting another one.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(5);

/// The delay after a failed accept: file descriptors or memory have run out, so an immediate retry would fail, too.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Maximum wait for aborted connections to be dropped.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// A server that is bound to its port but does not accept connections yet.
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    args: ServeArgs,
    handshakes: Handshakes,
    errors: ErrorResponder,
    trusted: TrustedPeers,
}

/// What the connections of a port have in common.
pub(crate) struct Port {
    pub(crate) addr: SocketAddr,
    pub(crate) args: ServeArgs,
    pub(crate) handshakes: Handshakes,
    pub(crate) errors: ErrorResponder,
    pub(crate) trusted: TrustedPeers,
    pub(crate) endpoint: BoxEndpoint<'static>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) registry: Arc<ConnectionRegistry>,
    pub(crate) http1: http1::Builder,
}

impl Server {
    /// Binds the port and logs the address. Port 0 picks a free port.
    pub async fn bind(name: &'static str, addr: SocketAddr, args: &ServeArgs) -> anyhow::Result<Self> {
        let listener = listen(addr).map_err(|error| explain(name, addr, error))?;
        let addr = listener.local_addr()?;
        tracing::info!(server = name, addr = %addr, "listening");
        let max_connections = limits::max_connections(args.max_connections);
        let mut handshakes = Handshakes::default();
        handshakes.server = name;
        Ok(Self {
            listener,
            addr,
            args: ServeArgs { max_connections, ..args.clone() },
            handshakes,
            errors: Arc::new(|status, _, message| {
                Response::builder().status(status).body(message.to_owned())
            }),
            trusted: Arc::new(|_| false),
        })
    }

    /// Sets the format of the server's own errors (400, 431).
    pub fn errors(mut self, errors: ErrorResponder) -> Self {
        self.errors = errors;
        self
    }

    /// Sets the trusted proxies: their `X-Request-Id` and PROXY headers are used, and their connections count for no
    /// client network. By default, none: any client could otherwise write text of its choice to the log.
    pub fn trust(mut self, trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.trusted = Arc::new(trusted);
        self
    }

    /// With `--proxy-protocol`, requires a PROXY header from a trusted peer at the start of each connection, before TLS.
    pub fn proxy_protocol(mut self, args: &ListenerArgs) -> Self {
        self.handshakes.proxy_protocol = args.proxy_protocol;
        self
    }

    /// Serves HTTPS instead of plain HTTP, if there are certificates.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.handshakes.tls = tls;
        self
    }

    /// The address the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until shutdown. Returns when all connections are closed or the grace period is over.
    pub async fn serve(self, endpoint: BoxEndpoint<'static>, lifecycle: Lifecycle) {
        let Self { listener, addr, args, handshakes, errors, trusted } = self;
        let (registry, http1) = (Arc::default(), limits::http1());
        let port = Port { addr, args, handshakes, errors, trusted, endpoint, lifecycle, registry, http1 };
        let port = Arc::new(port);
        tokio::select! {
            _ = port.lifecycle.drain_delay_over() => {}
            _ = port.accept_all(&listener) => {}
        }
        // Connections in the kernel's queue are established for their clients, and closing the listener would reset them.
        // Unconstrained: tokio's budget would end this after 128 of them.
        while port.registry.len() < port.args.max_connections
            && let Some(Ok((socket, peer))) = unconstrained(listener.accept()).now_or_never()
        {
            port.open(socket, peer);
        }
        drop(listener);
        port.drain().await;
    }
}

/// Listens on an address. `[::]` serves IPv4, too, and becomes `0.0.0.0` on a system without IPv6.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    match listen_on(addr) {
        Err(error)
            if addr.ip() == Ipv6Addr::UNSPECIFIED && error.raw_os_error() == Some(libc::EAFNOSUPPORT) =>
        {
            listen_on((Ipv4Addr::UNSPECIFIED, addr.port()).into())
        }
        result => result,
    }
}

fn listen_on(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if addr.ip() == Ipv6Addr::UNSPECIFIED {
        // Independent of the system's default. Fails on systems that can't, such as OpenBSD.
        let _ = socket2::SockRef::from(&socket).set_only_v6(false);
    }
    // Allows a restart while old connections are still in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit it.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

fn explain(name: &str, addr: SocketAddr, error: io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => ": another program uses this port; stop it or choose another port",
        ErrorKind::AddrNotAvailable => ": this machine does not have this address",
        ErrorKind::PermissionDenied => {
            ": ports below 1024 need root or CAP_NET_BIND_SERVICE; choose a higher port"
        }
        _ => "",
    };
    anyhow::Error::new(error).context(format!("{name} can't listen on {addr}{advice}"))
}

impl Port {
    async fn accept_all(self: &Arc<Self>, listener: &TcpListener) {
        let (registry, log) = (&self.registry, LogThrottle::default());
        loop {
            match listener.accept().await {
                Ok((socket, peer)) => {
                    // Rejecting new connections instead would let a client that holds connections open lock out everyone else.
                    while registry.len() >= self.args.max_connections {
                        let newcomer = Some(peer.ip()).filter(|_| !self.handshakes.proxy_protocol);
                        registry.evict(Pressure::Connections, newcomer);
                        let _ = timeout(EVICTION_TIMEOUT, registry.closed.notified()).await;
                    }
                    self.open(socket, peer);
                }
                // The client disconnected before its connection was accepted.
                Err(error)
                    if [ErrorKind::ConnectionAborted, ErrorKind::Interrupted].contains(&error.kind()) => {}
                Err(error) => {
                    if let Some(occurrences) = log.allow() {
                        let server = self.handshakes.server;
                        tracing::warn!(server, %error, occurrences, "can't accept connections; retrying");
                    }
                    registry.evict(Pressure::Connections, None);
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Serves a connection in a task of its own.
    fn open(self: &Arc<Self>, socket: TcpStream, peer: SocketAddr) {
        // A socket for both families has IPv4 peers as IPv4-mapped addresses.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if !self.handshakes.accept(peer.ip(), &self.trusted) {
            return;
        }
        // Responses are written in one piece, so Nagle's algorithm would only delay them, and handshakes.
        let _ = socket.set_nodelay(true);
        let (registry, has_handshake) = (&self.registry, self.handshakes.are_required());
        let max_handshakes = limits::MAX_HANDSHAKES.min(self.args.max_connections / 4).max(1);
        if has_handshake && registry.handshakes() >= max_handshakes {
            registry.evict(Pressure::Handshakes, None);
        }
        let state = Arc::new(ConnectionState::new(registry.port.clone(), self.args.clone(), has_handshake));
        let registration = registry.register(state.clone());
        tokio::spawn(connection::serve(self.clone(), state, registration, socket, peer));
    }

    async fn drain(&self) {
        let wait_closed = async || {
            while self.registry.len() > 0 {
                self.registry.closed.notified().await
            }
        };
        self.registry.signal_all(ConnectionSignal::Drain);
        tokio::select! {
            _ = wait_closed() => return,
            _ = self.lifecycle.grace_period_over() => {}
        }
        let (server, connections) = (self.handshakes.server, self.registry.len());
        tracing::warn!(server, connections, "grace period over; closing remaining connections");
        self.registry.signal_all(ConnectionSignal::Abort);
        let _ = timeout(ABORT_TIMEOUT, wait_closed()).await;
    }
}
