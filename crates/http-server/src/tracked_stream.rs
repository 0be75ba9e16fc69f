//! A socket that records reads and writes in the connection's state, and replaces bare errors of hyper.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::{mem, pin::Pin, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::coop;

use crate::header_blocks::{HeaderBlocks, PREFACE};
use crate::{connection_info::ConnectionInfo, connection_state::ConnectionState, error::replace_bare_error};
use crate::{port::Port, tls::Socket};

/// After a replaced error: maximum bytes to read and drop before the socket is closed. Closing a socket with unread bytes
/// resets the connection, and the client may lose the response.
const LINGER_BYTES: usize = 1 << 20;

/// Bytes of HTTP/2 input per unit of tokio's budget. A turn of a task has 128 units, so it reads at most 4 KiB before other
/// tasks have theirs. h2 needs the most time per byte for SETTINGS that change the window of each stream.
const PART: usize = 32;

pub(crate) struct TrackedStream {
    socket: Box<dyn Socket>,
    info: Arc<ConnectionInfo>,
    state: Arc<ConnectionState>,
    port: Arc<Port>,
    /// What an HTTP/2 client has sent.
    header_blocks: Option<HeaderBlocks>,
    /// Bytes that `detect_http2` has read and hyper has not.
    first_bytes: Bytes,
    /// How many bytes to read and drop before closing.
    linger: usize,
    /// Whether a response waits for other tasks before it is written.
    ///
    /// Requests that were charged together continue together. Without waiting, the thread alternates between creating and
    /// writing responses, and each of the two displaces the other's code from the CPU's caches. With several threads, an
    /// idle one would take over the connection. HTTP/2 already writes the responses of its streams together.
    defers_writes: bool,
    /// Set once the bytes being written have waited, or need not. Reset by a flush.
    has_deferred: bool,
}

impl TrackedStream {
    pub(crate) fn new(
        socket: Box<dyn Socket>,
        info: &Arc<ConnectionInfo>,
        state: &Arc<ConnectionState>,
        port: &Arc<Port>,
    ) -> Self {
        Self {
            socket,
            info: info.clone(),
            state: state.clone(),
            port: port.clone(),
            header_blocks: None,
            first_bytes: Bytes::new(),
            linger: 0,
            defers_writes: Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread,
            has_deferred: false,
        }
    }

    /// Returns whether the client speaks HTTP/2: by what TLS has negotiated, otherwise by the first bytes.
    pub(crate) async fn detect_http2(&mut self) -> io::Result<bool> {
        let is_http2 = match self.socket.negotiated_http2() {
            Some(is_http2) => is_http2,
            None => {
                self.first_bytes = read_preface(self).await?;
                *self.first_bytes == *PREFACE
            }
        };
        self.defers_writes &= !is_http2;
        self.header_blocks = is_http2.then(HeaderBlocks::new);
        Ok(is_http2)
    }

    /// Writes to the socket and records whether it accepted anything.
    fn write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let result = match slices {
            [slice] => Pin::new(&mut self.socket).poll_write(cx, slice),
            slices => Pin::new(&mut self.socket).poll_write_vectored(cx, slices),
        };
        self.state.lock().on_write(result.is_pending());
        result
    }

    /// Records what was read, and closes connections at a limit. Fails if this one is among them: nothing of it is decoded.
    fn on_read(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        let blocks = self.header_blocks.as_mut().map(|blocks| blocks.read(bytes));
        self.state.update(|activity| activity.on_read(bytes.len(), blocks));
        // tokio counts one unit per read, whatever its size: 128 large reads can keep h2 busy for a second.
        let parts = if blocks.is_some() { bytes.len() / PART } else { 0 };
        for _ in 0..parts {
            let _ = coop::poll_proceed(cx).map(|part| part.made_progress());
        }
        match self.port.registry.relieve(&self.state) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

/// Reads up to 24 bytes. Stops earlier if they can't be HTTP/2's preface, or at the end of the stream.
async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let mut bytes = BytesMut::with_capacity(PREFACE.len()).limit(PREFACE.len());
    while bytes.has_remaining_mut() && PREFACE.starts_with(bytes.get_ref()) {
        if stream.read_buf(&mut bytes).await? == 0 {
            break;
        }
    }
    Ok(bytes.into_inner().freeze())
}

