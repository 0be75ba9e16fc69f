//! Limits on connections, headers and HTTP/2 streams.

use std::{sync::Arc, time::Duration};

use futures_util::future::Abortable;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::connection_state::ConnectionState;

/// Maximum size of URL and headers in bytes, and number of headers, which is also hyper's on HTTP/1. More get 431.
pub(crate) const MAX_HEADER_BYTES: usize = 16 * 1024;
pub(crate) const MAX_HEADERS: usize = 100;

/// File descriptors reserved for everything except this port's connections: stores, files, the admin port.
const RESERVED_DESCRIPTORS: u64 = 32;

/// Maximum handshakes in progress per port. Their buffers are larger than those of idle connections.
pub(crate) const MAX_HANDSHAKES: usize = 1024;

/// The configured number of connections, but not more than file descriptors are left for them. Raises their limit to the
/// hard limit.
pub(crate) fn max_connections(configured: usize) -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let now = setrlimit(Resource::Nofile, raised).map_or(before.current, |()| before.maximum);
    // `None` means unlimited.
    let free = now.unwrap_or(u64::from(u32::MAX)).saturating_sub(RESERVED_DESCRIPTORS);
    configured.clamp(1, usize::try_from(free).unwrap_or(usize::MAX).max(1))
}

/// hyper's HTTP/1 server, with its limits. The timeouts are in `connection_state`.
pub(crate) fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .header_read_timeout(None)
        // Higher than our limit, so that most oversized requests reach our code; `handler` replaces the 431 that hyper
        // sends to the others.
        .max_buf_size(24 * 1024)
        // Lets a client close its side after it has sent a request. It also avoids a second read buffer per request, which
        // hyper would use to notice an early disconnect.
        .half_close(true);
    builder
}

/// hyper's HTTP/2 server for one connection, with its limits.
pub(crate) fn http2(state: Arc<ConnectionState>) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor(state));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(32)
        // All header fields, each plus 32 bytes. h2 responds to larger requests itself.
        .max_header_list_size(64 * 1024)
        // Request bodies that are received and not read.
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(128 * 1024)
        // Streams that a client resets before the server has accepted them ("rapid reset"), and streams that the server
        // resets because of client errors ("MadeYouReset"), which include those above the limit that a client opens before
        // it knows the limit. If there are more, the connection is closed.
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(500)
        // What h2 takes from hyper for each stream before it is written.
        .max_send_buf_size(16 * 1024)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10));
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
        let registration = self.0.lock().next_stream.take();
        match registration {
            Some(registration) => drop(tokio::spawn(Abortable::new(stream, registration))),
            None => drop(tokio::spawn(stream)),
        }
    }
}
