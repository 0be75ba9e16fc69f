//! Ports that nobody else on this machine gets, also while their server is down.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of 127.0.0.1 that is ours until this is dropped.
///
/// The kernel gives a port that is bound but not listened on to nobody else, and lets a server that sets
/// `SO_REUSEADDR` (Redis and tokio both do) listen on it. So a restarted server finds its port free, and a
/// connection to a port whose server is down is refused rather than answered by some other test's server.
#[derive(Debug)]
pub struct ReservedPort {
    addr: SocketAddr,
    _holder: TcpSocket,
}

impl ReservedPort {
    /// Takes a free port.
    #[must_use]
    pub fn new() -> Self {
        let holder = reusable_socket();
        holder.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port on loopback");
        let addr = holder.local_addr().expect("a bound socket has an address");
        Self { addr, _holder: holder }
    }

    /// The address, for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.addr.port()
    }

    /// Starts listening; connections are refused again as soon as the listener is dropped.
    ///
    /// # Panics
    /// When another listener on this port is still open.
    #[must_use]
    pub fn listen(&self) -> tokio::net::TcpListener {
        let socket = reusable_socket();
        socket.bind(self.addr).expect("the port is reserved for us");
        socket.listen(1024).expect("nobody else listens on a reserved port")
    }
}

impl Default for ReservedPort {
    fn default() -> Self {
        Self::new()
    }
}

fn reusable_socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("SO_REUSEADDR on a new socket");
    socket
}
