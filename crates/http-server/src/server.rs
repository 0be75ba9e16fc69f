//! A port: binds it, accepts its connections, makes room for new ones, and drains them at shutdown.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{sync::Arc, time::Duration};

use base::log_throttle::LogThrottle;
use futures_util::FutureExt;
use poem::endpoint::BoxEndpoint;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{unconstrained, yield_now};
use tokio::time::{sleep, timeout};

use crate::limits::{ListenerArgs, ServeArgs};
use crate::registry::{Admission, ConnectionStats};
use crate::{connection, error::ErrorResponder, lifecycle::Lifecycle, port::Port, tls::Tls};

/// The size of a connection's send buffer in the kernel. Limits the memory of unread responses, and makes the progress
/// of a slow client visible: with the kernel's default, up to 4 MB of a response count as sent immediately.
const SEND_BUFFER: u32 = 64 * 1024;

/// Maximum connections that are accepted before their tasks and others have their turn.
const ACCEPTS_PER_TURN: usize = 32;

/// Connections in a row, without an empty queue in between, that are a flood.
const FLOOD: usize = 256;

/// A server that is bound to its port but does not accept connections yet.
pub struct Server {
    listener: TcpListener,
    port: Port,
}

impl Server {
    /// Binds the port and logs the address. Port 0 picks a free port.
    pub async fn bind(name: &'static str, addr: SocketAddr, args: &ServeArgs) -> anyhow::Result<Self> {
        let listener = listen(addr).map_err(|error| explain(name, addr, error))?;
        let addr = listener.local_addr()?;
        tracing::info!(server = name, addr = %addr, "listening");
        Ok(Self { listener, port: Port::new(name, addr, args) })
    }

    /// Sets the format of the server's own errors (400, 431).
    pub fn errors(mut self, errors: ErrorResponder) -> Self {
        self.port.errors = errors;
        self
    }

    /// Sets the trusted proxies: their `X-Request-Id` and PROXY headers are used, and their connections count for no
    /// client network. By default, none: any client could otherwise write text of its choice to the log.
    pub fn trust(mut self, trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.port.trusted = Arc::new(trusted);
        self
    }

    /// With `--proxy-protocol`, requires a PROXY header from a trusted peer at the start of each connection, before TLS.
    pub fn proxy_protocol(mut self, args: &ListenerArgs) -> Self {
        self.port.proxy_protocol = args.proxy_protocol;
        self
    }

    /// Serves HTTPS instead of plain HTTP, if there are certificates.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.port.tls = tls;
        self
    }

    /// The address the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.port.addr
    }

    /// The number of the port's connections, for metrics.
    pub fn stats(&self) -> ConnectionStats {
        self.port.registry.clone()
    }

    /// Serves until shutdown. Returns when all connections are closed or the grace period is over.
    pub async fn serve(self, endpoint: BoxEndpoint<'static>, lifecycle: Lifecycle) {
        let Self { listener, mut port } = self;
        (port.endpoint, port.lifecycle) = (endpoint, lifecycle);
        let port = Arc::new(port);
        let registry = &port.registry;
        tokio::select! {
            biased;
            _ = port.lifecycle.drain_delay_over() => {}
            _ = accept_all(&port, &listener) => {}
        }
        registry.lock().drain_all();
        tokio::select! {
            _ = port.lifecycle.grace_period_over() => {}
            _ = accept_rest(&port, listener) => {}
        }
        registry.lock().drain_all();
        tokio::select! {
            _ = registry.all_closed() => return,
            _ = port.lifecycle.grace_period_over() => {}
        }
        tracing::warn!(server = port.name, "grace period over; closing remaining connections");
        registry.lock().close_all();
        // Their tasks need a moment to drop them.
        let _ = timeout(Duration::from_secs(1), registry.all_closed()).await;
    }
}

/// Listens on an address. `[::]` serves IPv4, too, and becomes `0.0.0.0` on a system without IPv6.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    listen_on(addr).or_else(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) if addr.ip() == Ipv6Addr::UNSPECIFIED => {
            listen_on((Ipv4Addr::UNSPECIFIED, addr.port()).into())
        }
        _ => Err(error),
    })
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
    // The length of the accept queue. Large, so that a burst of new connections is served, not rejected.
    socket.listen(4096)
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
            // The client disconnected before its connection was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if let Some(occurrences) = log.allow() {
                    tracing::warn!(server = port.name, %error, occurrences, "can't accept connections; retrying");
                }
                if [Some(libc::EMFILE), Some(libc::ENFILE)].contains(&error.raw_os_error()) {
                    port.registry.lock().free_descriptor();
                }
                // File descriptors or memory have run out, so an immediate retry would fail, too.
                sleep(Duration::from_millis(50)).await;
            }
        }
        if burst % ACCEPTS_PER_TURN == 0 {
            yield_now().await;
        }
    }
}

/// Accepts the connections that are in the kernel's queue at the shutdown, regardless of limits: they are established for
/// their clients, and closing the listener would reset them.
async fn accept_rest(port: &Arc<Port>, listener: TcpListener) -> io::Result<()> {
    // Not tokio's `accept`, which knows of a connection only after the next turn of its driver.
    let listener = listener.into_std()?;
    // Ends the growth of the queue.
    SockRef::from(&listener).listen(0)?;
    loop {
        match listener.accept() {
            Ok((socket, peer)) => {
                socket.set_nonblocking(true)?;
                open(port, TcpStream::from_std(socket)?, peer, Admission::Always);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            // Without a file descriptor: when a connection closes, there is one.
            Err(_) => port.registry.closed.notified().await,
        }
    }
}

/// Serves a connection in a task of its own, if there is room.
fn open(port: &Arc<Port>, socket: TcpStream, peer: SocketAddr, admission: Admission) {
    // A socket for both families has IPv4 peers as IPv4-mapped addresses.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let client = port.untrusted(peer.ip());
    if !port.accepts(client.is_none()) {
        return;
    }
    // With the PROXY protocol, the peer is a trusted proxy, and the client is not known yet.
    let has_handshake = port.proxy_protocol || port.tls.is_some();
    let Some(registration) = port.registry.admit(client, has_handshake, admission) else {
        // A reset leaves nothing behind in the kernel.
        let _ = socket.set_zero_linger();
        return;
    };
    // Responses are written in one piece, so Nagle's algorithm would only delay them, and handshakes.
    let _ = socket.set_nodelay(true);
    tokio::spawn(connection::serve(port.clone(), registration, socket, peer));
}
