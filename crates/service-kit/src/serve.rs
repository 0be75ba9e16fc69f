//! Serving that withstands what the network does to it.
//!
//! Why not poem's own server: `accept` (descriptors run out), `activity` (slow and idle connections),
//! `limits` (HTTP/2 and header bounds) and `connection` (stopping without losing a request) each close
//! a hole that was measured there.

mod accept;
mod activity;
mod answer;
mod connection;
mod limits;
mod roster;
mod stream;

use std::{io, net::SocketAddr, sync::Arc};

use anyhow::anyhow;
use http::HeaderMap;
use poem::endpoint::BoxEndpoint;
use tokio::net::{TcpListener, TcpSocket};

use crate::{config::ServeArgs, lifecycle::Lifecycle};
use answer::Answers;
use limits::Limits;

/// Connections that may wait to be accepted: a crowd that comes at once is served, not turned away.
const BACKLOG: u32 = 4096;

/// A port that is open and waits to be served.
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
    /// Opens the port and logs where it listens (port 0 takes any free one).
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

    /// Where the documentation is that the server's own errors (431, 500) link to.
    pub fn docs_url(mut self, docs_url: impl Into<String>) -> Self {
        self.docs_url = docs_url.into();
        self
    }

    /// Headers (CORS) that the server's own errors carry.
    pub fn error_headers(mut self, headers: HeaderMap) -> Self {
        self.error_headers = headers;
        self
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until the lifecycle stops, and returns when all is finished or the grace is over.
    pub async fn serve(self, endpoint: BoxEndpoint<'static>, lifecycle: Lifecycle) {
        let answers = Answers {
            endpoint,
            docs_url: self.docs_url,
            error_headers: self.error_headers,
            lifecycle: lifecycle.clone(),
            local: self.addr,
        };
        accept::run(self.name, self.listener, self.limits, Arc::new(answers), lifecycle).await;
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As every server does: a restart must not wait for the kernel to forget old connections.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

fn explain(name: &str, addr: SocketAddr, error: &io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            ": another program listens there already; stop it or choose another address"
        }
        io::ErrorKind::AddrNotAvailable => ": this machine has no such address",
        io::ErrorKind::PermissionDenied => ": ports below 1024 need a privilege; choose a higher one",
        _ => "",
    };
    anyhow!("{name} can not listen on {addr}: {error}{advice}")
}
