//! An HTTP server hardened against hostile and broken clients.
//!
//! Replaces poem's server, and adds:
//! - `proxy_protocol`, `proxy_header`: the client's address from a load balancer that forwards TCP
//! - `tls`, `certificates`: HTTPS, with certificates that can be replaced at any time
//! - `managed`: a certificate that the process obtains itself
//! - `accept`: a pause when file descriptors run out
//! - `connection_state`: timeouts for slow or idle connections and for stalled responses
//! - `limits`: limits on headers and HTTP/2 streams
//! - `unsent`: a limit on the memory of unsent responses
//! - `server_errors`: error bodies for malformed requests
//! - `connection`: a shutdown that loses no request

mod accept;
mod certificates;
mod connection;
mod connection_info;
mod connection_state;
mod expiry;
mod frames;
mod handler;
mod handshakes;
mod limits;
mod listener_args;
mod managed;
mod proxy_header;
mod proxy_protocol;
mod registry;
mod response_body;
mod server_errors;
mod socket;
mod streams;
mod tcp_info;
mod tls;
mod tracked_stream;
mod unsent;

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use http::HeaderMap;
use poem::endpoint::BoxEndpoint;
use tokio::net::{TcpListener, TcpSocket};

use crate::{config::ServeArgs, lifecycle::Lifecycle};
pub use certificates::LoadedCertificate;
pub use connection_info::ConnectionInfo;
pub use handler::CloseConnection;
use handler::{RequestHandler, TrustedPeers};
pub use listener_args::ListenerArgs;
pub use managed::{Challenges, ManagedCertificate};
pub use proxy_header::{ProxiedTls, ProxyHeader, ProxyHeaderError};
use proxy_protocol::ProxyProtocol;
use server_errors::ServerErrors;
pub use tls::{Tls, TlsArgs, TlsInfo, TlsVersion};

/// Maximum length of the kernel's accept queue. Large, so that a burst of new connections is served, not rejected.
const BACKLOG: u32 = 4096;

/// The size of a connection's send buffer in the kernel. Limits the memory of unread responses, and makes the progress
/// of a slow client visible: with the kernel's default, up to 4 MB of a response count as sent immediately.
const SEND_BUFFER: u32 = 64 * 1024;

/// A server that is bound to its port but does not accept connections yet.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    listener: TcpListener,
    addr: SocketAddr,
    args: ServeArgs,
    proxy_protocol: Option<ProxyProtocol>,
    tls: Option<Tls>,
    errors: ServerErrors,
    request_ids_from: TrustedPeers,
}

impl Server {
    /// Binds the port and logs the address. Port 0 picks a free port.
    pub async fn bind(name: &'static str, addr: SocketAddr, args: &ServeArgs) -> anyhow::Result<Self> {
        let listener = listen(addr).map_err(|error| explain(name, addr, error))?;
        let addr = listener.local_addr()?;
        tracing::info!(server = name, addr = %addr, "listening");
        let max_connections = limits::max_connections(args.max_connections);
        let args = ServeArgs { max_connections, ..args.clone() };
        Ok(Self {
            name,
            listener,
            addr,
            args,
            proxy_protocol: None,
            tls: None,
            errors: ServerErrors::default(),
            request_ids_from: TrustedPeers::none(),
        })
    }

    /// Sets the documentation URL that the server's own error responses (400, 431, 500, 503) link to.
    pub fn docs_url(mut self, docs_url: impl Into<String>) -> Self {
        self.errors.docs_url = docs_url.into();
        self
    }

    /// Sets additional headers, such as CORS headers, for the server's own error responses.
    pub fn error_headers(mut self, headers: HeaderMap) -> Self {
        self.errors.headers = headers;
        self
    }

    /// Sets the peers whose `X-Request-Id` header is used. By default, every request gets a new ID. Otherwise any client
    /// could write text of its choice to the log.
    pub fn request_ids_from(mut self, trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.request_ids_from = TrustedPeers(Box::new(trusted));
        self
    }

    /// With `--proxy-protocol`, requires a PROXY header from a trusted peer at the start of each connection, before TLS.
    pub fn proxy_protocol(
        mut self,
        args: &ListenerArgs,
        trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> Self {
        if args.proxy_protocol {
            self.args.max_connections = limits::max_connections_with_handshakes(self.args.max_connections);
            self.proxy_protocol = Some(ProxyProtocol::new(self.name, trusted));
        }
        self
    }

    /// Serves HTTPS instead of plain HTTP, if there are certificates.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        if tls.is_some() {
            self.args.max_connections = limits::max_connections_with_handshakes(self.args.max_connections);
        }
        self.tls = tls;
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
            errors: Arc::new(self.errors),
            lifecycle: lifecycle.clone(),
            local: self.addr,
            registry: Arc::default(),
            unsent: Arc::default(),
            request_ids_from: self.request_ids_from,
        };
        let handshake = accept::Handshake::new(self.name, self.proxy_protocol, self.tls);
        accept::run(self.name, self.listener, self.args, handshake, Arc::new(handler), lifecycle).await;
    }
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
