//! A socket that records reads and writes in the connection's state, and replaces bare errors of hyper.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::{
    bare_errors, connection_info::ConnectionInfo, connection_state::ConnectionState, handler::ErrorResponder,
    socket::Socket,
};

/// After a replaced error: maximum bytes to read and drop before the socket is closed. Closing a socket with unread bytes
/// resets the connection, and the client may lose the response.
const LINGER_BYTES: usize = 1 << 20;

/// The connection preface, which an HTTP/2 client sends first.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A socket and the state of its connection.
pub(crate) struct TrackedStream {
    socket: Socket,
    info: Arc<ConnectionInfo>,
    state: Arc<ConnectionState>,
    errors: ErrorResponder,
    /// Bytes that `detect_http2` has read and hyper has not.
    first_bytes: Bytes,
    /// An error after the first bytes. The next read returns it.
    read_error: Option<io::Error>,
    /// An error in place of one of hyper. Written before anything else.
    replacement: Bytes,
    /// How many bytes to read and drop before closing.
    linger: usize,
    is_shut_down: bool,
}

impl TrackedStream {
    pub(crate) fn new(
        socket: Socket,
        info: &Arc<ConnectionInfo>,
        state: Arc<ConnectionState>,
        errors: ErrorResponder,
    ) -> Self {
        Self {
            socket,
            info: info.clone(),
            state,
            errors,
            first_bytes: Bytes::new(),
            read_error: None,
            replacement: Bytes::new(),
            linger: 0,
            is_shut_down: false,
        }
    }

    /// Returns whether the client speaks HTTP/2: by what TLS has negotiated, otherwise by the first bytes.
    pub(crate) async fn detect_http2(&mut self) -> io::Result<bool> {
        if let Some(is_http2) = self.socket.negotiated_http2() {
            return Ok(is_http2);
        }
        self.first_bytes = read_preface(self).await?;
        Ok(*self.first_bytes == *HTTP2_PREFACE)
    }

    /// Returns the first bytes together with what the socket has received since. If hyper had to read a second time, it
    /// would reserve another 8 KiB, which doubles its read buffer and copies it.
    fn read_from_start(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) {
        buf.put_slice(&self.first_bytes.split_to(self.first_bytes.len().min(buf.remaining())));
        if buf.remaining() > 0
            && let Poll::Ready(Err(error)) = Pin::new(&mut self.socket).poll_read(cx, buf)
        {
            self.read_error = Some(error);
        }
    }

    /// Writes to the socket and records whether it accepted anything.
    fn write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let result = match slices {
            [slice] => Pin::new(&mut self.socket).poll_write(cx, slice),
            slices => Pin::new(&mut self.socket).poll_write_vectored(cx, slices),
        };
        self.state.on_write(result.is_pending());
        result
    }

    /// Writes `slices`, or an error in their place if they are a bare error of hyper. It is in the first slice, where
    /// hyper puts headers, and hyper writes it after all other responses.
    fn write_or_replace(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        ready!(self.write_replacement(cx))?;
        let first: &[u8] = slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice);
        if self.state.is_http2() || self.state.unsent() > 0 || !first.starts_with(b"HTTP/1.1 4") {
            return self.write(cx, slices);
        }
        let Some(replacement) = bare_errors::replacement(first, &self.errors) else {
            return self.write(cx, slices);
        };
        self.replacement = replacement.into();
        self.linger = LINGER_BYTES;
        // If the socket is full, the next call writes the rest.
        if let Poll::Ready(Err(error)) = self.write_replacement(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(first.len()))
    }

    fn write_replacement(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.replacement.has_remaining() {
            let bytes = self.replacement.clone();
            let written = ready!(self.write(cx, &[IoSlice::new(&bytes)]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.replacement.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and drops what the client is still sending. The header timeout ends it.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; 4096];
        while self.linger > 0 {
            let mut buf = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buf))?;
            match buf.filled().len() {
                0 => self.linger = 0,
                read => self.linger = self.linger.saturating_sub(read),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads up to 24 bytes. Stops earlier if they can't be HTTP/2's preface, or at the end of the stream.
async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let mut bytes = [0; HTTP2_PREFACE.len()];
    let mut len = 0;
    while len < bytes.len() && HTTP2_PREFACE.starts_with(&bytes[..len]) {
        match stream.read(&mut bytes[len..]).await? {
            0 => break,
            read => len += read,
        }
    }
    Ok(Bytes::copy_from_slice(&bytes[..len]))
}

impl Drop for TrackedStream {
    fn drop(&mut self) {
        // hyper shuts down neither a connection without a request nor one that is evicted. A response that is cut off must
        // not look complete.
        if !self.is_shut_down && !self.state.is_busy() {
            self.socket.end_session();
        }
        self.info.forget_socket();
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first_bytes.is_empty() {
            self.read_from_start(cx, buf);
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = self.read_error.take() {
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.state.on_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_or_replace(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_replacement(cx))?;
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        if self.socket.is_buffered() {
            // TLS accepts bytes that the socket has not accepted yet.
            self.state.set_write_blocked(result.is_pending());
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_replacement(cx))?;
        if !self.is_shut_down {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            self.is_shut_down = true;
        }
        self.poll_linger(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_or_replace(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsRawFd, time::Duration};

    use tokio::{
        io::{AsyncWriteExt, duplex},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// What `read_preface` reads from a client that sends `bytes` one at a time, then closes.
    async fn read_preface_of(bytes: &[u8]) -> Bytes {
        let (mut client, mut server) = duplex(1);
        let send = async move {
            // Fails when the server has read enough.
            let _ = client.write_all(bytes).await;
        };
        let read = async move { read_preface(&mut server).await.expect("readable") };
        tokio::join!(send, read).1
    }

    #[tokio::test]
    async fn reading_stops_once_bytes_differ_from_the_preface() {
        for (sent, read) in
            [("GET /", "G"), ("PUT /", "PU"), ("PRI * HTTP/1.1", "PRI * HTTP/1"), ("PR", "PR"), ("", "")]
        {
            assert_eq!(read_preface_of(sent.as_bytes()).await, read, "{sent}");
        }
    }

    #[tokio::test]
    async fn preface_in_single_bytes_is_read_to_its_end() {
        let sent = [HTTP2_PREFACE.as_slice(), b"\0\0\0\x04"].concat();
        assert_eq!(*read_preface_of(&sent).await, *HTTP2_PREFACE);
    }

    #[tokio::test]
    async fn request_that_arrives_in_one_piece_is_read_in_one_piece() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let mut client = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
        let request = [b'G'; 100];
        client.write_all(&request).await.expect("send");
        let (socket, peer) = listener.accept().await.expect("accept");
        let info = ConnectionInfo::new(peer, None, None, socket.as_raw_fd());
        let state = ConnectionState::new(Arc::default(), Duration::from_secs(1), false);
        let errors: ErrorResponder = Arc::new(|_, _, _| poem::Response::default());
        let mut stream = TrackedStream::new(Socket::Plain(socket), &info, Arc::new(state), errors);
        assert!(!stream.detect_http2().await.expect("readable"));
        let mut read = [0; 200];
        assert_eq!(stream.read(&mut read).await.expect("readable"), request.len());
        assert_eq!(read[..request.len()], request);
    }
}
