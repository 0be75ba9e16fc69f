//! A server that is bound to its port.

use std::{
    fmt, io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use http::StatusCode;
use hyper::server::conn::http1;
use poem::{Response, endpoint::BoxEndpoint};
use tokio::net::{TcpListener, TcpSocket};

use crate::{
    accept,
    args::{ListenerArgs, ServeArgs},
    handler::{ErrorResponder, RequestHandler, TrustedPeers},
    handshake::Handshakes,
    lifecycle::Lifecycle,
    limits,
    tls::Tls,
};

/// Maximum length of the kernel's accept queue. Large, so that a burst of new connections is served, not rejected.
const BACKLOG: u32 = 4096;

/// The size of a connection's send buffer in the kernel. Limits the memory of unread responses, and makes the progress
/// of a slow client visible: with the kernel's default, up to 4 MB of a response count as sent immediately.
const SEND_BUFFER: u32 = 64 * 1024;

/// A server that is bound to its port but does not accept connections yet.
pub struct Server {
    name: &'static str,
    listener: TcpListener,
    addr: SocketAddr,
    args: ServeArgs,
    handshakes: Handshakes,
    errors: ErrorResponder,
    trusted: TrustedPeers,
}

/// What the connections of a port have in common.
pub(crate) struct Port {
    /// The name in the log.
    pub(crate) name: &'static str,
    pub(crate) args: ServeArgs,
    pub(crate) max_handshakes: usize,
    pub(crate) http1: http1::Builder,
    pub(crate) handshakes: Handshakes,
    pub(crate) handler: Arc<RequestHandler>,
}

impl Server {
    /// Binds the port and logs the address. Port 0 picks a free port.
    pub async fn bind(name: &'static str, addr: SocketAddr, args: &ServeArgs) -> anyhow::Result<Self> {
        let listener = listen(addr).map_err(|error| explain(name, addr, error))?;
        let addr = listener.local_addr()?;
        tracing::info!(server = name, addr = %addr, "listening");
        let max_connections = limits::max_connections(args.max_connections);
        Ok(Self {
            name,
            listener,
            addr,
            args: ServeArgs { max_connections, ..args.clone() },
            handshakes: Handshakes::default(),
            errors: Arc::new(plain_error),
            trusted: Arc::new(|_| false),
        })
    }

    /// Sets how the server's own errors (400, 431, 500) look.
    pub fn errors(mut self, errors: ErrorResponder) -> Self {
        self.errors = errors;
        self
    }

    /// Sets the trusted proxies: their `X-Request-Id` and PROXY headers are used, and their connections count for no
    /// client network. By default there are none. Otherwise any client could write text of its choice to the log.
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
        let handler = RequestHandler {
            endpoint,
            errors: self.errors,
            lifecycle,
            local: self.addr,
            registry: Arc::default(),
            trusted: self.trusted,
        };
        let port = Port {
            name: self.name,
            max_handshakes: limits::max_handshakes(self.args.max_connections),
            args: self.args,
            http1: limits::http1(),
            handshakes: self.handshakes,
            handler: Arc::new(handler),
        };
        accept::run(Arc::new(port), self.listener).await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).field("addr", &self.addr).finish_non_exhaustive()
    }
}

fn plain_error(status: StatusCode, _code: &str, message: &str) -> Response {
    Response::builder().status(status).content_type("text/plain; charset=utf-8").body(message.to_owned())
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if addr.ip() == Ipv6Addr::UNSPECIFIED {
        // `[::]` serves IPv4, too, independent of the system's default. Fails on systems that can't, such as OpenBSD.
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
        io::ErrorKind::AddrInUse => ": another program uses this port; stop it or choose another port",
        io::ErrorKind::AddrNotAvailable => ": this machine does not have this address",
        io::ErrorKind::PermissionDenied => {
            ": ports below 1024 require root or CAP_NET_BIND_SERVICE; choose a higher port"
        }
        _ => "",
    };
    anyhow::Error::new(error).context(format!("{name} can't listen on {addr}{advice}"))
}
