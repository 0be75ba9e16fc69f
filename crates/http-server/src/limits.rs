//! Limits on connections, headers and HTTP/2 streams.

use std::{sync::Arc, time::Duration};

use futures_util::future::Abortable;
use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
};
use hyper_util::rt::TokioTimer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::connection_state::ConnectionState;

/// Maximum size of URL and headers in bytes; larger requests get 431.
pub(crate) const MAX_HEADER_BYTES: usize = 16 * 1024;

/// hyper's own limit on HTTP/1, also for unsent responses. Higher than ours for headers, so that most oversized requests
/// reach our code; `bare_errors` replaces the 431 that hyper sends to the others.
const HTTP1_BUFFER: usize = 24 * 1024;

/// h2's limit on the size of all header fields, each plus 32 bytes. h2 responds to larger requests itself.
const HEADER_LIST: u32 = 64 * 1024;

/// Maximum concurrent streams per HTTP/2 connection.
const MAX_STREAMS: u32 = 32;

/// Maximum bytes of request bodies that are received and not read, per HTTP/2 stream and connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 128 * 1024;

/// Maximum number of streams that a client may reset before the server has accepted them. If there are more, the
/// connection is closed. This protects against the HTTP/2 rapid reset attack.
const MAX_PENDING_RESETS: usize = 20;

/// Maximum number of streams that the server resets because of client errors. If there are more, the connection is
/// closed.
const MAX_ERROR_RESETS: usize = 100;

/// Maximum bytes that h2 takes from hyper for each stream before they are written.
const SEND_BUFFER: usize = 16 * 1024;

const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// File descriptors reserved for everything except this port's connections: stores, files, the admin port.
const RESERVED_DESCRIPTORS: u64 = 32;

/// Maximum number of handshakes (PROXY header and TLS) in progress per port. Their buffers are larger than those of idle
/// connections.
const MAX_HANDSHAKES: usize = 1024;

/// The configured number of connections, but not more than file descriptors are left for them.
pub(crate) fn max_connections(configured: usize) -> usize {
    configured.clamp(1, available_descriptors())
}

/// Maximum number of handshakes in progress: at most a quarter of the connections.
pub(crate) fn max_handshakes(max_connections: usize) -> usize {
    (max_connections / 4).clamp(1, MAX_HANDSHAKES)
}

/// Raises the file descriptor limit to the hard limit. Returns what is left for the connections of a port, at least 1.
fn available_descriptors() -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => before.maximum,
        Err(_) => before.current,
    };
    // `None` means unlimited.
    let free = now.unwrap_or(u64::from(u32::MAX)).saturating_sub(RESERVED_DESCRIPTORS);
    usize::try_from(free.clamp(1, u64::from(u32::MAX >> 4))).unwrap_or(1)
}

/// hyper's HTTP/1 server, with its limits. The timeouts are in `connection_state`.
pub(crate) fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // `half_close` lets a client close its side after it has sent a request. It also avoids a second read
    // buffer per request, which hyper would use to notice an early disconnect.
    builder.header_read_timeout(None).max_buf_size(HTTP1_BUFFER).half_close(true);
    builder
}

/// hyper's HTTP/2 server for one connection, with its limits.
pub(crate) fn http2(state: Arc<ConnectionState>) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor(state));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(HEADER_LIST)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Runs each HTTP/2 stream in a task of its own, which can be aborted.
///
/// hyper can't reset a stream whose client does not read, but h2 resets a stream when hyper's future is dropped. hyper
/// passes a stream to the executor right after it has called the service for it, so the state has its registration.
#[derive(Clone, Debug)]
pub(crate) struct StreamExecutor(Arc<ConnectionState>);

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        match self.0.take_stream() {
            Some(registration) => drop(tokio::spawn(Abortable::new(stream, registration))),
            None => drop(tokio::spawn(stream)),
        }
    }
}
