//! A port: binds it, accepts its connections, makes room for new ones, and drains them at shutdown.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use poem::{Response, endpoint::BoxEndpoint};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{unconstrained, yield_now};
use tokio::time::{sleep, timeout};

use crate::args::{ListenerArgs, ServeArgs};
use crate::connection_state::ConnectionSignal;
use crate::registry::{Admission, ConnectionRegistry, ConnectionStats};
use crate::{connection, error::ErrorResponder, handshake::Handshakes, lifecycle::Lifecycle, limits};
use crate::{port::Port, port::TrustedPeers, tls::Tls};
use base::log_throttle::LogThrottle;

/// Maximum length of the kernel's accept queue. Large, so that a burst of new connections is served, not rejected.
const BACKLOG: u32 = 4096;

/// The size of a connection's send buffer in the kernel. Limits the memory of unread responses, and makes the progress
/// of a slow client visible: with the kernel's default, up to 4 MB of a response count as sent immediately.
const SEND_BUFFER: u32 = 64 * 1024;

/// Maximum connections that are accepted before their tasks and others have their turn.
const ACCEPTS_PER_TURN: usize = 32;

/// Connections in a row, without an empty queue in between, that are a flood.
const FLOOD: usize = 256;

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
    registry: Arc<ConnectionRegistry>,
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
            registry: Arc::new(ConnectionRegistry::new(name, max_connections)),
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

    /// The number of the port's connections, for metrics.
    pub fn stats(&self) -> ConnectionStats {
        ConnectionStats(self.registry.clone())
    }

    /// Serves until shutdown. Returns when all connections are closed or the grace period is over.
    pub async fn serve(self, endpoint: BoxEndpoint<'static>, lifecycle: Lifecycle) {
        let Self { listener, addr, args, handshakes, errors, trusted, registry } = self;
        let http1 = limits::http1();
        let port = Port { addr, args, handshakes, errors, trusted, endpoint, lifecycle, registry, http1 };
        let port = Arc::new(port);
        tokio::select! {
            biased;
            _ = port.lifecycle.drain_delay_over() => {}
            _ = accept_all(&port, &listener) => {}
        }
        port.registry.signal_all(ConnectionSignal::Drain);
        tokio::select! {
            _ = port.lifecycle.grace_period_over() => {}
            _ = accept_rest(&port, &listener) => {}
        }
        drop(listener);
        drain(&port).await;
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
        let _ = SockRef::from(&socket).set_only_v6(false);
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

/// Accepts connections. Waits for nothing else, unless file descriptors have run out.
async fn accept_all(port: &Arc<Port>, listener: &TcpListener) {
    let (log, mut burst) = (LogThrottle::default(), 0);
    loop {
        let accepted = match unconstrained(listener.accept()).now_or_never() {
            Some(accepted) => accepted,
            None => {
                burst = 0;
                listener.accept().await
            }
        };
        burst += 1;
        match accepted {
            Ok((socket, peer)) => {
                let admission = if burst > FLOOD { Admission::Flooded } else { Admission::Normal };
                open(port, socket, peer, admission);
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => {
                if let Some(occurrences) = log.allow() {
                    let server = port.handshakes.server;
                    tracing::warn!(server, %error, occurrences, "can't accept connections; retrying");
                }
                if [Some(libc::EMFILE), Some(libc::ENFILE)].contains(&error.raw_os_error()) {
                    port.registry.free_descriptor();
                }
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
        if burst % ACCEPTS_PER_TURN == 0 {
            yield_now().await;
        }
    }
}

/// Accepts the connections that are in the kernel's queue at the shutdown, regardless of limits: they are established for
/// their clients, and closing the listener would reset them.
async fn accept_rest(port: &Arc<Port>, listener: &TcpListener) {
    let listener = SockRef::from(listener);
    // Ends the growth of the queue. Fails only if the socket does not listen.
    let _ = listener.listen(0);
    loop {
        // Not tokio's `accept`, which knows of a connection only after the next turn of its driver.
        let accepted = listener.accept().and_then(|(socket, peer)| {
            socket.set_nonblocking(true)?;
            let peer = peer.as_socket().ok_or(ErrorKind::InvalidInput)?;
            Ok((TcpStream::from_std(socket.into())?, peer))
        });
        match accepted {
            Ok((socket, peer)) => open(port, socket, peer, Admission::Always),
            Err(error) if is_transient(&error) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // Without a file descriptor: when a connection closes, there is one.
            Err(_) => port.registry.closed.notified().await,
        }
    }
}

/// Whether the client disconnected before its connection was accepted.
fn is_transient(error: &io::Error) -> bool {
    [ErrorKind::ConnectionAborted, ErrorKind::Interrupted].contains(&error.kind())
}

/// Serves a connection in a task of its own, if there is room.
fn open(port: &Arc<Port>, socket: TcpStream, peer: SocketAddr, admission: Admission) {
    // A socket for both families has IPv4 peers as IPv4-mapped addresses.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let (handshakes, registry, client) = (&port.handshakes, &port.registry, port.untrusted(peer.ip()));
    if !handshakes.accept(client.is_none()) {
        return;
    }
    // With the PROXY protocol, the peer is a trusted proxy, and the client is not known yet.
    let Some(registration) = registry.open(&port.args, handshakes.are_required(), client, admission) else {
        // A reset leaves nothing behind in the kernel.
        let _ = socket.set_zero_linger();
        return;
    };
    // Responses are written in one piece, so Nagle's algorithm would only delay them, and handshakes.
    let _ = socket.set_nodelay(true);
    tokio::spawn(connection::serve(port.clone(), registration, socket, peer));
}

async fn drain(port: &Port) {
    let registry = &port.registry;
    let wait_closed = async || {
        while !registry.is_empty() {
            registry.closed.notified().await
        }
    };
    registry.signal_all(ConnectionSignal::Drain);
    tokio::select! {
        _ = wait_closed() => return,
        _ = port.lifecycle.grace_period_over() => {}
    }
    tracing::warn!(server = port.handshakes.server, "grace period over; closing remaining connections");
    registry.signal_all(ConnectionSignal::Abort);
    let _ = timeout(ABORT_TIMEOUT, wait_closed()).await;
}
