//! A connection's socket, with or without TLS.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A socket, with or without TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {
    /// Whether TLS has negotiated HTTP/2 (ALPN). `None` if it has negotiated nothing.
    fn negotiated_http2(&self) -> Option<bool> {
        None
    }

    /// Ends a TLS session before the socket is closed, as far as that is possible without waiting. Otherwise the client
    /// can't distinguish the end from an attack that cuts the connection, and many report an error.
    fn end_session(&mut self) {}
}

impl Socket for TcpStream {}

impl Socket for TlsStream<TcpStream> {
    fn negotiated_http2(&self) -> Option<bool> {
        self.get_ref().1.alpn_protocol().map(|protocol| protocol == b"h2")
    }

    fn end_session(&mut self) {
        let (socket, session) = self.get_mut();
        session.send_close_notify();
        let mut close = Vec::new();
        // Fails if the socket is full or the client has closed it.
        let _ = session.write_tls(&mut close).and_then(|_| socket.try_write(&close));
    }
}
