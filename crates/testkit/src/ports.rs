//! Ports that stay reserved for a test: no other process gets them, even while nothing listens on them.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port on 127.0.0.1 that is reserved until this value is dropped.
///
/// Holds a socket that is bound but does not listen, so the kernel does not assign the port to anyone else. Because the
/// socket sets `SO_REUSEADDR`, a server that sets it as well (Redis and tokio do) can listen on the port, also after a
/// restart. While it is down, connections are refused instead of reaching another test's server.
#[derive(Debug)]
pub struct ReservedPort {
    addr: SocketAddr,
    _socket: TcpSocket,
}

impl ReservedPort {
    /// Reserves a free port.
    #[must_use]
    pub fn new() -> Self {
        let socket = reusable_socket();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("free port on loopback");
        let addr = socket.local_addr().expect("bound socket has an address");
        Self { addr, _socket: socket }
    }

    /// Address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    #[must_use]
    pub fn number(&self) -> u16 {
        self.addr.port()
    }

    /// Starts listening; connections are refused again as soon as the listener is dropped.
    ///
    /// # Panics
    /// If another listener on this port is still open.
    #[must_use]
    pub fn listen(&self) -> tokio::net::TcpListener {
        let socket = reusable_socket();
        socket.bind(self.addr).expect("no other listener on the reserved port");
        socket.listen(1024).expect("can listen on the reserved port")
    }
}

impl Default for ReservedPort {
    fn default() -> Self {
        Self::new()
    }
}

fn reusable_socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("new socket");
    socket.set_reuseaddr(true).expect("can set SO_REUSEADDR");
    socket
}
