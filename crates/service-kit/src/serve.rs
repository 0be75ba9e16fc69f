//! An HTTP server hardened against hostile and broken clients.
//!
//! Replaces poem's server, which lacks backoff when file descriptors run out (here in `accept`), timeouts for slow and
//! idle connections (`connection_state`), HTTP/2 and header limits (`limits`), and a shutdown that loses no request
//! (`connection`).

mod accept;
mod connection;
mod connection_state;
mod handler;
mod limits;
mod registry;
mod tracked_stream;

use std::{io, net::SocketAddr, sync::Arc};

use anyhow::anyhow;
use http::HeaderMap;
use poem::endpoint::BoxEndpoint;
use tokio::net::{TcpListener, TcpSocket};

use crate::{config::ServeArgs, lifecycle::Lifecycle};
use handler::RequestHandler;
use limits::Limits;

/// Maximum length of the kernel's accept queue. Large, so that a burst of new connections is served, not rejected.
const BACKLOG: u32 = 4096;

/// A bound port, ready to be served.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    listener: TcpListener,
    addr: SocketAddr,
    limits: Limits,
    docs_url: String,
    error_headers: HeaderMap,
}

impl Server {
    /// Binds the port and logs the address. Port 0 picks a free port.
    pub async fn bind(name: &'static str, addr: SocketAddr, args: &ServeArgs) -> anyhow::Result<Self> {
        let listener = listen(addr).map_err(|error| explain(name, addr, &error))?;
        let addr = listener.local_addr()?;
        tracing::info!(server = name, addr = %addr, "listening");
        Ok(Self {
            name,
            listener,
            addr,
            limits: Limits::new(args),
            docs_url: String::new(),
            error_headers: HeaderMap::new(),
        })
    }

    /// Sets the documentation URL that the server's own error responses (431, 500) link to.
    pub fn docs_url(mut self, docs_url: impl Into<String>) -> Self {
        self.docs_url = docs_url.into();
        self
    }

    /// Sets headers (CORS) for the server's own error responses.
    pub fn error_headers(mut self, headers: HeaderMap) -> Self {
        self.error_headers = headers;
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
            docs_url: self.docs_url,
            error_headers: self.error_headers,
            lifecycle: lifecycle.clone(),
            local: self.addr,
        };
        accept::run(self.name, self.listener, self.limits, Arc::new(handler), lifecycle).await;
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Allows a restart while old connections are still in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

fn explain(name: &str, addr: SocketAddr, error: &io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => ": another program uses this port; stop it or choose another port",
        io::ErrorKind::AddrNotAvailable => ": this machine does not have this address",
        io::ErrorKind::PermissionDenied => ": ports below 1024 require a privilege; choose a higher port",
        _ => "",
    };
    anyhow!("{name} can't listen on {addr}: {error}{advice}")
}
