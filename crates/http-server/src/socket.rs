//! A connection's socket, with or without TLS.

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd, RawFd},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    /// Boxed: the state of a TLS session has more than 1 kB.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Whether written bytes may wait in a buffer of this process.
    pub(crate) fn is_buffered(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether TLS has negotiated HTTP/2 (ALPN). `None` if it has negotiated nothing.
    pub(crate) fn negotiated_http2(&self) -> Option<bool> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol().map(|protocol| protocol == b"h2"),
        }
    }

    /// Ends a TLS session before the socket is closed, as far as that is possible without waiting. Otherwise the client
    /// can't distinguish the end from an attack that cuts the connection, and many report an error.
    pub(crate) fn end_session(&mut self) {
        if let Self::Tls(stream) = self {
            let (socket, session) = stream.get_mut();
            session.send_close_notify();
            // Fails if the socket is full or the client has closed it.
            let _ = session.write_tls(&mut WriteNow(socket));
        }
    }
}

/// Writes what the socket accepts immediately.
struct WriteNow<'a>(&'a TcpStream);

impl io::Write for WriteNow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Plain(socket) => socket.as_raw_fd(),
            Self::Tls(stream) => stream.get_ref().0.as_raw_fd(),
        }
    }
}

/// Calls a method of the socket's `AsyncRead` or `AsyncWrite`.
macro_rules! delegate {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).$method($($argument),*),
            Socket::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self.poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