impl Drop for TrackedStream {
    fn drop(&mut self) {
        // hyper shuts down neither a silent nor an evicted connection. A response that is cut off must not look complete.
        if self.state.lock().is_idle() {
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
        let before = buf.filled().len();
        let length = self.first_bytes.len().min(buf.remaining());
        buf.put_slice(&self.first_bytes.split_to(length));
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        // Together with what has arrived since: if hyper had to read a second time, it would reserve another 8 KiB, which
        // doubles its read buffer and copies it. After an error, the next read fails or finds the end.
        if length == 0 {
            ready!(read)?;
        }
        let bytes = &buf.filled()[before..];
        Poll::Ready(if bytes.is_empty() { Ok(()) } else { self.on_read(cx, bytes) })
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    /// Writes an error in place of a bare error of hyper. It is in the first slice, where hyper puts headers.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.defers_writes && !mem::replace(&mut self.has_deferred, true) && self.state.port_is_handling()
        {
            // hyper may have dropped the response already, and an idle connection can be evicted.
            self.state.lock().on_write(true);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let first: &[u8] = slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice);
        let replacement = replace_bare_error(first, &self.port.errors);
        // hyper writes it after all other responses.
        let Some(replacement) = replacement.filter(|_| !self.state.lock().has_unsent_response()) else {
            return self.write(cx, slices);
        };
        self.linger = LINGER_BYTES;
        // All other responses are written, so there is room for it, unless the client has not read them.
        match ready!(self.write(cx, &[IoSlice::new(&replacement)]))? {
            written if written == replacement.len() => Poll::Ready(Ok(first.len())),
            _ => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_deferred = false;
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        // TLS accepts bytes that the socket has no room for.
        self.state.lock().write_blocked = result.is_pending();
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
        // Reads and drops what the client is still sending. The header timeout ends it.
        while self.linger > 0 {
            let mut bytes = [0; 4096];
            let mut buf = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                break;
            }
            self.linger = self.linger.saturating_sub(buf.filled().len());
        }
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsRawFd, sync::Mutex};

    use futures_util::FutureExt;
    use tokio::{
        io::{AsyncWriteExt, duplex},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{connection_state::UnfinishedRequest, limits::ServeArgs};

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

    /// A client and its connection to a port.
    async fn connect(port: &Arc<Port>) -> (TcpStream, TrackedStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
        let (socket, peer) = listener.accept().await.expect("accept");
        socket.writable().await.expect("writable");
        let open = Mutex::new(Some(socket.as_raw_fd()));
        let info = Arc::new(ConnectionInfo { peer, proxied: None, tls: None, socket: open });
        (client, TrackedStream::new(Box::new(socket), &info, &state(port), port))
    }

    /// The state of a connection.
    fn state(port: &Port) -> Arc<ConnectionState> {
        Arc::new(ConnectionState::new(port.registry.port.clone(), ServeArgs::default(), false))
    }

    /// Writes a response. Returns whether the first poll does it; otherwise the second must.
    async fn is_written_at_once(stream: &mut TrackedStream) -> bool {
        let state = stream.state.clone();
        let mut write = std::pin::pin!(stream.write_all(b"response"));
        let at_once = write.as_mut().now_or_never().is_some_and(|written| written.is_ok());
        if !at_once {
            assert!(!state.lock().is_idle(), "a connection that waits must not be evicted");
            write.now_or_never().expect("the second poll does not wait").expect("written");
        }
        assert!(state.lock().is_idle());
        at_once
    }

    fn idle_port() -> Arc<Port> {
        Arc::new(Port::new("test", ([127, 0, 0, 1], 0).into(), &ServeArgs::default()))
    }

    /// A port with a request that is being handled until it is dropped.
    fn busy_port() -> (Arc<Port>, UnfinishedRequest) {
        let port = idle_port();
        let mut request = state(&port).on_request(0, 0);
        assert!(request.begin());
        (port, request)
    }

    #[tokio::test]
    async fn each_response_waits_once_while_another_request_is_handled() {
        let (port, request) = busy_port();
        let (_client, mut stream) = connect(&port).await;
        for _ in 0..2 {
            assert!(!is_written_at_once(&mut stream).await);
            stream.flush().await.expect("flushed");
        }
        drop(request);
        assert!(is_written_at_once(&mut stream).await);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn response_does_not_wait_on_a_multi_thread_runtime() {
        let (port, _request) = busy_port();
        assert!(is_written_at_once(&mut connect(&port).await.1).await);
    }

    #[tokio::test]
    async fn http2_does_not_wait() {
        let (port, _request) = busy_port();
        let (mut client, mut stream) = connect(&port).await;
        client.write_all(PREFACE).await.expect("send");
        assert!(stream.detect_http2().await.expect("readable"));
        assert!(is_written_at_once(&mut stream).await);
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
        let sent = [PREFACE.as_slice(), b"\0\0\0\x04"].concat();
        assert_eq!(*read_preface_of(&sent).await, *PREFACE);
    }

    #[tokio::test]
    async fn request_that_arrives_in_one_piece_is_read_in_one_piece() {
        let (mut client, mut stream) = connect(&idle_port()).await;
        let request = [b'G'; 100];
        client.write_all(&request).await.expect("send");
        assert!(!stream.detect_http2().await.expect("readable"));
        let mut read = [0; 200];
        assert_eq!(stream.read(&mut read).await.expect("readable"), request.len());
        assert_eq!(read[..request.len()], request);
    }
}
